"""Prompt: messages to text by a template, text to token ids."""
