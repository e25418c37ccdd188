"""JSON schemas: text, dictionary, dataclass or pydantic model -> the schema that llguidance reads.

What llguidance accepts has its meaning, and what it refuses is refused (:mod:`edge.constrain.spec`).  Here more schemas
are let in: what only describes or asks for nothing is left out.  And objects that list their properties have no others.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from edge.amounts import parse_whole
from edge.constrain import bounds
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
#: references to a place that only an $id or $anchor tells, or one with escapes in it
_UNKNOWN_PLACE = re.compile(r'"(\$id|id|\$anchor)": "|"\$ref": "(?!#["/])|"\$ref": "[^"]*[%~\\]')
_BOUNDS = {"minimum": ge, "exclusiveMinimum": gt, "maximum": le, "exclusiveMaximum": lt}
MOST_DEEP = 64  # schemas inside schemas


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
        given = schema_of(into)
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
    return Schema(json.dumps(_closed(json.loads(text)), ensure_ascii=False), into, len(text))


def _changed(schema: dict[str, Any], change: Callable[[Any, tuple[str, ...]], Any]) -> dict[str, Any]:
    """The schema with change(part, keys and indices that lead to it) for each schema inside it."""
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
    return _changed(_few_multiples(rest), lambda part, _: _bare(part, depth + 1))


def _is_idle(key: str, value: Any, schema: dict[str, Any]) -> bool:
    """Tell if a key asks for nothing.  llguidance refuses some keys whatever they say."""
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
    return {key: value for key, value in schema.items() if key not in bounds and key != "multipleOf"} | {"enum": values}


def _closed(schema: Any) -> Any:
    """The schema, in which objects that list their properties have no others unless it says so.

    A JSON schema allows further properties by default, and a model fills the place with nonsense; whoever lists
    properties rarely wants more.  llama.cpp has the same default.  Every answer to the result is valid for the schema:
    an object that is described by several schemas together stays open, as each may name properties.
    """
    if not isinstance(schema, dict):
        return schema
    text = json.dumps(schema | {"$id": 0, "id": 0}, ensure_ascii=False)
    if '"$ref"' in text and _UNKNOWN_PLACE.search(text):
        return schema  # any part may be joined with another
    joined: set[str] = set()  # the places that a $ref in such a combination names
    found: set[str] = set()

    def close(part: Any, place: str, alone: bool) -> Any:
        if not isinstance(part, dict):
            return part
        alone = alone and place not in joined and not _joins(part)
        if not alone and "$ref" in part:
            found.add(str(part["$ref"]))
        closed = _changed(part, lambda inner, below: close(
            inner, "/".join((place, *below)), alone or below[0] in _DEFINITIONS))
        closed.pop("$schema", None)  # without it llguidance obeys the keys of all drafts
        if alone and _lists_all(part):
            closed["additionalProperties"] = False
        return closed

    while True:
        closed = close(schema, "#", True)
        if found <= joined:
            return closed
        joined |= found


def _joins(schema: dict[str, Any]) -> bool:
    """Tell if several parts of the schema describe the same value.  oneOf: closed parts may exclude each other where
    the given ones do not.
    """
    joining = schema.keys() & _JOINING
    parts = schema.get("allOf")
    return "oneOf" in joining or len(joining) > 1 or isinstance(parts, list) and len(parts) > 1 or \
        bool(joining and schema.keys() & _OF_PARTS)


def _lists_all(schema: dict[str, Any]) -> bool:
    """Tell if the properties can be all that there are, and nothing is said about others."""
    properties, required, least = schema.get("properties"), schema.get("required", []), schema.get("minProperties", 0)
    return "additionalProperties" not in schema and isinstance(properties, dict) and isinstance(required, list) and \
        set(map(str, required)) <= properties.keys() and isinstance(least, (int, float)) and \
        least <= sum(each is not False for each in properties.values())


# ---- dataclasses and pydantic models ---------------------------------------------------------------------------------


def schema_of(kind: type) -> Any:
    """The schema of a dataclass or a pydantic model.

    Raises UsageError for another class, and for types that JSON cannot represent.
    """
    if hasattr(kind, "model_json_schema"):  # pydantic: only there if the caller has it
        return kind.model_json_schema()
    if not dataclasses.is_dataclass(kind):
        raise UsageError(f"is {kind.__name__}, which is neither a dataclass nor a pydantic model", argument="schema")
    defs: dict[str, Any] = {}
    return {**_of_type(kind, kind.__name__, defs), **({"$defs": defs} if defs else {})}


_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _of_type(hint: Any, name: str, defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of one annotation; dataclasses are added to ``defs``, so that they may refer to themselves."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint in _SIMPLE:
        return {} if hint is Any else {"type": _SIMPLE[hint]}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of_type(each, name, defs) for each in args]}
    if origin is list and args:
        return {"type": "array", "items": _of_type(args[0], name, defs)}
    if origin is dict and args[:1] == (str,):
        return {"type": "object", "additionalProperties": _of_type(args[1], name, defs)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [each.value for each in hint]}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        name = hint.__name__
        if name not in defs:
            defs[name] = {}
            parts = {part: _of_type(each, f"{name}.{part}", defs) for part, each in _fields(hint).items()}
            defs[name] = {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}
        return {"$ref": f"#/$defs/{name}"}
    raise UsageError(f"is wrong: {name} has a type that JSON cannot represent: {hint}", argument="schema")


def _fields(kind: type) -> dict[str, Any]:
    """The fields of a dataclass that an answer has, with their annotations."""
    hints = typing.get_type_hints(kind)
    return {each.name: hints[each.name] for each in dataclasses.fields(kind) if each.init}


def value(text: str, into: type | None) -> Any:
    """The value of an answer: an instance of ``into``, or JSON's own types.  Raises ValueError for an incomplete
    answer.
    """
    parsed = json.loads(text)
    if into is None:
        return parsed
    if hasattr(into, "model_validate"):
        return into.model_validate(parsed)
    return _build(parsed, into)


def _build(parsed: Any, hint: Any) -> Any:
    """A value of JSON as one of the annotation's type.  Raises ValueError if it cannot be one."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for each in args:
            with suppress(ValueError):
                return _build(parsed, each)
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(parsed)
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        fields = _fields(hint)
        if isinstance(parsed, dict) and parsed.keys() == fields.keys():
            return hint(**{name: _build(each, fields[name]) for name, each in parsed.items()})
    elif origin is dict and isinstance(parsed, dict):
        return {name: _build(each, args[1]) for name, each in parsed.items()}
    elif origin is list and isinstance(parsed, list):
        return [_build(each, args[0]) for each in parsed]
    elif hint is float and type(parsed) in (int, float):
        return float(parsed)
    elif hint is Any or type(parsed) is hint or origin is typing.Literal and parsed in args:
        return parsed
    raise ValueError(f"{parsed!r} is not {hint}")
