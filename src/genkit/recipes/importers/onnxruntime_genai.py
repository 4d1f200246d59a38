"""onnxruntime-genai: the search options, as in the `search` of genai_config.json."""

from __future__ import annotations

from genkit.recipes.importers.common import coldest, write_repetition
from genkit.recipes.importers.draft import Draft
from genkit.recipes.importers.given import Aside, Given, Said

_BEAMS = "genkit has no beam search that would use it"

ASIDE: Aside = {
    "num_return_sequences": (1, "say --num-samples when you generate"),
    "early_stopping": (True, _BEAMS),
    "length_penalty": (1.0, _BEAMS),
    "diversity_penalty": (0.0, _BEAMS),
    "past_present_share_buffer": (False, "it is about memory"),
    "batch_size": (1, "a recipe has no batch"),
    "chunk_size": (None, "it is `prefill_chunk` of the backend"),
}


def write(given: Given, draft: Draft) -> None:
    """Least length, repetition, n-grams; then the first token, or top_k, temperature, top_p."""
    is_drawn = given.flag("do_sample")
    beams = given.whole("num_beams", default=1, least=1)
    if beams.value > 1:
        given.leave(beams, "genkit has no beam search; one text is continued")
    ends = given.ids("eos_token_id")
    more_ends = {"token_ids": ends} if ends.is_given else {}
    least = given.whole("min_length", default=0)
    if least.value > 0:
        draft.processor("min_length", limit=least, **more_ends)
    write_repetition(given, draft)
    drawing = (
        given.whole("top_k", default=50, least=0),
        given.number("temperature", default=1.0, **coldest(is_drawn)),
        given.number("top_p", default=0.0, least=0, most=1),
    )
    if is_drawn.value:
        _truncation(given, draft, *drawing)
    else:
        given.leave_idle(drawing, "onnxruntime-genai uses it only with do_sample=true")
    draft.sampler("categorical" if is_drawn.value else "greedy", because=is_drawn)
    draft.stop("eos", because=ends, **more_ends)
    limit = given.whole("max_length", least=1)
    if limit.value is not None:
        draft.stop("max_length", limit=limit)
    seed = given.whole("random_seed", default=-1)
    if seed.value != -1:
        draft.seed(seed)


def _truncation(given: Given, draft: Draft, top_k: Said, temperature: Said, top_p: Said) -> None:
    if top_k.value:
        draft.processor("top_k", k=top_k, ties="by_id")
    if temperature.value != 1:
        draft.processor("temperature", temperature=temperature)
    if 0 < top_p.value < 1:
        draft.processor("top_p", p=top_p)
        if top_k.value == 0:
            given.leave(top_p, "without top_k onnxruntime-genai may keep some more tokens")
    elif top_p.value == 0 and top_k.value == 0:  # then it takes the most probable token
        draft.processor("top_k", because=top_p, k=top_p.but(1))
