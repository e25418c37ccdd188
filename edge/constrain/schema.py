"""JSON schemas: text, dictionary, dataclass or pydantic model -> one schema of which every key has an effect.

llguidance ignores keys that it does not know.  Here a key that has no effect and is not a mere description is refused
by name, so that an answer always obeys the whole schema; :mod:`edge.constrain.exact` sees to what a key allows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from edge.constrain import bounds, classes, exact
from edge.errors import UsageError

#: keys that llguidance supports, by the kind of their values
_PLAIN = frozenset((
    "type", "const", "enum", "required", "minItems", "maxItems", "minProperties", "maxProperties", "minLength",
    "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "$ref",
))
_ONE = frozenset(("items", "additionalItems", "additionalProperties"))  # a schema (items of old: a list of them)
_MANY = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))  # a list of schemas
_DEFINITIONS = frozenset(("$defs", "definitions"))  # name -> schema that a $ref may name
_NAMED = _DEFINITIONS | {"properties", "patternProperties"}  # name -> schema
#: keys that only describe; they are removed before llguidance reads the schema
_DESCRIPTIONS = frozenset(("$comment", "title", "description", "default", "examples", "example"))
#: keys that do not change which values are valid; discriminator (OpenAPI, pydantic) repeats anyOf
_REMARKS = _DESCRIPTIONS | {
    "$schema", "$vocabulary", "$id", "id", "$anchor", "readOnly", "writeOnly", "deprecated", "contentMediaType",
    "contentEncoding", "contentSchema", "discriminator",
}
#: keys that join schemas about one value, if there are several of them or also keys about the parts of the value
_JOINING = frozenset(("allOf", "anyOf", "oneOf", "$ref", "const", "enum"))
_OF_PARTS = _ONE | {"prefixItems", "properties", "patternProperties", "required", "minProperties", "maxProperties"}
#: keys with which a schema may need properties that it does not name
_UNNAMED = frozenset(("$ref", "const", "enum", "oneOf", "patternProperties", "minProperties"))
MOST_DEEP = 64  # schemas inside schemas
#: for llguidance: \\uXXXX would be another spelling of a name that is listed, and so past its schema
ONE_SPELLING = {"json_allowed_escapes": 'nrbtf\\"'}

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

    Raises UsageError, naming keys that are not supported.
    """
    if isinstance(given, Schema):
        return given
    into = given if isinstance(given, type) else None
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"is not JSON: {error}", argument="schema") from None
    elif into is not None:
        given = classes.schema_of(into)
    if isinstance(given, Mapping) and not isinstance(given, dict):
        given = dict(given)
    if not isinstance(given, (dict, bool)):
        raise UsageError("must be a JSON object, its text, a dataclass or a pydantic model", argument="schema")
    bounds.check_schema(given)
    unknown = sorted(set(_unsupported(given)))
    bare = _bare(given)
    try:
        text = json.dumps(bare, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot be written as JSON: {error}", argument="schema") from None
    bounds.check_text(len(text), "schema", bounds.MOST_SCHEMA)
    if unknown:
        raise UsageError(f"has keys that are not supported: {', '.join(unknown)}", argument="schema")
    made = _narrowed(json.loads(text), ())
    if bounds.referenced(made) is not None:
        _forget_dialects(made)
    patterns, names = set[str](), set[str]()
    _collect(made, patterns, names)
    for pattern in sorted(patterns) if names else ():
        if (name := _matching(pattern, sorted(names))) is not None:
            raise UsageError(f"schema: patternProperties {pattern!r} also holds for the property {name!r}, "
                             "which is not supported")
    closed = _closed(made)
    if _leaves_names(closed):
        if exact.holds_controls(closed):
            raise UsageError("has control characters and names that are not listed, which could be spelled in "
                             "several ways", argument="schema")
        closed = {"x-guidance": ONE_SPELLING, **closed}
    return Schema(json.dumps(closed, ensure_ascii=False), into, len(text))


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


def _bare(schema: Any) -> Any:
    """The schema without its descriptions, which are often most of it and take memory."""
    if not isinstance(schema, dict):
        return schema
    rest = {key: value for key, value in schema.items()
            if key not in _DESCRIPTIONS and not exact.is_idle(key, value, schema)}
    return _changed(rest, lambda part, _: _bare(part))


def _forget_dialects(schema: Any) -> None:
    """Remove ``$schema``, without which llguidance obeys the keys of all drafts."""
    if isinstance(schema, dict):
        schema.pop("$schema", None)
        _changed(schema, lambda part, _: _forget_dialects(part))


def _narrowed(schema: Any, path: Path) -> Any:
    """The schema of which llguidance obeys each key, see :mod:`edge.constrain.exact`."""
    if not isinstance(schema, dict):
        return schema
    made = _changed(schema, lambda part, below: _narrowed(part, path + below))
    return exact.narrowed(made, "".join(f"/{key}" for key in path))


def _leaves_names(schema: Any) -> bool:
    """Whether an object may have names other than those that are listed."""
    if not isinstance(schema, dict):
        return False
    listed = schema.keys() & {"properties", "patternProperties", "required"}
    inside: list[bool] = []
    _changed(schema, lambda part, _: inside.append(_leaves_names(part)))
    return bool(listed) and schema.get("additionalProperties") is not False or any(inside)


# ---- objects that list their properties have no others ---------------------------------------------------------------


def _closed(schema: Any) -> Any:
    """The schema, in which objects that list their properties have no others unless it says so.

    A JSON schema allows further properties by default, and a model fills the place with nonsense; whoever lists
    properties rarely wants more.  llama.cpp has the same default.  Every answer to the result is valid for the schema:
    where closing an object by itself could change what a combination of schemas means, the object stays open.
    """
    if bounds.referenced(schema) is None:
        return schema  # any part may be joined with another
    stay_open = _joined(schema)

    def close(part: Any, path: Path) -> Any:
        if not isinstance(part, dict):
            return part
        closed = _changed(part, lambda inner, below: close(inner, path + below))
        if path not in stay_open and _lists_all(part):
            closed["additionalProperties"] = False
        return closed

    return close(schema, ())


def _joined(schema: Any) -> set[Path]:
    """The paths of all schemas that describe a value, or a part of one, together with others.

    Raises UsageError for a $ref to something that is not a schema, because it was not checked.
    """
    joined, paths, waiting = set[Path](), set[Path](), list[Path]()
    refs = dict[Path, str]()

    def walk(part: Any, path: Path, alone: bool) -> None:
        paths.add(path)
        if not isinstance(part, dict) or path in joined:
            return
        joins = _joins(part)
        stays_open = not alone or joins and not _names_all(part)
        if stays_open:
            joined.add(path)
        if isinstance(ref := part.get("$ref"), str) and (place := bounds.pointer(ref)) is not None:
            refs[place] = ref
            if stays_open:
                waiting.append(place)
        _changed(part, lambda inner, below: walk(inner, path + below, alone and not joins or below[0] in _DEFINITIONS))

    walk(schema, (), True)
    if lost := refs.keys() - paths:
        first = min(refs[path] for path in lost)
        raise UsageError(f"has a $ref that does not lead to a schema: {first}", argument="schema")
    while waiting:
        place = waiting.pop()
        walk(bounds.part_at(schema, place), place, False)
    return joined


def _joins(schema: dict[str, Any]) -> bool:
    """Whether several parts of the schema describe the same value.  oneOf: closed parts may exclude each other where
    the given ones do not.
    """
    joining = schema.keys() & _JOINING
    parts = schema.get("allOf")
    return "oneOf" in joining or len(joining) > 1 or isinstance(parts, list) and len(parts) > 1 or \
        bool(joining and schema.keys() & _OF_PARTS)


def _names_all(schema: dict[str, Any]) -> bool:
    """Whether the schema lists all properties that the schemas joined with it name ("a or b is required")."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict) or part.keys() & _UNNAMED:
            return False
        if part is not schema and "additionalProperties" in part:
            return False
        if not all(_has_names(schema, part.get(key, [])) for key in ("properties", "required")):
            return False
        waiting += [each for key in ("allOf", "anyOf") if isinstance(part.get(key), list) for each in part[key]]
    return True


def _lists_all(schema: dict[str, Any]) -> bool:
    """Whether the properties can be all that there are, and nothing is said about others."""
    least = schema.get("minProperties", 0)
    return "additionalProperties" not in schema and _has_names(schema, schema.get("required", [])) and \
        isinstance(least, (int, float)) and least <= sum(each is not False for each in schema["properties"].values())


def _has_names(schema: dict[str, Any], names: Any) -> bool:
    """Whether the schema lists properties, and all these names are among them."""
    properties = schema.get("properties")
    return isinstance(properties, dict) and isinstance(names, (list, dict)) and \
        all(isinstance(name, str) and name in properties for name in names)


def _unsupported(schema: Any, where: Path = (), depth: int = 0) -> list[str]:
    """Paths of the keys that have no effect."""
    if depth > MOST_DEEP:
        raise UsageError(f"is more than {MOST_DEEP} levels deep", argument="schema")
    if not isinstance(schema, dict):
        return []  # true, false; anything else is refused by llguidance
    effective = {key: value for key, value in schema.items() if not exact.is_idle(key, value, schema)}
    known = _PLAIN | _ONE | _MANY | _NAMED | _REMARKS
    found = ["/".join(("", *where, key)) for key in effective
             if key not in known and not str(key).startswith("x-") or key == "x-guidance"]
    _changed(effective, lambda part, below: found.extend(_unsupported(part, where + below, depth + 1)))
    return found


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


def _matching(pattern: str, names: list[str]) -> str | None:
    """The first name that the pattern holds for, or may hold for; None if there is none.

    llguidance decides, within its limits: the time of Python's expressions may grow exponentially.
    """
    if not _may_match(pattern, names):
        return None
    return next((name for name in names if _may_match(pattern, [name])), names[0])


def _may_match(pattern: str, names: list[str]) -> bool:
    """Whether a text can have the pattern and be one of the names; also if llguidance cannot read the pattern or
    gives up: better refused than wrong.
    """
    from llguidance import LLMatcher

    both = {"allOf": [{"enum": names}, {"type": "string", "pattern": pattern}]}
    error = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(json.dumps(both)), limits=bounds.limits())
    return not error.startswith("Unsatisfiable schema: ")
