"""Small graphs of causal language models, made by hand, and the same computation in plain torch.

    folder = graphs.write(tmp_path, graphs.Form(mask=False))
    model = graphs.load("genai")
    expected = graphs.logits(ids)

Weights are large and logits far from flat, so that a wrong position, slot or mask shows. A graph
watches what it is fed: its logits are NaN where the mask is not as wide as past and new tokens
together, where `use_cache_branch` says something else than the past, and so on.
"""

from __future__ import annotations

import functools
import itertools
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from genkit.backends.onnxruntime_ import OnnxRuntime

VOCAB_SIZE = 97
WIDTH = 32
NUM_LAYERS = 2
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 4, 2, 16  # the operator of genai wants a multiple of 16
CONTEXT_LENGTH = 256

_TYPES = {
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float64": TensorProto.DOUBLE,
    "bool": TensorProto.BOOL,
}

Positions = Literal["given", "from_mask", "columns", "cache_position"]


@dataclass(frozen=True)
class Form:
    """How a graph is made; by default like one of optimum.

    Attributes:
        past: how keys and values are called; `none`: the graph keeps nothing; `shared`: they are
            written into the memory where the old ones are, by GroupQueryAttention.
        embedding: how positions enter: a rotation, a `learned` table, or not at all.
        positions: where they come from: the input `position_ids`, the sums of the mask, the number
            of the column, or the input `cache_position`.
        mask: whether there is an `attention_mask`; mask_type, ids_type: of these inputs.
        num_kept: `scalar` or `list`: there is an input `num_logits_to_keep`, in this form;
            `positions`: there is `logits_to_keep`, a list of those that get logits.
        most_kept: the most positions that may be asked for; more give NaN, of ten tokens or more.
        num_kept_name: what that input is called.
        has_branch: whether there is an input `use_cache_branch`.
        last_only: whether logits are those of the last position only.
        causal: False for an encoder.
        baked: the batch or the number of tokens that nodes inside insist on.
        batch: the number of rows that the inputs are declared to have; None: any.
        dtype: of weights, keys and logits.
        vocab_size: width of the logits; favourite: an id with logit 100, whatever was fed; masked:
            one with -inf.
        open_sizes: whether heads and width of the keys are left open.
        table_length: how many positions there are rotations for.
        extra: more inputs, which nothing uses.
        output: what the logits are called.
        drop_present: whether one output of the past is left out.
        windows: how many tokens each layer sees, itself included, in a `shared` graph.
        sliding_cache: whether those with a window may forget what lies before it.
        opset: of the graph.
    """

    past: Literal["optimum", "transformers", "none", "shared"] = "optimum"
    embedding: Literal["rotary", "learned", "none"] = "rotary"
    positions: Positions = "given"
    mask: bool = True
    mask_type: str = "int64"
    ids_type: str = "int64"
    num_kept: Literal["scalar", "list", "positions"] | None = None
    num_kept_name: str = "num_logits_to_keep"
    most_kept: int = 1000
    has_branch: bool = False
    last_only: bool = False
    causal: bool = True
    baked: dict[str, int] = field(default_factory=dict)
    batch: int | None = None
    dtype: str = "float32"
    vocab_size: int = VOCAB_SIZE
    favourite: int | None = None
    masked: int | None = None
    open_sizes: bool = False
    table_length: int = CONTEXT_LENGTH
    extra: tuple[str, ...] = ()
    output: str = "logits"
    drop_present: bool = False
    windows: tuple[int | None, ...] = (None,) * NUM_LAYERS
    sliding_cache: bool = False
    opset: int = 18

    def __hash__(self) -> int:
        return hash(repr(self))

    def with_(self, **changes: Any) -> Form:
        """The same form but for some attributes."""
        return replace(self, **changes)


