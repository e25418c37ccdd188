"""Constrained answers: JSON schema, regular expression, choices or Lark grammar -> the tokens that are allowed next."""
