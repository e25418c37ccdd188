"""Measurements of quality for whoever studies models and caches."""
