"""llama.cpp: the samplers of its programs and of its server, in the order that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genkit.recipes.importers import requests
from genkit.recipes.importers.common import (
    CONSTRAINT,
    OUTPUT,
    write_biases,
    write_penalties_at_once,
    write_stop_strings,
)
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said, as_texts

_ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)

_LETTERS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
    "a": "adaptive_p",
}

_OTHER_NAMES = {
    "nucleus": "top_p",
    "typical": "typ_p",
    "typical_p": "typ_p",
    "typ": "typ_p",
    "temp": "temperature",
}

_RANDOM_SEEDS = (-1, 2**32 - 1)
_NEVER = 2**31 - 1

_MACHINE = "it is about memory and speed, not about how tokens are chosen"

ASIDE: Aside = {
    **requests.ASIDE,
    "grammar": ("", CONSTRAINT),
    "json_schema": (None, CONSTRAINT),
    "response_format": ({"type": "text"}, CONSTRAINT),
    "post_sampling_probs": (False, "say --logprobs when you generate"),
    "return_tokens": (False, OUTPUT),
    "timings_per_token": (False, OUTPUT),
    "id_slot": (-1, "it is for a server"),
    "prompt_file": (None, "a recipe has no prompt; give it when you generate"),
    "stream": (False, "it is about what is returned besides the answer"),
    "n_probs": (0, "say --logprobs when you generate"),
    "n_keep": (0, "see the cache `sink_window`"),
    "n_ctx": (0, "the model's own context length is used"),
    "t_max_predict_ms": (0, "it ends an answer at a line's end only; see `time_limit`"),
    "cache_prompt": (None, "earlier prompts are reused with `cache: {type: prefix}`"),
    "model_draft": (None, "genkit has no speculative decoding"),
    "n_gpu_layers": (None, _MACHINE),
    "flash_attention": (None, _MACHINE),
    "threads": (None, _MACHINE),
    "n_batch": (None, _MACHINE),
    "n_ubatch": (None, _MACHINE),
}


def write(given: Given, draft: Draft) -> None:
    """Bias, then the samplers in their order and the draw; or temperature and mirostat alone."""
    ignored = given.flag("ignore_eos")
    write_biases(given, draft)
    if ignored.value:
        draft.processor("min_new_tokens", because=ignored, limit=ignored.but(_NEVER))
    mirostat = given.whole("mirostat", default=0, least=0, most=2)
    order = _order(given)
    samplers = _Samplers(given, draft)
    options = mirostat_options(given)
    if mirostat.value:
        samplers.leave_idle(f"mirostat={mirostat.value} replaces all samplers but the temperature")
        samplers.temperature(is_dynamic=False)
        write_mirostat(draft, mirostat, *options)
    else:
        given.leave_idle(options, "mirostat is 0")
        samplers.write(order)
        samplers.draw(order)
    _context_and_ends(given, draft, ignored)
    seed = given.whole("seed", default=-1)
    if seed.value not in _RANDOM_SEEDS:
        draft.seed(seed)


def mirostat_options(given: Given) -> tuple[Said, Said]:
    """tau and eta."""
    tau = given.number("mirostat_tau", default=5.0)
    return tau, given.number("mirostat_eta", default=0.1)


def write_mirostat(draft: Draft, version: Said, tau: Said, eta: Said) -> None:
    """The sampler mirostat with llama.cpp's 32-bit k."""
    options = {"huge_k": "keeps_one"} if version.value == 1 else {}
    draft.sampler("mirostat", because=version, version=version, tau=tau, eta=eta, **options)


