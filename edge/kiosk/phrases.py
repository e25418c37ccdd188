"""Phrases that guests use, from phrases.txt: each section of alternatives becomes one compiled pattern."""

from __future__ import annotations

import os
import re
from functools import cache


@cache
def _sections() -> dict[str, tuple[str, list[str]]]:
    """Name -> (how its lines are wrapped: "word", "start" or "", its lines)."""
    found: dict[str, tuple[str, list[str]]] = {}
    lines: list[str] = []
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "phrases.txt")
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if header := re.fullmatch(r"\[(.+?)(?: (word|start))?\]", line):
                lines = []
                found[header[1]] = header[2] or "", lines
            elif line and not line.startswith("#"):
                lines.append(line)
    return found


@cache
def phrases(name: str) -> re.Pattern[str]:
    """The pattern of a section; texts are compared in lower case and without accents."""
    wrapped, lines = _sections()[name]
    any_of = "|".join(lines)
    text = {"word": rf"\b(?:{any_of})\b", "start": rf"^(?:{any_of})\b"}.get(wrapped, any_of)
    return re.compile(text, re.IGNORECASE)


@cache
def listed(name: str) -> frozenset[str]:
    """The words of a section that is a list of words."""
    return frozenset(" ".join(_sections()[name][1]).split())


@cache
def paired(name: str) -> list[tuple[re.Pattern[str], str]]:
    """The lines "SAID => OTHER" of a section: (pattern of what is said, the text behind the arrow)."""
    pairs = (line.split(" => ") for line in _sections()[name][1])
    return [(re.compile(rf"\b(?:{said})\b"), words) for said, words in pairs]


def kinds(of: str) -> dict[str, re.Pattern[str]]:
    """The patterns of the sections named "OF KIND", by kind."""
    return {name.split(" ", 1)[1]: phrases(name) for name in _sections() if name.startswith(f"{of} ")}
