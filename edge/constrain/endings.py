"""Texts with which a form can end, read from its regular expressions: hints for :mod:`edge.constrain.closing`.

What still has to come is not always visible in what may come next: after any beginning of ``.*[0-9]{3} EUR`` any
character is allowed.  So the shortest text that a pattern accepts is tried, and every part of it up to its end:
"000 EUR", "00 EUR", ..., "R".  A hint may be wrong, since each is checked with the grammar; so an expression is not
read completely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from edge.constrain.spec import Spec

MOST = 256  # endings of one expression and of a form
LONGEST = 512  # characters of one

#: one element of an expression; classes in brackets are read by _CLASS
_ELEMENT = re.compile(
    r"""(?P<open>\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:))?) | (?P<flags>\(\?[a-zA-Z-]+\)) | (?P<close>\)) | (?P<or>\|)
      | (?P<least>\{\s*(\d*)\s*(?:,\s*\d*\s*)?\}|[*+?])\??
      | (?P<edge>[\^$]|\\[bBAzZ<>])
      | (?P<class>\[\^?\]?(?:\[:[^]]*:\]|\\.|[^]\\])*\])
      | (?P<one>\\[pP](?:\{[^}]*\}|.)|\\[xuU](?:\{[0-9a-fA-F]+\}|[0-9a-fA-F]{2,4})|\\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(
    r"\[:\^?[a-z]+:\]|\\[pP](?:\{[^}]*\}|.)|\\[xuU](?:\{[0-9a-fA-F]+\}|[0-9a-fA-F]{2,4})|\\.|.", re.DOTALL
)
#: a character of each class that has a name
_NAMED = {"d": "0", "D": "a", "w": "a", "W": "-", "s": " ", "S": "a", "n": "\n", "r": "\r", "t": "\t", "f": "\f",
          "v": "\v", "a": "\a"}
_PROPERTIES = {"Lu": "A", "L": "a", "N": "0", "P": ".", "S": "+", "Z": " ", "alpha": "a", "digit": "0", "upper": "A",
               "space": " ", "punct": "."}
_OTHERS = "a0A -._é"  # for a class of all but some characters
#: what may hold endings in a Lark grammar
_LARK = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|/((?:\\.|[^/\\\n])+)/|%json\b\s*')


class _Part(NamedTuple):
    """Part of an expression: its shortest text, and the texts that end it from somewhere inside."""

    text: str
    ends: tuple[str, ...]


def endings(spec: Spec) -> list[str]:
    """Texts with which an answer of this form may end, as they stand in the answer; at most MOST, without doubles."""
    found: dict[str, None] = {}
    for text in _of_spec(spec):
        if 0 < len(text) <= LONGEST:
            found.setdefault(text)
        if len(found) == MOST:
            break
    return list(found)


def _of_spec(spec: Spec) -> Iterator[str]:
    if spec.is_json:
        yield from _of_schema(json.loads(spec.grammar))
    else:
        yield from _of_lark(spec.grammar)
    for _, part in spec.parts:
        yield from _of_spec(part)


def _of_schema(schema: Any) -> Iterator[str]:
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            patterns = value.get("patternProperties")
            for pattern in (value.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
                if isinstance(pattern, str):
                    for text in of_regex(pattern):
                        yield json.dumps(text, ensure_ascii=False)[1:-1]
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _of_lark(grammar: str) -> Iterator[str]:
    at = 0
    while found := _LARK.search(grammar, at):
        at = found.end()
        if found[1]:
            yield from of_regex(found[1].replace("\\/", "/"))
        elif found[0].startswith(("%json", '"')):
            try:
                value, at = json.JSONDecoder().raw_decode(grammar, at if found[0][0] == "%" else found.start())
            except (ValueError, RecursionError):
                continue
            yield from _of_schema(value) if found[0][0] == "%" else _suffixes(str(value))


def _suffixes(text: str) -> Iterator[str]:
    return (text[i:] for i in range(min(len(text), LONGEST)))


def of_regex(pattern: str) -> tuple[str, ...]:
    """The endings of a regular expression (Rust's), the longest beginning first in each of its branches."""
    frames: list[list[list[_Part]]] = [[[]]]  # of each open bracket its branches, of each branch its parts
    for found in _ELEMENT.finditer(pattern):
        branch = frames[-1][-1]
        if found["flags"] or found["edge"]:
            continue
        if found["open"]:
            frames.append([[]])
        elif found["close"]:
            if len(frames) > 1:
                closed = _either(frames.pop())
                frames[-1][-1].append(closed)
        elif found["or"]:
            frames[-1].append([])
        elif found["least"]:
            if branch:
                given = found["least"]
                branch[-1] = _repeated(branch[-1], int(found[6][:4] or 0) if given[0] == "{" else given == "+")
        else:
            letter = _of_class(found["class"]) if found["class"] else _letter(found["one"])
            branch.append(_Part(letter, (letter, "")))
    while len(frames) > 1:
        closed = _either(frames.pop())
        frames[-1][-1].append(closed)
    return _either(frames[0]).ends


def _either(branches: list[list[_Part]]) -> _Part:
    parts = [_joined(branch) for branch in branches]
    return _Part(min((part.text for part in parts), key=len), _few(end for part in parts for end in part.ends))


def _joined(parts: list[_Part]) -> _Part:
    tails = [""]
    for part in reversed(parts):
        tails.append((part.text + tails[-1])[:LONGEST + 1])
    tails.reverse()
    inside = (end + tails[i + 1] for i, part in enumerate(parts) for end in part.ends)
    return _Part(tails[0], _few((tails[0], *inside) if len(parts) <= MOST else (tails[0],)))


def _repeated(part: _Part, least: int) -> _Part:
    text = (part.text * least)[: LONGEST + 1]
    inside = (end + (part.text * k)[: LONGEST + 1] for k in range(max(least, 1) - 1, -1, -1) for end in part.ends)
    return _Part(text, _few((text, *inside)))


def _few(texts: Iterable[str]) -> tuple[str, ...]:
    kept: dict[str, None] = {}
    for text in texts:
        if len(text) <= LONGEST:
            kept.setdefault(text)
        if len(kept) == MOST:
            break
    return tuple(kept)


def _letter(sign: str) -> str:
    """A character that one element stands for."""
    if len(sign) < 2:
        return "a" if sign == "." else sign
    kind, rest = sign[1], sign[2:].strip("{}")
    if kind in "xuU" and rest:
        return chr(min(int(rest, 16), 0x10FFFF))
    if kind in "pP" and rest:
        return next((letter for name, letter in _PROPERTIES.items() if rest.startswith(name)), "a")
    return _NAMED.get(kind, kind)


def _of_class(text: str) -> str:
    """A character of a class in brackets."""
    negated = text.startswith("[^")
    signs = []
    for sign in _MEMBER.findall(text[2 if negated else 1 : -1]):
        named = sign.startswith("[:")
        signs.append(_PROPERTIES.get(sign[2:-2].strip("^"), "a") if named else sign if sign == "." else _letter(sign))
    if not negated:
        return next((sign for sign in signs if sign not in "[&"), "a") if signs else "a"
    spans = [(signs[i - 1], signs[i + 1]) for i in range(1, len(signs) - 1) if signs[i] == "-"]
    for letter in _OTHERS:
        if letter not in signs and not any(low <= letter <= high for low, high in spans):
            return letter
    return "~"
