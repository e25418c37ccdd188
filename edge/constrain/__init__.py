"""Answers a machine can read: JSON schema, regular expression, choices or Lark grammar -> the tokens allowed next."""
