"""Prompts: messages -> text by a template, text -> token ids."""
