"""The laws: what holds for every model, cache manager and part, as functions that try it.

None of them needs Hypothesis. `genkit.testing.checks` tries them on drawn cases, and
`genkit.testing.verification` on a recipe's own model.
"""
