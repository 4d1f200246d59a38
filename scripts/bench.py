"""The benchmarks of `scripts/bench`: genkit and its peers, side by side, as ratios.

Machines are noisy, so no figure stands alone: the two sides of a pair alternate, and what counts is
the median of the ratios, printed with its spread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import bench_chain
import bench_onnx
import torch
import transformers
from bench_pairs import (
    HEADER,
    PROMPT,
    Row,
    alternating,
    generated,
    seconds,
    seconds_of_decoding,
    seconds_of_generating,
    smollm2,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from genkit import Pipeline, backends, caches, processors, samplers, stopping

OUT = Path("build") / "bench.md"
SAMPLED = {"temperature": 0.8, "top_k": 50, "top_p": 0.95}


# What is added to the model's forward.


class Constant(transformers.LlamaForCausalLM):
    """A transformers model whose forward costs nearly nothing."""

    def __init__(self, vocab_size: int = 256) -> None:
        super().__init__(
            transformers.LlamaConfig(
                vocab_size=vocab_size, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=100_000,
                bos_token_id=None, eos_token_id=vocab_size - 1, pad_token_id=0,
            )
        )  # fmt: skip
        generator = torch.Generator().manual_seed(0)
        self.fixed = torch.randn(1, 1, vocab_size, generator=generator)
        self.fixed[..., -1] = -100.0  # the end token, so that no run ends early
        self.eval()

    def forward(self, input_ids=None, cache=None, past_key_values=None, position_ids=None,
                attention_mask=None, use_cache=None, logits_to_keep=0, **kwargs):  # fmt: skip
        return CausalLMOutputWithPast(logits=self.fixed)


def overhead(count: int, tokens: int) -> Iterator[Row]:
    """Time a token beyond the model's forward, checks on: a constant model, one row."""
    yield from _overhead(count, tokens, 256)
    yield from _overhead(count, tokens // 16, bench_chain.VOCAB_SIZE)


def _overhead(count: int, tokens: int, vocab_size: int) -> Iterator[Row]:
    model = Constant(vocab_size)
    small = vocab_size < 1000
    wrapped = backends.PyTorch.wrap(model)
    ids = torch.tensor([[1, 2, 3]])
    mask = torch.ones_like(ids)

    def bare() -> float:
        def loop() -> None:
            with torch.no_grad():
                for _ in range(tokens):
                    model(input_ids=ids[:, -1:], logits_to_keep=1)

        return seconds(loop) / tokens

    for name, chain, sampler, options, target in (
        ("greedy", [], samplers.Greedy(), {"do_sample": False}, "at most 0.40" if small else ""),
        (
            "temperature + top_k + top_p",
            [
                processors.Temperature(temperature=SAMPLED["temperature"]),
                processors.TopK(k=SAMPLED["top_k"]),
                processors.TopP(p=SAMPLED["top_p"]),
            ],
            samplers.Categorical(),
            {"do_sample": True, **SAMPLED},
            "at most 0.33",
        ),
    ):
        pipeline = Pipeline(
            wrapped,
            processors=chain,
            sampler=sampler,
            stop_criteria=[stopping.Eos(), stopping.MaxNewTokens(limit=tokens)],
        )

        def ours(pipeline: Pipeline = pipeline) -> float:
            return seconds(lambda: pipeline.generate([1, 2, 3], seed=0)) / tokens

        def theirs(options: dict = options) -> float:
            def call() -> None:
                out = model.generate(
                    ids, attention_mask=mask, max_new_tokens=tokens, eos_token_id=vocab_size - 1,
                    pad_token_id=0, **options,
                )  # fmt: skip
                assert out.shape[1] == 3 + tokens

            return seconds(call) / tokens

        mine, peer, base = alternating(count, ours, theirs, bare)
        ratios = [(a - c) / (b - c) for a, b, c in zip(mine, peer, base, strict=True)]
        added = [statistics.median(x) - statistics.median(base) for x in (mine, peer)]
        yield Row(
            f"added per token, {name}; vocabulary {vocab_size:,}",
            f"{added[0] * 1e6:.0f} us",
            f"transformers.generate {added[1] * 1e6:.0f} us",
            ratios,
            target,
        )


def decode(count: int, tokens: int) -> Iterator[Row]:
    """Decode speed on SmolLM2 in float32: the time of `tokens` tokens after the first."""
    model = smollm2()
    prompt = model.tokenizer.encode(PROMPT)
    pipeline = Pipeline(model, stop_criteria=[])
    room = len(prompt) + tokens + 1
    ours = pipeline.generate(prompt, max_new_tokens=tokens).token_ids
    same = ours == generated(model, prompt, tokens)

    mine, peer = alternating(
        count,
        lambda: seconds_of_decoding(pipeline, prompt, tokens, room),
        lambda: seconds_of_generating(model, prompt, tokens),
    )
    speeds = [tokens / statistics.median(side) for side in (mine, peer)]
    yield Row(
        f"decode, SmolLM2 float32, {tokens} tokens, {'same tokens' if same else 'OTHER TOKENS'}",
        f"{speeds[0]:.1f} tokens/s",
        f"transformers.generate {speeds[1]:.1f} tokens/s",
        [b / a for a, b in zip(mine, peer, strict=True)],
        "at least 1.00",
    )


def compiled(count: int, tokens: int) -> Iterator[Row]:
    """Compiled decoding of a short text in buffers of several sizes; each is compiled first."""
    eager = smollm2()
    model = backends.PyTorch.wrap(eager.module, eager.tokenizer, compile=True)
    prompt = model.tokenizer.encode(PROMPT)
    plain = Pipeline(eager, stop_criteria=[])
    static = Pipeline(model, cache=caches.Static(), stop_criteria=[])
    wanted = generated(eager, prompt, tokens)

    for room, target in ((128, "at least 1.25"), (512, ""), (1024, "at least 1.00"), (2048, "")):
        steps = static.decode(prompt, max_new_tokens=room - len(prompt))
        same = [int(next(steps).next_ids) for _ in range(tokens)] == wanted
        steps.close()
        mine, peer, uncompiled = alternating(
            count,
            lambda room=room: seconds_of_decoding(static, prompt, tokens, room),
            lambda: seconds_of_generating(eager, prompt, tokens),
            lambda room=room: seconds_of_decoding(plain, prompt, tokens, room),
        )
        tokens_are = "same tokens" if same else "OTHER TOKENS"
        for name, side in (("transformers.generate", peer), ("genkit uncompiled", uncompiled)):
            yield Row(
                f"compiled decode, buffer of {room}, {tokens} tokens, {tokens_are}",
                f"{tokens / statistics.median(mine):.1f} tokens/s",
                f"{name} {tokens / statistics.median(side):.1f} tokens/s",
                [b / a for a, b in zip(mine, side, strict=True)],
                target,
            )


def growth(count: int, tokens: int) -> Iterator[Row]:
    """Time a token at 1,000 tokens against that at 100, with and without the cache."""
    model = smollm2()
    prompt = model.tokenizer.encode("The history of the city begins with")
    long = (prompt * 200)[: 1000 - 8]
    for cache, target in ((caches.Dynamic(), "at most 1.30"), (caches.NoCache(), "it grows")):
        pipeline = Pipeline(model, cache=cache, stop_criteria=[])

        def at(ids: list[int], pipeline: Pipeline = pipeline) -> float:
            num = 16 if isinstance(pipeline.parts.cache, caches.Dynamic) else 2
            steps = pipeline.decode(ids, max_new_tokens=num + 1)
            next(steps)
            return seconds(lambda: list(steps)) / num

        near, far = alternating(
            count if isinstance(cache, caches.Dynamic) else 3,
            lambda at=at: at(long[: 100 - 8]),
            lambda at=at: at(long),
        )
        yield Row(
            f"time a token at 1,000 tokens against 100, cache {cache.type}",
            f"{statistics.median(far) * 1e3:.1f} ms",
            f"itself at 100: {statistics.median(near) * 1e3:.1f} ms",
            [b / a for a, b in zip(near, far, strict=True)],
            target,
        )


def prefix(count: int, tokens: int) -> Iterator[Row]:
    """Time to the first token of prompts that begin with the same `tokens` tokens."""
    model = smollm2()
    question = model.tokenizer.encode(PROMPT)
    common = (question * tokens)[:tokens]
    warm = Pipeline(model, cache=caches.Prefix(), stop_criteria=[])
    cold = Pipeline(model, stop_criteria=[])
    warm.generate(common, max_new_tokens=1)

    def asking(pipeline: Pipeline) -> tuple[Callable[[], float], list[int]]:
        firsts: list[int] = []

        def first() -> float:
            tail = [1000 + len(firsts), *question]  # each prompt goes on in another way
            steps = pipeline.decode([*common, *tail], max_new_tokens=1)
            try:
                return seconds(lambda: firsts.append(int(next(steps).next_ids)))
            finally:
                steps.close()  # what the run leaves is stored here, after the token

        return first, firsts

    (ours, our_tokens), (theirs, their_tokens) = asking(warm), asking(cold)
    mine, peer = alternating(count, ours, theirs)
    assert warm.parts.cache.stats(model).num_hits == len(our_tokens)
    same = our_tokens == their_tokens
    yield Row(
        f"first token after a stored prefix of {tokens:,}, {'same' if same else 'OTHER'} tokens",
        f"{statistics.median(mine) * 1e3:.0f} ms",
        f"itself without: {statistics.median(peer) * 1e3:.0f} ms",
        [b / a for a, b in zip(mine, peer, strict=True)],
        "at least 5.00",
    )


BENCHMARKS = {
    "overhead": (overhead, 512),
    "chain": (bench_chain.chain, 16),
    "history": (bench_chain.history, 16),
    "decode": (decode, 64),
    "compiled": (compiled, 64),
    "growth": (growth, 16),
    "prefix": (prefix, 1000),
    "onnx": (bench_onnx.decode, 128),
    "onnx_batch": (bench_onnx.batch, 64),
    "onnx_prefill": (bench_onnx.prefill, 512),
    "onnx_optimum": (bench_onnx.optimum, 128),
}


def main() -> None:
    """Run the chosen benchmarks, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="three runs a side, not eleven")
    parser.add_argument("--append", action="store_true", help=f"add to {OUT} what is measured")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"there is no benchmark {min(unknown)!r}; known: {', '.join(BENCHMARKS)}")
    warnings.filterwarnings("ignore")
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(int(torch.get_num_threads()))

    lines = [
        f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"{torch.get_num_threads()} threads, {time.strftime('%Y-%m-%d')}",
        "",
        HEADER,
    ]
    print("\n".join(lines))
    for name in arguments.names or BENCHMARKS:
        benchmark, tokens = BENCHMARKS[name]
        for row in benchmark(3 if arguments.quick else 15, tokens):
            lines.append(str(row))
            print(row, flush=True)
    OUT.parent.mkdir(exist_ok=True)
    with OUT.open("a" if arguments.append else "w") as out:
        out.write("\n".join(lines) + "\n\n")
    print(f"\nwritten to {OUT}", file=sys.stderr)


if __name__ == "__main__":
    main()
