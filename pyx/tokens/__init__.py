"""Tokens without a matrix: from text to ids, drafts, and from logits to an id."""
