"""Checks: all laws of a kind of part, on cases that Hypothesis draws."""
