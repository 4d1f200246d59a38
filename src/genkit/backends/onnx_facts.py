"""What the files beside a graph say about its model."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genkit.backends.json_files import EXPORT_REPORT, ids_in, json_if_there
from genkit.backends.onnx_file import GraphFile
from genkit.backends.onnx_graph import Graph, LayerPorts
from genkit.errors import ModelLoadError

_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_WINDOWS = ("sliding_window", "attention_chunk_size", "window_size", "sliding_window_size")
_SHORT_SIGHTED = ("sliding_attention", "chunked_attention")
_WIDTHS = ("hidden_size", "n_embd", "d_model")

logger = logging.getLogger(__name__)


class Settings:
    """The JSON files of a model folder, as far as they are there.

    Args:
        folder: where the graph is; what is not there is looked for one folder further out, since
            graphs often lie in a subfolder.
    """

    def __init__(self, folder: Path) -> None:
        def read(name: str) -> dict[str, Any]:
            return json_if_there(folder / name) or json_if_there(folder.parent / name)

        self._folder = folder
        config = read("config.json")
        inner = config.get("text_config")
        self.config: Mapping[str, Any] = inner if isinstance(inner, Mapping) else config
        self.generation = read("generation_config.json")
        model = read("genai_config.json").get("model")
        self.export = read(EXPORT_REPORT)
        self.genai: Mapping[str, Any] = model if isinstance(model, Mapping) else {}

    def eos_token_ids(self, tokenizer: Any, vocab_size: int) -> frozenset[int]:
        """The union of what the files and the tokenizer say."""
        said = {
            "generation_config.json": self.generation.get("eos_token_id"),
            "config.json": self.config.get("eos_token_id"),
            "genai_config.json": self.genai.get("eos_token_id"),
            "the tokenizer": getattr(tokenizer, "eos_token_id", None),
        }
        found = (i for name, ids in said.items() for i in ids_in(ids, f"{self._folder}: {name}"))
        return frozenset(i for i in found if 0 <= i < vocab_size)

    def context_length(self, file: GraphFile) -> int | None:
        """The most tokens of one row, as far as the graph computes what the model does.

        It has rotations or embeddings for so many; and one that was made without the model's
        windows is right until the first of them would leave a token out.
        """
        said = [
            _first(self.config, _LENGTHS),
            *(_whole(each.get("context_length")) for each in (self.genai, self.export)),
        ]
        known = [n for n in (*said, file.table_length) if n is not None]
        length = min(known, default=None)
        window = self.window()
        if window is not None and window < (length or math.inf) and self._leaves_out_window(file):
            logger.warning(
                "%s was made without the model's attention window of %d tokens and computes "
                "something else beyond; its context ends there",
                file.path,
                window,
            )
            return window
        return length

    def _leaves_out_window(self, file: GraphFile) -> bool:
        if file.shares_memory:
            return not any(file.windows)
        # Where operators of one purpose each make up an attention, distances are compared with the
        # window. Some architectures have it in a table instead; none of those calls it so.
        window = _whole(self.config.get("sliding_window"))
        return window is not None and not {window, -window, window - 1, 1 - window} & file.numbers

    def window(self) -> int | None:
        """How many tokens the layers see that do not see all; None where there are no such layers.

        Whether it slides or is a chunk makes no difference.
        """
        kinds = self.config.get("layer_types")
        if isinstance(kinds, list) and not any(kind in kinds for kind in _SHORT_SIGHTED):
            return None
        if self.config.get("use_sliding_window") is False:
            return None
        return _first(self.config, _WINDOWS)

    def sees_all(self) -> bool:
        """Whether every layer is known to see every earlier token, however far away."""
        if not self.config or self.window() is not None:
            return False
        return not self.config.get("alibi") and self.config.get("model_type") not in (
            "bloom",
            "mpt",
        )

    def sizes(self, graph: Graph) -> list[tuple[int, int]]:
        """Heads and width of each key and value of the past, in the order of ``graph.past``.

        Raises:
            ModelLoadError: the graph leaves one open, and no file says it.
        """
        return [(self._size(graph, ports, 1), self._size(graph, ports, 3)) for ports in graph.past]

    def _size(self, graph: Graph, ports: LayerPorts, i: int) -> int:
        for port in (ports.past, ports.present):
            if len(port.shape) != 4:
                raise ModelLoadError(
                    f"{graph.path}: {port.name!r} has {len(port.shape)} dimensions; known are "
                    "[batch, heads, slots, width]"
                )
            if isinstance(size := port.shape[i], int):
                return size
        decoder = self.genai.get("decoder")
        decoder = decoder if isinstance(decoder, Mapping) else {}
        if i == 3:
            said = _whole(decoder.get("head_size")) or _whole(self.config.get("head_dim"))
            heads, width = _first(self.config, _HEADS), _first(self.config, _WIDTHS)
            size = said or (width // heads if heads and width else None)
        else:
            size = _first(decoder, ("num_key_value_heads",)) or _first(
                self.config, ("num_key_value_heads", *_HEADS)
            )
        if size is None:
            what = "width of the heads" if i == 3 else "number of key heads"
            raise ModelLoadError(
                f"neither {graph.path} nor a file beside it (config.json, genai_config.json) says "
                f"the {what} of {ports.past.name!r}"
            )
        return size


def _first(settings: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((n for name in names if (n := _whole(settings.get(name)))), None)


def _whole(value: Any) -> int | None:
    """A whole number above 0, also where it is written 8.0; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value > 0 else None
