"""A pipeline: parts, put together and run.

Three thin layers: `decode` gives tokens, `stream` text, `generate` results. Stop at the one you
need.
"""

from __future__ import annotations

import reprlib
import secrets
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeVar

import torch

from genkit.components.base import Component, Context, check_token_ids
from genkit.components.caches import Dynamic
from genkit.components.contexts import Text
from genkit.components.fast_chain import collapsed
from genkit.components.samplers import Greedy
from genkit.components.stopping import Eos, check_lengths, with_limit
from genkit.core import contracts
from genkit.core.binding import BoundParts, Parts
from genkit.core.guard import GuardedModel
from genkit.core.limits import Limits
from genkit.core.observers import check_observers, watched
from genkit.core.result import Steps
from genkit.core.run import Run
from genkit.core.settings import KeyPath, Setting, settings_of
from genkit.decoders.autoregressive import Autoregressive
from genkit.errors import InputError, PartError, UnsupportedError, nearest
from genkit.text.prompts import as_ids, as_prompts
from genkit.text.tokenizer import Tokenizer
from genkit.text.transcript import Chunk, Transcript, chunks

__all__ = ["Pipeline"]

T = TypeVar("T")


class Pipeline:
    """A context, a model, a cache manager, processors, a sampler and stop criteria.

    The object holds no state of a run: it may be used from several threads, and row i of a batch
    gives what its prompt gives alone.

    Args:
        model: what turns ids into logits, from ``backends.PyTorch(...).load()`` or `Kit.load`.
        tokenizer: by default the model's own.
        context: turns prompts into ids; by default `contexts.Text()`.
        cache: hands out caches; by default `caches.Dynamic()`.
        decoder: the loop; by default `decoders.Autoregressive()`.
        processors: logits processors, in the order of application. Nothing reorders them.
        sampler: by default `samplers.Greedy()`.
        stop_criteria: by default ``[stopping.Eos()]``. A row also ends, with `length`, when it
            fills the model's context.
        observers: objects or modules with some of the functions of `core.observers.Observer`.
        seed: the seed of calls that give none; by default every call draws its own.

    Attributes:
        settings: every option of every part, and who says its value; results have them too.

    Raises:
        UnsupportedError: two parts cannot work together.
    """

    def __init__(
        self,
        model: contracts.Model,
        *,
        tokenizer: Tokenizer | None = None,
        context: Context | None = None,
        cache: Any = None,
        decoder: Any = None,
        processors: Sequence[Any] = (),
        sampler: Any = None,
        stop_criteria: Sequence[Any] | None = None,
        observers: Sequence[Any] = (),
        seed: int | None = None,
    ) -> None:
        if isinstance(model, Component):
            raise UnsupportedError(
                f"{model.type!r} says how to load a model; load it: Kit().load(...) or .load()"
            )
        self.model = model
        self.tokenizer = getattr(model, "tokenizer", None) if tokenizer is None else tokenizer
        self.context = Text() if context is None else context
        self.observers = _as_list("observers", observers)
        self.seed = None if seed is None else _check_seed(seed)
        self.parts = Parts(
            decoder=Autoregressive() if decoder is None else decoder,
            cache=Dynamic() if cache is None else cache,
            processors=_as_list("processors", processors),
            sampler=Greedy() if sampler is None else sampler,
            stop_criteria=(Eos(),)
            if stop_criteria is None
            else _as_list("stop_criteria", stop_criteria),
        )
        check_kinds(self.context, self.parts)
        check_lengths(self.parts.stop_criteria)
        check_observers(self.observers)
        self._check_capabilities()
        given = {
            "context": context, "cache": cache, "decoder": decoder,
            "processors": processors or None, "sampler": sampler, "stop_criteria": stop_criteria,
        }  # fmt: skip
        used = {"context": self.context, **vars(self.parts)}
        settings = [
            setting
            for name, part in used.items()
            for setting in settings_of((name,), part, "default" if given[name] is None else None)
        ]
        settings.append(Setting(("seed",), self.seed, "default" if seed is None else "given"))
        self.settings: tuple[Setting, ...] = tuple(settings)

    def generate(
        self,
        prompt: Any,
        *,
        seed: int | None = None,
        seeds: Sequence[int] | None = None,
        num_samples: int = 1,
        max_new_tokens: int | None = None,
        logprobs: int | None = None,
    ) -> Any:
        """The answer to one prompt, or the list of answers to several.

        Args:
            prompt: a string, a list of chat messages, token ids, or a list of any of these.
            seed: the seed of every prompt; a result repeats under its seed, alone or in a batch.
            seeds: one seed for each prompt.
            num_samples: how many answers to each prompt; they follow each other in the list.
            max_new_tokens: replaces the pipeline's limit, or adds one.
            logprobs: take down the log-probability of every token, and of so many of the most
                probable ones beside it (0: of none), before the processors and after them; see
                `Result.logprobs`.

        Returns:
            A `Result`; a list of them for several prompts or samples.

        Raises:
            InputError: a prompt or seed cannot be used; nothing has been computed.
            RunError: the run failed; `partial_results` has what there was.
        """
        call = self._call(prompt, seed, seeds, num_samples, max_new_tokens, logprobs)
        try:
            with torch.no_grad():  # once, where each call of the model would do it
                for _ in call.steps:
                    pass
        except KeyboardInterrupt as interrupt:  # it may have come between two steps
            interrupt.partial_results = call.transcript.results()  # type: ignore[attr-defined]
            raise
        results = call.transcript.results()
        return results[0] if call.single else results

    def stream(
        self,
        prompt: Any,
        *,
        seed: int | None = None,
        seeds: Sequence[int] | None = None,
        num_samples: int = 1,
        max_new_tokens: int | None = None,
        logprobs: int | None = None,
    ) -> Generator[Chunk, None, None]:
        """The same text as `generate`, piece by piece as soon as each piece is certain.

        The arguments are those of `generate`. They are checked at the call, before the first piece
        is asked for. The last chunk of a row carries its result.
        """
        call = self._call(prompt, seed, seeds, num_samples, max_new_tokens, logprobs)
        if call.transcript.run.tokenizer is None:
            raise UnsupportedError(
                "this model has no tokenizer, so there is no text to stream; give the pipeline "
                "one, or use `decode`"
            )
        return chunks(call.steps, call.transcript, call.first.held_back)

    def decode(
        self,
        prompt_ids: Any,
        *,
        seed: int | None = None,
        seeds: Sequence[int] | None = None,
        num_samples: int = 1,
        max_new_tokens: int | None = None,
    ) -> Steps:
        """The same tokens as `generate`, step by step, with the logits they were chosen from.

        The arguments are those of `generate`, checked at the call; prompts are taken in any form.
        """
        return self._call(prompt_ids, seed, seeds, num_samples, max_new_tokens).steps

    def _call(
        self,
        prompt: Any,
        seed: int | None,
        seeds: Sequence[int] | None,
        num_samples: Any,
        max_new_tokens: int | None,
        logprobs: int | None = None,
    ) -> _Call:
        """Check everything that is asked for, and get ready to run."""
        prompts, single = as_prompts(prompt)
        if type(num_samples) is not int or num_samples < 1:
            raise InputError(f"num_samples is a whole number, at least 1, found {num_samples!r}")
        if logprobs is not None and (type(logprobs) is not int or logprobs < 0):
            raise InputError(f"logprobs is a whole number, at least 0, found {logprobs!r}")
        parts = self.parts
        if max_new_tokens is not None:
            criteria = with_limit(parts.stop_criteria, max_new_tokens)
            check_lengths(criteria)
            parts = replace(parts, stop_criteria=criteria)
        fitted = [
            _naming(i, len(prompts), self._fit, prompt, parts.stop_criteria)
            for i, prompt in enumerate(prompts)
        ]
        run = self._run(fitted, self._seeds(len(prompts), seed, seeds), num_samples)
        groups = self._groups(run)
        first = collapsed(parts.bind(groups[0]))
        said = seed if seeds is None else list(seeds)
        transcript = Transcript(run, logprobs, self._settings(parts.stop_criteria, said))
        steps = watched(self._steps(parts, groups, first), transcript, self.observers)
        return _Call(steps, transcript, first, single and num_samples == 1)

    def _settings(self, stop_criteria: Sequence[Any], seed: Any) -> tuple[Setting, ...]:
        """Those of a call, which may have a limit and seeds of its own."""
        ours = self.parts.stop_criteria
        pairs = zip_longest(stop_criteria, ours)  # a call may add one, and drops none
        changed = [i for i, (theirs, our) in enumerate(pairs) if theirs is not our]
        new = [
            setting
            for i in changed
            for setting in settings_of(("stop_criteria", i), stop_criteria[i], "call")
        ]
        replaced: set[KeyPath] = {("stop_criteria", i) for i in changed}
        if changed:
            replaced.add(("stop_criteria",))
        if seed is not None:
            replaced.add(("seed",))
            new.append(Setting(("seed",), seed, "call"))
        kept = (setting for setting in self.settings if setting.path[:2] not in replaced)
        return (*kept, *new)

    def _fit(self, prompt: Any, stop_criteria: Sequence[Any]) -> tuple[tuple[int, ...], int]:
        """The ids of a prompt, as many as fit, and the most tokens that its row may reach."""
        ids = self._encode(prompt)
        limits = Limits(self.model.context_length, stop_criteria, len(ids))
        make_room = self.context.overflow == "truncate_left"
        longest = limits.longest_prompt(make_room=make_room)
        fitted = self._from_context("fit", ids, longest, limits, self.tokenizer)
        if longest is not None and len(fitted) > longest:
            place = contracts.place_of("context", self.context)
            raise PartError(f"{place} returned {len(fitted)} ids from `fit`, above {longest}")
        return tuple(fitted), limits.limit(len(fitted))

    def _encode(self, prompt: Any) -> list[int]:
        """The ids of a prompt."""
        ids = [] if isinstance(prompt, list) and not prompt else as_ids(prompt)
        if ids is None:
            if self.tokenizer is None:
                raise InputError(
                    "this model has no tokenizer, so a prompt is a list of ids, found "
                    f"{type(prompt).__name__}; give the pipeline a tokenizer, or ids"
                )
            return self._from_context("encode", prompt, self.tokenizer)
        if not ids:
            raise InputError("the prompt is empty: it has no token; give at least one")
        check_token_ids("prompt", ids, self.model.vocab_size)
        return ids

    def _from_context(self, method: str, *arguments: Any) -> list[int]:
        """The ids that a method of the context gives."""
        place = contracts.place_of("context", self.context)
        with contracts.blamed(place, method):
            found: Any = getattr(self.context, method)(*arguments)
            ids = [] if isinstance(found, list) and not found else as_ids(found)
        if ids is None:
            what = f"returned {reprlib.repr(found)} from `{method}`, not a list of ids"
            raise PartError(f"{place} {what}")
        if not ids:
            raise InputError(
                f"the prompt is empty: {place} left no token of it in `{method}`; at least one is "
                "needed"
            )
        check_token_ids(f"prompt, after `{method}` of {place},", ids, self.model.vocab_size)
        return ids

    def _seeds(self, count: int, seed: int | None, seeds: Any) -> list[int]:
        if seeds is None:
            seed = self.seed if seed is None else _check_seed(seed)
            return [secrets.randbelow(2**32) if seed is None else seed for _ in range(count)]
        if isinstance(seeds, str) or not isinstance(seeds, Sequence):
            raise InputError(f"seeds is a list, one for each prompt; found {seeds!r}")
        if seed is not None:
            raise InputError("give either seed or seeds, not both")
        if len(seeds) != count:
            raise InputError(f"seeds has {len(seeds)} entries for {count} prompts")
        return [_check_seed(seed) for seed in seeds]

    def _run(
        self, fitted: list[tuple[tuple[int, ...], int]], seeds: list[int], num_samples: int
    ) -> Run:
        samples = range(num_samples)
        return Run(
            prompts=tuple(ids for ids, _ in fitted for _ in samples),
            limits=tuple(limit for _, limit in fitted for _ in samples),
            seeds=tuple(seed for seed in seeds for _ in samples),
            samples=tuple(samples) * len(fitted),
            rows=tuple(range(len(fitted) * num_samples)),
            tokenizer=self.tokenizer,
            vocab_size=self.model.vocab_size,
            eos_token_ids=frozenset(self.model.eos_token_ids),
            context_length=self.model.context_length,
            device=torch.device(self.model.device),
        )

    def _groups(self, run: Run) -> list[Run]:
        """All rows at once where model and cache allow it, otherwise row after row."""
        supports = self._supports()
        same_length = len(set(map(len, run.prompts))) == 1
        if len(run) == 1 or ("reorder" in supports and (same_length or "ragged" in supports)):
            return [run]
        return [run.select([i]) for i in range(len(run))]

    def _steps(self, parts: Parts, groups: list[Run], first: BoundParts) -> Steps:
        num_ids = None if self.tokenizer is None else self.tokenizer.vocab_size
        model = GuardedModel(self.model, "model", num_ids)
        for i, group in enumerate(groups):
            bound = collapsed(parts.bind(group)) if i else first
            with closing(bound.steps(model)) as steps:
                yield from steps

    def _supports(self) -> frozenset[str]:
        """What the model supports with this cache manager."""
        return contracts.capabilities_of(self.model, self.parts.cache)

    def _check_capabilities(self) -> None:
        manager = f"the cache {contracts.name_of(self.parts.cache)!r}"
        check_claims(manager, self.parts.cache, self.model)
        decoder = f"the decoder {contracts.name_of(self.parts.decoder)!r}"
        offered = self.model.supports
        _check_offered(self.parts.cache, manager, offered, "this model")
        check_cache_use(self.model, self.parts.cache)
        _check_offered(self.parts.decoder, decoder, self._supports(), f"this model with {manager}")


