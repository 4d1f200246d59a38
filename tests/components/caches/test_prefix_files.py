from __future__ import annotations

import json
import logging
import os
import shutil
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from genkit.components.caches import Dynamic, Prefix
from genkit.components.caches.prefix_files import PrefixFiles
from genkit.components.caches.prefix_store import Entry, on_host
from genkit.components.stopping import MaxNewTokens
from genkit.errors import UnsupportedError
from genkit.pipeline import Pipeline
from genkit.testing import ScriptedModel, TinyModel


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GENKIT_HOME", str(tmp_path / "home"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the prefixes of `TinyModel()` are."""
    return tmp_path / "home" / "prefixes" / TinyModel().fingerprint()


def ids(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count,), generator=generator).tolist()


def answer(prompt: list[int], cache: Any = None, model: Any = None) -> list[int]:
    """By default in a new process, as far as the cache can know."""
    cache = Prefix(disk=True) if cache is None else cache
    pipeline = Pipeline(model or TinyModel(), cache=cache, stop_criteria=[MaxNewTokens(limit=3)])
    tokens: list[int] = pipeline.generate(prompt).token_ids
    return tokens


def reused(prompt: list[int], model: Any = None) -> int:
    """How many tokens a new process does not have to feed; the answer is that of a cold run."""
    cache, model = Prefix(disk=True), model or TinyModel()
    assert answer(prompt, cache, model) == answer(prompt, Dynamic(), model)
    return cache.stats(model).num_reused_tokens


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_another_process_goes_on(folder: Path) -> None:
    answer(ids(20))
    assert len(names(folder)) == 1
    assert reused([*ids(20), 5, 6]) == 20
    assert reused(ids(20)[:7]) == 6
    assert reused([1, 2, 3]) == 0


def test_a_file_says_what_it_is(folder: Path) -> None:
    answer(ids(20))
    [path] = folder.iterdir()
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    metadata = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]
    assert metadata["format"] == "genkit prefix 1"
    assert metadata["fingerprint"] == folder.name
    tensors = load_file(path)
    assert tensors["ids"].tolist()[:20] == ids(20)
    assert {name: list(t.shape) for name, t in tensors.items()} == {
        "ids": [22], "keys.0": [1, 2, 22, 6], "values.0": [1, 2, 22, 6],
        "keys.1": [1, 2, 22, 6], "values.1": [1, 2, 22, 6],
    }  # fmt: skip


def test_what_is_in_memory_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, model = Prefix(disk=True), TinyModel()
    answer(ids(20), cache, model)

    def read(*_: object) -> Any:
        raise AssertionError("the file was read")

    monkeypatch.setattr(PrefixFiles, "_load", read)
    answer([*ids(20), 5], cache, model)
    assert cache.stats(model).num_reused_tokens == 20


def test_what_was_read_is_in_memory() -> None:
    answer(ids(20))
    cache, model = Prefix(disk=True), TinyModel()
    answer([*ids(10), 5], cache, model)
    assert cache.stats(model)[:2] == (1, 10)
    assert cache.stats(model).num_entries == 2  # what was read, and what came of it


def test_other_weights_precision_or_use_are_another_model(tmp_path: Path) -> None:
    answer(ids(20))
    for model in (
        TinyModel(seed=1),
        TinyModel(dtype=torch.float64),
        TinyModel(window=8),
        TinyModel(positions="learned"),
    ):
        assert reused(ids(20), model) == 0
        assert reused(ids(20), model) == 19
    assert len(names(tmp_path / "home" / "prefixes")) == 5


def test_changed_weights_have_another_folder(tmp_path: Path) -> None:
    cache, model = Prefix(disk=True), TinyModel()
    answer(ids(20), cache, model)
    model.head.mul_(1.5)
    answer(ids(20), cache, model)
    assert cache.stats(model).num_reused_tokens == 0
    assert len(names(tmp_path / "home" / "prefixes")) == 2


