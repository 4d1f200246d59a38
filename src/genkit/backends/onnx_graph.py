"""What the graph of a language model takes and gives, read from its own inputs and outputs.

Exporters name the same things differently, and leave out what a model does not need. What stands in
the way of running a graph is found here, before anything is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from genkit.errors import ModelLoadError

_ROLES = {
    "input_ids": "ids",
    "attention_mask": "mask",
    "position_ids": "positions",
    "cache_position": "columns",
    "logits_to_keep": "kept",
    "num_logits_to_keep": "num_kept",
    "use_cache_branch": "has_past",
}
"""What genkit feeds under which names."""

_PASTS = (
    # optimum, the community's exports and the model builder of onnxruntime-genai
    (r"past_key_values\.(?P<layer>\d+)\.(?P<part>key|value)", "present.{layer}.{part}"),
    # the exporter of transformers
    (
        r"input\.(?P<name>\w+)\.layers\.(?P<layer>\d+)\.(?P<part>keys|values)",
        "output.{name}.layers.{layer}.{part}",
    ),
)
"""How the past of a layer is called, and what the graph then calls it with the new columns."""

_TELLING = {
    "encoder_hidden_states": "it is one half of an encoder-decoder model",
    "decoder_input_ids": "it is an encoder-decoder model",
    "token_type_ids": "it is an encoder, such as BERT, which continues no text",
    "pixel_values": "it reads images",
    "inputs_embeds": "its embedding was exported as a graph of its own",
}
"""What an input says about a graph that cannot be used."""

_DTYPES = {
    "tensor(float)": torch.float32,
    "tensor(float16)": torch.float16,
    "tensor(bfloat16)": torch.bfloat16,
    "tensor(double)": torch.float64,
    "tensor(int64)": torch.int64,
    "tensor(int32)": torch.int32,
    "tensor(bool)": torch.bool,
}


@dataclass(frozen=True)
class Port:
    """One input or output of a graph.

    Attributes:
        name: as the graph has it.
        dtype: of its tensor.
        shape: its sizes; a name or None where the graph leaves one open.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class LayerPorts:
    """Where keys or values of one layer go in, and where they come out with the new columns."""

    past: Port
    present: Port


@dataclass(frozen=True)
class Graph:
    """What goes in and out.

    Attributes:
        path: the file.
        ids, logits: what every language model has.
        mask, positions, columns, kept, num_kept, has_past: inputs that a graph may do without:
            which places hold a token; the position of each token in its row; the column of each
            token; which of the columns fed get logits; how many of the last ones get logits;
            whether there is a past.
        past: keys and values of each layer in turn; empty if the graph keeps nothing.
    """

    path: Path
    ids: Port
    logits: Port
    mask: Port | None
    positions: Port | None
    columns: Port | None
    kept: Port | None
    num_kept: Port | None
    has_past: Port | None
    past: tuple[LayerPorts, ...]

    @property
    def dtype(self) -> torch.dtype:
        """In what precision it computes, as far as its past and its logits show."""
        dtypes = {self.logits.dtype, *(ports.past.dtype for ports in self.past)}
        return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)

    @property
    def is_cut(self) -> bool:
        """Whether logits are only those of the last positions fed, be they tokens or padding."""
        return self.takes_num_kept or self.gives_last_only

    @property
    def takes_num_kept(self) -> bool:
        """Whether it can be told of which positions logits are wanted."""
        return self.num_kept is not None or self.kept is not None

    @property
    def gives_last_only(self) -> bool:
        """Whether there are logits of one position only, whatever is asked for."""
        return self.logits.shape[1] == 1