def check_claims(name: str, manager: Any, model: contracts.Model) -> None:
    """Refuse a cache manager whose grade or capabilities are words that nobody knows.

    Raises:
        UnsupportedError: they are; the message names them and those that are known.
    """
    grade = getattr(manager, "grade", "exact")
    if grade not in contracts.GRADES:
        known = ", ".join(contracts.GRADES)
        raise UnsupportedError(f"{name} has the grade {grade!r}; known: {known}")
    claims: dict[str, Any] = {"`requires`": getattr(manager, "requires", frozenset())}
    if callable(getattr(manager, "supports", None)):
        claims["`supports(model)`"] = contracts.claimed_capabilities(model, manager)
    for where, claimed in claims.items():
        if not isinstance(claimed, frozenset | set):
            kind = type(claimed).__name__
            raise UnsupportedError(f"{name}: {where} is a set of capabilities, found {kind}")
        for unknown in sorted(map(str, set(claimed) - set(contracts.CAPABILITIES))):
            raise UnsupportedError(
                f"{name}: {where} has {unknown!r}, which is no capability"
                f"{nearest(unknown, contracts.CAPABILITIES)}; known: "
                f"{', '.join(contracts.CAPABILITIES)}"
            )


def check_cache_use(asker: Any, manager: Any) -> None:
    """Refuse a cache manager that does not use what the model is loaded for.

    Args:
        asker: a model, or the backend that is to load it; either may have `cache_must_use`.
        manager: the cache manager.

    Raises:
        UnsupportedError: the manager does not require a capability in `cache_must_use`.
    """
    used: frozenset[str] = getattr(manager, "requires", frozenset())
    for capability in sorted(getattr(asker, "cache_must_use", frozenset()) - used):
        raise UnsupportedError(
            "an option of the backend, such as `compile: true`, asks for a cache that uses "
            f"`{capability}` ({contracts.CAPABILITIES.get(capability, '?')}), and the cache "
            f"{contracts.name_of(manager)!r} does not; choose one that does, such as "
            "`cache: {type: static}`, or leave that option out (`compile: false`)"
        )


