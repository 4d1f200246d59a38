"""Put a pipeline together from parts, and use it at each of its three layers."""

from genkit import Kit, Pipeline, backends, contexts, processors, samplers, stopping


def main() -> None:
    """Ask one question, several at once, and look at the tokens."""
    pipeline = Pipeline(
        model=Kit().load(backends.PyTorch(model="smollm2")),
        context=contexts.Chat(system="You are concise."),
        processors=[
            processors.Temperature(temperature=0.7),
            processors.TopK(k=40),
            processors.TopP(p=0.95),
        ],
        sampler=samplers.Categorical(),
        stop_criteria=[stopping.Eos(), stopping.MaxNewTokens(limit=24)],
    )

    # Text, as it becomes certain.
    for chunk in pipeline.stream("What is the capital of France?", seed=7):
        print(chunk.text, end="", flush=True)
    print()

    # Results. A row of a batch is what its prompt gives alone, under the same seed.
    questions = ["What is the capital of France?", "What is 2 + 3?"]
    for result in pipeline.generate(questions, seed=7):
        print(f"{result.text!r} ({result.finish_reason}, seed {result.seed})")

    # Tokens, with the logits before and after the processors.
    for step in pipeline.decode("What is 2 + 3?", seed=7, max_new_tokens=3):
        allowed = int(step.logits.isfinite().sum())
        print(f"token {int(step.next_ids)}: {allowed} of {step.raw_logits.shape[-1]} were allowed")


if __name__ == "__main__":
    main()
