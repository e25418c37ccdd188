"""Patterns of JSON schemas, rewritten so that they mean the same here and for whoever validates the answer.

A pattern is written for ECMAScript; validators read it with the expressions of their own language, and llguidance with
Rust's.  These differ in what \\d, \\s, \\w and the full stop hold for, in brackets, and in some escapes.  What is
written for llguidance holds only for texts that all of them take; a pattern whose parts they read in different ways is
refused.  Source: ECMA-262, 22.2; Python's re; Rust's regex-syntax.
"""

from __future__ import annotations

import re

from edge.errors import UsageError

#: white space for all; for any of them
_SPACES = r" \t\n\r\f\v\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_ANY_SPACES = _SPACES + r"\x1c-\x1f\x85\ufeff"
#: class -> (what is in it for all of them, what is in it for any)
_CLASSES = {"d": ("0-9", r"\p{Nd}"), "w": ("0-9A-Za-z_", r"\p{L}\p{M}\p{N}_"), "s": (_SPACES, _ANY_SPACES)}
_DOT = r"[^\n\r\u2028\u2029]"
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]+\}|[pP]\{[\w=]+\}|.)", re.DOTALL)
_REPEAT = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
#: what does not hold for the same characters everywhere
_VARYING = re.compile(r"\\[dDwWsS]|\.")
_GROUP = re.compile(r"\((?:\?(?::|i:|P?<[A-Za-z_]\w*>))?")


def portable(pattern: str) -> str:
    """The pattern for llguidance.  Raises UsageError that names the part which is read in different ways."""
    at = 4 if pattern.startswith("(?i)") else 0
    out, repeated = [pattern[:at]], False
    while at < len(pattern):
        sign, start = pattern[at], at
        if sign == "\\":
            text, at = _escape(pattern, at)
        elif sign == "[":
            text, at = _class(pattern, at)
        elif found := _REPEAT.match(pattern, at):
            text, at = found[0], found.end()
            if repeated:
                raise _refused(pattern[start:at], "follows another repetition")
        elif sign == "(" and (found := _GROUP.match(pattern, at)):
            text, at = found[0], found.end()
            if pattern.startswith("?", at) and not pattern.startswith(("?=", "?!", "?<"), at):  # llguidance names these
                raise _refused(pattern[start : start + 4], "sets flags")
        else:
            text, at = _DOT if sign == "." else "\\{" if sign == "{" else sign, at + 1
            if pattern.startswith("{,", start):
                raise _refused("{,", "is a repetition for some; write {0,")
        out.append(text)
        repeated = pattern[start] in "*+?{" and text != "\\{"
    return "".join(out)


def varies(pattern: str) -> bool:
    """Whether a pattern may hold for some validators where it does not for others.  An escaped stop counts, too."""
    return bool(_VARYING.search(pattern))


def _escape(pattern: str, at: int, negated: bool = False, in_class: bool = False) -> tuple[str, int]:
    """(what an escape is written as, the index after it).  ``negated``: inside brackets that stand for all others."""
    found = _ESCAPE.match(pattern, at)
    if found is None:
        raise _refused("\\", "is the last character")
    text, sign = found[0], found[0][1]
    if sign.lower() in _CLASSES and len(text) == 2:
        for_all, for_any = _CLASSES[sign.lower()]
        if sign.islower():
            text = for_any if negated else for_all
            text = text if in_class else f"[{text}]"
        else:
            text = f"[^{for_all if negated else for_any}]"
    elif text == "\\0" and not pattern[found.end() : found.end() + 1].isdigit():
        text = "\\x00"
    elif text == "\\b" and in_class:
        text = "\\x08"
    elif text in ("\\<", "\\>"):
        text = sign
    elif len(text) == 2 and sign.isalnum() and sign not in "tnrfv" and (in_class or sign not in "bB"):
        raise _refused(text, "is not the same for all validators")
    return text, found.end()


def _class(pattern: str, at: int) -> tuple[str, int]:
    """(what a class in brackets is written as, the index after it)."""
    start, negated = at, pattern.startswith("[^", at)
    at += 1 + negated
    out = ["[^" if negated else "["]
    if pattern.startswith("]", at):
        raise _refused(pattern[start : at + 1], "is an empty class for some")
    while at < len(pattern) and pattern[at] != "]":
        sign = pattern[at]
        if sign == "\\":
            text, at = _escape(pattern, at, negated, in_class=True)
        elif pattern.startswith(("[:", "[=", "[."), at):
            raise _refused(pattern[at : at + 2], "begins the name of a class for some; write \\[")
        elif pattern.startswith("--", at):
            raise _refused("--", "is an operator for some; put one \\- there")
        else:
            text, at = "\\" + sign if sign in "[&~" else sign, at + 1
        out.append(text)
    if at >= len(pattern):
        raise _refused(pattern[start : start + 20], "is not closed")
    return "".join(out) + "]", at + 1


def _refused(part: str, why: str) -> UsageError:
    return UsageError(f"{part!r} {why}")
