"""Cache managers: who hands out the memory of a run, and takes it back."""

from genkit.components.caches.dynamic import Dynamic
from genkit.components.caches.none import NoCache
from genkit.components.caches.prefix import Prefix
from genkit.components.caches.quantized import Quantized
from genkit.components.caches.sink_window import SinkWindow
from genkit.components.caches.static import Static

__all__ = ["Dynamic", "NoCache", "Prefix", "Quantized", "SinkWindow", "Static"]
