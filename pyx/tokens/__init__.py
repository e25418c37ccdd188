"""Tokens without a matrix: from text to ids, and from logits to an id."""
