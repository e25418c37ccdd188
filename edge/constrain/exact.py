"""A schema as llguidance must be given it: what it would read loosely is written more narrowly, or refused by name.

Everything that the result allows, the given schema allows, too, also for a validator that checks formats and reads
numbers as doubles.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from typing import Any

from edge.constrain import formats
from edge.constrain.bounds import digits
from edge.constrain.patterns import portable, varies
from edge.errors import UsageError

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_COUNTS = frozenset(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"))
_LOWER, _UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
#: llguidance reads integers of 64 bits, and compares doubles: up to which integers are exact, and the largest
_EXACT, _LARGEST = 1 << 53, (1 << 63) - 1024
#: of other numbers it reads so many digits exactly, and so many behind the point
_DIGITS, _PLACES = 15, 22
#: what is nearer to 0 counts as equal
_TINY = 1e-15
_NO_ESCAPE = '"\\\n\r\t\b\f'  # characters below a blank, and others, that JSON writes without their number


def is_idle(key: str, value: Any, schema: dict[str, Any]) -> bool:
    """Whether a key of a schema asks for nothing."""
    if key == "uniqueItems":
        most = schema.get("maxItems")
        return value is False or isinstance(most, (int, float)) and most <= 1
    if key in ("then", "else", "if"):
        return "if" not in schema or not schema.keys() & {"then", "else"}
    if key in ("minContains", "maxContains"):
        return "contains" not in schema
    if key == "additionalItems":
        return not isinstance(schema.get("items"), list)
    if key in ("propertyNames", "unevaluatedProperties", "unevaluatedItems"):
        return value is True or value == {} or key == "propertyNames" and value == {"type": "string"}
    if key in ("dependentRequired", "dependentSchemas", "dependencies"):
        return value == {}
    return key in ("nullable", "not") and value is False


def narrowed(part: dict[str, Any], place: str) -> dict[str, Any]:
    """One part of a schema, of which the parts inside are done.  ``place``: where it stands.  Raises UsageError."""
    made: dict[str, Any] = {}
    for key, value in part.items():
        try:
            if key == "type":
                _check_type(value)
            elif key in _COUNTS:
                value = int(value) if isinstance(value, float) and value.is_integer() else value
            elif key == "pattern" and isinstance(value, str):
                value = portable(value)
            elif key == "patternProperties" and isinstance(value, dict):
                if any(map(varies, value)) and part.get("additionalProperties") is not False:
                    if "additionalProperties" in part:
                        raise UsageError("names for which some validators read a pattern differently would be "
                                         "additional; use additionalProperties false, or patterns without . and \\w")
                    made["additionalProperties"] = False
                value = {portable(pattern): each for pattern, each in value.items()}
            elif key in ("const", "enum"):
                value = _constant(value)
            elif key == "multipleOf" and isinstance(value, (int, float)) and value <= 0:
                raise UsageError("must be more than 0")
        except UsageError as error:
            raise UsageError(f"schema: {place}/{key}: {error}") from None
        if key not in (*_LOWER, *_UPPER, "format"):
            made[key] = value
    _add_format(made, part, place)
    for keys, up in ((_LOWER, True), (_UPPER, False)):
        if (bound := _bound(part, keys, up, place)) is not None:
            _tighten(made, keys[0], bound)
    _check_least(made, place)
    return _with_items(made, place)


def holds_controls(schema: Any) -> bool:
    """Whether a text of the schema has a character that JSON can only write by its number."""
    return any(isinstance(each, str) and any(c < " " and c not in _NO_ESCAPE or c == "\x7f" for c in each)
               for each in _values(schema))


def _values(value: Any) -> Iterator[Any]:
    """A value and all inside it, keys included."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, dict):
            waiting += each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _check_type(given: Any) -> None:
    for word in given if isinstance(given, list) else [given]:
        if not isinstance(word, str):
            raise UsageError("is not the name of a type or a list of names")
        if word not in TYPES:
            near = difflib.get_close_matches(word.lower(), TYPES, 1, 0.5)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{word[:40]!r} is none of the types {', '.join(TYPES)}{meant}")


def _constant(value: Any) -> Any:
    """A value of ``const`` or ``enum`` as llguidance reads it exactly."""
    if isinstance(value, list):
        return [_constant(each) for each in value]
    if isinstance(value, dict):
        return {name: _constant(each) for name, each in value.items()}
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if abs(value) <= _LARGEST and value == int(value) == float(value):
        return int(value)
    fits = isinstance(value, float) and abs(value) <= _LARGEST  # as an integer it would be the largest one
    coefficient, exponent = digits(value) if fits else (0, _PLACES + 1)
    if len(str(abs(coefficient))) > _DIGITS or abs(exponent) > _PLACES:
        raise UsageError(f"{str(value)[:40]} has too many digits to be written exactly")
    return value


