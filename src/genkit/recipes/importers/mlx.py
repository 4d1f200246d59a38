"""mlx-lm: `generate_step`, `make_sampler`, `make_logits_processors`, and `mlx_lm.generate`."""

from __future__ import annotations

import math

from genkit.recipes.importers.common import write_biases, write_end
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said

_TEMPLATE = "the template is the tokenizer's own"
_CACHE = "caches have other names here; see `genkit parts cache_manager`"

ASIDE: Aside = {
    "prompt": (None, "a recipe has no prompt; give it when you generate"),
    "verbose": (False, "it changes nothing"),
    "num_draft_tokens": (None, "genkit has no speculative decoding"),
    "draft_model": (None, "genkit has no speculative decoding"),
    "max_kv_size": (None, _CACHE),
    "kv_bits": (None, _CACHE),
    "kv_group_size": (64, _CACHE),
    "quantized_kv_start": (None, _CACHE),
    "prefill_step_size": (None, "it is `prefill_chunk` of the backend"),
    "prompt_cache_file": (None, _CACHE),
    "adapter_path": (None, "genkit loads no adapters"),
    "prefill_response": (None, "it is `continue_last` of the context `chat`"),
    "extra_eos_token": (None, "see the stop criterion `stop_token_ids`"),
    "chat_template_config": (None, _TEMPLATE),
    "use_default_chat_template": (False, _TEMPLATE),
    "trust_remote_code": (False, "it is `trust_remote_code` of the backend"),
    "quantize_activations": (False, "it is about how the model calculates"),
}


def write(given: Given, draft: Draft) -> None:
    """Bias, penalties, then on log-probabilities top_p, min_p, XTC, top_k, and temperature last."""
    _context(given, draft)
    write_biases(given, draft)
    for name, neutral in (
        ("repetition_penalty", 1.0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
    ):
        context = name.replace("penalty", "context_size")
        window = given.whole(context, default=20, least=0)
        penalty = given.number(name, default=neutral, least=0 if neutral else -math.inf)
        # 0 is off as well: mlx-lm asks whether there is a penalty at all.
        if penalty.value not in (0, neutral):
            draft.processor(name, penalty=penalty, scope="all", window=window)
    temperature = given.number("temp", "temperature", default=0.0, least=0)
    drawing = _Drawing(given)
    if temperature.value == 0:
        reason = "mlx-lm takes the most probable token at temperature 0"
        given.leave_idle(vars(drawing).values(), reason)
        draft.sampler("greedy", because=temperature)
    else:
        _truncation(given, draft, temperature, drawing)
        draft.sampler("categorical", because=temperature)
    write_end(given, draft)
    draft.stop("max_new_tokens", limit=given.whole("max_tokens", default=256, least=1))
    draft.seed(given.whole("seed"))


def _context(given: Given, draft: Draft) -> None:
    """The functions take a prompt as it is, the program makes a conversation of it."""
    raw = given.flag("ignore_chat_template", default=True)
    system = given.text("system_prompt")
    if raw.value:
        draft.context("text", because=raw)
        if system.is_given:
            given.leave(system, "without the chat template mlx-lm has no system prompt")
    elif system.is_given:
        draft.context("chat", because=system, system=system)
    else:
        draft.context("chat", because=raw)


class _Drawing:
    """What only a draw looks at."""

    def __init__(self, given: Given) -> None:
        number = given.number
        self.top_p = number("top_p", default=1.0)
        self.min_p = number("min_p", default=0.0, least=0, most=1)
        self.at_least = given.whole("min_tokens_to_keep", default=1, least=1)
        self.probability = number("xtc_probability", default=0.0, least=0, most=1)
        self.threshold = number("xtc_threshold", default=0.1, least=0, most=0.5)
        self.special = given.ids("xtc_special_tokens")
        self.top_k = given.whole("top_k", default=0)


def _truncation(given: Given, draft: Draft, temperature: Said, drawing: _Drawing) -> None:
    if 0 < drawing.top_p.value < 1:
        draft.processor("top_p", p=drawing.top_p, ties="keep")
    if drawing.min_p.value:
        keep = {"min_keep": drawing.at_least} if drawing.at_least.value > 1 else {}
        draft.processor("min_p", min_p=drawing.min_p, **keep)
    if drawing.probability.value:
        _xtc(given, draft, drawing)
    if drawing.top_k.value > 0:
        draft.processor("top_k", k=drawing.top_k, ties="by_id")
    if temperature.value != 1:
        draft.processor("temperature", temperature=temperature)


def _xtc(given: Given, draft: Draft, drawing: _Drawing) -> None:
    draft.processor(
        "xtc",
        probability=drawing.probability,
        threshold=drawing.threshold,
        comparison=">",
        ties="keep",
        protected_ids=drawing.special,
    )
    if not drawing.special.is_given:
        given.leave(
            drawing.special,
            "the programs of mlx-lm spare newlines and end tokens; name their ids here to do so",
        )
