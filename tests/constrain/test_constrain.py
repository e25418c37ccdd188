"""Answers a machine can read (edge/constrain): whole and valid, and no other one where the model's own is valid.

Random logits take the place of a model where only validity counts: they try what no model would.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import re
import signal
import threading
import time
from array import array
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

import edge
from edge import Sampling
from edge.constrain import lark
from edge.constrain.constraint import Closing, Constraint, of_regex
from edge.constrain.functions import Functions
from edge.constrain.schema import parse
from edge.constrain.spec import Spec
from edge.constrain.vocabulary import Vocabulary
from edge.errors import EdgeError, UsageError
from edge.formats.checkpoint import TokenizerSpec
from edge.prompt.tokenizer import StreamDecoder, Tokenizer
from edge.session.stream import Stream
from pyx.tokens import Sampler
from tests.services import in_python

pytestmark = pytest.mark.usefixtures("bundled_model")


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Extra:
    name: str
    price: float


@dataclasses.dataclass
class Order:
    drink: Literal["tea", "coffee"]
    cups: int
    size: Size
    note: str | None
    extras: list[Extra]


ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "drink": {"enum": ["tea", "coffee"]},
        "cups": {"type": "integer", "minimum": 1, "maximum": 9},
        "room": {"type": "string", "pattern": "^[0-9]{3}$"},
        "hot": {"type": "boolean"},
    },
    "required": ["drink", "cups", "room", "hot"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def engine():
    with edge.load(threads=1, ctx=512) as engine:
        yield engine


def walk(
    vocabulary: Vocabulary, spec: Spec, seed: int, most: int, spread: float = 3.0, lead: str = "",
) -> tuple[list[int], bool]:
    """An answer chosen from random logits, as the loop of a session does; and whether it ended validly."""
    random = np.random.default_rng(seed)
    sampler, constraint, ids = Sampler(vocabulary.n_vocab, seed), Constraint(vocabulary, spec, lead, most), []
    while True:
        logits = random.normal(0, spread, vocabulary.n_vocab).astype(np.float32)
        token = sampler.sample(logits, 1.0)
        while not constraint.allows(token, most - len(ids)):
            token = sampler.sample(logits, 1.0, mask=constraint.mask())
        if token in vocabulary.stop_ids:
            return ids, True
        constraint.accept(token)
        ids.append(token)
        if constraint.done or len(ids) == most:
            return ids, constraint.satisfied


def text_of(vocabulary: Vocabulary, ids: list[int]) -> str:
    return b"".join(map(vocabulary.token_bytes, ids)).decode()


def takes(engine, spec: Spec, instance: Any) -> bool:
    """Whether a form accepts a value."""
    matcher = engine.model.vocabulary().matcher(spec.rules())
    tokens = engine.tokenizer.encode(json.dumps(instance, separators=(",", ":"), ensure_ascii=False))
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


# ---- what is asked for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"schema": "{"}, "schema is not JSON"),
        ({"schema": '{"const": ' + "9" * 5000 + "}"}, "schema is not JSON: a whole number has 5000 digits; the limit"),
        ({"schema": 3}, "a JSON object, its text, a dataclass"),
        ({"schema": int}, "int, which is neither a dataclass nor a pydantic model"),
        ({"schema": {"type": "strin"}}, "Invalid type: strin"),
        ({"schema": {"properties": {"a": {"not": {}}}}}, 'schema is wrong: Unimplemented keys: ["not"]'),
        ({"schema": {"type": "string", "format": "made-up"}}, "Unknown format: made-up"),
        ({"schema": {"oneOf": [{}, {"type": "null"}]}}, "oneOf is supported where no value can have two of the forms"),
        ({"schema": {"$ref": "#/$defs/none"}}, "Pointer '/$defs/none' does not exist"),
        ({"schema": {"anyOf": [{}, {"$ref": "#/anyOf/" + "9" * 5000}]}}, "Failed to parse array index"),
        ({"schema": {"const": "\ud800"}}, "schema cannot be written as JSON"),
        ({"schema": {"enum": []}}, "Unsatisfiable"),
        ({"schema": False}, "false"),
        ({"regex": "a(?=b)"}, "look-ahead"),
        ({"regex": r"\bfoo\b"}, r"regex is wrong: lookarounds not supported yet; WordUnicode"),
        ({"regex": "a in regex /\n(?m)b$"}, r"regex is wrong: lookarounds not supported yet; EndLF"),
        ({"regex": "error: /("}, "regex is wrong: unclosed group"),
        ({"regex": ""}, "regex must have at least one character"),
        ({"regex": "a\\"}, "regex ends with a backslash that escapes nothing"),
        ({"choices": []}, "choices must have"),
        ({"choices": ["tea", ""]}, "choices must have"),
        ({"choices": "yes,no"}, "choices is not a list of texts"),
        ({"grammar": "begin: 'x'"}, "grammar is wrong: "),
        ({"grammar": "begin: \"x\""}, "no start rule"),
        ({"schema": {}, "regex": "a"}, "schema and regex: an answer has only one form"),
    ],
)
def test_forms_that_are_not_supported_are_refused_by_name(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as error:
        Spec.of(**asked)
    assert not re.search(r"\n|start: /", str(error.value))


def chained(n: int, name: str = "r") -> str:
    rules = "".join(f'{name}{i}: "a" {name}{i + 1}\n' for i in range(n))
    return f'start: {name}0\n{rules}{name}{n}: "x"'


def referring(n: int, around: Any) -> str:
    defs = {f"a{i}": around({"$ref": f"#/$defs/a{i + 1}"}) for i in range(n)}
    return json.dumps({"$ref": "#/$defs/a0", "$defs": {**defs, f"a{n}": {"type": "integer"}}})


def deep(schema: Any, n: int = 20) -> Any:
    for _ in range(n):
        schema = {"items": schema}
    return schema


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "rules": ({"grammar": chained(800)}, "802 rules, terminals, keys"),
    "terminals": ({"grammar": chained(800, "R")}, "802 rules, terminals, keys"),
    "commented rules": ({"grammar": chained(700).replace(":", "// :\n:")}, "rules, terminals, keys"),
    "brackets in rules": ({"grammar": chained(400).replace(': "a" ', ': ' + "(" * 10 + '"a" ').replace(
        "\n", ")" * 10 + "\n")}, "rules, terminals, keys"),
    "references": ({"schema": referring(1300, lambda ref: ref)}, "1303 objects and lists"),
    "levels": ({"schema": deep({}, 100)}, "levels deep"),
    "wide levels": ({"schema": referring(80, deep)}, "objects and lists; the limit is 768"),
    "schema in a grammar": ({"grammar": "start: %json " + "[" * 900 + "]" * 900}, "must be a JSON object"),
    "nested lists": ({"schema": '{"const": ' + "[" * 700 + "]" * 700 + "}"}, "recursion limit"),
    "brackets of a regex": ({"regex": "(" * 16384}, "regex is wrong"),
    "brackets of a grammar": ({"grammar": "start: " + "(" * 8000 + '"a"' + ")" * 8000}, "rules, terminals, keys"),
    "doubled terminals": ({"grammar": "start: A0\n" + "".join(f"A{i}: A{i + 1} A{i + 1}\n" for i in range(60))
                           + 'A60: "x"'}, "too big"),
    "a pattern": ({"schema": {"type": "string", "pattern": "(?:(a|b){2}){0,400}" * 401}}, "more than 400 repet"),
    "many repetitions": ({"regex": ".*" * 8000}, "more than 400 repetitions"),
    "a long text": ({"grammar": 'start: "' + "x" * 20000 + '"'}, "the limit is 16384"),
    "long choices": ({"choices": [str(i) for i in range(200_000)]}, "the limit is 16384"),
    "a long schema": ({"schema": {"enum": [str(i) for i in range(20_000)]}}, "the limit is 32768"),
    "objects to choose from": ({"schema": {"enum": [{"a": i} for i in range(3000)]}}, "3002 objects and lists"),
    "a large multiple": ({"schema": {"type": "integer", "multipleOf": 1 << 20}}, "multipleOf that are too large"),
    "multiples at once": ({"schema": {"allOf": [{"multipleOf": each} for each in (7, 11, 13, 17)]}}, "too large; the"),
    "a long name and a pattern": ({"schema": {"properties": {"a" * 3_000_000: {}}, "patternProperties": {
                                          "^(a|b)*$": {}}}}, "the limit is 32768"),
}


def test_hostile_forms_are_refused_in_little_memory() -> None:
    """In processes of their own: some of them overflowed the stack, others took more than a gigabyte."""
    code = """if True:
        import json, os, resource, sys
        from edge.constrain.spec import Spec
        from edge.errors import UsageError
        Spec.of(regex="a")
        for asked in sys.stdin:
            if child := os.fork():
                print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
                continue
            asked = json.loads(asked)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                Spec.of(**asked)
                print("taken")
            except UsageError as error:
                print(error)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, flush=True)
            os._exit(0)"""
    asked = "".join(f"{json.dumps(asked)}\n" for asked, _ in HOSTILE.values())
    lines = iter(in_python(code, given=asked).splitlines())
    for name, (_, words) in HOSTILE.items():
        said = next(lines)  # one line
        assert words in said and len(said) < 500, (name, said)
        grown = next(lines)
        assert int(grown) < 40 << 10, (name, grown)
        assert next(lines) == "ended with 0", name
    assert not list(lines)


@pytest.mark.parametrize("asked", [
    {"grammar": "start: a\na: b\nb: a"},
    {"schema": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}},
])
def test_forms_that_no_answer_can_have_are_the_callers_mistake(engine, asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no answer can have this form"):
        engine.session().ask("Hello", max_tokens=4, **asked)


def wide(n: int, schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"{i:x}": schema for i in range(n)}, **more}


LARGEST: dict[str, dict[str, Any]] = {
    "references": {"schema": referring(200, lambda ref: ref)},
    "regex": {"regex": "abcdefghi " * 1638},
    "grammar": {"grammar": 'start: "' + "abcdefghi " * 1636 + '"'},
    "repetitions": {"grammar": "start: " + "a? " * 399 + "\na: /[a-z]+/"},
    "terminals": {"grammar": chained(509, "R")},
    "choices": {"choices": [f"{i} {i * i}" for i in range(1500)]},
    "required": {"schema": wide(399, {"type": "string", "format": "date"}, required=[f"{i:x}" for i in range(399)])},
    "optional": {"schema": wide(399, {"type": "number", "minimum": 0.001, "maximum": 99999.999})},
    "alternatives": {"schema": {"anyOf": [wide(2, {"type": "integer"}, required=[f"{i:x}"]) for i in range(133)]}},
    "items": {"schema": {"prefixItems": [{"type": "number", "minimum": -i - 0.1, "maximum": i + 0.9}
                                         for i in range(399)], "minItems": 399}},
    "a multiple": {"schema": {"type": "integer", "multipleOf": 4999}},
    "objects": {"schema": {"enum": [{"a": [i, str(i)]} for i in range(380)]}},
    "a long repetition": {"regex": "(a|b){100000}"},
    "nested repetitions": {"regex": "((ab|c{50}){50}d?){50}"},
    "patterns": {"schema": wide(300, {"type": "string", "pattern": "^[a-z]{1,60}@[a-z]{1,60}$"})},
}


def test_the_largest_forms_stay_within_the_plan() -> None:
    """One after the other in one process: never more than is planned for one answer, kept ones included."""
    code = """if True:
        import contextlib, json, sys
        import edge
        from edge.constrain.vocabulary import FORM_BYTES
        from edge.machine.linux import rss
        from pyx.machine import trim
        engine = edge.load(threads=1, ctx=256, constrained=True)
        session = engine.session()
        session.ask("Hello", max_tokens=8, regex="[a-z]+").value
        trim()
        before = rss()["rss"]
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak from here on, where the kernel knows how
        for name, asked in json.load(sys.stdin).items():
            session.clear()
            with contextlib.suppress(edge.errors.UsageError):  # too large, as some prove to be while they are written
                session.ask("Hello", max_tokens=40, sampling=edge.Sampling(temperature=1.0, seed=1), **asked).text
            with open("/proc/self/status") as file:
                peak = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
            print(name, peak - before, FORM_BYTES)
    """
    lines = in_python(code, given=json.dumps(LARGEST)).splitlines()
    for line in lines:
        taken, planned = map(int, line.split()[-2:])
        assert taken < planned, line
    assert len(lines) == len(LARGEST)


@pytest.mark.parametrize("asked", [
    {"grammar": "start: " + "(a|b)* " * 399 + '\na: "x"\nb: /[a-z]+/'},
    {"regex": "(ab|cd)?" * 399},
])
def test_forms_that_prove_too_large_are_the_callers_mistake(engine, asked: dict[str, Any]) -> None:
    """Some are found out only while the answer is written."""
    with pytest.raises(UsageError, match="form of the answer is too large or too ambiguous: "):
        session = engine.session()
        for seed in range(20):
            list(session.ask("Hello", max_tokens=40, sampling=Sampling(temperature=2.0, seed=seed), **asked))


def test_descriptions_do_not_count() -> None:
    """Lists of functions consist mostly of them."""
    schema = {"type": "object", "properties": {
        f"p{i}": {"type": "string", "description": "What it is for, at length. " * 40, "default": "x" * 100}
        for i in range(100)}}
    assert len(json.dumps(schema)) > 100_000 and len(Spec.of(schema=schema).grammar) < 5000
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": schema}} for i in range(8)]
    assert len(Functions.of(tools).tools) == 8
    named = {"properties": {"title": {"enum": [{"title": 1}]}, "default": {"type": "string"}},
             "additionalProperties": False}
    assert json.loads(Spec.of(schema=named).grammar) == named


def test_remarks_and_what_asks_for_nothing_are_left_out() -> None:
    Spec.of(schema={
        "title": "t", "description": "d", "default": {"not": 1}, "examples": [{"if": 1}], "x-order": 3,
        "type": "object", "properties": {"not": {"type": "string"}, "if": {"enum": [{"contains": 1}]}},
    })
    idle = {"type": "array", "uniqueItems": False, "not": False, "if": {}, "propertyNames": {"type": "string"},
            "dependentRequired": {}, "minContains": 0, "items": {"type": "string", "format": "binary"}}
    assert shape(idle | {"minItems": 2.0}) == {"type": "array", "items": {"type": "string"}, "minItems": 2}


# ---- never an invalid answer -----------------------------------------------------------------------------------------

def shape(given: Any) -> Any:
    """A schema as it is given to llguidance."""
    return json.loads(parse(given).text)


A, B = {"properties": {"a": {"type": "null"}}}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}
CLOSED = {"additionalProperties": False}
BOTH = {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
EITHER = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}


@pytest.mark.parametrize(
    ("given", "closed"),
    [
        (A, A | CLOSED),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [A | CLOSED, {"type": "null"}]}),
        ({"allOf": [A]}, {"allOf": [A | CLOSED]}),
        ({"properties": {"$ref": A, "oneOf": A}}, {"properties": {"$ref": A | CLOSED, "oneOf": A | CLOSED}} | CLOSED),
        ({"$ref": "#/$defs/a", "$defs": {"a": A}}, {"$ref": "#/$defs/a", "$defs": {"a": A | CLOSED}}),
        (A | {"minProperties": 1}, A | {"minProperties": 1} | CLOSED),
        (
            {"properties": {"pet": {"oneOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]}}, "$defs": {"a": A, "b": B}},
            {"properties": {"pet": {"oneOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]}},
             "$defs": {"a": A | CLOSED, "b": B}} | CLOSED,
        ),
    ],
)
def test_objects_that_list_their_properties_are_closed(given, closed) -> None:
    """Models invent properties otherwise."""
    assert shape(given) == closed


@pytest.mark.parametrize(
    "given",
    [
        {"type": "object"},
        A | {"additionalProperties": True},
        A | {"required": ["a", "b"]},
        {"properties": {"a": False, "b": {}}, "required": ["b"], "minProperties": 2},
        A | EITHER,
        BOTH | EITHER,
        {"items": B, "allOf": [{"items": A | {"required": ["a"]}}]},
        {"$ref": "#/$defs/list", "items": B, "$defs": {"list": {"items": A}}},
        {"allOf": [{"$ref": "#/$defs/x"}, B], "$defs": {"x": {"$ref": "#/$defs/y"}, "y": A}},
        {"$ref": "#other", "$defs": {"a": A | {"$anchor": "other"}}},
        {"allOf": [{"properties": {"x": A}}, {"properties": {"x": B}}]},
        {"oneOf": [A | {"required": ["a"]}, B]},
        A | {"const": {"c": 1}},
        {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": A, "b": B}},
    ],
)
def test_objects_that_may_need_others_stay_open(given) -> None:
    assert shape(given) == given


def test_what_closing_must_not_change(engine) -> None:
    """Each was refused as a form that no answer can have, or lost its schema, when its objects were closed."""
    jsonschema = pytest.importorskip("jsonschema")
    lists = {"type": "array", "minItems": 1, "items": B, "allOf": [{"items": A | {"required": ["a"]}}]}
    either = BOTH | EITHER | {"type": "object"}
    few = BOTH | {"type": "object", "minProperties": 1}
    cases = (lists, [{"b": None}]), (either, {}), (few, {}), (few, {"c": 1})
    for schema, bad in cases:
        spec = Spec.of(schema=schema)
        for seed in range(5):
            ids, _ = walk(engine.model.vocabulary(), spec, seed, most=60)
            jsonschema.validate(json.loads(text_of(engine.model.vocabulary(), ids)), schema)
        assert not takes(engine, spec, bad)
    strict = {"type": "function", "function": {"name": "f", "strict": True, "parameters": few}}
    assert "additionalProperties" in Functions.of([strict]).tools[0].schema


def test_schemas_of_the_public_suite(engine) -> None:
    """An answer to each is valid; of its own instances none that is invalid is taken (tests/vectors/README.md).

    benchmarks/valid_answers.py judges ten thousand answers at their edges.
    """
    jsonschema = pytest.importorskip("jsonschema")
    keywords = pytest.importorskip("jsonschema._keywords")
    keywords.re = pytest.importorskip("regex")  # "re" does not know \p{Letter}
    vocabulary = engine.model.vocabulary()
    path = Path(__file__).resolve().parents[1] / "vectors" / "json_schemas.jsonl"
    for number, line in enumerate(path.read_text().splitlines()):
        case = json.loads(line)
        schema, spec = case["schema"], Spec.of(schema=case["schema"])
        for instance in case["invalid"]:
            assert not takes(engine, spec, instance), f"{case['where']}: {instance}"
        ids, whole = walk(vocabulary, spec, number, most=50)
        assert whole, case["where"]
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        kind(schema, format_checker=kind.FORMAT_CHECKER).validate(json.loads(text_of(vocabulary, ids)))


NUMBERS = (True, 0, -1, 0.5, 10**400, -(10**400), float("inf"), float("nan"), 1e308, 5e-324, "1", None, [], {})
KEYS = ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "minItems", "maxItems", "minLength", "maxLength",
        "minProperties", "maxProperties", "pattern", "format", "required", "enum", "type", "$ref")


@pytest.mark.parametrize("key", KEYS)
def test_refused_values_are_usage_errors(key: str) -> None:
    """Anything but UsageError would be reported as a bug of the program."""
    for value in NUMBERS:
        for kind in ("number", "string", "array", "object"):
            with contextlib.suppress(UsageError):
                Spec.of(schema={"type": kind, key: value})


@pytest.mark.parametrize(("text", "taken"), [
    ('{"a":1}', True), ('{ "a": 1 }', True), ('{\r\n \t"a":1\n}', True), ('{"a":"  \\n"}', True), ('{  "a":1}', False),
    ('{\n\n"a":1}', False), ("{\n" + " " * 21 + '"a":1}', False), (' {"a":1}', False),
])
def test_white_space_is_limited(text: str, taken: bool) -> None:
    """A model that is unsure would write it without end; also for a schema inside a grammar."""
    for spec in (Spec.of(schema={"type": "object"}), Spec.of(grammar='start: %json {"type": "object"}')):
        matcher, data = LLMatcher(LLTokenizer("byte"), spec.rules()), list(text.encode())
        assert (matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()) == taken


BOUNDED = [
    ({"minimum": 0.3, "maximum": 0.3}, ["0.3"]), ({"minimum": 0.29, "maximum": 0.3}, ["0.3"]),
    ({"minimum": 0.3, "maximum": 0.5}, ["0.3", "0.4", "0.5"]), ({"exclusiveMinimum": 0.3, "maximum": 0.4}, ["0.4"]),
    ({"minimum": 0.6, "exclusiveMaximum": 0.7}, ["0.6"]), ({"minimum": -0.3, "maximum": -0.3}, ["-0.3"]),
    ({"minimum": 0.1, "maximum": 0.3, "exclusiveMinimum": 0.1}, ["0.2", "0.3"]), ({"minimum": 2, "maximum": 2}, ["2"]),
    ({"minimum": 0.7, "maximum": 1.3, "type": "integer"}, ["1"]), ({"minimum": 0.95, "maximum": 1.05}, ["1"]),
    ({"minimum": -0.2, "maximum": 0.1}, ["-0.2", "-0.1", "0", "0.1"]), ({"minimum": 0, "maximum": 0.05}, ["0"]),
]


@pytest.mark.parametrize(("bounds", "numbers"), BOUNDED)
def test_multiples_within_bounds_are_counted_in_decimals(engine, bounds, numbers) -> None:
    vocabulary, spec = engine.model.vocabulary(), Spec.of(schema={"type": "number", "multipleOf": 0.1, **bounds})
    jsonschema = pytest.importorskip("jsonschema")
    tenths = [f"{n / 10:.1f}".removesuffix(".0") for n in range(-10, 30)]
    assert [each for each in tenths if takes(engine, spec, json.loads(each))] == numbers
    for seed in range(5):
        ids, whole = walk(vocabulary, spec, seed, 30)
        value = json.loads(text_of(vocabulary, ids))
        assert whole and f"{value:.1f}".replace("-0.0", "0").removesuffix(".0") in numbers
        jsonschema.Draft202012Validator(bounds).validate(value)


def dictated(vocabulary: Vocabulary, spec: Spec, text: str, most: int = 2000) -> str:
    """The answer of a model that wants to write a text, byte by byte, and then to end."""
    constraint, out, wanted = Constraint(vocabulary, spec, "", most), bytearray(), iter(text.encode())
    while not constraint.done and len(out) < most:
        byte = next(wanted, None)
        if byte is not None:
            tokens = [vocabulary.single[byte]]
        elif constraint.satisfied:
            break
        else:
            bits = int.from_bytes(constraint.mask(), "little")
            tokens = [i for each in b'"}]0,:' if bits >> (i := vocabulary.single[each]) & 1]
        token = next((i for i in tokens if constraint.allows(i, most - len(out))), None)
        if token is not None:
            constraint.accept(token)
            out += vocabulary.token_bytes(token)
    return out.decode()


NUMBER = {"type": "number"}


@pytest.mark.parametrize(("schema", "text", "written"), [
    (NUMBER, "1180E248", "1180E248"), (NUMBER, "1180E2480", "1180E248"), (NUMBER, "-1e+999", "-1e+99"),
    (NUMBER, "1e308", "1e308"), (NUMBER, "2e308", "2e30"), (NUMBER, "1e-400", "1e-400"), (NUMBER, "1e00400", "1e0040"),
    (NUMBER, "9" * 400, "9" * 308), (NUMBER, "9" * 308 + "e5", "9" * 308 + "e0"), (NUMBER, "0." + "3" * 400, None),
    ({"type": "integer"}, "9" * 400, "9" * 308), ({"type": "number", "minimum": 5}, "9" * 400, "9" * 308),
    ({"type": "object"}, '{"a":1e400,"b":[1E999],"c":"1e400","1e400":-9e999}',
     '{"a":1e40,"b":[1E99],"c":"1e400","1e400":-9e99}'),
    ({}, "[1e400, 2]", "[1e40, 2]"),
    ({"type": "array", "items": NUMBER}, "[1e400, 1e308 ,1e309]", "[1e40, 1e308 ,1e30]"),
    ({"type": "string", "pattern": "^[0-9e]+$"}, '"1e400"', '"1e400"'),
    ({"type": "integer", "multipleOf": 7}, "1" + "3" * 400, "1" + "3" * 309 + "2"),
])
def test_numbers_are_finite_for_every_reader(engine, schema, text: str, written: str | None) -> None:
    """A number that no double holds is infinity for most readers; the same signs in a text are a text."""
    jsonschema = pytest.importorskip("jsonschema")
    answer = dictated(engine.model.vocabulary(), Spec.of(schema=schema), text)
    if "multipleOf" not in schema:
        assert answer == (text if written is None else written)
    value = json.loads(answer, parse_int=float if "multipleOf" not in schema else int)
    assert "inf" not in repr(value)
    jsonschema.Draft202012Validator(schema).validate(json.loads(answer))


def test_digits_elsewhere_are_free(engine) -> None:
    """In an expression, in the text of a grammar, and in what is said beside calls; not in JSON inside of them."""
    vocabulary = engine.model.vocabulary()
    assert dictated(vocabulary, Spec.of(regex="[0-9e]+x"), "1e400x") == "1e400x"
    grammar = Spec.of(grammar='start: NAME " " %json {"type":"number"}\nNAME: /[0-9e]+/')
    assert dictated(vocabulary, grammar, "1e400 1e400") == "1e400 1e40"
    tools = Functions.of([{"type": "function", "function": {"name": "f", "parameters": {}}}])
    assert tools is not None
    spec = tools.form(engine.model.template, engine.tokenizer).spec
    assert dictated(vocabulary, spec, "a 1e400\n1e400") == "a 1e400\n1e400"
    call = '{"name": "f", "parameters": {"a":1e400}}'
    assert dictated(vocabulary, spec, call) == call.replace("1e400", "1e40")


def test_regex_choices_and_grammar(engine) -> None:
    vocabulary = engine.model.vocabulary()
    choices = ['say "yes"', "back\\slash", "café", "two\nlines", "/x/", "tea", "tea with milk"]
    grammar = 'start: "a"+ " " NUMBER\nNUMBER: /[0-9]{2,4}/'
    for seed in range(20):
        ids, whole = walk(vocabulary, Spec.of(regex=r"[0-9]{1,2}/[a-z]+\.(html?|pdf)"), seed, 40)
        assert whole and re.fullmatch(r"[0-9]{1,2}/[a-z]+\.(html?|pdf)", text_of(vocabulary, ids))
        ids, whole = walk(vocabulary, Spec.of(choices=choices), seed, 40)
        assert whole and text_of(vocabulary, ids) in choices
        ids, whole = walk(vocabulary, Spec.of(grammar=grammar), seed, 40)
        assert whole and re.fullmatch("a+ [0-9]{2,4}", text_of(vocabulary, ids))


BLANK_FIRST: list[tuple[dict[str, Any], str]] = [  # forms whose text may begin with white space; an expression of it
    ({"regex": ".{3}"}, r".{3}"),
    ({"regex": r"\s[a-z]{2}"}, r"\s[a-z]{2}"),
    ({"regex": r"[ \n]{0,3}x?"}, r"[ \n]{0,3}x?"),
    ({"regex": r"\n [a-z]"}, r"\n [a-z]"),
    ({"regex": r"  ?tea"}, r"  ?tea"),
    ({"regex": r"[a-z]{3}"}, r"[a-z]{3}"),
    ({"grammar": 'start: " a"|" b"'}, " [ab]"),
    ({"choices": [" yes", " no"]}, " yes| no"),
    ({"choices": [" yes", "yes", "\nyes"]}, "[ \n]?yes"),
    ({"schema": {"enum": [" a", 5]}}, '" a"|5'),
]


@pytest.mark.parametrize(("asked", "expected"), BLANK_FIRST)
def test_only_the_lead_is_taken_off(engine, asked, expected) -> None:
    """What a template, or SentencePiece, puts before an answer is no part of its form, and comes off once."""
    model = (Path(__file__).resolve().parents[1] / "vectors" / "tokenizer" / "spm512.model").read_bytes()
    pieces = Tokenizer.build(TokenizerSpec("sentencepiece", model=model, bos_id=1, eos_ids=(2,)))
    spec = Spec.of(**asked)
    for tokenizer in (engine.tokenizer, pieces):
        vocabulary = Vocabulary(tokenizer, tokenizer.n_vocab, tokenizer.eos_ids)
        for lead in ("", " ", "\n", " \n", "\u3000"):
            for seed in range(12):
                ids, whole = walk(vocabulary, spec, seed, 40, lead=" " * tokenizer.strips_blank + lead)
                for by in ("token", "word"):
                    stream = Stream(StreamDecoder(tokenizer), by=by, lead=lead)
                    text = "".join(str(each) for id in ids for each in stream.push(id))
                    text += "".join(map(str, stream.flush()))
                    assert whole and re.fullmatch(expected, text), (lead, text)
    assert engine.model.answer_lead == " "
    for seed in range(12):
        answer = engine.session().ask("Hi", seed=seed, temperature=1.5, max_tokens=30, **asked)
        assert answer.whole and re.fullmatch(expected, answer.text), answer.text


@pytest.mark.parametrize("regex", [
    r"a\/b", "a/b", r"a\\/b", r"\\\/", "[/]", r"[\/]+", r"https?:\/\/[a-z]+\.org/", r"\-\-", r"\"[^\"]+\"",
    r"\'", r"\d{2}\.\d", r"\w+", r"\s", r"\u0041\x42", r"\.", r"\\", r"\t", r"\n", "a\nb", "a\\\nb", "\\/\n",
    r"\ \:\;\@\%\_\#", "#", "//", "^a$", r"[a\]/]", r"[\w.\-]+@\w+", "\u00e9|\U0001f600", r"(?:a|b\/)+?",
])
def test_expressions_as_people_write_them(engine, regex: str) -> None:
    """Python's re judges: every answer is what it takes, and so are texts, one by one; in a JSON schema alike."""
    spec, vocabulary = Spec.of(regex=regex), engine.model.vocabulary()
    pattern = Spec.of(schema={"type": "string", "pattern": f"^(?:{regex})$"})
    for seed in range(5):
        ids, whole = walk(vocabulary, spec, seed, 60)
        text = text_of(vocabulary, ids)
        assert whole and (re.fullmatch(regex, text) or r"\w" in regex and not text.isascii())  # of newer Unicode
    matcher = LLMatcher(LLTokenizer("byte"), spec.rules())
    for text in ("a/b", "a\\/b", "\\/", "/", "//", "https://x.org/", "--", '"x"', "'", "12.5", " ", "AB", ".",
                 "\\", "\t", "\n", "a\nb", "/\n", " :;@%_#", "#", "a", "]", "a.b-c@d", "\u00e9", "\U0001f600", "x"):
        data, taken = list(text.encode()), matcher.deep_copy()
        accepted = taken.try_consume_tokens(data) == len(data) and taken.is_accepting()
        assert accepted == bool(re.fullmatch(regex, text)), text
        if text.isascii():
            assert takes(engine, pattern, text) == bool(re.fullmatch(regex, text)), text


