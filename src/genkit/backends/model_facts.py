"""What the configuration of a transformers model says about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch

from genkit.backends.json_files import ids_in
from genkit.backends.transformers_compat import (
    Signature,
    counting_from_ids,
    has_windows,
    shared_layers,
)
from genkit.errors import ModelLoadError

logger = logging.getLogger(__name__)

_ALIBI_TYPES = {"bloom", "mpt"}  # positions come from the attention mask


@dataclass(frozen=True)
class Facts:
    """The facts of a model that do not change.

    Attributes:
        vocab_size: width of the logits.
        eos_token_ids: every id that ends a text.
        context_length: the most tokens of one row; None if the model knows no limit.
        supports: capabilities; see `genkit.core.contracts.CAPABILITIES`.
        shared_layers: see `transformers_compat.shared_layers`; None for a recurrent model.
        rope_is_capped: whether `context_length` is where the rotation would begin to change.
    """

    vocab_size: int
    eos_token_ids: frozenset[int]
    context_length: int | None
    supports: frozenset[str]
    shared_layers: list[bool] | None
    rope_is_capped: bool


def facts_of(module: Any, tokenizer: Any = None) -> Facts:
    """Read the facts of a model.

    Raises:
        ModelLoadError: it is no causal model, or keeps nothing between calls.
    """
    config = module.config.get_text_config(decoder=True)
    refuse_what_does_not_generate(module)
    vocab_size = width_of_logits(module, config)
    layers = None if getattr(module, "_is_stateful", False) else shared_layers(module.config)
    if layers is None:
        refuse_what_returns_no_state(module)
        refuse_steps_that_differ(module, str(Signature(module).cache), vocab_size)
    capped = length_of_constant_rope(config)
    length = places(module, context_length(config))
    if capped is not None:
        length = min(capped, length or capped)
        logger.warning(
            "the rotary embedding of %s changes beyond %d tokens; its context ends there",
            type(module).__name__,
            length,
        )
    return Facts(
        vocab_size=vocab_size,
        eos_token_ids=eos_token_ids(module, config, tokenizer, vocab_size),
        context_length=length,
        supports=supports(module, config, layers),
        shared_layers=layers,
        rope_is_capped=capped is not None,
    )


def refuse_what_does_not_generate(module: Any) -> None:
    """Name what kind of model this is, where it is not one that continues a text."""
    name = type(module).__name__
    refuse_encoder_decoder(module.config, name)
    if module.get_output_embeddings() is None and not hasattr(module, "lm_head"):
        raise ModelLoadError(f"{name} gives no logits over a vocabulary; it is no language model")
    if getattr(module.config, "is_decoder", True) is False and sees_ahead(module):
        raise ModelLoadError(
            f"{name} sees both sides of a position, it continues no text; a model of this kind "
            "that was trained to generate says `is_decoder: true` in its config"
        )
    if Signature(module).cache is None:
        raise ModelLoadError(f"{name} keeps nothing between calls in this version of transformers")


def refuse_what_returns_no_state(module: Any) -> None:
    """Refuse a recurrent model whose output lacks the state: it keeps one inside, for all runs."""
    signature = Signature(module)
    options = {"use_cache": True} if signature.use_cache else {}
    with torch.no_grad():
        output = module(torch.tensor([[0]], device=module.device), **options)
    if getattr(output, str(signature.cache), None) is None:
        raise ModelLoadError(
            f"{type(module).__name__} returns no state in this version of transformers, so that "
            "its texts cannot be gone on with"
        )


def refuse_steps_that_differ(module: Any, cache_name: str, vocab_size: int) -> None:
    """Refuse a recurrent model whose single steps do not compute what its plain forward does.

    What it keeps is of its own making, so this is tried on a few tokens. In half precision rounding
    alone makes a difference, and nothing is said.
    """
    if module.dtype not in (torch.float32, torch.float64):
        return
    input_ids = torch.arange(1, 9, device=module.device)[None] * 7919 % vocab_size
    positions = torch.arange(8, device=module.device)[None]
    signature = Signature(module)
    past, largest = None, 0.0
    with torch.no_grad():
        plain = module(input_ids).logits[0]
        for start, end in ((0, 5), (5, 6), (6, 7), (7, 8)):
            arguments: dict[str, Any] = {} if past is None else {cache_name: past}
            if signature.use_cache:
                arguments["use_cache"] = True
            if signature.positions:
                arguments["position_ids"] = positions[:, start:end]
            output = module(input_ids[:, start:end], **arguments)
            past = getattr(output, cache_name)
            difference = (output.logits[0, -1] - plain[end - 1]).abs().max()
            largest = max(largest, float(difference))
    rounding = 1000 * torch.finfo(module.dtype).eps * max(1.0, float(plain.abs().max()))
    if largest > rounding:
        raise ModelLoadError(
            f"{type(module).__name__} gives other logits token by token than at once (by up to "
            f"{largest:.2g}, where rounding explains {rounding:.1g}): in this version of "
            "transformers its state is not what its forward computes"
        )


def refuse_encoder_decoder(config: Any, name: str) -> None:
    """Refuse what reads one text and writes another.

    Raises:
        ModelLoadError: it does.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise ModelLoadError(
            f"{name} is an encoder-decoder model ({config.model_type}); genkit runs decoder-only "
            "(causal) language models"
        )


