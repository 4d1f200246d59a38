"""Recipes: a pipeline written down as YAML.

This package is the only place that knows YAML.
"""
