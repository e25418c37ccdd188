"""JSON schemas: text, dictionary, dataclass or pydantic model -> one schema of which every key has an effect.

llguidance ignores keys that it does not know.  Here a key that has no effect and is not a mere description is refused
by name, so that an answer always obeys the whole schema.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from edge.constrain.bounds import MOST_SCHEMA, check_schema, check_text
from edge.errors import UsageError

#: keys that llguidance supports, by the kind of their values
_PLAIN = frozenset((
    "type", "const", "enum", "required", "minItems", "maxItems", "minProperties", "maxProperties", "minLength",
    "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "$ref",
))  # fmt: skip
_ONE = frozenset(("items", "additionalItems", "additionalProperties"))  # a schema (items of old: a list of them)
_MANY = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))  # a list of schemas
_DEFINITIONS = frozenset(("$defs", "definitions"))  # name -> schema that a $ref may name
_NAMED = _DEFINITIONS | {"properties", "patternProperties"}  # name -> schema
#: keys that only describe; they are removed before llguidance reads the schema
_DESCRIPTIONS = frozenset(("$comment", "title", "description", "default", "examples", "example"))
#: keys that do not change which values are valid; discriminator (OpenAPI, pydantic) repeats anyOf
_REMARKS = _DESCRIPTIONS | {
    "$schema", "$id", "id", "$anchor", "readOnly", "writeOnly", "deprecated", "contentMediaType", "contentEncoding",
    "discriminator",
}
#: keys that join schemas about one value; beside them, or beside each other, keys about objects must stay as they are
_JOINING = frozenset(("allOf", "anyOf", "oneOf", "$ref", "const", "enum"))
_OF_OBJECTS = frozenset((
    "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties",
))  # fmt: skip
MOST_DEEP = 64  # schemas inside schemas


def parse(given: Any) -> tuple[str, type | None]:
    """(JSON text of the schema, the class to build values with or None).

    ``given``: a mapping, JSON text, true or false, a dataclass or a pydantic model class.  Raises UsageError, naming
    keys that are not supported.
    """
    into = given if isinstance(given, type) else None
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"is not JSON: {error}", argument="schema") from None
    elif into is not None:
        given = _of_class(into)
    if isinstance(given, Mapping) and not isinstance(given, dict):
        given = dict(given)
    if not isinstance(given, (dict, bool)):
        raise UsageError("must be a JSON object, its text, a dataclass or a pydantic model", argument="schema")
    check_schema(given)
    unknown = sorted(set(_unsupported(given, "", 0)))
    patterns, names = set[str](), set[str]()
    _collect(given, patterns, names)
    for pattern in sorted(patterns):
        if (name := next((name for name in sorted(names) if _matches(pattern, name)), None)) is not None:
            raise UsageError(f"schema: patternProperties {pattern!r} also holds for the property {name!r}, "
                             "which is not supported")  # fmt: skip
    if unknown:
        raise UsageError(f"has keys that are not supported: {', '.join(unknown)}", argument="schema")
    bare = _bare(given)
    try:
        check_text(len(json.dumps(bare, ensure_ascii=False)), "schema", MOST_SCHEMA)
        return json.dumps(_closed(bare), ensure_ascii=False), into
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot be written as JSON: {error}", argument="schema") from None


def _bare(schema: Any) -> Any:
    """The schema without its descriptions, which are often most of it and take memory."""
    if not isinstance(schema, dict):
        return schema
    bare = {}
    for key, value in schema.items():
        if key in _ONE:
            bare[key] = [_bare(each) for each in value] if isinstance(value, list) else _bare(value)
        elif key in _MANY and isinstance(value, list):
            bare[key] = [_bare(each) for each in value]
        elif key in _NAMED and isinstance(value, dict):
            bare[key] = {name: _bare(each) for name, each in value.items()}
        elif key not in _DESCRIPTIONS:
            bare[key] = value
    return bare


def _closed(schema: Any) -> Any:
    """The schema, in which objects that list their properties have no others unless it says so.

    A JSON schema allows further properties by default, and a model fills the place with nonsense; whoever lists
    properties rarely wants more.  llama.cpp has the same default.  Every answer to the result is valid for the schema:
    where closing an object by itself could change what a combination of schemas means, the object stays open.
    """
    return schema if _has_joined_refs(schema, True) else _close(schema, True)


def _close(schema: Any, alone: bool) -> Any:
    if not isinstance(schema, dict):
        return schema
    alone = alone and not _joins(schema)
    closed = {}
    for key, value in schema.items():
        inner = alone or key in _DEFINITIONS
        if key in _ONE:
            closed[key] = [_close(each, inner) for each in value] if isinstance(value, list) else _close(value, inner)
        elif key in _MANY and isinstance(value, list):
            closed[key] = [_close(each, inner) for each in value]
        elif key in _NAMED and isinstance(value, dict):
            closed[key] = {name: _close(each, inner) for name, each in value.items()}
        else:
            closed[key] = value
    if alone and _lists_all(schema):
        closed["additionalProperties"] = False
    return closed


def _lists_all(schema: dict[str, Any]) -> bool:
    """Whether the properties can be all that there are, and nothing is said about others."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if schema.keys() & {"additionalProperties", "minProperties", "maxProperties"}:
        return False
    return isinstance(properties, dict) and isinstance(required, list) and \
        all(isinstance(name, str) and name in properties for name in required)  # fmt: skip


def _joins(schema: dict[str, Any]) -> bool:
    """Whether several parts of the schema describe the same value.  oneOf: closed parts may exclude each other where
    the given ones do not.
    """
    joining = schema.keys() & _JOINING
    parts = schema.get("allOf")
    return "oneOf" in joining or len(joining) > 1 or isinstance(parts, list) and len(parts) > 1 or \
        bool(joining and schema.keys() & _OF_OBJECTS)  # fmt: skip