def read_graph(path: Path, inputs: Iterable[Any], outputs: Iterable[Any]) -> Graph:
    """Find out what is what.

    Args:
        path: the file, for messages.
        inputs, outputs: what a session of ONNX Runtime lists; each has `name`, `type` and `shape`.

    Raises:
        ModelLoadError: it is no graph of a causal language model, or one that asks for something
            that genkit does not know.
    """
    # An output that nobody reads may be of any type.
    read = [each for each in outputs if each.type in _DTYPES]
    taken, given = _ports(path, inputs), _ports(path, read)
    past = _past(path, taken, given)
    rest = {name: port for name, port in taken.items() if not _past_name(name)}
    roles = {role: port for name, port in rest.items() if (role := _ROLES.get(name))}
    if "kept" in roles and not roles["kept"].shape:
        # As a number it means what the other name means, in transformers as well.
        roles.setdefault("num_kept", roles.pop("kept"))
    if unknown := sorted(set(rest) - set(_ROLES)):
        raise ModelLoadError(_unknown_inputs(path, unknown))
    if "ids" not in roles:
        raise ModelLoadError(f"{path} takes no `input_ids` but {_listed(taken)}: no language model")
    if "logits" not in given:
        raise ModelLoadError(
            f"{path} gives no `logits` but {_listed(given)}; export the model for text generation"
        )
    if not given["logits"].dtype.is_floating_point:
        raise ModelLoadError(f"{path} gives `logits` that are whole numbers; no language model")
    return Graph(
        path=path,
        ids=roles["ids"],
        logits=given["logits"],
        mask=roles.get("mask"),
        positions=roles.get("positions"),
        columns=roles.get("columns"),
        kept=roles.get("kept"),
        num_kept=roles.get("num_kept"),
        has_past=roles.get("has_past"),
        past=past,
    )


def _ports(path: Path, described: Iterable[Any]) -> dict[str, Port]:
    ports = {}
    for each in described:
        if each.type not in _DTYPES:
            raise ModelLoadError(
                f"{path}: {each.name!r} is a {each.type}, which genkit cannot feed"
            )
        ports[each.name] = Port(each.name, _DTYPES[each.type], tuple(each.shape))
    return ports


def _past_name(name: str) -> tuple[int, str, str] | None:
    """Layer, `key` or `value`, and the name of the output, of an input that is part of the past."""
    for pattern, output in _PASTS:
        if found := re.fullmatch(pattern, name):
            part = found["part"].removesuffix("s")
            return int(found["layer"]), part, output.format(**found.groupdict())
    return None


def _past(
    path: Path, taken: Mapping[str, Port], given: Mapping[str, Port]
) -> tuple[LayerPorts, ...]:
    found = {name: place for name in taken if (place := _past_name(name))}
    ports = []
    for name, (_, _, output) in sorted(found.items(), key=lambda item: item[1][:2]):
        if output not in given:
            raise ModelLoadError(
                f"{path} takes {name!r} and gives no {output!r}, so that a text cannot go on; it "
                f"gives {_listed(given)}"
            )
        ports.append(LayerPorts(taken[name], given[output]))
    counted = [place[:2] for place in sorted(found.values())]
    if counted != [(i, part) for i in range(len(ports) // 2) for part in ("key", "value")]:
        # Layers without attention have a state, which is another kind of past.
        raise ModelLoadError(
            f"{path} does not take a key and a value of every layer: {_listed(found)}"
        )
    return tuple(ports)


def _unknown_inputs(path: Path, unknown: list[str]) -> str:
    reasons = [_TELLING[name] for name in unknown if name in _TELLING]
    if any("encoder" in name and name not in _TELLING for name in unknown):
        reasons.append(_TELLING["encoder_hidden_states"])
    because = f": {reasons[0]}" if reasons else ""
    return (
        f"{path} takes {', '.join(map(repr, unknown))}, which genkit does not know{because}. It "
        f"knows {', '.join(_ROLES)} and the keys and values of a past"
    )


def _listed(names: Iterable[str], most: int = 6) -> str:
    names = list(names)
    listed = ", ".join(map(repr, names[:most])) or "nothing"
    return listed + (f" and {len(names) - most} more" if len(names) > most else "")