def check_kinds(context: Any, parts: Parts) -> None:
    """Refuse what cannot be called in its place.

    Raises:
        UnsupportedError: a class instead of an object, a name, or a part of another kind.
    """
    manages = "acquire(model, state)", "release(cache, state)"
    _check_kind("context", context, "context", "fit(ids, longest, limits, tokenizer)")
    _check_kind("cache", parts.cache, "cache_manager", *manages)
    _check_kind("decoder", parts.decoder, "decoder")
    _check_kind("sampler", parts.sampler, "sampler")
    for i, processor in enumerate(parts.processors):
        _check_kind(f"processors.{i}", processor, "logits_processor")
    for i, criterion in enumerate(parts.stop_criteria):
        _check_kind(f"stop_criteria.{i}", criterion, "stop_criterion")


def _check_kind(key: str, part: Any, kind: str, *methods: str) -> None:
    """Refuse what is no part of a kind; without `methods`, one is whatever can be called."""
    words = kind.replace("_", " ")
    if isinstance(part, type):
        raise UnsupportedError(f"{key} is a class; make an object of it: {part.__name__}(...)")
    if isinstance(part, Component):
        if part.kind != kind:
            found = part.kind.replace("_", " ")
            raise UnsupportedError(f"{key} is a {words}; {part.type!r} is a {found}")
    elif not hasattr(part, "bind") and not _has(part, methods or ("__call__",)):
        if isinstance(part, str):
            needed = "names stand in recipes, here objects are needed"
        elif methods:
            needed = f"an object with `{'` and `'.join(methods)}` is needed"
        else:
            needed = "an object that can be called is needed"
        raise UnsupportedError(f"{key} is a {words}, found {part!r}; {needed}")


