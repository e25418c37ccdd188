"""Pieces of Lark grammars, with whatever text in them quoted.

    grammar = f"start: {lark.choice(menu)} \" for \" NAME\nNAME: {lark.words_of(question)}"
    session.ask(question, grammar=grammar)

The dialect is that of llguidance (Earley, Rust's regular expressions, ``%json {...}``, ``%regex {...}``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable


def text(value: str) -> str:
    """Exactly this text."""
    return json.dumps(value, ensure_ascii=False)


def choice(values: Iterable[str]) -> str:
    """One of these texts, for a rule or a terminal."""
    return "(" + " | ".join(map(text, values)) + ")"


def words_of(value: str) -> str:
    """Some consecutive words of a text, or none: the whole body of a terminal (``NAME: ...``)."""
    return "%regex " + json.dumps({"substring_words": value}, ensure_ascii=False)
