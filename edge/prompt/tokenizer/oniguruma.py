r"""Patterns of a tokenizer.json, which ``tokenizers`` gives to Oniguruma, written for the ``regex`` package.

Both know Unicode, but not the same: ``\w`` has other members, POSIX brackets have those of Unicode, ``^`` and ``$`` are
those of every line, and ``m`` is what others call ``s``.
"""

from __future__ import annotations

import re

from edge.errors import InvalidFile

_LETTERS = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"
#: a set of characters -> its members in another set
_MEMBERS = {
    r"\w": _LETTERS, r"\p{word}": _LETTERS, "[:word:]": _LETTERS, "[:alnum:]": r"\p{Alphabetic}\p{Nd}",
    "[:digit:]": r"\p{Nd}", "[:punct:]": r"\p{P}\p{S}", r"\h": "0-9a-fA-F",
}
_W, _NOT_W = f"[{_LETTERS}²³¹¼½¾]", f"[^{_LETTERS}²³¹¼½¾]"  # in no set it has these, too
#: what stands elsewhere -> the same
_OTHERS = {
    r"\w": _W, r"\W": _NOT_W, r"\p{Word}": _W, r"\P{Word}": _NOT_W, r"\h": "[0-9a-fA-F]", r"\H": "[^0-9a-fA-F]",
    r"\b": f"(?:(?<={_W})(?!{_W})|(?<!{_W})(?={_W}))", r"\B": f"(?:(?<={_W})(?={_W})|(?<!{_W})(?!{_W}))",
    "^": r"(?:\A|(?<=\n)(?!\Z))", "$": r"(?=\n|\Z)", r"\Z": r"(?=\n?\Z)", r"\z": r"\Z", r"\N": r"[^\n]",
    r"\O": "(?s:.)",
}
_PARTS = re.compile(r"(?s)\\(?:[pP]\{[^}]*\}|.)|\[:\^?[a-z]+:\]|\[\^?\]?|\(\?[imx-]+\)?|\{[\d,]+\}\+|--|\|\||~~|.")


def translated(pattern: str) -> str:
    """The pattern for the ``regex`` package.  Raises InvalidFile, without the file's name, for what it has not."""
    out, depth = ["(?V1)"], 0  # sets may hold sets
    for part in _PARTS.findall(pattern):
        if (part == "--") if depth else (
                part in (r"\g", r"\k", r"\K") or part[-2:] == "}+" or part[:2] == "(?" and part[-1] == ")" and out[1:]):
            raise InvalidFile(f"the tokenizer's split pattern has {part}, which is not supported")
        if part[0] == "[" and (part[1:2] != ":" or not depth):
            depth += 1
        elif part == "]":
            depth -= depth > 0
        elif not depth:
            part = part.replace("m", "s") if part[:2] == "(?" else _OTHERS.get(part, part)
        elif part in ("||", "~~"):
            part = rf"\{part[0]}\{part[1]}"
        elif (name := part.lower().replace("^", "")) in _MEMBERS:
            part = _MEMBERS[name] if name == part or part == r"\p{Word}" else f"[^{_MEMBERS[name]}]"
        out.append(part)
    return "".join(out)
