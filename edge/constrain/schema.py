"""JSON schemas: text, dictionary, dataclass or pydantic model -> the schema that llguidance reads.

What llguidance accepts has its meaning, and what it refuses is refused (:mod:`edge.constrain.spec`).  Here more schemas
are let in: what only describes or asks for nothing is left out.  And objects that list their properties have no others.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from edge.amounts import parse_whole
from edge.constrain import bounds, classes
from edge.errors import UsageError

_ONE = frozenset(("items", "additionalItems", "additionalProperties"))  # a schema (items of old: a list of them)
_MANY = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))  # a list of schemas
_DEFINITIONS = frozenset(("$defs", "definitions"))  # name -> schema that a $ref may name
_NAMED = _DEFINITIONS | {"properties", "patternProperties"}  # name -> schema
#: keys that only describe, and llguidance's own options
_LEFT_OUT = frozenset(("$comment", "title", "description", "default", "examples", "example", "x-guidance"))
_COUNTS = frozenset(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"))
#: keys that join schemas about one value, if there are several of them or also keys about the parts of the value
_JOINING = frozenset(("allOf", "anyOf", "oneOf", "$ref", "const", "enum"))
_OF_PARTS = _ONE | {"prefixItems", "properties", "patternProperties", "required", "minProperties", "maxProperties"}
_BOUNDS = {"minimum": ge, "exclusiveMinimum": gt, "maximum": le, "exclusiveMaximum": lt}
MOST_DEEP = 64  # schemas inside schemas
MOST_SETS = 16  # of properties that are counted: of four that may be left out

Path = tuple[str, ...]  # the keys and indices that lead to a part of a schema


class Schema(NamedTuple):
    """A schema that was checked: its JSON ``text``, the class ``into`` which values are built or None, and its ``size``
    as given, in characters without descriptions."""

    text: str
    into: type | None
    size: int


def parse(given: Any) -> Schema:
    """The schema that is given as a mapping, JSON text, true or false, a dataclass, a pydantic model class, or as a
    Schema, which is returned as it is.

    Raises UsageError for what is none, and for one that is too large.
    """
    if isinstance(given, Schema):
        return given
    into = given if isinstance(given, type) else None
    if isinstance(given, str):
        try:
            given = json.loads(given, parse_int=parse_whole)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"is not JSON: {error}", argument="schema") from None
    elif into is not None:
        given = classes.schema_of(into)
    if isinstance(given, Mapping) and not isinstance(given, dict):
        given = dict(given)
    if not isinstance(given, (dict, bool)):
        raise UsageError("must be a JSON object, its text, a dataclass or a pydantic model", argument="schema")
    bounds.check_schema(given)
    try:
        text = json.dumps(_bare(given), ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot be written as JSON: {error}", argument="schema") from None
    bounds.check_text(len(text), "schema", bounds.MOST_SCHEMA)
    workable = _workable(_closed(json.loads(text)), [bounds.MOST_SCHEMA])
    return Schema(json.dumps(workable, ensure_ascii=False), into, len(text))


def _changed(schema: dict[str, Any], change: Callable[[Any, Path], Any]) -> dict[str, Any]:
    """The schema with change(part, path) for each schema inside it; paths are relative to it."""
    changed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _ONE | _MANY and isinstance(value, list):
            changed[key] = [change(each, (key, str(i))) for i, each in enumerate(value)]
        elif key in _ONE:
            changed[key] = change(value, (key,))
        elif key in _NAMED and isinstance(value, dict):
            changed[key] = {name: change(each, (key, name)) for name, each in value.items()}
        else:
            changed[key] = value
    return changed


def _bare(schema: Any, depth: int = 0) -> Any:
    """The schema without its descriptions, which are often most of it and take memory, and without what asks for
    nothing.
    """
    if depth > MOST_DEEP:
        raise UsageError(f"is more than {MOST_DEEP} levels deep", argument="schema")
    if not isinstance(schema, dict):
        return schema
    rest = {key: int(value) if key in _COUNTS and isinstance(value, float) and value.is_integer() else value
            for key, value in schema.items() if key not in _LEFT_OUT and not _is_idle(key, value, schema)}
    return _changed(rest, lambda part, _: _bare(part, depth + 1))


def _is_idle(key: str, value: Any, schema: dict[str, Any]) -> bool:
    """Whether a key asks for nothing.  llguidance refuses some keys whatever they say."""
    if key == "uniqueItems":
        most = schema.get("maxItems")
        return value is False or isinstance(most, (int, float)) and most <= 1
    if key in ("then", "else", "if"):
        return "if" not in schema or not schema.keys() & {"then", "else"}
    if key in ("minContains", "maxContains"):
        return "contains" not in schema
    if key in ("propertyNames", "unevaluatedProperties", "unevaluatedItems"):
        return value is True or value == {} or key == "propertyNames" and value == {"type": "string"}
    if key in ("dependentRequired", "dependentSchemas", "dependencies"):
        return value == {}
    return key == "format" and value in ("password", "binary") or key == "not" and value is False


# ---- objects that list their properties have no others ---------------------------------------------------------------


def _closed(schema: Any) -> Any:
    """The schema, in which objects that list their properties have no others unless it says so.

    A JSON schema allows further properties by default, and a model fills the place with nonsense; whoever lists
    properties rarely wants more.  llama.cpp has the same default.  Every answer to the result is valid for the schema:
    an object that is described by several schemas together stays open, as each may name properties.
    """
    if bounds.referenced(schema) is None:
        return schema  # any part may be joined with another
    joined: set[Path] = set()  # what a $ref in such a combination names
    found: set[Path] = set()

    def close(part: Any, path: Path, alone: bool) -> Any:
        if not isinstance(part, dict):
            return part
        alone = alone and path not in joined and not _joins(part)
        if not alone and isinstance(ref := part.get("$ref"), str) and (place := bounds.pointer(ref)) is not None:
            found.add(place)
        closed = _changed(part, lambda inner, below: close(inner, path + below, alone or below[0] in _DEFINITIONS))
        closed.pop("$schema", None)  # without it llguidance obeys the keys of all drafts
        if alone and _lists_all(part):
            closed["additionalProperties"] = False
        return closed

    while True:
        closed = close(schema, (), True)
        if found <= joined:
            return closed
        joined |= found


def _joins(schema: dict[str, Any]) -> bool:
    """Whether several parts of the schema describe the same value.  oneOf: closed parts may exclude each other where
    the given ones do not.
    """
    joining = schema.keys() & _JOINING
    parts = schema.get("allOf")
    return "oneOf" in joining or len(joining) > 1 or isinstance(parts, list) and len(parts) > 1 or \
        bool(joining and schema.keys() & _OF_PARTS)


def _lists_all(schema: dict[str, Any]) -> bool:
    """Whether the properties can be all that there are, and nothing is said about others."""
    properties, required, least = schema.get("properties"), schema.get("required", []), schema.get("minProperties", 0)
    return "additionalProperties" not in schema and isinstance(properties, dict) and isinstance(required, list) and \
        set(map(str, required)) <= properties.keys() and isinstance(least, (int, float)) and \
        least <= sum(each is not False for each in properties.values())


# ---- what llguidance takes in another form only ----------------------------------------------------------------------


def _workable(schema: Any, room: list[int], times: int = 1) -> Any:
    """The schema with the same meaning in forms that llguidance takes.  ``room``: characters that llguidance may still
    read more than once; ``times``: how often it reads this part.
    """
    if not isinstance(schema, dict):
        return schema
    sets, joined = _sets(schema), schema.get("allOf", [])
    size = len(sets) * times * len(json.dumps(schema))
    if 0 < len(sets) <= MOST_SETS and size <= room[0] and isinstance(joined, list):
        room[0] -= size
        times *= len(sets)
        schema = {**schema, "allOf": [*joined, {"anyOf": sets}]}
    return _changed(_few_multiples(schema), lambda part, _: _workable(part, room, times))


def _sets(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Where properties are counted: each set of those that may be left out, as a schema.  [] where there are too many.

    With all that are listed required or excluded, llguidance counts the others.
    """
    listed, required, most = (schema.get(key) for key in ("properties", "required", "maxProperties"))
    alone = most is None and schema.get("additionalProperties") is False  # then llguidance tells one from none
    if not isinstance(listed, dict) or most is None and schema.get("minProperties", 0) in ((0, 1) if alone else (0,)):
        return []
    needed = set(map(str, required)) if isinstance(required, list) else set()
    free = [name for name, part in listed.items() if name not in needed and part is not False]
    n_most = min(len(free), most - len(needed)) if isinstance(most, int) else len(free)
    sets = (chosen for n in range(n_most + 1) for chosen in itertools.combinations(free, n))
    return [{"required": list(chosen), "properties": {name: False for name in free if name not in chosen}}
            for chosen in itertools.islice(sets, MOST_SETS + 1)] if free else []


def _few_multiples(schema: dict[str, Any]) -> dict[str, Any]:
    """The multiples of a decimal as an enum where bounds leave one or two.  llguidance looks for them in doubles, where
    it finds no multiple of 0.1 from 0.3 to 0.3.
    """
    step, bounds = schema.get("multipleOf", 0), {key: schema[key] for key in _BOUNDS if key in schema}
    both_sides = len({key[-7:].lower() for key in bounds}) == 2
    if schema.get("type") != "number" or "enum" in schema or not both_sides or not all(
            type(each) in (int, float) and abs(each) < 1e6 and round(each, 9) == each
            for each in (step, *bounds.values())) or step <= 0:
        return schema
    near = {round((bound // step + n) * step, 9) for bound in bounds.values() for n in (-1, 0, 1, 2)}
    values = [int(each) if each % 1 == 0 else each for each in sorted(near)
              if all(_BOUNDS[key](each, bound) for key, bound in bounds.items())]
    if not 1 <= len(values) <= 2:
        return schema
    rest = {key: value for key, value in schema.items() if key not in bounds and key != "multipleOf"}
    return {**rest, "enum": values}
