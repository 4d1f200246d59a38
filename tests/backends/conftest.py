"""What tests of backends do with the models of the zoo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import zoo
from genkit.core.loop import autoregressive
from genkit.core.random import RowRandom
from genkit.core.state import GenerationState
from zoo import VOCAB_SIZE, build, prompt, shared

# Those that tests of details run over; `test_zoo.py` takes all.
FAMILIAR = (
    "llama",
    "llama3",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "gpt_neox",
    "gpt2",
    "opt",
    "bloom",
    "falcon_alibi",
)


def state_of(model: Any, prompts: Sequence[Sequence[int]], room: int = 64) -> GenerationState:
    """A state with `room` columns beyond the longest prompt."""
    limits = [len(ids) + room for ids in prompts]
    rng = RowRandom([0] * len(prompts), [0] * len(prompts))
    return GenerationState(prompts, limits, rng, device=model.device)


def logits_along(
    model: Any, prompts: Sequence[Sequence[int]], follow: torch.Tensor, cached: bool = True
) -> torch.Tensor:
    """Logits at each step while the tokens `follow` [batch, steps] are appended one by one."""
    state = state_of(model, prompts)
    cache = model.new_cache(state)
    steps = []
    for column in follow.T.to(model.device):
        if not cached:
            cache = model.new_cache(state)
        steps.append(model(state.token_ids[:, cache.length :], cache))
        state.append(column)
    return torch.stack(steps, dim=1).cpu()


class Plain:
    """The simplest cache manager."""

    def acquire(self, model: Any, state: GenerationState) -> Any:
        return model.new_cache(state)

    def release(self, cache: Any, state: GenerationState) -> None:
        pass


class Forgetful:
    """A manager whose cache wraps the model's and ignores `advance`: nothing is ever kept."""

    def acquire(self, model: Any, state: GenerationState) -> Any:
        return _Ignoring(model.new_cache(state))

    def release(self, cache: Any, state: GenerationState) -> None:
        pass


class _Ignoring:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def advance(self, n: int) -> None:
        pass


class _Limit:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, state: GenerationState) -> torch.Tensor:
        return state.num_generated >= self.limit


def greedy(
    model: Any, prompts: Sequence[Sequence[int]], steps: int, manager: Any = None
) -> list[list[int]]:
    """The tokens that the loop chooses, row by row."""
    state = state_of(model, prompts, room=steps)
    rows: list[list[int]] = [[] for _ in prompts]
    for step in autoregressive(
        model, manager or Plain(), [], lambda _, x: x.argmax(-1), [_Limit(steps)], state
    ):
        for row, token_id in zip(step.rows.tolist(), step.next_ids.tolist(), strict=True):
            rows[row].append(token_id)
    return rows


@pytest.fixture(scope="session")
def lab() -> SimpleNamespace:
    """The functions above, for tests."""
    return SimpleNamespace(
        ATTENTION=FAMILIAR,
        build=build,
        shared=shared,
        prompt=prompt,
        state_of=state_of,
        logits_along=logits_along,
        greedy=greedy,
        Plain=Plain,
        Forgetful=Forgetful,
        VOCAB_SIZE=VOCAB_SIZE,
    )


@pytest.fixture(params=FAMILIAR)
def attention(request: pytest.FixtureRequest) -> Any:
    """A model of several architectures that keep keys and values."""
    return shared(request.param)


@pytest.fixture(params=list(zoo.RECURRENT))
def recurrent(request: pytest.FixtureRequest) -> Any:
    """A model of each architecture that keeps a state, or a state besides keys."""
    return shared(request.param)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device"
))])  # fmt: skip
def device(request: pytest.FixtureRequest) -> str:
    """Every device there is."""
    return str(request.param)


@pytest.fixture
def genkit_home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty GENKIT_HOME."""
    path = tmp_path / "home"
    monkeypatch.setenv("GENKIT_HOME", str(path))
    return path


@pytest.fixture
def save_folder(tmp_path: Any) -> Callable[..., Any]:
    """Saves a model of the zoo, with a byte-level tokenizer unless told otherwise."""

    def save(name: str = "llama", *, tokenizer: bool = True, **changes: Any) -> Any:
        folder = tmp_path / f"{name}-folder"
        build(name, **changes).save_pretrained(folder)
        if tokenizer:
            byte_level_tokenizer().save_pretrained(folder)
        return folder

    return save


def byte_level_tokenizer() -> Any:
    """A tokenizer of the bytes that fit into the zoo's vocabulary."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[: VOCAB_SIZE - 1]
    vocabulary = {character: i for i, character in enumerate(alphabet)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<end>", clean_up_tokenization_spaces=False
    )