LAYOUTS = {
    "optimum": Form(),
    "positions_from_mask": Form(positions="from_mask"),
    "learned": Form(embedding="learned"),
    "no_positions": Form(embedding="none", positions="columns"),
    "merged": Form(has_branch=True, mask_type="int32", ids_type="int32"),
    "kept": Form(num_kept="scalar", mask_type="bool"),
    "kept_list": Form(num_kept="list", mask_type="float32"),
    "kept_positions": Form(num_kept="positions", num_kept_name="logits_to_keep"),
    "kept_number": Form(num_kept="scalar", num_kept_name="logits_to_keep"),
    "last_only": Form(last_only=True),
    "transformers": Form(past="transformers"),
    "float64": Form(dtype="float64"),
    "no_past": Form(past="none"),
    "shared": Form(past="shared", positions="columns"),
    "shared_positions": Form(past="shared", positions="given"),
    "shared_kept": Form(past="shared", positions="columns", num_kept="list"),
    "shared_kept_positions": Form(
        past="shared", positions="columns", num_kept="positions", num_kept_name="logits_to_keep"
    ),
    "shared_last": Form(past="shared", positions="columns", last_only=True),
    "shared_windows": Form(past="shared", positions="columns", windows=(7, None)),
    "shared_sliding": Form(
        past="shared", positions="columns", windows=(7, None), sliding_cache=True
    ),
    "unmasked": Form(mask=False, positions="columns"),
    "cache_position": Form(mask=False, positions="cache_position"),
    "unpositioned": Form(embedding="learned", positions="columns"),
    "by_column": Form(positions="columns"),
    "one_row": Form(batch=1),
}
"""Forms that run. Those from `unmasked` on serve no rows of different lengths together."""

RAGGED = tuple(itertools.takewhile(lambda name: name != "unmasked", LAYOUTS))
UNIFORM = tuple(name for name in LAYOUTS if name not in RAGGED)
SHARED = tuple(name for name, form in LAYOUTS.items() if form.past == "shared")


# --- weights, and what they should give ---------------------------------------------------