class _Samplers:
    """What each sampler of llama.cpp is here; the settings are taken once, the order asks."""

    def __init__(self, given: Given, draft: Draft) -> None:
        self._given, self._draft = given, draft
        number, whole = given.number, given.whole
        # 0: nothing is kept in any case, which is the same as 1.
        self.min_keep = whole("min_keep", default=0)
        self.last_n = whole("repeat_last_n", default=64, least=-1)
        self.repeat = number("repeat_penalty", default=1.0, above=0)
        self.frequency = number("frequency_penalty", default=0.0)
        self.presence = number("presence_penalty", default=0.0)
        self.dry_multiplier = number("dry_multiplier", default=0.0)
        self.dry_base = number("dry_base", default=1.75)
        self.dry_allowed = whole("dry_allowed_length", default=2)
        self.dry_last_n = whole("dry_penalty_last_n", default=64, least=-1)
        self.dry_breakers = given.texts("dry_sequence_breakers", default=("\n", ":", '"', "*"))
        self.n_sigma = number("top_n_sigma", default=-1.0)
        self.k = whole("top_k", default=40)
        self.typical = number("typical_p", "typ_p", default=1.0)
        self.p = number("top_p", default=0.95)
        self.min_p = number("min_p", default=0.05)
        self.xtc_probability = number("xtc_probability", default=0.0)
        self.xtc_threshold = number("xtc_threshold", default=0.1)
        self.t = number("temperature", "temp", default=0.8)
        self.t_range = number("dynatemp_range", default=0.0)
        self.t_exponent = number("dynatemp_exponent", default=1.0)
        self.target = number("adaptive_target", default=-1.0)
        self.decay = number("adaptive_decay", default=0.9)

    def write(self, order: Said) -> None:
        """The processors; a setting whose sampler is not in the order is listed."""
        parts: dict[str, Callable[[], None]] = {
            "penalties": self.penalties,
            "dry": self.dry,
            "top_n_sigma": self.top_n_sigma,
            "top_k": self.top_k,
            "typ_p": self.typical_p,
            "top_p": self.top_p,
            "min_p": self.minimum,
            "xtc": self.xtc,
            "temperature": self.temperature,
        }
        for name in order.value:
            if name in parts:
                parts[name]()
        self._leave_masks(order.value)
        missing = [name for name in _ORDER if name not in order.value]
        for name in missing:
            self._leave_idle(_OF[name], f"{name} is not among the samplers")

    def _leave_masks(self, order: list[str]) -> None:
        """Tokens that top_n_sigma has forbidden still count in two samplers of llama.cpp."""
        if "top_n_sigma" not in order or self.n_sigma.value <= 0:
            return
        later = order[order.index("top_n_sigma") :]
        if "typ_p" in later and self.typical.value < 1:
            reason = "what llama.cpp keeps after top_n_sigma follows no rule; here it does"
            self._given.leave(self.typical, reason)
        if "temperature" in later and self.t_range.value > 0:
            reason = (
                "llama.cpp may count the tokens that top_n_sigma has forbidden as well, and is "
                "colder for it"
            )
            self._given.leave(self.t_range, reason)

    def draw(self, order: Said) -> None:
        """The draw at the end."""
        if "adaptive_p" in order.value:
            if self.target.value > 1:
                self._given.leave(self.target, "llama.cpp takes 1 for it, and begins above")
            self._draft.sampler(
                "adaptive_p",
                because=order,
                target=self.target.but(min(self.target.value, 1.0)),
                decay=self.decay.but(min(max(self.decay.value, 0.0), 0.99)),
            )
        else:
            self._leave_idle(("target", "decay"), "adaptive_p is not among the samplers")
            self._draft.sampler("categorical", because=order)

    def leave_idle(self, reason: str) -> None:
        """None of them is used but the temperature."""
        for name in _ORDER[:-1]:
            self._leave_idle(_OF[name], reason)
        self._leave_idle(("t_range", "t_exponent", "target", "decay", "min_keep"), reason)

    def penalties(self) -> None:
        if self.last_n.value == 0:
            return
        window = self.last_n.but(None if self.last_n.value == -1 else self.last_n.value)
        write_penalties_at_once(
            self._draft,
            window=window,
            repeat=self.repeat,
            frequency=self.frequency,
            presence=self.presence,
        )

    def dry(self) -> None:
        if not self.dry_multiplier.value or self.dry_base.value < 1 or not self.dry_last_n.value:
            return
        last_n = self.dry_last_n.value
        self._draft.processor(
            "dry",
            multiplier=self.dry_multiplier,
            base=self.dry_base,
            allowed_length=self.dry_allowed,
            window=self.dry_last_n.but(None if last_n == -1 else last_n),
            breakers=self.dry_breakers.but(
                [_cut(breaker) for breaker in self.dry_breakers.value if breaker != "none"]
            ),
        )

    def top_n_sigma(self) -> None:
        if self.n_sigma.value > 0:
            self._draft.processor("top_n_sigma", n=self.n_sigma)

    def top_k(self) -> None:
        if self.k.value > 0:
            self._draft.processor("top_k", k=self.k, ties="by_id")

    def typical_p(self) -> None:
        if self.typical.value < 1:
            self._draft.processor("typical_p", p=self.typical, rule="above<=p", **self._at_least())

    def top_p(self) -> None:
        if self.p.value < 1:
            self._draft.processor("top_p", p=self.p.but(max(self.p.value, 0.0)), **self._at_least())

    def minimum(self) -> None:
        if self.min_p.value > 0:
            self._draft.processor("min_p", min_p=self.min_p, **self._at_least())

    def xtc(self) -> None:
        if self.xtc_probability.value > 0 and self.xtc_threshold.value <= 0.5:
            self._draft.processor(
                "xtc",
                probability=self.xtc_probability,
                threshold=self.xtc_threshold,
                comparison=">=",
                **self._at_least(),
            )

    def temperature(self, is_dynamic: bool = True) -> None:
        t, spread = self.t.value, self.t_range.value if is_dynamic else 0
        if spread > 0:
            self._draft.processor(
                "dynamic_temperature",
                because=self.t_range,
                low=self.t_range.but(max(0.0, t - spread)),
                high=self.t_range.but(max(0.0, t + spread)),
                exponent=self.t_exponent,
            )
        elif t != 1:
            self._draft.processor("temperature", temperature=self.t.but(max(t, 0.0)))

    def _at_least(self) -> dict[str, Said]:
        return {"min_keep": self.min_keep} if self.min_keep.value > 1 else {}

    def _leave_idle(self, names: tuple[str, ...], reason: str) -> None:
        for name in names:
            said = getattr(self, name)
            if said.is_given:
                self._given.leave(said, reason)