def _bound(part: dict[str, Any], keys: tuple[str, str], up: bool, place: str) -> int | float | None:
    """The bound of numbers that ``minimum`` and ``exclusiveMinimum`` (``up``) set together, as one that is included;
    None if there is none.
    """
    found: list[int | float] = []
    plain, open_end = (part.get(key) for key in keys)
    if isinstance(open_end, bool):  # draft 4: whether the other one is excluded
        plain, open_end = (None, plain) if open_end else (plain, None)
    for key, value in zip(keys, (plain, open_end)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            raise UsageError(f"schema: {place}/{key}: must be a number")
        if value > _LARGEST if up else value < -_LARGEST:
            raise UsageError(f"schema: {place}/{key}: {str(value)[:40]} is too large; {_LARGEST} is the largest")
        value = _inside(value, 1 if up else -1, key == keys[1])
        found.append(value)
    return (max(found) if up else min(found)) if found else None


def _inside(bound: int | float, sign: int, excluded: bool) -> int | float:
    """The outermost number that is exact and certainly inside of a bound, which is beyond it in the direction ``sign``.

    An excluded bound itself is not: 0.99999999999999999 is below 1, but is read as the double 1.
    """
    if abs(bound) >= _EXACT:
        near = float(max(-_LARGEST, min(bound, _LARGEST)))
        return int(math.nextafter(near, sign * math.inf) if excluded or sign * near < sign * bound else near)
    if abs(bound) < _TINY:
        return sign * _TINY if sign * bound > 0 or excluded and not bound else 0
    if bound == int(bound) and not excluded:
        return int(bound)
    coefficient, exponent = digits(bound)
    unit = max(exponent + len(str(abs(coefficient))) - _DIGITS, -_PLACES)  # the power of ten of the last digit kept
    inside, left = divmod(coefficient * 10 ** max(0, exponent - unit), 10 ** max(0, unit - exponent))  # rounded down
    if sign > 0 and (left or excluded):
        inside += 1
    elif sign < 0 and excluded and not left:
        inside -= 1
    return float(f"{inside}e{unit}")


def _tighten(made: dict[str, Any], key: str, bound: int | float) -> None:
    known = made.get(key)
    made[key] = bound if known is None else max(known, bound) if key == "minimum" else min(known, bound)


def _add_format(made: dict[str, Any], part: dict[str, Any], place: str) -> None:
    """Write ``format`` as patterns, lengths and bounds."""
    name = part.get("format")
    if name is None:
        return
    given = part.get("type", list(TYPES))
    types = given if isinstance(given, list) else [given]
    bounds = formats.INTEGERS.get(name) or formats.NUMBERS.get(name) if isinstance(name, str) else None
    if bounds is not None:
        if "type" not in part or not {"integer", "number"} & set(types):
            raise UsageError(f"schema: {place}/format: {name!r} needs the type integer or number")
        if name in formats.INTEGERS:
            whole = list(dict.fromkeys("integer" if each == "number" else each for each in types))
            made["type"] = whole if isinstance(given, list) else whole[0]
        made["minimum"], made["maximum"] = bounds
    elif isinstance(name, str) and name in formats.TEXTS:
        if "string" not in types:
            return  # formats of texts say nothing about other values
        known = formats.WITH_PATTERN.get(name, formats.TEXTS[name]) if "pattern" in made else formats.TEXTS[name]
        patterns = list(known.patterns)
        if patterns and "pattern" not in made:
            made["pattern"] = patterns.pop(0)
        if patterns and isinstance(made.setdefault("allOf", []), list):
            made["allOf"] = [*made["allOf"], *({"pattern": each} for each in patterns)]
        if known.most is not None and isinstance(given := made.get("maxLength", known.most), int):
            made["maxLength"] = min(known.most, given)
    else:
        names = ", ".join((*formats.TEXTS, *formats.INTEGERS, *formats.NUMBERS))
        raise UsageError(f"schema: {place}/format: {str(name)[:40]!r} is not supported; supported are {names}")


def _check_least(made: dict[str, Any], place: str) -> None:
    """Whether ``minProperties`` certainly holds.  A name that is not listed may be written twice, and counts once."""
    least, names = made.get("minProperties", 0), made.get("required", [])
    if isinstance(least, int) and isinstance(names, list) and least > 1 + len(set(map(str, names))):
        raise UsageError(f"schema: {place}/minProperties: more than one property that is not required cannot be "
                         "guaranteed, as names may repeat; name them in required")


def _with_items(made: dict[str, Any], place: str) -> dict[str, Any]:
    """What is said of the items of a list side by side: llguidance forgets it in some other orders."""
    items = made.get("items")
    old = isinstance(items, list)
    if old and "prefixItems" in made:
        raise UsageError(f"schema: {place}/items: a list of items is prefixItems, which is there, too")
    if not old and "prefixItems" not in made:
        return made
    pair = ("items", "additionalItems") if old else ("prefixItems", "items")
    lists = {key: made.pop(key) for key in pair if key in made}
    return {**lists, **made}
