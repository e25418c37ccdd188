"""Dataclasses and pydantic models: the JSON schema of a class, and its instances out of answers."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from typing import Any

from edge.errors import UsageError


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


def _of_dataclass(kind: type, defs: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return {
        "type": "object",
        "properties": {field.name: _of_type(hints[field.name], f"{kind.__name__}.{field.name}", defs)
                       for field in fields},
        "required": [field.name for field in fields],
        "additionalProperties": False,
    }


_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _of_type(hint: Any, name: str, defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of one annotation; dataclasses are added to ``defs``, so that they may refer to themselves."""
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
