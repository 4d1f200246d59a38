"""Decoders: loops over a pipeline's parts."""

from genkit.decoders.autoregressive import Autoregressive

__all__ = ["Autoregressive"]