def test_a_run_during_which_weights_change_is_not_stored(folder: Path) -> None:
    model = TinyModel()
    steps = Pipeline(model, cache=Prefix(disk=True)).decode(ids(20))
    next(steps)
    model.head.mul_(1.5)
    steps.close()
    assert not folder.exists()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_a_value(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


def change_an_id(path: Path) -> None:
    rewrite(path, ids=lambda tensor: tensor + (torch.arange(len(tensor)) == 15))


def change_keys(path: Path) -> None:
    rewrite(path, **{"keys.1": lambda tensor: tensor * 2})


def claim_another_format(path: Path) -> None:
    rewrite(path, _metadata={"format": "genkit prefix 0"})


def claim_another_model(path: Path) -> None:
    rewrite(path, _metadata={"fingerprint": "0" * 64})


def claim_nothing(path: Path) -> None:
    save_file(load_file(path), path)


def rewrite(path: Path, _metadata: dict[str, str] | None = None, **changes: Any) -> None:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    metadata = json.loads(data[8 : 8 + length])["__metadata__"]
    tensors = load_file(path)
    for name, change in changes.items():
        tensors[name] = change(tensors[name])
    save_file(tensors, path, metadata | (_metadata or {}))


@pytest.mark.parametrize(
    "damage",
    [truncate, empty, flip_a_value, change_an_id, change_keys, claim_another_format,
     claim_another_model, claim_nothing],
)  # fmt: skip
def test_a_damaged_file_is_never_used(
    folder: Path, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    answer(ids(20))
    [path] = folder.iterdir()
    damage(path)
    data = path.read_bytes()
    cache, model = Prefix(disk=True), TinyModel()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert answer([*ids(20), 5], cache, model) == answer([*ids(20), 5], Dynamic())
    assert cache.stats(model).num_reused_tokens == 20  # the second time, of the first
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert str(path) in caplog.text
    assert path.read_bytes() == data


def test_the_next_best_file_is_used(folder: Path) -> None:
    answer(ids(20))
    [good] = folder.iterdir()
    answer([*ids(10), 1, 2, 3, 4])
    [other] = set(folder.iterdir()) - {good}
    flip_a_value(other)
    assert reused([*ids(10), 1, 2, 3, 4, 5]) == 10


def test_a_good_file_takes_the_place_of_a_damaged_one(folder: Path) -> None:
    answer(ids(20))
    [path] = folder.iterdir()
    truncate(path)
    answer(ids(20))
    assert names(folder) == [path.name]
    assert reused([*ids(20), 5]) == 20


def test_files_of_others_are_left_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    save_file({"weight": torch.ones(3)}, folder / "model.safetensors")
    (folder / "folder.safetensors").mkdir()
    cache, model = Prefix(disk=True, max_bytes=6_000), TinyModel()
    for seed in range(3):
        answer(ids(20, seed=seed), cache, model)
    assert "model.safetensors: no prefix of this model" in caplog.text
    assert len(caplog.records) == 1
    assert {"notes.txt", "model.safetensors", "folder.safetensors"} < set(names(folder))
    assert len(names(folder)) == 4


def test_a_file_under_the_name_of_another(folder: Path) -> None:
    cache, model = Prefix(disk=True), TinyModel()
    answer(ids(20), cache, model)
    [first] = folder.iterdir()
    files = cache._shelf(model).files
    assert files is not None
    assert files.covers(on_host(torch.tensor(ids(20))))  # so its ids are known
    before = set(folder.iterdir())
    answer(ids(20, seed=1))
    [second] = set(folder.iterdir()) - before
    shutil.copy(second, first)
    assert files.find(on_host(torch.tensor(ids(20)))) is None
    found = files.find(on_host(torch.tensor(ids(20, seed=1))))
    assert found is not None and found.length == 20


def test_a_text_that_goes_on_takes_the_place_of_its_beginning(folder: Path) -> None:
    answer(ids(20))
    old = names(folder)
    answer([*ids(20), *answer(ids(20), Dynamic()), 1])
    assert len(names(folder)) == 1
    assert names(folder) != old
    kept = names(folder)
    answer(ids(20)[:7])  # a beginning, though with another answer: both are wanted
    assert set(kept) < set(names(folder))


def test_what_was_used_first_makes_room(folder: Path) -> None:
    answer(ids(20))
    [path] = folder.iterdir()
    budget = int(2.5 * path.stat().st_size)
    by_seed = {0: path}
    for seed in (1, 2, 3):
        if seed == 2:
            assert reused([*ids(20), 1]) == 20  # the first is used again, and superseded by nothing
            for extra in set(folder.iterdir()) - set(by_seed.values()):
                extra.unlink()
        before = set(folder.iterdir())
        answer(ids(20, seed=seed), Prefix(disk=True, max_bytes=budget))
        [by_seed[seed]] = set(folder.iterdir()) - before
    assert set(folder.iterdir()) == {by_seed[2], by_seed[3]}


def test_an_entry_beyond_the_budget_is_not_written(folder: Path) -> None:
    answer(ids(20), Prefix(disk=True, max_bytes=1000))
    assert not folder.exists()


def test_what_a_killed_process_left_is_removed_in_time(folder: Path) -> None:
    folder.mkdir(parents=True)
    old, new = folder / "a.safetensors.tmp", folder / "b.safetensors.tmp"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    answer(ids(20))
    assert new.exists() and not old.exists()


def test_a_file_may_vanish(folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    answer(ids(20))
    listed = PrefixFiles._scan

    def then_gone(files: PrefixFiles, ending: str) -> Any:
        found = listed(files, ending)
        shutil.rmtree(folder)
        return found

    cache, model = Prefix(disk=True), TinyModel()
    with monkeypatch.context() as patch:
        patch.setattr(PrefixFiles, "_scan", then_gone)
        files = cache._shelf(model).files
        assert files is not None
        assert files.find(on_host(torch.tensor(ids(20)))) is None
    assert caplog.records == []

    answer(ids(20))
    by_length = PrefixFiles._by_length

    def then_gone_too(files: PrefixFiles, wanted: Any) -> Any:
        found = by_length(files, wanted)
        assert len(found) == 1
        shutil.rmtree(folder)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(PrefixFiles, "_by_length", then_gone_too)
        assert files.find(on_host(torch.tensor(ids(20)))) is None
    assert caplog.records == []


def test_a_folder_that_cannot_be_made_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    assert answer(ids(20)) == answer(ids(20), Dynamic())
    assert "a prefix cannot be stored here" in caplog.text


def test_a_full_disk_costs_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tensors: Any, path: Path, metadata: Any) -> None:
        path.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("genkit.components.caches.prefix_files.save_file", full)
    cache, model = Prefix(disk=True), TinyModel()
    for _ in range(2):
        assert answer(ids(20), cache, model) == answer(ids(20), Dynamic())
    assert "No space left on device" in caplog.text
    assert names(folder) == []
    assert cache.stats(model).num_reused_tokens == 19  # memory is another matter


def test_a_model_without_a_fingerprint_is_refused() -> None:
    model = ScriptedModel.of_ids([1], 5)
    with pytest.raises(
        UnsupportedError, match="'prefix' with `disk: true` .* ScriptedModel has no"
    ):
        Pipeline(model, cache=Prefix(disk=True))
    Pipeline(model, cache=Prefix())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_bit_comes_back(tmp_path: Path, dtype: torch.dtype) -> None:
    keys, values = torch.randn(1, 2, 5, 3).to(dtype), torch.randn(1, 4, 5, 7).to(dtype)
    wanted = on_host(torch.arange(5))
    PrefixFiles(tmp_path, "f", 10**6).add(Entry(wanted, ((keys, values),)))
    found = PrefixFiles(tmp_path, "f", 10**6).find(wanted)
    assert found is not None
    [(found_keys, found_values)] = found.entry.layers
    assert found_keys.dtype == dtype
    assert torch.equal(found_keys, keys) and torch.equal(found_values, values)
    assert found.entry.ids.tolist() == [0, 1, 2, 3, 4]


def test_several_users_of_one_folder(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong: list[Any] = []
    prompts = [[*ids(10), *ids(5 + i, seed=i)] for i in range(6)]
    expected = [answer(prompt, Dynamic()) for prompt in prompts]

    def work(offset: int) -> None:
        try:
            for i in range(12):
                k = (i + offset) % len(prompts)
                if answer(prompts[k], Prefix(disk=True, max_bytes=14_000)) != expected[k]:
                    wrong.append(k)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [record.message for record in caplog.records] == []
    assert all(name.endswith(".safetensors") for name in names(folder))


def test_an_entry_that_is_too_large_as_a_file_pushes_nothing_out(folder: Path) -> None:
    answer(ids(5, seed=1))
    answer(ids(6, seed=2))
    kept = names(folder)
    cache, model = Prefix(), TinyModel()
    answer(ids(60), cache, model)
    answer(ids(60), Prefix(disk=True, max_bytes=cache.stats(model).num_bytes + 50))
    assert names(folder) == kept and len(kept) == 2


def test_a_link_that_leads_nowhere_hides_no_other_file(folder: Path) -> None:
    answer(ids(20))
    for name in ("0", "zz"):  # wherever the listing has them
        path = folder / f"{name}.safetensors"
        path.symlink_to(path)
    assert reused([*ids(20), 5]) == 20


def test_what_is_computed_under_autocast_stays_there(folder: Path) -> None:
    cache, model = Prefix(disk=True), TinyModel()
    answer(ids(5, seed=3), cache, model)
    with torch.autocast("cpu", torch.bfloat16):
        answer(ids(20), cache, model)
    assert reused([*ids(20), 5]) == 0
    assert answer(ids(20), cache, model) == answer(ids(20), Dynamic(), model)