@functools.cache
def weights(vocab_size: int = VOCAB_SIZE, table_length: int = CONTEXT_LENGTH) -> dict[str, Any]:
    """The numbers of every graph, float64; other sizes leave those that stay as they are."""

    def normal(seed: int, *shape: int) -> np.ndarray[Any, Any]:
        return np.random.default_rng(seed).normal(size=shape)

    pairs = np.arange(HEAD_DIM // 2)
    angles = np.arange(table_length)[:, None] * 100.0 ** (-pairs / len(pairs))
    found = {
        "embedding": normal(1, vocab_size, WIDTH),
        "table": normal(2, table_length, WIDTH),
        "head": 0.5 * normal(3, vocab_size, WIDTH).T,
        "cos": np.cos(angles),
        "sin": np.sin(angles),
    }
    for i in range(NUM_LAYERS):
        heads = NUM_HEADS + 2 * NUM_KV_HEADS
        found[f"qkv{i}"] = 0.35 * normal(10 + i, WIDTH, heads * HEAD_DIM)
        found[f"out{i}"] = 0.35 * normal(20 + i, NUM_HEADS * HEAD_DIM, WIDTH)
    return found


def logits(
    ids: Sequence[int], form: Form | None = None, seen: torch.Tensor | None = None
) -> torch.Tensor:
    """Logits at each position of one row, float64 `[len(ids), vocab_size]`.

    Args:
        ids: of the row.
        form: of the graph that is to give them.
        seen: which position is seen from which, bool `[len(ids), len(ids)]`; by default all before.
    """
    form = form or Form()
    w = {name: torch.from_numpy(value) for name, value in weights(form.vocab_size).items()}
    n = len(ids)
    hidden = w["embedding"][list(ids)]
    if form.embedding == "learned":
        hidden = hidden + w["table"][:n]
    if seen is None:
        seen = torch.ones(n, n, dtype=torch.bool).tril()
    for i, window in enumerate(form.windows):
        heads = (_normed(hidden) @ w[f"qkv{i}"]).unflatten(-1, (-1, HEAD_DIM)).transpose(0, 1)
        query, key, value = heads.split((NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS))
        if form.embedding == "rotary":
            query, key = (_turned(each, w["cos"][:n], w["sin"][:n]) for each in (query, key))
        share = NUM_HEADS // NUM_KV_HEADS
        key, value = (each.repeat_interleave(share, 0) for each in (key, value))
        scores = query @ key.transpose(1, 2) / HEAD_DIM**0.5
        near = seen if window is None else seen.triu(1 - window)
        mixed = scores.masked_fill(~near, -torch.inf).softmax(-1) @ value
        hidden = hidden + mixed.transpose(0, 1).flatten(1) @ w[f"out{i}"]
    return _normed(hidden) @ w["head"]


def greedy(ids: Sequence[int], steps: int, form: Form | None = None) -> list[int]:
    """The tokens that follow, each the likeliest."""
    row = list(ids)
    for _ in range(steps):
        row.append(int(logits(row, form)[-1].argmax()))
    return row[len(ids) :]


def _normed(hidden: torch.Tensor) -> torch.Tensor:
    return hidden / (hidden.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


def _turned(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = heads.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


# --- graphs -------------------------------------------------------------------------------


def write(
    folder: Path,
    form: Form | None = None,
    *,
    file: str = "model.onnx",
    external: bool = False,
    **config: Any,
) -> Path:
    """Write a graph and its `config.json`.

    Args:
        folder: is made if it is not there.
        form: of the graph.
        file: name of the graph.
        external: whether weights go into a file of their own, FILE.data.
        config: entries of `config.json` that differ from the true ones; None leaves one out.

    Returns:
        `folder`.
    """
    form = form or Form()
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(
        _Builder(form).model(),
        str(path),
        save_as_external_data=external,
        location=f"{path.name}.data",
        size_threshold=1000,  # sizes must be known before weights are read
    )
    facts = {
        "max_position_embeddings": CONTEXT_LENGTH,
        "num_attention_heads": NUM_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_size": WIDTH,
        **config,
    }
    known = {name: value for name, value in facts.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(known))
    return folder


_FOLDERS = tempfile.TemporaryDirectory(prefix="graphs-")


def load(form: str | Form, **options: Any) -> Any:
    """A model of a form, or of one of `LAYOUTS`; the graph is written once."""
    found = LAYOUTS[form] if isinstance(form, str) else form
    options = {"provider": "cpu", "threads": 1, **options}
    return OnnxRuntime(model=str(_written(found)), **options).load()


@functools.cache
def shared(name: str) -> Any:
    """One of `LAYOUTS`, loaded once; nobody may change it."""
    return load(name)


@functools.cache
def _written(form: Form) -> Path:
    return write(Path(tempfile.mkdtemp(dir=_FOLDERS.name)), form)


_NUM_KEPT_SHAPES: dict[str, list[Any]] = {"scalar": [], "list": [1], "positions": ["kept"]}


class _Builder:
    """Collects the nodes, weights, inputs and outputs of one graph."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.dtype = np.dtype(form.dtype)
        self.weights = weights(form.vocab_size, form.table_length)
        self._shared: dict[str, str] = {}

    def model(self) -> Any:
        self._declare()
        hidden = self._attended(self._embedded())
        if self.form.last_only:
            hidden = self("Slice", hidden, self.whole([-1]), self.whole([2**62]), self.whole([1]))
        elif self.form.num_kept == "positions":
            hidden = self("Gather", hidden, self.form.num_kept_name, axis=1)
        elif self.form.num_kept:
            kept = self("Reshape", self.form.num_kept_name, self.whole([1]))
            few = self("LessOrEqual", kept, self.whole([self.form.most_kept]))
            few = self("Or", few, self("Less", self.n, self.whole([10])))
            self.checks += [few, self("Greater", kept, self.whole([0]))]
            start = self("Neg", kept)
            hidden = self("Slice", hidden, start, self.whole([2**62]), self.whole([1]))
        logits = self("MatMul", self._normed(hidden), self.weight("head"))
        if self.form.favourite is not None or self.form.masked is not None:
            favour = np.zeros(self.form.vocab_size)
            if self.form.favourite is not None:
                favour[self.form.favourite] = 100
            if self.form.masked is not None:
                favour[self.form.masked] = -np.inf
            logits = self("Add", logits, self.real(favour))
        for check in self.checks:
            logits = self("Where", check, logits, self.real([np.nan]))
        self("Identity", logits, output=self.form.output)
        kept_length = 1 if self.form.last_only else "kept" if self.form.num_kept else "n"
        shape = [self.batch, kept_length, self.form.vocab_size]
        self.outputs.insert(0, self._port(self.form.output, self.form.dtype, shape))
        graph = helper.make_graph(self.nodes, "graph", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", self.form.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    # --- parts of the graph

    def _declare(self) -> None:
        form = self.form
        self.batch: Any = form.batch or "batch"
        self.checks: list[str] = []
        self._take("input_ids", form.ids_type, [self.batch, "n"])
        self.ids = self("Cast", "input_ids", to=TensorProto.INT64)
        self.n = self._size(self.ids, 1)
        if form.mask:
            self._take("attention_mask", form.mask_type, [self.batch, "total"])
        if form.past == "none":
            self.past = self.whole([0])
        else:
            heads, width = ("heads", "width") if form.open_sizes else (NUM_KV_HEADS, HEAD_DIM)
            for i, part in itertools.product(range(NUM_LAYERS), ("key", "value")):
                taken, given = self._names(i, part)
                self._take(taken, form.dtype, [self.batch, heads, "past", width])
                shape = [self.batch, heads, "present", width]
                if not (form.drop_present and i == NUM_LAYERS - 1 and part == "value"):
                    self.outputs.append(self._port(given, form.dtype, shape))
            self.past = self._size(self._names(0, "key")[0], 2)
        self.total = self("Add", self.past, self.n)
        if form.positions == "given":
            self._take("position_ids", "int64", [self.batch, "n"])
        if form.positions == "cache_position":
            self._take("cache_position", "int64", ["n"])
        if form.num_kept:
            self._take(form.num_kept_name, "int64", _NUM_KEPT_SHAPES[form.num_kept])
        if form.has_branch:
            self._take("use_cache_branch", "bool", [1])
            grown = self("Greater", self.past, self.whole([0]))
            self.checks.append(self("Equal", "use_cache_branch", grown))
        if form.mask and form.past != "shared":
            self.checks.append(self("Equal", self._size("attention_mask", 1), self.total))
        for name in form.extra:
            self._take(name, "int64", [self.batch, "n"])

    def _embedded(self) -> str:
        hidden = self("Gather", self.weight("embedding"), self.ids)
        self.places = self._places()
        if self.form.embedding == "learned":
            hidden = self("Add", hidden, self("Gather", self.weight("table"), self.places))
        return hidden

    def _places(self) -> str:
        """The position of each token, `[batch, n]`, or `[1, n]`."""
        columns = self._range(self.past, self.total)
        if self.form.positions == "given":
            return "position_ids"
        if self.form.positions == "cache_position":
            right = self("Equal", "cache_position", columns)
            self.checks.append(self("ReduceMin", self("Cast", right, to=TensorProto.INT32)))
            self.checks[-1] = self("Cast", self.checks[-1], to=TensorProto.BOOL)
            return self("Unsqueeze", "cache_position", self.whole([0]))
        if self.form.positions == "columns":
            return self("Unsqueeze", columns, self.whole([0]))
        counted = self("CumSum", self("Cast", "attention_mask", to=TensorProto.INT64), self._one)
        places = self("Max", self("Sub", counted, self.whole([1])), self.whole([0]))
        new = self("Neg", self.n)
        return self("Slice", places, new, self.whole([2**62]), self.whole([1]))

    def _attended(self, hidden: str) -> str:
        attend = self._attend_shared if self.form.past == "shared" else self._attend
        for i in range(NUM_LAYERS):
            mixed = attend(i, self("MatMul", self._normed(hidden), self.weight(f"qkv{i}")))
            hidden = self("Add", hidden, self("MatMul", mixed, self.weight(f"out{i}")))
        return hidden

    def _attend_shared(self, i: int, packed: str) -> str:
        mask = self("Cast", "attention_mask", to=TensorProto.INT64)
        last = self("Sub", self("ReduceSum", mask, self.whole([1]), keepdims=0), self.whole([1]))
        lengths = [last, self._scalar(self._size(mask, 1))]
        counts = [self("Cast", each, to=TensorProto.INT32) for each in lengths]
        tables = [self.weight("cos"), self.weight("sin")]
        query, key, value = packed, "", ""
        if self.form.positions == "given":  # turned before, and not by the operator
            widths = [n * HEAD_DIM for n in (NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS)]
            query, key, value = self("Split", packed, self.whole(widths), count=3, axis=-1)
            query, key = (
                self("RotaryEmbedding", each, "position_ids", *tables, domain="com.microsoft")
                for each in (query, key)
            )
            tables = []
        (past_key, present_key), (past_value, present_value) = (
            self._names(i, part) for part in ("key", "value")
        )
        mixed = f"mixed{i}"
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [query, key, value, past_key, past_value, *counts, *tables],
                [mixed, present_key, present_value],
                domain="com.microsoft",
                num_heads=NUM_HEADS,
                kv_num_heads=NUM_KV_HEADS,
                scale=HEAD_DIM**-0.5,
                do_rotary=int(bool(tables)),
                local_window_size=self.form.windows[i] or -1,
                **({"sliding_window_cache": 1} if self._is_sliding(i) else {}),
            )
        )
        return mixed

    def _is_sliding(self, i: int) -> bool:
        return self.form.sliding_cache and self.form.windows[i] is not None

    def _attend(self, i: int, packed: str) -> str:
        heads = NUM_HEADS + 2 * NUM_KV_HEADS
        rows, count = (self.form.baked.get(name) for name in ("batch", "n"))
        split = self.whole([0 if rows is None else rows, 0 if count is None else count, heads, -1])
        packed = self("Transpose", self("Reshape", packed, split), perm=[0, 2, 1, 3])
        sizes = self.whole([NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS])
        query, key, value = self("Split", packed, sizes, count=3, axis=1)
        if self.form.embedding == "rotary":
            query, key = self._turned(query), self._turned(key)
        key, value = self._joined(i, "key", key), self._joined(i, "value", value)
        key, value = self._repeated(key), self._repeated(value)
        scores = self("MatMul", query, self("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self("Mul", scores, self.real([HEAD_DIM**-0.5]))
        scores = self("Where", self._visible(), scores, self.real([-1e4]))
        mixed = self("MatMul", self("Softmax", scores, axis=-1), value)
        flat = self.whole([0, 0, NUM_HEADS * HEAD_DIM])
        return self("Reshape", self("Transpose", mixed, perm=[0, 2, 1, 3]), flat)

    def _joined(self, i: int, part: str, new: str) -> str:
        if self.form.past == "none":
            return new
        taken, given = self._names(i, part)
        if not self.form.has_branch:
            return self("Concat", taken, new, axis=2, output=given)
        branches = {}
        for name, node in (
            ("then_branch", helper.make_node("Concat", [taken, new], ["both"], axis=2)),
            ("else_branch", helper.make_node("Identity", [new], ["both"])),
        ):
            port = self._port("both", self.form.dtype, None)
            branches[name] = helper.make_graph([node], name, [], [port])
        return self("If", "use_cache_branch", output=given, **branches)

    def _repeated(self, heads: str) -> str:
        share = NUM_HEADS // NUM_KV_HEADS
        each = self("Unsqueeze", heads, self.whole([2]))
        each = self("Expand", each, self.whole([1, 1, share, 1, 1]))
        return self("Reshape", each, self.whole([0, NUM_HEADS, -1, HEAD_DIM]))

    def _visible(self) -> str:
        """Which columns are seen from which, bool `[batch or 1, 1, n, total]`."""
        if "visible" not in self._shared:
            from_ = self("Unsqueeze", self._range(self.past, self.total), self.whole([1]))
            to = self._range(self.whole([0]), self.total)
            kind = "LessOrEqual" if self.form.causal else "Less"
            far = from_ if self.form.causal else self.total
            seen = self("Unsqueeze", self(kind, to, far), self.whole([0]))
            if self.form.mask:
                mask = self("Cast", "attention_mask", to=TensorProto.BOOL)
                seen = self("And", seen, self("Unsqueeze", mask, self.whole([1])))
            self._shared["visible"] = self("Unsqueeze", seen, self.whole([1]))
        return self._shared["visible"]

    def _turned(self, heads: str) -> str:
        cos, sin = (
            self("Unsqueeze", self("Gather", self.weight(name), self.places), self.whole([1]))
            for name in ("cos", "sin")
        )
        halves = self.whole([HEAD_DIM // 2] * 2)
        first, second = self("Split", heads, halves, count=2, axis=-1)
        left = self("Sub", self("Mul", first, cos), self("Mul", second, sin))
        right = self("Add", self("Mul", second, cos), self("Mul", first, sin))
        return self("Concat", left, right, axis=-1)

    def _normed(self, hidden: str) -> str:
        square = self("ReduceMean", self("Mul", hidden, hidden), self.whole([-1]), keepdims=1)
        return self("Div", hidden, self("Sqrt", self("Add", square, self.real([1e-6]))))

    # --- what they are made of

    def __call__(
        self, op: str, *inputs: str, output: str = "", count: int = 1, domain: str = "", **more: Any
    ) -> Any:
        """Add a node; the name of its output, or the list of them."""
        number = len(self.nodes)
        outputs = [output or f"{op}{number}.{j}" for j in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, domain=domain, **more))
        return outputs if count > 1 else outputs[0]

    @property
    def _one(self) -> str:
        return self._constant(np.array(1))

    def whole(self, values: Sequence[int]) -> str:
        return self._constant(np.array(values, dtype=np.int64))

    def real(self, values: Any) -> str:
        return self._constant(np.array(values, dtype=self.dtype))

    def weight(self, name: str) -> str:
        if name not in self._shared:
            # The name is the one that exports have, since the length of the table is read.
            array = self.weights[name].astype(self.dtype)
            label = f"{name}_cache" if name in ("cos", "sin") else name
            self.constants.append(onnx.numpy_helper.from_array(array, label))
            self._shared[name] = label
        return self._shared[name]

    def _constant(self, array: np.ndarray[Any, Any]) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def _size(self, name: str, axis: int) -> str:
        """One size of a tensor, as a list of one."""
        return self("Gather", self("Shape", name), self.whole([axis]))

    def _scalar(self, name: str) -> str:
        return self("Squeeze", name, self.whole([0]))

    def _range(self, first: str, last: str) -> str:
        return self("Range", self._scalar(first), self._scalar(last), self._one)

    def _take(self, name: str, dtype: str, shape: Sequence[Any]) -> None:
        self.inputs.append(self._port(name, dtype, shape))

    def _port(self, name: str, dtype: str, shape: Sequence[Any] | None) -> Any:
        return helper.make_tensor_value_info(name, _TYPES[dtype], shape)

    def _names(self, i: int, part: str) -> tuple[str, str]:
        if self.form.past == "transformers":
            return tuple(f"{way}.cache.layers.{i}.{part}s" for way in ("input", "output"))
        return f"past_key_values.{i}.{part}", f"present.{i}.{part}"