def sees_ahead(module: Any) -> bool:
    """Whether logits depend on the token after their position, as BERT's do.

    Computed, since `is_decoder: false` stands in configs of causal models too.
    """
    input_ids = torch.tensor([[0, 1], [0, 2]], device=module.device)
    with torch.no_grad():
        one, other = module(input_ids).logits[:, 0]
    rounding = 16 * torch.finfo(one.dtype).eps * float(one.abs().max())
    return float((one - other).abs().max()) > rounding


def width_of_logits(module: Any, config: Any) -> int:
    """The output width of the head, which may be larger than the tokenizer's vocabulary."""
    weight = getattr(module.get_output_embeddings(), "weight", None)
    return int(config.vocab_size if weight is None else weight.shape[0])


def eos_token_ids(module: Any, config: Any, tokenizer: Any, vocab_size: int) -> frozenset[int]:
    """The union of what generation settings, configuration and tokenizer say; no ids fall out.

    A chat model's turn-end token often stands in only one of them.
    """
    sources = (
        ("generation_config.json", getattr(module, "generation_config", None)),
        ("config.json", module.config),
        ("config.json", config),
        ("the tokenizer", getattr(tokenizer, "inner", tokenizer)),
    )
    found: set[int] = set()
    for where, source in sources:
        found.update(ids_in(getattr(source, "eos_token_id", None), where))
    return frozenset(i for i in found if 0 <= i < vocab_size)


def context_length(config: Any) -> int | None:
    """The most tokens of one row, a scaled rotary embedding included; None without a limit."""
    if config.model_type == "mpt":
        return int(config.max_seq_len)  # as wide is its table of distances
    if config.model_type in _ALIBI_TYPES or getattr(config, "alibi", False):
        return None
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int) or length <= 0:
        return None
    scaled = [length]
    for rope in ropes(config):
        if rope.get("rope_type") in ("linear", "yarn") and rope.get("factor"):
            original = rope.get("original_max_position_embeddings") or length
            scaled.append(int(original * rope["factor"]))
    return max(scaled)


def places(module: Any, length: int | None) -> int | None:
    """The context without the rows of a position table that stand before the first position."""
    for embeddings in counting_from_ids(module):
        table = getattr(embeddings, "position_embeddings", None)
        first = getattr(embeddings, "padding_idx", None)
        if length is not None and table is not None and first is not None:
            length = min(length, table.weight.shape[0] - (first + 1))
    return length


def counts_columns(module: Any) -> bool:
    """Whether padding uses the context up: a table of the model is as wide as the context.

    A row may be as long as the context, and the columns before it come on top of that.
    """
    if module.config.model_type == "mpt":
        return True  # its table is made in the forward
    squares = (b for b in module.buffers() if b.dim() == 4 and b.dtype in (torch.bool, torch.uint8))
    return any(1 < square.shape[-1] == square.shape[-2] for square in squares)


def padding_gives_nan(module: Any, config: Any) -> bool:
    """Whether places of padding, which see no key, become NaN and spoil what sees them later.

    Eager attention hides keys with the least float64 and takes the softmax in float32, where that
    is -inf.
    """
    eager = getattr(config, "_attn_implementation", None) == "eager"
    return bool(eager and module.dtype == torch.float64)


def length_of_constant_rope(config: Any) -> int | None:
    """Up to which length the rotation is constant; None if it always is.

    With `dynamic` scaling the base, with `longrope` the set of factors changes once a text passes
    that length, for all positions: keys rotated earlier, waiting in the cache, no longer fit. Below
    it both are plain rotations, and cached and uncached decoding agree.
    """
    lengths = []
    for rope in ropes(config):
        original = rope.get("original_max_position_embeddings")
        kind = str(rope.get("rope_type", ""))
        if kind == "longrope":
            original = original or getattr(config, "original_max_position_embeddings", None)
            lengths.append(int(original or config.max_position_embeddings))
        elif "dynamic" in kind:
            lengths.append(int(config.max_position_embeddings))
    return min(lengths, default=None)


def ropes(config: Any) -> list[dict[str, Any]]:
    """The rotary settings of a config: one, none, or one a kind of layer."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)]
    return nested or [rope]


def supports(module: Any, config: Any, layers: list[bool] | None) -> frozenset[str]:
    """What the model can do beyond one token after another; nothing for a recurrent one."""
    if layers is None:
        return frozenset()
    capabilities = {"crop", "reorder", "block", "layers", "static"}
    signature = Signature(module)
    knows_positions = signature.positions or config.model_type in _ALIBI_TYPES
    if signature.mask and knows_positions and not counts_columns(module):
        if not padding_gives_nan(module, config):
            capabilities.add("ragged")
        # Windows and alibi measure distances in keys, so that all of them must be there.
        alibi = config.model_type in _ALIBI_TYPES or getattr(config, "alibi", False)
        if not alibi and not has_windows(module.config):
            capabilities.add("positions")
    return frozenset(capabilities)
