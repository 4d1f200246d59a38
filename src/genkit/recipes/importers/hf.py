"""transformers: `generate()` and generation_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genkit.recipes.importers.common import OUTPUT, coldest, write_repetition
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said, as_number, as_whole

_BEAMS = "genkit has no beam search that would use it"
_ASSISTANT = "genkit has no assisted generation that would use it"
_MODEL = "it belongs to the model or its cache, not to how tokens are chosen"

_CACHES = ("dynamic", "static")
"""Those that are the same here, under the same names."""

_SPEECH = (
    "alignment_heads",
    "forced_decoder_ids",
    "is_multilingual",
    "lang_to_id",
    "max_initial_timestamp_index",
    "no_timestamps_token_id",
    "return_timestamps",
    "task_to_id",
)

ASIDE: Aside = {
    "early_stopping": (False, _BEAMS),
    "length_penalty": (1.0, _BEAMS),
    "num_beam_groups": (1, _BEAMS),
    "diversity_penalty": (0.0, _BEAMS),
    "constraints": (None, _BEAMS),
    "force_words_ids": (None, _BEAMS),
    "guidance_scale": (1.0, "guidance runs the model twice; no logits processor does that"),
    "penalty_alpha": (0.0, "contrastive search is another loop, which genkit does not have"),
    "dola_layers": (None, "contrasting layers is another loop, which genkit does not have"),
    **dict.fromkeys(_SPEECH, (None, "it is for models of speech")),
    "token_healing": (False, "prompts are taken as they are"),
    "num_return_sequences": (1, "say --num-samples when you generate"),
    "prompt_lookup_num_tokens": (None, _ASSISTANT),
    "num_assistant_tokens": (20, _ASSISTANT),
    "num_assistant_tokens_schedule": ("constant", _ASSISTANT),
    "assistant_confidence_threshold": (0.4, _ASSISTANT),
    "assistant_early_exit": (None, _ASSISTANT),
    "assistant_lookbehind": (10, _ASSISTANT),
    "target_lookbehind": (10, _ASSISTANT),
    "assistant_ensemble_weight": (None, _ASSISTANT),
    "max_matching_ngram_size": (2, _ASSISTANT),
    "is_assistant": (False, _ASSISTANT),
    "speculation_type": (None, _ASSISTANT),
    "use_mtp": (False, _ASSISTANT),
    "output_attentions": (False, OUTPUT),
    "output_hidden_states": (False, OUTPUT),
    "output_scores": (False, OUTPUT),
    "output_logits": (False, OUTPUT),
    "return_dict_in_generate": (False, OUTPUT),
    "cache_config": (None, _MODEL),
    "max_cache_len": (None, _MODEL),
    "prefill_chunk_size": (None, "it is `prefill_chunk` of the backend"),
    "compile_config": (None, _MODEL),
    "disable_compile": (False, _MODEL),
    "continuous_batching_config": (None, _MODEL),
    "low_memory": (None, _MODEL),
    "pad_token_id": (None, "rows are padded without a token"),
    "bos_token_id": (None, "the tokenizer's own is used"),
    "decoder_start_token_id": (None, "it is for encoder-decoder models"),
    "transformers_version": (None, "it changes nothing"),
    "_from_model_config": (False, "it changes nothing"),
}


def write(given: Given, draft: Draft) -> None:
    """The chain as `generate()` builds it: processors, warpers if tokens are drawn, watermark."""
    is_drawn = given.flag("do_sample")
    beams = given.whole("num_beams", default=1, least=1)
    ends = given.ids("eos_token_id")
    more_ends = {"token_ids": ends} if ends.is_given else {}
    if beams.value > 1:
        given.leave(beams, "genkit has no beam search; one text is continued")
        draft.processor("renormalize", because=beams)  # the whole chain sees log-probabilities
    _processors(given, draft, more_ends)
    drawing = _Drawing(given, is_drawn)
    if is_drawn.value:
        _warpers(draft, drawing, 1 if beams.value == 1 else max(1, len(ends.value)) + 1)
    else:
        given.leave_idle(vars(drawing).values(), "transformers uses it only with do_sample=true")
    _watermark(given, draft)
    renormalize = given.flag("renormalize_logits")
    if renormalize.value:
        draft.processor("renormalize", because=renormalize)
    draft.sampler("categorical" if is_drawn.value else "greedy", because=is_drawn)
    _ends(given, draft, ends, more_ends)
    _cache(given, draft)


def _cache(given: Given, draft: Draft) -> None:
    use_cache = given.flag("use_cache", default=True)
    kind = given.text("cache_implementation")
    if not use_cache.value:
        draft.cache("none", because=use_cache)
        given.leave_idle([kind], "transformers uses no cache with use_cache=false")
    elif kind.value in _CACHES:
        draft.cache(kind.value, because=kind)
    elif kind.value is not None:
        given.leave(kind, "no cache here is the same; see `genkit parts cache_manager`")


def _processors(given: Given, draft: Draft, more_ends: dict[str, Said]) -> None:
    sequences = given.take("sequence_bias", default=[], read=_sequence_biases)
    if sequences.value:
        draft.processor("sequence_bias", sequences=sequences)
    encouraged = given.number("encoder_repetition_penalty", default=1.0, above=0)
    if encouraged.value != 1:
        draft.processor("prompt_repetition_penalty", penalty=encouraged)
    write_repetition(given, draft)
    size = given.whole("encoder_no_repeat_ngram_size", default=0)
    if size.value > 0:
        draft.processor("prompt_no_repeat_ngram", n=size)
    words = given.sequences("bad_words_ids")
    if words.value:
        draft.processor("bad_words", token_ids=words, spare_end_tokens=True)
    least = given.whole("min_length", default=0, least=0)
    if least.value:
        draft.processor("min_length", limit=least, **more_ends)
        given.leave(least, "transformers counts the padding of a batch as well")
    least = given.whole("min_new_tokens", default=0, least=0)
    if least.value:
        draft.processor("min_new_tokens", limit=least, **more_ends)
    forced = given.take("forced_bos_token_id", read=as_whole)
    is_forced = forced.value is not None
    if is_forced:
        draft.processor("forced_bos", token_id=forced, place="second_of_text")
    forced = given.ids("forced_eos_token_id")
    if forced.value:
        draft.processor("forced_eos", token_ids=forced)
    remove = given.flag("remove_invalid_values")
    if remove.value:
        draft.processor("remove_invalid", because=remove, minus_infinity="lowest")
    decay = given.take("exponential_decay_length_penalty", read=_pair)
    if decay.value is not None:
        start, factor = decay.value
        draft.processor(
            "length_decay", start=decay.but(start), factor=decay.but(factor), **more_ends
        )
    suppressed = given.ids("suppress_tokens")
    if suppressed.value:
        draft.processor("suppress_tokens", token_ids=suppressed)
    suppressed = given.ids("begin_suppress_tokens")
    if suppressed.value:
        draft.processor("begin_suppress_tokens", token_ids=suppressed)
        if is_forced:
            given.leave(
                suppressed,
                "after a prompt of one token, where the next one is forced, transformers begins "
                "to suppress one token later; say `begin_index: 1` for such prompts",
            )


class _Drawing:
    """What only a draw looks at."""

    def __init__(self, given: Given, is_drawn: Said) -> None:
        number = given.number
        self.temperature = number("temperature", default=1.0, **coldest(is_drawn))
        self.top_h = number("top_h", above=0, most=1)
        self.top_k = given.whole("top_k", default=50, least=0)
        self.top_p = number("top_p", default=1.0, least=0, most=1)
        self.min_p = number("min_p", default=0.0, least=0, most=1)
        self.typical = number("typical_p", default=1.0, above=0)
        self.epsilon = number("epsilon_cutoff", default=0.0)
        self.eta = number("eta_cutoff", default=0.0)


def _warpers(draft: Draft, drawing: _Drawing, min_keep: int) -> None:
    keep: dict[str, Any] = {"min_keep": min_keep} if min_keep > 1 else {}
    if drawing.temperature.value != 1:
        draft.processor("temperature", temperature=drawing.temperature)
    if drawing.top_h.value is not None:
        draft.processor("top_h", h=drawing.top_h, num_candidates=100)
    if drawing.top_k.value:
        draft.processor("top_k", k=drawing.top_k, ties="keep", **keep)
    if drawing.top_p.value < 1:
        draft.processor("top_p", p=drawing.top_p, **keep)
    if drawing.min_p.value:
        draft.processor("min_p", min_p=drawing.min_p, **keep)
    if drawing.typical.value < 1:
        draft.processor("typical_p", p=drawing.typical, ties="keep", **keep)
    for part, cutoff in (("epsilon", drawing.epsilon), ("eta", drawing.eta)):
        if 0 < cutoff.value < 1:
            draft.processor(part, epsilon=cutoff, **keep)


def _watermark(given: Given, draft: Draft) -> None:
    config = given.take("watermarking_config", read=_scheme)
    if config.value is not None:
        draft.processor("watermark", scheme=config)


def _ends(given: Given, draft: Draft, ends: Said, more_ends: dict[str, Said]) -> None:
    draft.stop("eos", because=ends, **more_ends)
    strings = given.texts("stop_strings")
    if strings.value:
        draft.stop("stop_strings", strings=strings, include=True)
        given.leave(strings, "a string that begins in the prompt ends nothing here")
    new, whole = given.whole("max_new_tokens", least=1), given.whole("max_length", least=1)
    if new.value is not None:
        draft.stop("max_new_tokens", limit=new)
        if whole.value is not None:
            given.leave(whole, "max_new_tokens wins over it")
    elif whole.value is not None:
        draft.stop("max_length", limit=whole)
    else:
        draft.stop("max_new_tokens", limit=new.but(20))
    seconds = given.number("max_time")
    if seconds.value is not None:
        draft.stop("time_limit", seconds=seconds)


def _pair(value: Any) -> tuple[int, float]:
    try:
        start, factor = value
        return as_whole(start), float(as_number(factor))
    except (TypeError, ValueError):
        raise ValueError("[start, factor] is expected") from None


def _sequence_biases(value: Any) -> list[dict[str, Any]]:
    """A list of `[ids, bias]`; of a sequence that is given twice the last bias counts."""
    pairs = value.items() if isinstance(value, Mapping) else value
    try:
        biases = {tuple(map(as_whole, ids)): float(bias) for ids, bias in pairs}
    except (TypeError, ValueError, OverflowError):
        raise ValueError("a list of [token ids, bias] is expected") from None
    return [{"token_ids": list(ids), "bias": bias} for ids, bias in biases.items()]


_GREEN = {
    "greenlist_ratio": "ratio",
    "bias": "bias",
    "hashing_key": "hashing_key",
    "seeding_scheme": "seeding",
    "context_width": "context_width",
}


def _scheme(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("an object is expected")
    ignored = ("debug_mode", "watermarking_type")
    options = {name: item for name, item in value.items() if name not in ignored}
    if "keys" in options:
        return {"type": "synthid", **options}
    return {"type": "green_list", **{_GREEN.get(name, name): v for name, v in options.items()}}
