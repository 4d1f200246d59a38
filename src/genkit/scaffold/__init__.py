"""Begins a plugin: a package whose part works, with tests, recipe and licence.

`templates` has a folder for each kind of part, and one for what all of them have in common.
"""

from genkit.scaffold.package import KINDS, Package

__all__ = ["KINDS", "Package"]
