"""What `genkit verify` does: the laws, on a pipeline's own model and parts."""