_OF = {
    "penalties": ("last_n", "repeat", "frequency", "presence"),
    "dry": ("dry_multiplier", "dry_base", "dry_allowed", "dry_last_n", "dry_breakers"),
    "top_n_sigma": ("n_sigma",),
    "top_k": ("k",),
    "typ_p": ("typical",),
    "top_p": ("p",),
    "min_p": ("min_p",),
    "xtc": ("xtc_probability", "xtc_threshold"),
    "temperature": ("t", "t_range", "t_exponent"),
}
"""The settings of each sampler, as attributes of `_Samplers`."""

_LONGEST_BREAKER = 40


def _cut(breaker: str) -> str:
    """What llama.cpp reads of a breaker: so many bytes, without what is left of a character."""
    return breaker.encode()[:_LONGEST_BREAKER].decode(errors="ignore")


def _order(given: Given) -> Said:
    """The names of the samplers in their order; what is no sampler is listed."""
    letters = given.text("sampling_seq")
    names = given.take("samplers", default=list(_ORDER), read=_names)
    if letters.value is not None:
        if names.is_given:
            given.leave(names, "sampling_seq says it too, and counts")
        names = letters.but([_LETTERS.get(letter, letter) for letter in letters.value])
    known = [*_ORDER, "adaptive_p"]
    for name in names.value:
        if name == "infill":
            given.leave(names.but(name), "filling in the middle is no part of genkit")
        elif name not in known:
            given.leave(names.but(name), "llama.cpp has no sampler of this name")
    return names.but([name for name in names.value if name in known])


def _names(value: Any) -> list[str]:
    items = value.split(";") if isinstance(value, str) else as_texts(value)
    plain = [item.strip().replace("-", "_") for item in items if item.strip()]
    return [_OTHER_NAMES.get(name, name) for name in plain]


def _context_and_ends(given: Given, draft: Draft, ignored: Said) -> None:
    chat = given.flag("conversation", default=True)
    system = given.text("system_prompt")
    messages = given.take("messages", read=requests.as_messages)
    prompt = given.take("prompt", read=lambda value: value)
    for each in (messages, prompt):
        if each.is_given:
            given.leave(each, "a recipe has no prompt; give it when you generate")
    if not system.is_given and messages.is_given:
        system = messages.but(requests.system_of(messages.value))
    # The server completes a `prompt` as it is; one on a command line opens a conversation.
    is_raw = prompt.is_given and not prompt.source.startswith("-") and not messages.is_given
    if is_raw or not chat.value:
        draft.context("text", because=prompt if is_raw else chat)
        if system.is_given:
            given.leave(system, "without a conversation llama.cpp has no system prompt")
    elif system.value is None:
        draft.context("chat", because=messages if messages.is_given else chat)
    else:
        draft.context("chat", because=system, system=system)
    if not ignored.value:
        draft.stop("eos", because=ignored)
    write_stop_strings(given, draft, "the one that begins first")
    limit = given.whole("n_predict", "max_tokens", "max_completion_tokens", default=-1)
    if limit.value > 0:
        draft.stop("max_new_tokens", limit=limit)
    elif limit.value == 0:
        given.leave(limit, "an answer has at least one token")
