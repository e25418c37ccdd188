"""Limits of a form, checked before llguidance reads it: no request takes more stack, memory or time than planned.

llguidance has limits for most of this (:func:`limits`).  It follows references by recursion, and has no limit for signs
of repetition and for multiples.
"""

from __future__ import annotations

import math
import re
from typing import Any

from edge.errors import UsageError

MOST_TEXT = 1 << 14  # characters of a form
MOST_SCHEMA = 1 << 15  # characters of a schema, and of all functions' schemas, without remarks: 450 bytes each
MOST_LINKS = 768  # rules of a grammar, objects and lists of a schema; 2,500 in a chain overflow a stack
MOST_REPEATS = 400  # signs of repetition; memory grows with their square
MOST_MULTIPLES = 5000  # the sum of all multipleOf without their points: a state for each remainder
MOST_STATES, MOST_SYMBOLS = 25_000, 200_000  # of one grammar in llguidance; a state takes one or two kB
FUEL = 80_000  # nodes of regular expressions with repetitions written out, as llguidance counts them

_REPEATS = re.compile(r"[*+?~]|\{\s*\d")


def limits() -> Any:
    """llguidance's limits for one grammar."""
    from llguidance import LLParserLimits

    return LLParserLimits(initial_lexer_fuel=FUEL, max_lexer_states=MOST_STATES, max_grammar_size=MOST_SYMBOLS,
                          verbose_errors=False)


def check_text(n: int, name: str, most: int = MOST_TEXT) -> None:
    """Raise UsageError if a text of ``n`` characters is longer than ``most``.  ``name``: of the argument, for the
    message.
    """
    if n > most:
        raise UsageError(f"has {n} characters; the limit is {most}", argument=name)


def check_repeats(text: str, name: str) -> None:
    """Raise UsageError if a regular expression or a grammar has too many repetitions."""
    if len(_REPEATS.findall(text)) > MOST_REPEATS:
        raise UsageError(f"has more than {MOST_REPEATS} repetitions", argument=name)


def check_lark(text: str) -> None:
    """Check a Lark grammar.  Raises UsageError."""
    check_repeats(text, "grammar")
    # each rule has a colon, and each object of a schema in the grammar; brackets take less of the stack
    n = text.count(":") + (text.count("(") + text.count("[")) // 2
    if n > MOST_LINKS:
        raise UsageError(f"has {n} rules, terminals, keys and pairs of brackets; the limit is {MOST_LINKS}",
                         argument="grammar")


def check_schema(schema: Any) -> None:
    """Check a JSON schema, given as JSON's own types.  Raises UsageError."""
    n_nested, multiples = 0, list[int]()
    merged = False  # schemas are combined: remainders of several numbers have to be right at once
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if not isinstance(value, (dict, list)):
            continue
        n_nested += 1
        waiting += value.values() if isinstance(value, dict) else value
        if isinstance(value, list):
            continue
        merged = merged or "allOf" in value or "$ref" in value and len(value) > 1
        multiple, keys = value.get("multipleOf"), value.get("patternProperties")
        if isinstance(multiple, (int, float)) and not isinstance(multiple, bool):
            multiples.append(_states(multiple))
        for pattern in (value.get("pattern"), *(keys if isinstance(keys, dict) else ())):
            if isinstance(pattern, str):
                check_repeats(pattern, "schema")
    if n_nested > MOST_LINKS:
        raise UsageError(f"has {n_nested} objects and lists; the limit is {MOST_LINKS}", argument="schema")
    if sum(multiples) > MOST_MULTIPLES or merged and math.lcm(*multiples) > MOST_MULTIPLES:
        raise UsageError(f"has values of multipleOf that are too large; the limit of their sum is {MOST_MULTIPLES}, "
                         "and of their least common multiple where allOf or $ref combine schemas", argument="schema")


def _states(multiple: int | float) -> int:
    """The number of states of an automaton that accepts the multiples of a number, from its digits without the
    point; one more than is allowed for infinity and NaN.
    """
    if isinstance(multiple, float) and not math.isfinite(multiple) or abs(multiple) > MOST_MULTIPLES:
        return MOST_MULTIPLES + 1
    if float(multiple).is_integer():
        return abs(int(multiple))
    return int(str(abs(multiple)).partition("e")[0].replace(".", ""))
