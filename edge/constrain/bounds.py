"""Limits of a grammar or schema, checked before llguidance reads it, so that no request can take more stack, memory or
time than planned.

llguidance follows references by recursion and takes memory for every character that a repetition stands for.  All
checks here are loops and need no stack themselves.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from edge.errors import UsageError

MOST_TEXT = 1 << 14  # characters of a form; and again with repetitions and terminals written out: 700 bytes each
MOST_SCHEMA = 1 << 15  # characters of a schema, and of all functions' schemas, without remarks: 450 bytes each
MOST_PARTS = 400  # properties, items and alternatives of these: llguidance may continue at each of them
MOST_RULES = 512  # rules and terminals of a grammar, and so the longest chain of them; a few thousand overflow a stack
MOST_LEVELS = 768  # levels of a schema, including everything its references name
MOST_VALUES = 1 << 16  # values in a schema, remarks included: the time of the checks grows with them
MOST_REPEATS = 400  # signs of repetition; memory grows with their square
MOST_MULTIPLES = 5000  # the sum of all multipleOf without their points: a state for each remainder
MOST_STATES, MOST_SYMBOLS = 25_000, 200_000  # of one grammar in llguidance; a state takes one or two kB

#: keys of a schema whose values are parts of it
_PARTS = ("properties", "patternProperties", "prefixItems", "anyOf", "oneOf", "allOf")
#: one element of a regular expression: a class is read character by character
_REGEX = re.compile(r"\\[pP]\{[^}]*\}|\\x\{[^}]*\}|\\.|\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}|.", re.DOTALL)
#: one element of a Lark grammar: comment, text, regular expression, embedded part, repetition, definition, name
_LARK = re.compile(
    r"""(?P<skip>//[^\n]*|\#[^\n]*|\s+)
      | (?P<text>"(?:\\.|[^"\\])*"i?)
      | (?P<regex>/(?:\\.|[^/\\\n])+/[a-z]*)
      | %(?P<part>[a-z]+)
      | [{~]\s*(?P<low>\d*)\s*(?P<more>,|\.\.)?\s*(?P<high>\d*)\s*\}?
      | [!?]?(?P<name>@?[A-Za-z_]\w*)(?P<defined>(?:\[[^\]]*\]|\.-?\d+|::[^\n:]*)?(?:\s|//[^\n]*|\#[^\n]*)*:(?!:))?
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


def limits() -> Any:
    """llguidance's limits for one grammar."""
    from llguidance import LLParserLimits

    return LLParserLimits(max_lexer_states=MOST_STATES, max_grammar_size=MOST_SYMBOLS, verbose_errors=False)


def check_regex(text: str, name: str) -> int:
    """The number of characters of a regular expression with its repetitions written out.  Raises UsageError if it is
    too large.
    """
    size = _Size(name)
    in_class = False
    for found in _REGEX.finditer(text):
        sign = found[0]
        if sign == "\\":
            raise UsageError("ends with a backslash that escapes nothing", argument=name)
        if in_class:
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
            size.add(1)
        elif found[2] is not None:
            size.repeat(found[1], found[3])
        else:
            size.sign(sign)
    return size.total()


def check_lark(text: str) -> list[tuple[int, int, Any]]:
    """Check a Lark grammar.  Returns where the schemas in it begin and end, and what they are.  Raises UsageError."""
    name = "grammar"  # of the argument
    schemas: list[tuple[int, int, Any]] = []
    bodies: dict[str, list[re.Match[str]]] = {}
    body: list[re.Match[str]] = []
    at, n_rules, n_repeats = 0, 0, 0
    while at < len(text) and (found := _LARK.match(text, at)):
        at = found.end()
        if found["defined"]:
            body = bodies.setdefault(found["name"], [])
            n_rules += 1  # also where a grammar inside the grammar has the same name
        elif found["part"] == "json":
            start, at, schema = _embedded(text, at)
            check_schema(schema, name)
            schemas.append((start, at, schema))
        elif not found["skip"]:
            n_repeats += found[0] in ("*", "+", "?") or found["low"] is not None
            body.append(found)
    if n_rules > MOST_RULES:
        raise UsageError(f"has {n_rules} rules and terminals; the limit is {MOST_RULES}", argument=name)
    if n_repeats > MOST_REPEATS:
        raise UsageError(f"has more than {MOST_REPEATS} repetitions", argument=name)
    # Terminals are written out by llguidance, rules are not.
    sizes: dict[str, int] = {}
    refs = {each: {found["name"] for found in body if found["name"] in bodies and _terminal(found["name"])}
            for each, body in bodies.items()}
    for first in bodies:
        waiting = [first]
        while waiting:
            each = waiting[-1]
            missing = refs[each] - sizes.keys() - set(waiting) if each not in sizes else set()
            if missing:
                waiting.append(missing.pop())
            else:
                if each not in sizes:
                    sizes[each] = _size_of(bodies[each], sizes, name)
                waiting.pop()
    return schemas


def check_schema(schema: Any, name: str = "schema") -> None:
    """Check a JSON schema, given as JSON's own types.  Raises UsageError."""
    levels, parts, n_values, n_nested = 0, 0, 0, 0
    multiples: list[int] = []
    merged = False  # schemas are combined: remainders of several numbers have to be right at once
    waiting: list[tuple[Any, int]] = [(schema, 0)]
    while waiting:
        value, depth = waiting.pop()
        levels = max(levels, depth)
        n_nested += isinstance(value, (list, dict))
        if depth > MOST_LEVELS:
            break
        n_values += len(value) if isinstance(value, (list, dict)) else 0
        if n_values > MOST_VALUES:
            raise UsageError(f"has more than {MOST_VALUES} values", argument=name)
        if isinstance(value, list):
            waiting += ((each, depth + 1) for each in value)
        elif isinstance(value, dict):
            waiting += ((each, depth + 1) for each in value.values())
            merged = merged or "allOf" in value or "$ref" in value and len(value) > 1
            parts += sum(len(held) for key in _PARTS if isinstance(held := value.get(key), (dict, list)))
            if isinstance(held := value.get("enum"), list):
                parts += sum(isinstance(each, (dict, list)) for each in held)
            multiple = value.get("multipleOf")
            if isinstance(multiple, (int, float)) and not isinstance(multiple, bool):
                multiples.append(_states(multiple))
            for key in ("pattern", "patternProperties"):
                given = value.get(key)
                for pattern in given if isinstance(given, dict) else [given]:
                    if isinstance(pattern, str):
                        check_regex(pattern, name)
    places = referenced(schema) if levels <= MOST_LEVELS else set()
    if places is None:
        # where a reference leads is not known here: it can name each object and list once
        if levels + n_nested > MOST_LEVELS:
            raise UsageError("has a $ref with an $id or $anchor, and its levels, objects and lists are more than "
                             f"{MOST_LEVELS} together; use references of the form #/$defs/name", argument=name)
    else:
        for place in places:
            if levels <= MOST_LEVELS:
                levels += _levels(part_at(schema, place))
    if levels > MOST_LEVELS:
        raise UsageError(f"is too deep: it and what its references name have more than {MOST_LEVELS} levels",
                         argument=name)
    if parts > MOST_PARTS:
        raise UsageError(f"has {parts} properties, items and alternatives; the limit is {MOST_PARTS}", argument=name)
    if sum(multiples) > MOST_MULTIPLES or merged and math.lcm(*multiples) > MOST_MULTIPLES:
        raise UsageError(f"has values of multipleOf that are too large; the limit of their sum is {MOST_MULTIPLES}, "
                         "and of their least common multiple where allOf or $ref combine schemas", argument=name)


def _states(multiple: int | float) -> int:
    """The number of states of an automaton that accepts the multiples of a number, from its digits without the
    point; one more than is allowed for infinity and NaN.
    """
    if isinstance(multiple, float) and not math.isfinite(multiple) or abs(multiple) > MOST_MULTIPLES:
        return MOST_MULTIPLES + 1
    if float(multiple).is_integer():
        return abs(int(multiple))
    return int(str(abs(multiple)).partition("e")[0].replace(".", ""))


def check_text(n: int, name: str, most: int = MOST_TEXT) -> None:
    """Raise UsageError if a text of ``n`` characters is longer than ``most``.  ``name``: of the argument, for the
    message.
    """
    if n > most:
        raise UsageError(f"has {n} characters; the limit is {most}", argument=name)


class _Size:
    """Counts the characters of an expression with its brackets and repetitions written out.  ``name``: of the
    argument.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[int] = []  # of the brackets around
        self._sum = self._last = 0  # of this bracket, without what came last; of that
        self._repeats = 0

    def add(self, n: int) -> None:
        self._sum, self._last = self._sum + self._last, n

    def repeat(self, low: str, high: str) -> None:
        times = max(int(each[:9] or 1) if len(each) < 10 else 1 << 30 for each in (low, high))
        self._last = min(self._last * max(1, times), 1 << 40)
        self._count()

    def _count(self) -> None:
        self._repeats += 1
        if self._repeats > MOST_REPEATS:
            raise UsageError(f"has more than {MOST_REPEATS} repetitions", argument=self._name)

    def sign(self, sign: str) -> None:
        if sign in "([":
            self.add(0)
            self._open.append(self._sum)
            self._sum = 0
        elif sign in ")]":
            inside = self._sum + self._last
            self._sum, self._last = (self._open.pop() if self._open else 0), inside
        elif sign in "*+?":
            self._count()
        else:
            self.add(1)

    def total(self) -> int:
        n = sum(self._open) + self._sum + self._last
        if n > MOST_TEXT:
            raise UsageError(f"has more than {MOST_TEXT} characters when its repetitions are written out",
                             argument=self._name)
        return n


def _size_of(body: list[re.Match[str]], sizes: dict[str, int], name: str) -> int:
    size = _Size(name)
    for found in body:
        if found["text"]:
            size.add(len(found["text"]))
        elif found["regex"]:
            size.add(check_regex(found["regex"][1:].rpartition("/")[0], name))
        elif found["low"] is not None:
            size.repeat(found["low"], found["high"])
        elif found["name"]:
            size.add(sizes.get(found["name"], 1) if _terminal(found["name"]) else 1)
        elif found["sign"]:
            size.sign(found["sign"])
    return size.total()


def _terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _embedded(text: str, at: int) -> tuple[int, int, Any]:
    """(index of a schema inside a grammar, index after it, the schema); nothing, if it is not JSON."""
    start = at + len(text[at:]) - len(text[at:].lstrip())
    try:
        schema, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return at, at, True  # llguidance reports what is wrong with it
    return start, end, schema


def referenced(schema: Any) -> set[tuple[str, ...]] | None:
    """The places that the references in a schema lead to; None if an $id or $anchor decides where one leads."""
    refs, has_ids, waiting = set[str](), False, [(schema, False)]
    while waiting:
        value, inside = waiting.pop()
        if isinstance(value, dict):
            has_ids = has_ids or inside and any(isinstance(value.get(key), str) for key in ("$id", "id"))
            if isinstance(ref := value.get("$ref"), str):
                refs.add(ref)
        if isinstance(value, (list, dict)):
            waiting += ((each, True) for each in (value.values() if isinstance(value, dict) else value))
    places = {place for ref in refs if (place := pointer(ref)) is not None}
    return None if refs and (has_ids or not all(ref == "#" or ref.startswith("#/") for ref in refs)) else places


def pointer(ref: str) -> tuple[str, ...] | None:
    """The keys and indices that a reference consists of ("#/$defs/a"); None for one that needs an $id or $anchor."""
    from urllib.parse import unquote

    if ref != "#" and not ref.startswith("#/"):
        return None
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in unquote(ref[1:]).split("/")[1:])


def part_at(schema: Any, place: Sequence[str]) -> Any:
    """The part of a schema at a place; None if there is none."""
    for part in place:
        if isinstance(schema, list):
            index = int(part) if re.fullmatch("[0-9]{1,9}", part) else len(schema)
            schema = schema[index] if index < len(schema) else None
        else:
            schema = schema.get(part) if isinstance(schema, dict) else None
    return schema


def _levels(value: Any) -> int:
    """The depth of nesting of a value."""
    levels, waiting = 1, [value]
    while waiting := [each for one in waiting if isinstance(one, (list, dict))
                      for each in (one.values() if isinstance(one, dict) else one)]:
        levels += 1
        if levels > MOST_LEVELS:
            break
    return levels
