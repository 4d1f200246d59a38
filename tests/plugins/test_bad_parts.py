"""A part that does what it must not is named with plugin and step, and harms nobody else."""

import re

import pytest

from genkit import Kit
from genkit.errors import EmptyRowError, GenkitError, PartError

PROCESSOR = '''
    from typing import Literal

    from genkit.components.base import LogitsProcessor
    from genkit.plugins import hookimpl

    class Bad(LogitsProcessor):
        """Does what it must not, at step 7."""

        type: Literal["bad"] = "bad"

        def __call__(self, state, logits):
            return logits if int(state.num_generated[0]) != 7 else {does}

    @hookimpl
    def genkit_register_logits_processors():
        return [Bad]
'''

DOES = {
    "logits[:, :5]": r"returned float32 \[1, 5\]",
    "logits.mul_(2)": "wrote into the logits",
    "1 / 0": "raised ZeroDivisionError",
}

OBSERVER = """
    from genkit.plugins import hookimpl

    seen = []

    @hookimpl
    def {hook}(run{more}):
        seen.append(1)
        if len(seen) > {limit}:
            raise ValueError("no more")
"""


def recipe(*processors: str) -> dict:
    return {
        "version": 1,
        "backend": {"type": "tiny"},
        "processors": [{"type": name} for name in processors],
        "sampler": {"type": "greedy"},
        "stop_criteria": [{"type": "max_new_tokens", "limit": 9}],
    }


TINY = '''
    from typing import Literal

    from genkit.backends.base import Backend
    from genkit.plugins import hookimpl
    from genkit.testing import ByteTokenizer, TinyModel

    class Tiny(Backend):
        """A small model."""

        type: Literal["tiny"] = "tiny"

        def load(self, **options):
            return TinyModel(tokenizer=ByteTokenizer())

    @hookimpl
    def genkit_register_backends():
        return [Tiny]
'''


@pytest.fixture
def answer(install):
    """What the tiny model says with some processors."""
    install("tiny", TINY)
    return lambda *processors: Kit().build(recipe(*processors)).generate([1, 2, 3]).token_ids


@pytest.mark.parametrize("does", DOES)
def test_a_processor_is_named_with_plugin_and_step(install, answer, does):
    expected = answer()
    install("unruly", PROCESSOR.format(does=does))
    assert answer() == expected
    found = rf"step 7: processors.0 \(bad, of the plugin 'unruly'\) {DOES[does]}"
    with pytest.raises(PartError, match=found) as caught:
        answer("bad")
    [partial] = caught.value.partial_results
    assert partial.token_ids == expected[:7]


def test_a_processor_that_forbids_everything_is_named(install, answer):
    expected = answer()
    install("unruly", PROCESSOR.format(does="logits - float('inf')"))
    assert answer() == expected
    with pytest.raises(EmptyRowError, match=r"step 7: .*\(bad, of the plugin 'unruly'\)"):
        answer("bad")


@pytest.mark.parametrize(
    ("hook", "more", "limit", "where"),
    [
        ("genkit_run_started", "", 0, "the observer 'nosy' raised"),
        ("genkit_step", ", step", 7, "step 7: the observer 'nosy' raised"),
        ("genkit_run_finished", ", result", 0, "the observer 'nosy' raised"),
    ],
)
def test_an_observer_that_was_only_installed_ends_no_run(
    install, answer, caplog, tmp_path, hook, more, limit, where
):
    expected = answer()
    module = install("nosy", OBSERVER.format(hook=hook, more=more, limit=limit))
    assert answer() == expected
    [record] = caplog.records
    message = f"{where} ValueError in {hook}: no more; it sees no more of this run"
    assert record.getMessage() == message
    # Whoever asks for it by name gets the error.
    path = tmp_path / "given.py"
    path.write_text(module.read_text())
    pipeline = Kit(plugins=[path]).build(recipe())
    with pytest.raises(PartError, match=f"{where.replace('nosy', 'given')} ValueError in {hook}"):
        pipeline.generate([1, 2, 3])


