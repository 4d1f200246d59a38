"""Tools to test parts with: models without weights to load, and a tokenizer without a file."""

from genkit.testing.byte_tokenizer import ByteTokenizer
from genkit.testing.scripted_model import ScriptedModel
from genkit.testing.tiny_model import TinyModel

__all__ = ["ByteTokenizer", "ScriptedModel", "TinyModel"]