def _has(part: Any, methods: Sequence[str]) -> bool:
    return all(hasattr(part, method.partition("(")[0]) for method in methods)


def _as_list(key: str, parts: Any) -> tuple[Any, ...]:
    if isinstance(parts, Component | str) or not isinstance(parts, Iterable):
        raise UnsupportedError(f"{key} is a list of parts, found {parts!r}")
    return tuple(parts)


@dataclass(frozen=True)
class _Call:
    steps: Steps
    transcript: Transcript
    first: BoundParts
    single: bool


def _check_offered(part: Any, asker: str, offered: frozenset[str], owner: str) -> None:
    missing = sorted(getattr(part, "requires", frozenset()) - offered)
    if missing:
        listed = "; ".join(f"{name}: {contracts.CAPABILITIES.get(name, '?')}" for name in missing)
        raise UnsupportedError(
            f"{asker} needs what {owner} does not offer ({listed}); choose another of the two"
        )


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise InputError(f"a seed is a whole number from 0 to 2**64 - 1, found {seed!r}")
    return seed


def _naming(i: int, count: int, encode: Callable[..., T], *arguments: Any) -> T:
    """Call `encode`; of several prompts an error says which one it is about."""
    try:
        return encode(*arguments)
    except InputError as error:
        if count == 1:
            raise
        raise type(error)(f"prompt {i}: {error}") from error
