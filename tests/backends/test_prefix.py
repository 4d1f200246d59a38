"""The cache manager `prefix` over models of transformers: warm equals cold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from genkit.backends import PyTorch
from genkit.components.caches import Dynamic, Prefix
from genkit.components.stopping import MaxNewTokens
from genkit.errors import UnsupportedError
from genkit.pipeline import Pipeline


def fed(model: Any) -> tuple[list[int], Any]:
    """A list that fills with the columns fed, and what ends that."""
    widths: list[int] = []

    def note(module: Any, arguments: Any, keywords: Any) -> None:
        widths.append((arguments[0] if arguments else keywords["input_ids"]).shape[1])

    return widths, model.module.register_forward_pre_hook(note, with_kwargs=True)


def check(model: Any, cache: Prefix, prompts: Sequence[list[int]]) -> tuple[int, list[list[int]]]:
    """The width of the first forward, and the tokens, which are those of a cold run."""
    firsts, answers = [], []
    widths, hook = fed(model)
    for manager in (cache, Dynamic()):
        pipeline = Pipeline(model, cache=manager, stop_criteria=[MaxNewTokens(limit=4)])
        steps = list(pipeline.decode(prompts))
        firsts.append(steps[0].raw_logits)
        answers.append(torch.stack([step.next_ids for step in steps], 1).tolist())
    hook.remove()
    assert answers[0] == answers[1]
    torch.testing.assert_close(firsts[0], firsts[1], rtol=0, atol=1e-4)
    return widths[0], answers[0]


def test_a_repeated_prompt_feeds_one_token(attention: Any, lab: Any) -> None:
    """CACHE-22, CACHE-24."""
    cache, prompt = Prefix(), lab.prompt(20)  # longer than any window
    assert check(attention, cache, [prompt])[0] == 20
    for _ in range(3):
        assert check(attention, cache, [prompt])[0] == 1


@pytest.mark.parametrize("length", [7, 8, 9, 63, 64, 65])
def test_what_is_shared_is_not_fed(attention: Any, lab: Any, length: int) -> None:
    cache, common = Prefix(), lab.prompt(length)
    check(attention, cache, [[*common, 2, 3]])
    width, [answer] = check(attention, cache, [[*common, 4, 5, 6]])
    assert width == 3
    assert check(attention, cache, [[*common, 4, 5, 6, *answer, 7]])[0] == 2


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@pytest.mark.parametrize("length", [127, 128, 129, 255, 256, 257, 300])
def test_what_is_shared_across_the_edges_of_memory(name: str, length: int, lab: Any) -> None:
    """CACHE-23."""
    model = PyTorch.wrap(lab.build(name, max_position_embeddings=512))
    cache, common = Prefix(), lab.prompt(length)
    check(model, cache, [[*common, 2, *lab.prompt(30)]])
    assert check(model, cache, [[*common, 3, 4]])[0] == 2


def test_rows_feed_the_longest_tail(attention: Any, lab: Any) -> None:
    cache = Prefix()
    prompts = [lab.prompt(30), lab.prompt(12, seed=1), lab.prompt(20, seed=2)]
    for prompt, length in zip(prompts, (25, 2, 19), strict=True):
        check(attention, cache, [prompt[:length]])
    assert check(attention, cache, prompts)[0] == 10
    assert check(attention, cache, prompts[::-1])[0] == 1


@pytest.mark.parametrize("name", ["roberta", "gpt_neo", "mpt"])
def test_models_that_run_row_by_row(name: str, lab: Any) -> None:
    model, cache = lab.shared(name), Prefix()
    check(model, cache, [lab.prompt(20)])
    assert check(model, cache, [[*lab.prompt(20), 3]])[0] == 1


def test_a_recurrent_model_is_refused(recurrent: Any) -> None:
    with pytest.raises(UnsupportedError, match="the cache 'prefix' needs what this model does not"):
        Pipeline(recurrent, cache=Prefix())


def test_after_a_forward_that_failed_halfway(lab: Any) -> None:
    module = lab.build("llama")
    model, cache, prompt = PyTorch.wrap(module), Prefix(), lab.prompt(20)
    steps = Pipeline(model, cache=cache).decode(prompt)
    next(steps)

    def fail(*_: Any) -> None:
        raise RuntimeError("no memory")

    hook = module.model.layers[0].mlp.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        next(steps)
    hook.remove()
    assert cache.stats(model).num_entries == 1
    assert check(model, cache, [[*prompt, 3]])[0] == 1


def test_changed_weights_begin_anew(lab: Any) -> None:
    module = lab.build("qwen2")
    model, cache, prompt = PyTorch.wrap(module), Prefix(), lab.prompt(20)
    check(model, cache, [prompt])
    with torch.no_grad():
        module.model.layers[0].self_attn.v_proj.weight.mul_(2)
    assert check(model, cache, [prompt])[0] == 20
    module.lm_head.weight = torch.nn.Parameter(module.lm_head.weight * 2)
    assert check(model, cache, [prompt])[0] == 20
    assert check(model, cache, [prompt])[0] == 1


def test_using_a_model_does_not_change_its_version(attention: Any, lab: Any) -> None:
    before = attention.weights_version, attention.fingerprint()
    check(attention, Prefix(), [lab.prompt(70)])
    assert (attention.weights_version, attention.fingerprint()) == before


def test_equal_weights_have_equal_fingerprints(lab: Any, save_folder: Any) -> None:
    fingerprint = PyTorch.wrap(lab.build("llama")).fingerprint()
    assert PyTorch.wrap(lab.build("llama")).fingerprint() == fingerprint
    eager = lab.build("llama", attn_implementation="eager")
    assert PyTorch.wrap(eager).fingerprint() == fingerprint
    saved = PyTorch(model=str(save_folder("llama")), dtype="float32").load()
    assert saved.fingerprint() == fingerprint


def test_other_weights_precision_or_use_have_another_fingerprint(lab: Any) -> None:
    names = [
        PyTorch.wrap(module).fingerprint()
        for module in (
            lab.build("llama"),
            lab.build("llama", seed=1),
            lab.build("llama").double(),
            lab.build("llama", rms_norm_eps=1e-3),
            lab.build("llama3"),
            lab.build("mistral"),
            lab.build("mistral", sliding_window=9),
        )
    ]
    assert len(set(names)) == len(names)


def test_a_fingerprint_follows_the_weights(lab: Any) -> None:
    module = lab.build("llama")
    model = PyTorch.wrap(module)
    before, kept = model.fingerprint(), module.lm_head.weight[3, 4].item()
    with torch.no_grad():
        module.lm_head.weight[3, 4] += 1
    after = model.fingerprint()
    assert after != before
    with torch.no_grad():
        module.lm_head.weight[3, 4] = kept
    assert model.fingerprint() == before


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_another_process_goes_on_from_disk(name: str, lab: Any, genkit_home: Any) -> None:
    prompt = lab.prompt(20)
    check(PyTorch.wrap(lab.build(name)), Prefix(disk=True), [prompt])
    model, cache = PyTorch.wrap(lab.build(name)), Prefix(disk=True)
    assert check(model, cache, [[*prompt, 3, 4], prompt[:9]])[0] == 2
    assert (genkit_home / "prefixes" / model.fingerprint()).is_dir()
