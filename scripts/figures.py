"""The figures of docs/concepts.md, made by genkit itself; `scripts/figures` runs this."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

from genkit import Kit, Pipeline, backends, caches, contexts, processors, samplers
from genkit.core.contracts import Model

OUT = Path(__file__).parent.parent / "docs" / "figures"
TEXT = "The lighthouse stood at the end of a long pier, and every evening its keeper climbed up. "
QUESTION = "Why does the sea look blue, and why is a glass of water clear?"
BEGINNING = "My favourite animal is the"

# A light ground of its own and large letters: readable on a light page, a dark one and a phone.
GROUND, INK, PALE = "#fbfbfd", "#1f2430", "#a9b1bf"
WITH, WITHOUT = "#1f5fae", "#c2570c"
STYLE = {
    "figure.figsize": (5, 3.2), "figure.facecolor": GROUND, "axes.facecolor": GROUND,
    "savefig.facecolor": GROUND, "font.size": 12, "axes.titlesize": 13, "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 2.2,
    "figure.constrained_layout.use": True, "svg.hashsalt": "genkit",
}  # fmt: skip


def cost(model: Model, plot: Any) -> None:
    """Time of a decode step at several lengths of the text."""
    lengths = [16, 64, 128, 256, 384, 512]
    for manager, colour, label in (
        (caches.NoCache(), WITHOUT, "without a cache"),
        (caches.Dynamic(), WITH, "with a cache"),
    ):
        pipeline = Pipeline(model, cache=manager)
        times = [decode_milliseconds(pipeline, length) for length in lengths]
        print(label, dict(zip(lengths, times, strict=True)))
        plot.plot(lengths, times, "o-", color=colour, label=label)
    plot.set(xlabel="tokens in the text", ylabel="CPU time of a token, ms", ylim=(0, None))
    plot.legend(frameon=False)


def decode_milliseconds(pipeline: Pipeline, length: int) -> float:
    """The median of some steps after the prefill, in time of the CPU: others may be busy too."""
    ids = (pipeline.tokenizer.encode(TEXT) * length)[:length]
    times, steps = [], pipeline.decode(ids, max_new_tokens=8)
    next(steps)
    for _ in range(7):
        began = time.process_time()
        next(steps)
        times.append(1000 * (time.process_time() - began))
    return median(times)


def difference(model: Model, plot: Any) -> None:
    """What the cache changes in the logits, beside what it would take to change a token."""
    runs = [
        list(
            Pipeline(model, context=contexts.Chat(), cache=manager).decode(
                QUESTION, max_new_tokens=64
            )
        )
        for manager in (caches.Dynamic(), caches.NoCache())
    ]
    pairs = list(zip(*runs, strict=True))
    assert all(int(ours.next_ids) == int(theirs.next_ids) for ours, theirs in pairs)
    changes = [float((a.raw_logits - b.raw_logits).abs().max()) for a, b in pairs]
    gaps = [float(b.raw_logits[0].topk(2).values.diff().abs()) for _, b in pairs]
    print("largest change", max(changes), "smallest gap", min(gaps), "of", len(pairs), "tokens")
    plot.semilogy(gaps, "o", ms=4, color=WITHOUT, label="best logit minus second best")
    plot.semilogy(changes, "o", ms=4, color=WITH, label="most that the cache changes")
    plot.set(xlabel="generated token", ylabel="logits", ylim=(1e-6, 1e3))
    plot.legend(frameon=False, loc="upper left")


def distribution(model: Model, plot: Any) -> None:
    """The probabilities of the next token before two processors and after them."""
    pipeline = Pipeline(
        model,
        processors=[processors.Temperature(temperature=0.7), processors.TopP(p=0.7)],
        sampler=samplers.Categorical(),
    )
    step = next(pipeline.decode(BEGINNING, max_new_tokens=1, seed=0))
    before, after = (logits[0].softmax(-1) for logits in (step.raw_logits, step.logits))
    top = before.topk(14).indices.tolist()
    print("allowed", int(step.logits.isfinite().sum()), "of", step.logits.shape[-1])
    names = [pipeline.tokenizer.decode([token_id]).strip() for token_id in top]
    places = range(len(top))
    plot.barh([p - 0.2 for p in places], before[top].tolist(), 0.4, color=PALE, label="before")
    plot.barh([p + 0.2 for p in places], after[top].tolist(), 0.4, color=WITH, label="after")
    plot.set_yticks(places, names)
    plot.invert_yaxis()
    plot.set(xlabel="probability")
    plot.legend(frameon=False, loc="lower right")


def main() -> None:
    """Measure, draw and write."""
    matplotlib.use("svg")
    model = Kit().load(backends.PyTorch(model="smollm2"))
    OUT.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for draw, height in ((cost, 3.2), (difference, 3.4), (distribution, 4.8)):
            figure, plot = plt.subplots(figsize=(5, height))
            draw(model, plot)
            # Without a date the same figures are the same files.
            figure.savefig(OUT / f"{draw.__name__}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
