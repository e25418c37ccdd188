"""Measures the quality of models and of KV caches, for whoever studies them: ``python -m lab``."""