def test_control_tokens_never_come(engine) -> None:
    """Not even where a grammar takes any text, or spells one."""
    vocabulary = engine.model.vocabulary()
    for regex in ("(?s:.*)", r"<\|eot_id\|>x"):
        for seed in range(10):
            ids, _ = walk(vocabulary, Spec.of(regex=regex), seed, 30)
            assert not vocabulary.silent & set(ids)
    with pytest.raises(UsageError):
        vocabulary.matcher(Spec("start: <|eot_id|>").rules())


def test_short_limits_close_or_tell(engine) -> None:
    """From the shortest answer on, every limit gives a whole answer; below it none claims to be."""
    vocabulary, spec = engine.model.vocabulary(), Spec.of(schema=ORDER)
    needed = None
    for most in range(1, 60):
        ids, whole = walk(vocabulary, spec, most, most)
        assert len(ids) <= most
        if whole:
            assert set(json.loads(text_of(vocabulary, ids))) == set(ORDER["required"])
            needed = needed or most
        else:
            assert needed is None, f"a limit of {needed} was enough, {most} was not"
    assert needed is not None and needed < 40


def _one(**keys: Any) -> dict[str, Any]:
    return {"type": "object", "properties": keys, "required": list(keys), "additionalProperties": False}


#: forms with an end within 60 tokens; in many, nothing visible says how far it is
ENDING: dict[str, dict[str, Any]] = {
    **{f"pattern {text}": {"schema": _one(a={"type": "string", "pattern": text})} for text in (
        "^.* EUR$", "^[A-Z][a-z]+ [A-Z][a-z]+$", ".*[0-9]{3}-[A-Z]{5}$", "a.*b.*c", "^(cat|dog|x{20})$", "^[а-я]{3}$",
        "(A.*XX|B.*YY)$", "^[^ ]+@[^ ]+\\.com$", '"q"', "\\\\end$", "^.{25,}!$", "é$", "^(?:[a-z]+, )+and [a-z]+$")},
    **{f"format {name}": {"schema": _one(a={"type": "string", "format": name})} for name in (
        "uuid", "date-time", "email", "ipv4")},
    "nested": {"schema": _one(a=_one(b=_one(c=_one(d={"type": "string", "pattern": "[0-9]{2}"}))))},
    "enum": {"schema": _one(a={"enum": ["tea", "coffee with milk and sugar"]}, b={"type": "string"})},
    "minItems": {"schema": {"type": "array", "items": {"type": "string", "pattern": "[0-9]{2}"}, "minItems": 3}},
    "minLength": {"schema": _one(a={"type": "string", "minLength": 30})},
    "multipleOf": {"schema": _one(a={"type": "integer", "multipleOf": 97})},
    "numbers": {"schema": _one(a={"type": "integer", "minimum": 5000, "maximum": 90000}, b={"type": "number"})},
    "anyOf": {"schema": {"anyOf": [_one(a={"type": "string"}), _one(z={"type": "string", "pattern": "[0-9]$"})]}},
    "recursive": {"schema": {"$defs": {"tree": {
        "type": "object", "required": ["v"], "additionalProperties": False,
        "properties": {"v": {"type": "string"}, "k": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}},
        "$ref": "#/$defs/tree"}},
    **{f"regex {text}": {"regex": text} for text in (
        ".*ab.*", "(?s:.*)END", "(foo|barbar).*[0-9]{3}X", ".*(one|two) (three|four)", "[01]{8}( [01]{8}){2}",
        ".{30,40}", "[^\\n]*\\n[^\\n]*\\n")},
    "lark end": {"grammar": 'start: /[^#]*/ "#" /.*/ "END"'},
    "lark list": {"grammar": 'start: item ("," item)*\nitem: /[a-z]+/ "=" NUM\nNUM: /[0-9]{3}/'},
    "lark brackets": {"grammar": 'start: e\ne: "(" e ")" | e "+" e | /[a-z]+/'},
    "lark json": {"grammar": 'start: "Answer: " obj\nobj: %json {"type": "string", "pattern": "[0-9]{2}"}'},
    "choices": {"choices": ["yes", "no thank you very much indeed, dear friend"]},
}


@pytest.mark.parametrize("name", ENDING)
def test_every_form_with_an_end_in_reach_ends(engine, name: str) -> None:
    """Within 60 tokens, and within the fewest that are known to be enough, whatever the model would rather write."""
    jsonschema = pytest.importorskip("jsonschema")
    asked = ENDING[name]
    vocabulary, spec = engine.model.vocabulary(), Spec.of(**asked)
    way = Closing(vocabulary, spec).way(vocabulary.matcher(spec.rules()), 60)
    assert way is not None
    for most in (60, len(way)):
        for seed in range(4):
            ids, whole = walk(vocabulary, spec, seed, most)
            text = text_of(vocabulary, ids)
            assert whole and len(ids) <= most, (seed, text)
            if "regex" in asked:
                assert re.fullmatch(asked["regex"], text)
            elif "schema" in asked:
                jsonschema.validate(json.loads(text), asked["schema"])


def test_an_end_that_moves_away_is_noticed(engine) -> None:
    """A model that opens one bracket after another: what they need is kept free, however long the limit is."""
    vocabulary, spec = engine.model.vocabulary(), Spec.of(grammar='start: e\ne: "(" e ")" | /[a-z]/')
    opening = vocabulary.single[ord("(")]
    for most in (20, 61, 400):
        constraint, ids = Constraint(vocabulary, spec, "", most), []
        while not constraint.done and len(ids) < most:
            token = opening
            if not constraint.allows(token, most - len(ids)):
                allowed = constraint.mask()
                token = next(i for i in range(vocabulary.n_vocab) if allowed[i // 8] >> i % 8 & 1)
                assert constraint.allows(token, most - len(ids))
            constraint.accept(token)
            ids.append(token)
        assert constraint.satisfied and len(ids) > most // 2


@given(st.text("ab()[]{}|*+?.^$\\\\-0123,pxu:<>", max_size=40))
def test_every_expression_gets_hints(pattern: str) -> None:
    assert all(len(text) <= 512 for text in of_regex(pattern))


def test_a_closed_answer_stops_and_a_cut_one_does_not(engine) -> None:
    session = engine.session()
    schema = {"type": "object", "properties": {"story": {"type": "string", "minLength": 400}}, "required": ["story"]}
    answer = session.ask("Tell me a story", schema=schema, max_tokens=20)
    with pytest.raises(EdgeError, match=r"incomplete \(length\)"):
        _ = answer.value
    assert answer.finish_reason == "length"
    session.clear()
    schema["properties"]["story"]["minLength"] = 1
    wild = Sampling(temperature=1.5, top_k=0, seed=1)
    answer = session.ask("Tell me a story", schema=schema, max_tokens=20, sampling=wild)
    assert set(answer.value) == {"story"}
    assert answer.finish_reason == "stop" and answer.usage.completion <= 20


@pytest.mark.parametrize("least", [100, 150, 300])
def test_a_long_text_is_closed_at_the_limit(engine, least: int) -> None:
    """Regression: while the least length was not reached, all effort went into looking for an end."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": least}}, "required": ["a"]}
    answer = engine.session().ask("Tell me a story", schema=schema, max_tokens=least + 50, temperature=0)
    assert len(answer.value["a"]) >= least


def test_a_long_repetition_takes_little_time(engine) -> None:
    """Regression: ten seconds of processor time, which neither Ctrl-C nor a timeout ended, for 900 characters."""
    closing = Closing(engine.model.vocabulary(), spec := Spec.of(regex="[a-z ]{900}"))
    begun = time.process_time()
    closing.way(engine.model.vocabulary().matcher(spec.rules()), 900)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("form, stop, text, whole", [
    ({"choices": ["apple pie", "apple tart"]}, " ", "apple", False), ({"choices": ["yes"]}, "e", "y", False),
    ({"regex": "yes!"}, "!", "yes", False), ({"regex": "yes( no)?"}, " ", "yes", True),
    ({"schema": {"const": "yes"}}, "e", '"y', False),
])
def test_a_stop_text_may_cut_a_form(engine, form: dict[str, Any], stop: str, text: str, whole: bool) -> None:
    """Regression: a form whose last token held the stop text counted as whole."""
    answer = engine.session().ask("Yes?", **form, stop=[stop], temperature=0)
    assert (answer.text, answer.whole) == (text, whole)


# ---- no other answer where the model's own is valid ------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(seed=5), Sampling(temperature=1.0, top_k=0, seed=6)]
)
def test_valid_answers_stay_as_they_are(engine, sampling) -> None:
    session = engine.session(system="The lift is beside the stairs.")
    for question in ("Where is the lift?", "What is there to eat?"):
        session.clear()
        free = [piece.ids for piece in session.ask(question, sampling=sampling, max_tokens=150)]
        reason = session.outcome.finish_reason
        text = session.messages[-1]["content"]
        asked_for: list[dict[str, Any]] = [{"regex": "(?s:.*)"}]
        if reason == "stop":  # a text that was cut is not a choice within the same limit
            asked_for.append({"choices": [text, "no", text + " And more."]})
        for asked in asked_for:
            session.clear()
            assert [piece.ids for piece in session.ask(question, sampling=sampling, max_tokens=150, **asked)] == free
            assert session.outcome.finish_reason == reason


def test_forced_tokens_cost_no_steps(engine) -> None:
    """An object of four fields takes at most 0.7 of the steps of its tokens."""
    session = engine.session()
    for seed in range(5):
        session.clear()
        before = engine.model.steps
        answer = session.ask("A tea for room 214", schema=ORDER, sampling=Sampling(seed=seed))
        assert set(answer.value) == set(ORDER["required"]) and answer.finish_reason == "stop"
        assert engine.model.steps - before <= 0.7 * answer.usage.completion + 1  # and that of the prompt


@pytest.mark.parametrize("way", ["close", "stop", "Ctrl-C"])
def test_what_was_evaluated_ahead_and_not_chosen_is_taken_back(engine, way: str, monkeypatch) -> None:
    """Closed by the caller, ended by a stop text, or interrupted in a step: the cache holds what was answered."""
    session, asked = engine.session(), {"schema": ORDER, "sampling": Sampling(temperature=0)}
    expected = session.ask("A tea for room 214", **asked).text
    session.clear()
    pieces = iter(session.ask("A tea for room 214", **asked, **({"stop": ['":']} if way == "stop" else {})))
    if way == "stop":
        list(pieces)
    else:
        for _ in range(3):
            next(pieces)
        if way == "Ctrl-C":
            step = engine.model.step

            def interrupted(batch: object) -> None:  # in the engine's thread, for which the main one waits
                monkeypatch.undo()
                step(batch)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

            monkeypatch.setattr(engine.model, "step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                list(pieces)
        pieces.close()
    assert session.state.kv.n_tokens <= len(session.state.tokens)  # the first of them
    session.clear()
    assert session.ask("A tea for room 214", **asked).text == expected


def test_sentencepiece() -> None:
    model = (Path(__file__).resolve().parents[1] / "vectors" / "tokenizer" / "spm512.model").read_bytes()
    tokenizer = Tokenizer.build(TokenizerSpec("sentencepiece", model=model, bos_id=1, eos_ids=(2,)))
    vocabulary, spec = Vocabulary(tokenizer, tokenizer.n_vocab, tokenizer.eos_ids), Spec.of(schema=ORDER)
    for seed in range(10):
        ids, whole = walk(vocabulary, spec, seed, 90)
        assert whole and set(json.loads(text_of(vocabulary, ids))) == set(ORDER["required"])


# ---- values ----------------------------------------------------------------------------------------------------------


def test_values_of_dataclasses(engine) -> None:
    assert isinstance(engine.session().ask("One tea", schema=Order, max_tokens=150).value, Order)
    spec = Spec.of(schema=Order)
    text = '{"drink":"tea","cups":2,"size":"large","note":null,"extras":[{"name":"milk","price":1}]}'
    assert spec.value(text) == Order("tea", 2, Size.LARGE, None, [Extra("milk", 1.0)])
    with pytest.raises(UsageError, match=r"Bad\.when has a type that JSON cannot represent"):
        Spec.of(schema=dataclasses.make_dataclass("Bad", [("when", complex)]))


def test_a_pydantic_model_comes_back(engine) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Order", drink=(Literal["tea", "coffee"], ...), cups=(int, ...))
    assert isinstance(engine.session().ask("Two teas", schema=model).value, model)


def test_a_class_may_refuse_the_answer(engine) -> None:
    pydantic = pytest.importorskip("pydantic")

    @dataclasses.dataclass
    class Even:
        cups: Literal[1, 3]

        def __post_init__(self) -> None:
            raise ValueError(f"{self.cups} cups\nare odd")

    even = pydantic.create_model("Even", cups=(Literal[1, 3], ...), __validators__={
        "even": pydantic.field_validator("cups")(lambda cups: Even(cups))})
    for refusing in (Even, even):
        answer = engine.session().ask("Teas", schema=refusing)
        assert json.loads(answer.text)["cups"] in (1, 3)
        with pytest.raises(EdgeError, match=r"the answer does not fit: .*[13] cups are odd"):
            _ = answer.value


def test_words_of_the_question_in_a_grammar(engine) -> None:
    """What a kiosk does: one of its own things, and a name in the words of the guest."""
    session = engine.session()
    question = "A table for two please, the name is Maria van Dijk"
    grammar = f'start: WHAT " for " NAME\nWHAT: {lark.choice(["table", "room"])}\nNAME: {lark.words_of(question)}'
    for seed in range(5):
        session.clear()
        answer = session.ask(question, grammar=grammar, sampling=Sampling(seed=seed, temperature=1.2), max_tokens=40)
        what, name = re.fullmatch("(table|room) for (.*)", answer.text).groups()
        assert name in question


# ---- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 8, 9, 100])
def test_a_mask_is_minus_infinity(n: int) -> None:
    random = np.random.default_rng(n)
    for seed in range(20):
        allowed = random.random(n) < 0.5
        allowed[random.integers(n)] = True
        logits = random.normal(0, 2, n).astype(np.float32)
        plain = np.where(allowed, logits, -np.inf).astype(np.float32)
        mask = np.packbits(allowed, bitorder="little").tobytes()
        for arguments in ((0.0,), (0.9, 5, 0.9, 0.02), (1.0, 0, 0.7), (1.0,)):
            a, b = Sampler(n, seed), Sampler(n, seed)
            chosen = a.sample(logits.copy(), *arguments, mask=mask)
            assert chosen == b.sample(plain.copy(), *arguments) and allowed[chosen] and a.state == b.state
        with pytest.raises(ValueError, match="mask of"):
            Sampler(n, 0).sample(logits, mask=mask[:-1])
    with pytest.raises(ValueError, match="no usable logit"):
        Sampler(n, 0).sample(array("f", [1.0] * n), mask=bytes(len(mask)))


def test_memory_is_planned_and_refused(monkeypatch) -> None:
    with edge.load(threads=1, ctx=256) as engine:
        assert engine.memory()["vocabulary"] == 0
        total = engine.plan.total_bytes
        assert engine.session().ask("x", regex="a").text == "a"
        assert engine.memory()["vocabulary"] > 0 and engine.plan.total_bytes - total > 2_000_000
    with edge.load(threads=1, ctx=256, constrained=True) as engine:
        assert engine.plan.total_bytes - total > 2_000_000  # the program itself differs by some pages
        assert any(line.startswith("grammar") for line in engine.plan.lines())
    monkeypatch.setattr("edge.constrain.vocabulary.BASE_BYTES", 1 << 40)
    with edge.load(threads=1, ctx=256, memory="2G", force_memory=True) as engine:
        with pytest.raises(edge.errors.MemoryRefused, match="follow a grammar"):
            engine.session().ask("x", regex="a")
    with pytest.raises(edge.errors.MemoryRefused):
        edge.load(threads=1, ctx=256, memory="2G", constrained=True)
