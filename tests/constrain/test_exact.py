"""Complete answers are valid, whatever a model would rather write: tests/constrain/adversary.py, and what it found."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from edge.constrain.functions import Functions
from edge.constrain.patterns import portable
from edge.constrain.spec import Spec
from edge.constrain.vocabulary import Vocabulary
from edge.errors import UsageError

adversary = pytest.importorskip("tests.constrain.adversary")


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(adversary.Bytes(), 257, [256])


def takes(vocabulary: Vocabulary, schema: Any, text: str) -> bool:
    matcher = vocabulary.matcher(Spec.of(schema=schema).rules())
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def test_every_format_is_checked_by_the_judge() -> None:
    """Without its extras, jsonschema lets every text pass for these."""
    for name in adversary.TEXTS:
        if name not in ("password", "binary"):
            assert not adversary.CHECKER.conforms("no such thing", name), name
    for name in (*adversary.INTEGERS, *adversary.NUMBERS):
        assert name in ("int", "uint") or not adversary.CHECKER.conforms(10**400, name), name


@pytest.mark.slow
def test_no_answer_at_the_edge_is_invalid(vocabulary: Vocabulary) -> None:
    """`python tests/constrain/adversary.py` judges ten thousand."""
    forms, _ = adversary.supported(100, seed=1)
    assert len(forms) > 500
    for i, (schema, spec) in enumerate(forms):
        for seed in (2 * i, 2 * i + 1):
            text = adversary.answer(vocabulary, spec, random.Random(seed), most=150)
            assert text is None or adversary.fault(schema, text) is None, (schema, seed, text)


DATES = {"type": "string", "format": "date"}
TIMES = {"type": "string", "format": "date-time"}
HOSTS = {"type": "string", "format": "hostname"}
NAMES = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize(("schema", "text", "valid"), [
    (DATES, '"2024-02-29"', True), (DATES, '"2023-02-29"', False), (DATES, '"1900-02-29"', False),
    (DATES, '"2000-02-29"', True), (DATES, '"0000-01-01"', False), (DATES, '"0001-12-31"', True),
    (TIMES, '"2024-02-29T23:59:59.123+23:59"', True), (TIMES, '"2024-02-29T23:59:60Z"', False),
    (TIMES, '"2024-02-28T23:59:59+24:00"', False),
    (HOSTS, f'"{".".join(["a" * 63] * 3)}.{"b" * 61}"', True),
    (HOSTS, f'"{".".join(["a" * 63] * 3)}.{"b" * 62}"', False),
    (HOSTS, f'"{"a" * 64}.b"', False),
    ({"type": "string", "format": "email"}, f'"{"a" * 65}@b"', False),
    ({"type": "integer", "format": "int32"}, "2147483648", False), ({"type": "number", "format": "int8"}, "1.5", False),
    (NAMES, '{"\\u0061":"x"}', False), (NAMES, '{"b":"x"}', True),
    ({"prefixItems": [{"type": "string"}], "additionalItems": False}, "[1]", False),
    ({"items": [{"type": "string"}], "anyOf": [{}], "additionalItems": False}, '["a",1]', False),
    ({"type": "integer", "minimum": 9007199254740993}, "9007199254740992", False),
    ({"type": "integer", "minimum": -(2**63), "maximum": 2**64}, "-9007199254740993", True),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "0", False),
    ({"type": "number", "minimum": -0.5, "exclusiveMaximum": 0}, "-0", False),
    ({"type": "number", "exclusiveMaximum": 1}, "0.99999999999999999", False),
    ({"type": "string", "pattern": "^[^\\s]$"}, '"\\u001c"', False),
    ({"type": "string", "pattern": "^\\D$"}, '"\u0661"', False),
    ({"type": "string", "pattern": "^[a-z&&[aeiou]$"}, '"["', True),
    ({"type": "string", "pattern": "^.$"}, '"\u2028"', False),
    ({"type": "array", "uniqueItems": False, "items": {"type": "null"}}, "[null,null]", True),
    ({"type": "array", "uniqueItems": True, "maxItems": 1}, "[1]", True),
    ({"type": "string", "minLength": 2.0, "nullable": False, "not": False, "if": {}, "format": "binary"}, '"ab"', True),
    ({"type": "object", "propertyNames": {"type": "string"}, "dependentRequired": {}}, '{"a":1}', True),
])
def test_edges(vocabulary: Vocabulary, schema: Any, text: str, valid: bool) -> None:
    assert takes(vocabulary, schema, text) == valid


@pytest.mark.parametrize(("schema", "words"), [
    ({"type": "object", "patternProperties": {"^[ab]$": {}}, "minProperties": 2}, "/minProperties: more than one"),
    ({"items": {"minProperties": 3, "required": ["a", "a"]}}, "/items/minProperties: more than one property"),
    ({"const": 9007199254740993}, "/const: 9007199254740993 has too many digits"),
    ({"enum": [1e22]}, "/enum: 1e+22 has too many digits"), ({"const": float("inf")}, "/const: inf has too many"),
    ({"enum": [1, [98159.01228912301]]}, "/enum: 98159.01228912301 has too many digits"),
    ({"allOf": [{"multipleOf": 4999}, {"multipleOf": 1e-7}]}, "multipleOf that are too large"),
    ({"minimum": 1e300}, "/minimum: 1e+300 is too large"), ({"multipleOf": 0}, "/multipleOf: must be more than 0"),
    ({"pattern": "\\Aa"}, r"/pattern: '\\A' is not the same for all validators"),
    ({"pattern": "[[:alpha:]]"}, "/pattern: '[:' begins the name of a class for some"),
    ({"pattern": "a{,3}"}, "/pattern: '{,' is a repetition for some"),
    ({"patternProperties": {"\\w": {}}, "additionalProperties": {}}, "/patternProperties: names for which some"),
    ({"properties": {"a": {}, "b": {"const": "\0"}}, "additionalProperties": True}, "control characters and names"),
    ({"prefixItems": [{}], "items": [{}]}, "/items: a list of items is prefixItems"),
])
def test_schemas_without_a_guarantee_are_refused_by_name(schema: Any, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        Spec.of(schema=schema)


@pytest.mark.parametrize("pattern", adversary.PATTERNS)
def test_patterns_hold_for_no_more_than_in_python(vocabulary: Vocabulary, pattern: str) -> None:
    """Each of many texts that the rewritten pattern takes has the given one."""
    try:
        portable(pattern)
        spec = Spec.of(schema={"type": "string", "pattern": pattern})
    except UsageError:
        return
    for seed in range(12):
        text = adversary.answer(vocabulary, spec, random.Random(seed), most=40)
        assert text is None or adversary.regex.search(pattern, json.loads(text)), text


def test_arguments_of_calls_are_valid(vocabulary: Vocabulary) -> None:
    """The grammar of calls has the same promise; what a function refuses is refused if it is strict."""
    rest = {"required": ["a"], "additionalProperties": {"type": "null"}}
    schemas = [{"type": "object", "properties": {"a": schema}, **rest}
               for schema in (DATES, TIMES, HOSTS, NAMES, {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5})]
    tools = Functions.of([{"type": "function", "function": {"name": f"f{i}", "parameters": schema, "strict": True}}
                          for i, schema in enumerate(schemas)], "required")
    form = tools.form(adversary.Plain(), adversary.Bytes())
    for seed in range(60):
        text = adversary.answer(vocabulary, form.spec, random.Random(seed))
        if text is not None:
            (call,) = form.split(text)[1]
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            assert adversary.fault(schemas[int(name[1:])], arguments) is None, text
    loose = {"type": "object", "minProperties": 2, "patternProperties": {"^[ab]$": {}}}
    with pytest.raises(UsageError, match="minProperties"):
        Functions.of([{"type": "function", "function": {"name": "f", "parameters": loose, "strict": True}}])


def test_numbers_of_arguments_are_written_as_the_model_wrote_them() -> None:
    """1e400 is JSON, Infinity is not."""
    tools = Functions.of([{"type": "function", "function": {"name": "f"}}], "required")
    form = tools.form(adversary.Plain(), adversary.Bytes())
    arguments = '{"a": 1e400, "b": 1.10, "c": "\u00e9"}'
    (call,) = form.split(f'{{"name": "f", "parameters": {arguments}}}')[1]
    assert call["function"]["arguments"] == arguments