ELSEWHERE = """
    from typing import Literal

    from genkit.backends.base import Backend
    from genkit.components.base import CacheManager, Context, Decoder, LogitsProcessor
    from genkit.plugins import hookimpl
    from genkit.testing import TinyModel

    class BadBackend(Backend):
        type: Literal["bad"] = "bad"

        def load(self, **options):
            return {}["load"]

    class BadContext(Context):
        type: Literal["bad"] = "bad"

        def encode(self, prompt, tokenizer):
            return {}["encode"] if prompt == "x" else prompt

    class BadDecoder(Decoder):
        type: Literal["bad"] = "bad"

        def __call__(self, *parts):
            yield {}["step"]

    class BadManager(CacheManager):
        type: Literal["bad"] = "bad"

        def supports(self, model):
            return {}["supports"]

    class Reorders:
        name = "bad"

        def __call__(self, state, logits):
            return logits

        def reorder(self, indices):
            return {}["reorder"]

    class BadProcessor(LogitsProcessor):
        type: Literal["bad"] = "bad"

        def bind(self, run):
            return Reorders()

    @hookimpl
    def genkit_register_backends():
        return [BadBackend]

    @hookimpl
    def genkit_register_contexts():
        return [BadContext]

    @hookimpl
    def genkit_register_decoders():
        return [BadDecoder]

    @hookimpl
    def genkit_register_cache_managers():
        return [BadManager]

    @hookimpl
    def genkit_register_logits_processors():
        return [BadProcessor]
"""


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"backend": {"type": "bad"}}, "backend {} raised KeyError: 'load'"),
        ({"context": {"type": "bad"}}, "context {} raised KeyError in `encode`: 'encode'"),
        ({"decoder": {"type": "bad"}}, "decoder {} raised KeyError: 'step'"),
        ({"cache": {"type": "bad"}}, "cache {} raised KeyError in `supports`: 'supports'"),
        ({"processors": [{"type": "bad"}]}, "processors.0 {} raised KeyError in `reorder`"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_part_is_named_wherever_it_raises(install, said, message):
    install("tiny", TINY)
    install("unruly", ELSEWHERE)
    ends = [{"type": "stop_token_ids", "token_ids": [*range(0, 32, 2)]}]
    ends += recipe()["stop_criteria"]
    said = {**recipe(), "stop_criteria": ends, **said}
    named = re.escape(message.format("(bad, of the plugin 'unruly')"))
    with pytest.raises(GenkitError, match=named):
        Kit().build(said).generate(["x", "x"] if "context" in said else [[1, 2, 3], [2, 5]])


IN_THE_MIDDLE = """
    from typing import Literal

    from genkit.backends import Backend
    from genkit.components.base import Decoder
    from genkit.plugins import hookimpl
    from genkit.testing import TinyModel

    class Tired(TinyModel):
        calls = 0

        def __call__(self, input_ids, cache):
            self.calls += 1
            if self.calls == 3:
                raise {error}
            return super().__call__(input_ids, cache)

    class TiredBackend(Backend):
        type: Literal["tired"] = "tired"

        def load(self, *, models=None, progress=None):
            return Tired()

    class Stillborn(Decoder):
        type: Literal["stillborn"] = "stillborn"

        def __call__(self, *parts):
            raise ValueError("no steps")

    @hookimpl
    def genkit_register_backends():
        return [TiredBackend]

    @hookimpl
    def genkit_register_decoders():
        return [Stillborn]
"""


def test_a_model_that_raises_says_in_which_step_and_module(install):
    install("tired", IN_THE_MIDDLE.format(error="ValueError('oops')"))
    pipeline = Kit().build({**recipe(), "backend": {"type": "tired"}})
    with pytest.raises(ValueError, match="oops") as caught:
        pipeline.generate([1, 2, 3])
    assert caught.value.__notes__ == ["step 2: genkit_test_tired raised it"]
    assert len(caught.value.partial_results[0].token_ids) == 2


def test_a_model_that_ends_the_program_ends_the_run_alone(install):
    install("tired", IN_THE_MIDDLE.format(error="SystemExit(0)"))
    pipeline = Kit().build({**recipe(), "backend": {"type": "tired"}})
    with pytest.raises(PartError, match="step 2: genkit_test_tired raised SystemExit: 0") as caught:
        pipeline.generate([1, 2, 3])
    assert len(caught.value.partial_results[0].token_ids) == 2


def test_a_decoder_that_raises_before_its_first_step_is_named(install):
    install("tiny", TINY)
    install("tired", IN_THE_MIDDLE.format(error="ValueError"))
    pipeline = Kit().build({**recipe(), "decoder": {"type": "stillborn"}})
    named = r"decoder \(stillborn, of the plugin 'tired'\) raised ValueError: no steps"
    with pytest.raises(PartError, match=named):
        pipeline.generate([1, 2, 3])


def test_a_context_that_gives_no_ids_is_named(install):
    install("tiny", TINY)
    install("unruly", ELSEWHERE)
    pipeline = Kit().build({**recipe(), "context": {"type": "bad"}})
    with pytest.raises(
        PartError, match=r"context \(bad, .*returned .* from `encode`, not a list of ids"
    ):
        pipeline.generate("letters")
