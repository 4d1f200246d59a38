"""Watch a run through an observer: how sure was the model of each token it chose?"""

from genkit import Kit, Pipeline, backends, contexts, stopping


class Confidence:
    """Writes down the probability that the model gave each chosen token."""

    def __init__(self) -> None:
        self.probs: list[float] = []

    def genkit_run_started(self, run) -> None:
        """Begin a new list."""
        self.probs = []

    def genkit_step(self, run, step) -> None:
        """Look at the first row."""
        probs = step.raw_logits[0].softmax(-1)
        self.probs.append(float(probs[step.next_ids[0]]))

    def genkit_run_finished(self, run, result) -> None:
        """Print what was seen."""
        print(f"{result[0].text!r} in {len(self.probs)} tokens; the least sure of them:")
        print(f"token {self.probs.index(min(self.probs))} with {min(self.probs):.2f}")


def main() -> None:
    """Run one prompt under observation."""
    watcher = Confidence()
    pipeline = Pipeline(
        model=Kit().load(backends.PyTorch(model="smollm2")),
        context=contexts.Chat(),
        stop_criteria=[stopping.Eos(), stopping.MaxNewTokens(limit=16)],
        observers=[watcher],
    )
    pipeline.generate("What is the capital of France?")


if __name__ == "__main__":
    main()