def _has_joined_refs(schema: Any, alone: bool) -> bool:
    """Whether a $ref takes part in a combination: any schema may be part of one then."""
    if isinstance(schema, list):
        return any(_has_joined_refs(each, alone) for each in schema)
    if not isinstance(schema, dict):
        return False
    alone = alone and not _joins(schema)
    if "$ref" in schema and not alone:
        return True
    for key, value in schema.items():
        inner = alone or key in _DEFINITIONS
        parts = value.values() if key in _NAMED and isinstance(value, dict) else [value]
        if key in _ONE | _MANY | _NAMED and any(_has_joined_refs(each, inner) for each in parts):
            return True
    return False


def _unsupported(schema: Any, where: str, depth: int) -> Iterator[str]:
    """Paths of the keys that have no effect."""
    if depth > MOST_DEEP:
        raise UsageError(f"is more than {MOST_DEEP} levels deep", argument="schema")
    if not isinstance(schema, dict):
        return  # true, false; anything else is refused by llguidance
    for key, value in schema.items():
        path = f"{where}/{key}"
        if key in _ONE:
            for each in value if isinstance(value, list) else [value]:
                yield from _unsupported(each, path, depth + 1)
        elif key in _MANY and isinstance(value, list):
            for i, each in enumerate(value):
                yield from _unsupported(each, f"{path}/{i}", depth + 1)
        elif key in _NAMED and isinstance(value, dict):
            for name, each in value.items():
                yield from _unsupported(each, f"{path}/{name}", depth + 1)
        elif key not in _PLAIN and key not in _REMARKS and not str(key).startswith("x-") or key == "x-guidance":
            yield path


def _collect(schema: Any, patterns: set[str], names: set[str]) -> None:
    """Collect all patterns and names of properties of the whole schema: allOf and $ref may combine any of them."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, patterns, names)
    elif isinstance(schema, dict):
        for key, into in (("patternProperties", patterns), ("properties", names)):
            if isinstance(schema.get(key), dict):
                into |= set(schema[key])
        for each in schema.values():
            _collect(each, patterns, names)


def _matches(pattern: str, name: str) -> bool:
    import re

    try:
        return re.search(pattern, name) is not None
    except re.error:  # a pattern that only llguidance can read: better refused than wrong
        return True


# ---- classes ---------------------------------------------------------------------------------------------------------


def _of_class(kind: type) -> Any:
    """The schema of a dataclass or a pydantic model."""
    if hasattr(kind, "model_json_schema"):  # pydantic: only there if the caller has it
        return kind.model_json_schema()
    if not dataclasses.is_dataclass(kind):
        raise UsageError(f"is {kind.__name__}, which is neither a dataclass nor a pydantic model", argument="schema")
    defs: dict[str, Any] = {}
    return {**_of_type(kind, kind.__name__, defs), **({"$defs": defs} if defs else {})}


def _of_dataclass(kind: type, defs: dict[str, Any]) -> dict[str, Any]:
    import typing

    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return {
        "type": "object",
        "properties": {field.name: _of_type(hints[field.name], f"{kind.__name__}.{field.name}", defs)
                       for field in fields},
        "required": [field.name for field in fields],
        "additionalProperties": False,
    }  # fmt: skip


_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _of_type(hint: Any, name: str, defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of one annotation; dataclasses are added to ``defs``, so that they may refer to themselves."""
    import enum
    import types
    import typing

    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of_type(each, name, defs) for each in args]}
    if origin is list and args:
        return {"type": "array", "items": _of_type(args[0], name, defs)}
    if origin is tuple and args[1:] == (...,):
        return {"type": "array", "items": _of_type(args[0], name, defs)}
    if origin is tuple and args:
        items = [_of_type(each, name, defs) for each in args]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if origin is dict and args[:1] == (str,):
        return {"type": "object", "additionalProperties": _of_type(args[1], name, defs)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [each.value for each in hint]}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if hint.__name__ not in defs:
            defs[hint.__name__] = {}
            defs[hint.__name__] = _of_dataclass(hint, defs)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise UsageError(f"is wrong: {name} has a type that JSON cannot represent: {hint}", argument="schema")


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
    """Convert JSON's types to those of the annotation."""
    import enum
    import types
    import typing

    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(parsed, dict):
        hints = typing.get_type_hints(hint)
        return hint(**{name: _build(each, hints[name]) for name, each in parsed.items()})
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(parsed)
    if origin in (typing.Union, types.UnionType):
        for each in args:
            if _fits(parsed, each):
                return _build(parsed, each)
    if origin is list:
        return [_build(each, args[0]) for each in parsed]
    if origin is tuple:
        kinds = [args[0]] * len(parsed) if args[1:] == (...,) else args
        return tuple(_build(each, kind) for each, kind in zip(parsed, kinds))
    if origin is dict:
        return {name: _build(each, args[1]) for name, each in parsed.items()}
    return float(parsed) if hint is float else parsed


def _fits(parsed: Any, hint: Any) -> bool:
    """Whether a JSON value can have the type of this annotation; chooses the member of a union."""
    import enum
    import typing

    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return parsed in typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return parsed in [each.value for each in hint]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return isinstance(parsed, dict) and {f.name for f in dataclasses.fields(hint) if f.init} == set(parsed)
    if hint is float:
        return type(parsed) in (int, float)
    if hint in _SIMPLE:
        return type(parsed) is hint
    return hint is Any or isinstance(parsed, origin if origin is not tuple else list)
