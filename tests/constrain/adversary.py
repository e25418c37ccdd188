"""A model that steers every answer towards the edge of its form, and a judge we did not write.

    .venv/bin/python tests/constrain/adversary.py [--answers 10000] [--seed 0] [--only WORD]

Its vocabulary is the 256 bytes, so it can write whatever a mask allows: it copies edges from a list (29 February, a
61st second, labels of 64 characters, escapes, -0), repeats names that stand there already, makes texts and numbers as
long or as short as it may.  ``jsonschema`` judges each answer, with its format checker, in both readings of names that
repeat.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, getcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import jsonschema
import regex

from edge.constrain.closing import Closing
from edge.constrain.formats import INTEGERS, NUMBERS, TEXTS
from edge.constrain.spec import Spec
from edge.constrain.vocabulary import Vocabulary
from edge.errors import UsageError

for _module in ("jsonschema._keywords", "jsonschema._utils"):
    importlib.import_module(_module).re = regex  # type: ignore[attr-defined]  # "re" does not know \p{Letter}
getcontext().prec = 2000
CHECKER = jsonschema.FormatChecker(())
CHECKER.checkers = dict(jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers)
def _number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


for _bits in (8, 16, 32, 64):  # OpenAPI's, which jsonschema does not know
    for _sign, _low, _high in (("", -(1 << _bits - 1), 1 << _bits - 1), ("u", 0, 1 << _bits)):
        CHECKER.checks(f"{_sign}int{_bits}")(
            lambda value, a=_low, b=_high: not _number(value) or value % 1 == 0 and a <= value < b)
for _name, _most in (("float", 3.4028234e38), ("double", 1.7976931348623157e308)):
    CHECKER.checks(_name)(lambda value, a=_most: not _number(value) or abs(value) <= a)

LABEL = "a" * 64
EDGES = [
    "2023-02-29", "2024-02-29", "1900-02-29", "2000-02-29", "0000-02-29", "0000-01-01", "9999-12-31", "2024-04-31",
    "2024-13-01", "2024-00-10", "2024-02-29T23:59:60Z", "1990-12-31t23:59:60.9z", "2024-01-01T24:00:00Z",
    "2023-02-29T00:00:00+24:00", "2024-01-01T00:00:00-23:60", "23:59:60Z", "00:00:00+24:00", "12:60:00Z", "12:00Z",
    "P", "PT", "P1Y2D", "P1YT", "P1W2D", "PT1H1S", "P" + "9" * 40 + "Y", f"{LABEL}.com",
    ".".join(["a" * 63] * 4) + ".b",
    "-a.b", "a-.b", "a..b", "a.", "x" * 65 + "@a.b", "a@" + ".".join(["b" * 60] * 5), ".a@b", "a.@b", "a@[256.1.1.1]",
    "a@b@c", "256.1.1.1", "01.2.3.4", "1.2.3", "::", "1::2::3", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "12345::",
    "1:2:3:4:5:6:7:8:9", "::ffff:1.2.3.4", "1:2:3:4:5:6:7::8", "http://[::1", "http://[1::2::3]/", "a:", "1a:b",
    "http://%zz", "a://b:99999999/?#%20", "a:b#c#d", "http://a\\b", "00000000-0000-0000-0000-00000000000",
    "-0", "-0.0", "1e400", "-1E+400", "0.30000000000000001", "5e-324", "0.000000000000000000001",
    "9" * 40, "1" + "0" * 30,
    "-9223372036854775809", "9223372036854775808", "2147483648", "-2147483649", "256", "4294967296", "0.1", "0.15",
    "1.0", "1.00", "2.9999999999999999999", "3.0000000000000000001", "9007199254740993", "99999999999999999999.5",
    "\\u0061", "\\u0062", "\\ud83d\\ude00", "\\ud800", "\\u0000", "\\u007f", "\\n", "\\\\", '\\"', "\\/",
    "\\u00e9", "\u00e9",
    "\U0001f600", "\u2028", "\ufeff", "\u0661", "\x7f", "\u00a0", "\u0085", " ", "", "null", "true", "{}",
    "[]", '{"a":',
    '"b":', "__proto__", "aa", "a", "b", "\u212a",
]
BLANKS = b" \t\r\n"


class Bytes:
    """A tokenizer of single bytes, and one token that ends an answer."""

    n_vocab, opens_with_blank, unused = 257, False, frozenset()
    special: dict[str, int] = {}
    markers: dict[str, int] = {}

    def token_bytes(self, i: int) -> bytes:
        return bytes((i,)) if i < 256 else b""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


class Plain:
    """A template that knows nothing of functions."""

    tools, writes_system = "", True


def answer(vocabulary: Vocabulary, spec: Spec, dice: random.Random, most: int = 300) -> str | None:
    """One answer; None if it came to no end."""
    matcher, out = vocabulary.matcher(spec.rules()), bytearray()
    copy, edge, blank = dice.random() * 0.6, dice.random() * 0.7, dice.random() * 0.03
    stop = dice.choice((0.02, 0.3, 1.0))
    liked = dice.choice((b'"}]', b"9", b"0", b",", b"-", b"a", b"eE.", b"{[", b"\\u", b""))
    hated = dice.choice((b'"}]', b"", b"", b"0123456789", b","))
    target, before = b"", b""
    while True:
        bits = vocabulary.allowed(matcher, spec)
        able, ended = [i for i in range(256) if bits >> i & 1], matcher.is_accepting()
        if ended and (not able or dice.random() < stop):
            break
        if not able:
            return f"{out.decode()} and nothing may follow"
        if len(out) > most:
            closing = Closing(vocabulary, spec)
            for token in out:
                closing.accept(token)
            way = closing.way(matcher, 400)
            if way is None:
                return None
            out += b"".join(map(vocabulary.token_bytes, way))
            break
        quiet = [i for i in able if i not in BLANKS]
        able = quiet if quiet and dice.random() > blank else able
        if not target and dice.random() < edge and out[-1:] in b'"-.:,[' + before:
            target = dice.choice(EDGES).encode()
        while target and target[0] not in able:
            target = target[1:]
        known = out.rfind(out[-2:], 0, -1) if dice.random() < copy else -1
        if target:
            token, target = target[0], target[1:]
        elif known >= 0 and known + 2 < len(out) and out[known + 2] in able:
            token = out[known + 2]
        else:
            some = [i for i in able if i in liked] if dice.random() < 0.5 else []
            some = some or [i for i in able if i not in hated] or able
            plain = [i for i in some if i < 127]
            token = dice.choice(plain if plain and dice.random() < 0.9 else some)
        before = b"" if out else b'"'
        assert matcher.consume_token(token)
        out.append(token)
    return out.decode()


def first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _decimal(number: str) -> Decimal:
    return Decimal(number if len(number.lower().partition("e")[2]) <= 4 else "1e999")


def fault(schema: Any, text: str) -> str | None:
    """Why an answer is not valid; None if it is."""
    exact = {"parse_float": _decimal} if "multipleOf" in json.dumps(schema) else {}  # jsonschema divides
    rules = json.loads(json.dumps(schema), **exact)
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        for hook in (None, first_wins):
            kind(rules, format_checker=CHECKER).validate(json.loads(text, object_pairs_hook=hook, **exact))
    except (ValueError, regex.error, jsonschema.ValidationError) as error:
        return str(error).splitlines()[0][:200]
    return None


# ---- schemas ---------------------------------------------------------------------------------------------------------


def _object(required: list[str] | None = None, **keys: Any) -> dict[str, Any]:
    return {"type": "object", "properties": keys, **({"required": required} if required else {})}


TEXT, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
A, B = {"properties": {"a": INTEGER}}, {"properties": {"b": INTEGER}, "required": ["b"]}
SPECIAL: list[Any] = [
    # objects: names that repeat, have other spellings, are counted
    {**_object(a=INTEGER), "additionalProperties": True},
    {**_object(a=INTEGER, b={"type": "null"}), "additionalProperties": TEXT, "required": ["b"]},
    {**_object(a=INTEGER, **{"a\n": INTEGER, 'q"': INTEGER, "\u00e9": INTEGER}), "additionalProperties": TEXT},
    {"type": "object", "patternProperties": {"^[ab]$": INTEGER}, "minProperties": 1},
    {"type": "object", "patternProperties": {"^[ab]$": INTEGER}, "minProperties": 2},
    {"type": "object", "patternProperties": {"^[ab]$": INTEGER}, "minProperties": 2, "required": ["a"]},
    {"type": "object", "patternProperties": {"^[ab]$": INTEGER}, "additionalProperties": False, "maxProperties": 2},
    {"type": "object", "patternProperties": {"^a": INTEGER, "^b": TEXT}, "additionalProperties": {"type": "null"}},
    {"type": "object", "patternProperties": {"^\\D$": INTEGER, "^\\d$": TEXT}, "additionalProperties": False},
    {"type": "object", "additionalProperties": INTEGER, "minProperties": 1, "maxProperties": 3},
    {"type": "object", "additionalProperties": INTEGER, "minProperties": 3},
    {"allOf": [{"type": "object", "minProperties": 2, "required": ["a"]}, {"additionalProperties": INTEGER}]},
    {**_object(a=INTEGER, b=INTEGER), "minProperties": 1}, {**_object(a=INTEGER, b=INTEGER), "maxProperties": 1},
    {**_object(["a", "c"], a=INTEGER, b=INTEGER)}, {**_object(["a"], a=False, b=TEXT)},
    # lists
    {"prefixItems": [TEXT, INTEGER], "additionalItems": False}, {"prefixItems": [TEXT, INTEGER], "items": False},
    {"type": "array", "items": [TEXT, INTEGER], "anyOf": [{}], "additionalItems": False, "$schema":
        "http://json-schema.org/draft-07/schema#"},
    {"type": "array", "items": {"type": "null"}, "allOf": [{}], "prefixItems": [TEXT]},
    {"type": "array", "items": INTEGER, "uniqueItems": True}, {"type": "array", "items": INTEGER, "uniqueItems": False},
    {"type": "array", "items": INTEGER, "uniqueItems": True, "maxItems": 1}, {"type": "array", "contains": INTEGER},
    {"type": "array", "items": {"type": "array", "items": NUMBER, "minItems": 1.0, "maxItems": 2}, "maxItems": 3},
    # constants
    {"const": 1.0}, {"const": -0.0}, {"const": 0.1}, {"const": 98159.01228912301}, {"const": 9007199254740993},
    {"const": 1e300}, {"const": "a\u0000\u007f\u2028\"\\"}, {"const": {"a": [1, {"b": None}], "\u00e9": "\U0001f600"}},
    {"enum": [1, True, None, "1", [1], {"a": 1}, 0.5, "", {}, []]}, {"enum": [2.5, 3], "type": "integer"},
    {"enum": ["x", "xx", "xxx"], "minLength": 2}, {"enum": [5e-7, 8783340378971729.0, 1e15]},
    # combined
    {"allOf": [A, B]}, {"anyOf": [A, B]}, {"oneOf": [{"type": "string"}, {"type": "null"}, INTEGER]},
    {"oneOf": [A, B]}, {"oneOf": [_object(["k"], k={"const": "a"}, v=INTEGER), _object(["k"], k={"const": "b"})]},
    {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
        "a": _object(["k"], k={"const": "a"}, v=INTEGER), "b": _object(["k"], k={"enum": ["b", "c"]}, v=TEXT)}},
    {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 3}, {"pattern": "^a"}, {"format": "hostname"}]},
    {"allOf": [{"minimum": 2}, {"exclusiveMaximum": 3}, {"type": "number"}]},
    {"allOf": [{"exclusiveMinimum": 2}, {"maximum": 2.5}, {"type": "number"}]},
    {"$ref": "#/$defs/t", "$defs": {"t": _object(["v"], v={"type": "string", "format": "date"},
                                                  k={"type": "array", "items": {"$ref": "#/$defs/t"}, "maxItems": 2})}},
    {"$ref": "#/$defs/s", "minLength": 12, "$defs": {"s": {"type": "string", "format": "email"}}},
    {"if": {"type": "string"}, "then": {"minLength": 3}}, {"not": {"type": "string"}}, {"not": False, "type": "null"},
    {"dependentRequired": {"a": ["b"]}}, {"propertyNames": {"maxLength": 3}}, {"propertyNames": True, "type": "object"},
    {"type": ["string", "integer", "null"], "minLength": 2, "minimum": 3, "format": "date"}, True, {},
]
PATTERNS = [
    "^[a-z]+$", "a|b$", "^a|b", "^(a|b)$|^c$", "\\d{2}", "^\\D{2}$", "^\\S+$", "^\\s+$", "^\\w{2,4}$", "^\\W$",
    "^.{3}$",
    "^[^\\s]{2}$", "^[\\S\\d]$", "^[^\\d]$", "^[^\\W]$", "^[a-z&&[aeiou]]$", "^[[:alpha:]]+$", "^[a~~b]$", "^[\\]\\[]$",
    "^\\.$", "^a{2}$", "^{a}$", "^a{,2}$", "^\\u0041\\x42$", "^\\/$", "\\Aa", "\\ba", "^(?i)a$", "^(?i:ab)$",
    "^(?:x|y)+?$",
    "^(?<n>a)$", "^(?=a)", "(?<!a)b", "^\\p{L}$", "^\u00e9\U0001f600$", "^$", "", "^[^a]$", "a\\b", "^a**$",
    "^[--a]$", "$a",
    "^[\\w.+-]+@[\\w-]+\\.\\w+$", "^#[0-9A-Fa-f]{6}$", "^\\(\\d{3}\\) \\d{3}-\\d{4}$", "^[A-Z]{2}\\d+(?:-\\d+)*$",
    "[^\n]", "^[.]$",
]


def schemas() -> Iterator[Any]:
    """All of one kind, one after the other."""
    yield from SPECIAL
    for name in (*TEXTS, "made-up", "regex", "idn-email"):
        text = {"type": "string", "format": name}
        yield text
        yield {**text, "minLength": 11, "maxLength": 20}
        yield {**text, "pattern": "[1a]"}
        yield {"type": "array", "items": text, "minItems": 2, "maxItems": 3}
        yield _object(["a"], a={"allOf": [text, {"minLength": 5}]}, b={"anyOf": [text, {"type": "null"}]})
        yield {"type": "object", "additionalProperties": text}
    for name in (*INTEGERS, *NUMBERS):
        for kind in ("integer", "number"):
            yield {"type": kind, "format": name}
        yield {"type": ["number", "null"], "format": name, "minimum": -3, "exclusiveMaximum": 300.5}
    for pattern in PATTERNS:
        yield {"type": "string", "pattern": pattern}
        yield {"type": "string", "pattern": pattern, "minLength": 2, "maxLength": 5}
        for extra in ({}, {"additionalProperties": TEXT}, {"additionalProperties": False}) if pattern else ():
            yield {"type": "object", "patternProperties": {pattern: INTEGER}, **extra}  # jsonschema forgets ""
    for least, most in ((0, 0), (1, 1), (0, 3), (3, None), (2, 2.0)):
        yield {"type": "string", "minLength": least, **({} if most is None else {"maxLength": most})}
    numbers = (0, 1, -1, 0.5, -0.5, 0.1, 0.30000000000000004, 2.5, 10, 99, -100, 1e-7, -3e-20, 1e15, 9007199254740993,
               -9223372036854775808, 9223372036854775807, 18446744073709551615, 1e19, 1e300)
    dice = random.Random(0)
    for kind in ("integer", "number"):
        for low in ("minimum", "exclusiveMinimum", None):
            for high in ("maximum", "exclusiveMaximum", None):
                for _ in range(20):
                    a, b = sorted(dice.sample(numbers, 2))
                    if dice.random() < 0.3:
                        b = a + dice.choice((0.5, 1, 0.25, 1e-9))
                    bounds = {key: each for key, each in ((low, a), (high, b)) if key}
                    if dice.random() < 0.3:
                        bounds["multipleOf"] = dice.choice((1, 2, 7, 0.5, 0.01, 1.5, 0.07, 100, 0, -1))
                    yield {"type": kind, **bounds}


def nested(dice: random.Random, leaves: list[Any], depth: int = 2) -> Any:
    """Schemas of the list inside others."""
    if depth == 0:
        return dice.choice(leaves)
    inner = [nested(dice, leaves, depth - 1) for _ in range(dice.randint(1, 3))]
    kind = dice.randrange(6)
    if kind == 0:
        names = dice.sample(["a", "b", "aa", "\u00e9", "__proto__"], len(inner))
        extra = dice.choice(({}, {"additionalProperties": inner[0]}, {"additionalProperties": False}))
        return {**_object(dice.sample(names, dice.randint(0, len(names))), **dict(zip(names, inner))), **extra}
    if kind == 1:
        return {"type": "array", "items": inner[0], "minItems": dice.randint(0, 2), "maxItems": dice.randint(2, 3)}
    if kind == 2:
        return {"type": "array", "prefixItems": inner, "items": dice.choice((False, inner[0])), "minItems": 1}
    if kind == 3:
        return {"anyOf": [*inner, {"type": "null"}]}
    if kind == 4:
        return {"allOf": inner[:2]}
    return {"type": "object", "patternProperties": {"^[ab]+$": inner[0]}, "additionalProperties": inner[-1]}


def supported(extra: int, seed: int, only: str = "") -> tuple[list[tuple[Any, Spec]], Counter[str]]:
    """(schemas and their forms, reasons why others were refused); ``extra``: number of nested ones."""
    found, refused, leaves = list[tuple[Any, Spec]](), Counter[str](), list[Any]()
    dice = random.Random(seed)

    def add(schema: Any) -> bool:
        try:
            spec = Spec.of(schema=schema)
        except UsageError as error:
            refused[str(error)[:110]] += 1
            return False
        assert spec is not None
        found.append((schema, spec))
        return True

    for schema in schemas():
        if only in json.dumps(schema) and add(schema) and "$defs" not in json.dumps(schema):
            leaves.append(schema)
    for _ in range(extra if leaves else 0):
        add(nested(dice, leaves))
    return found, refused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nested", type=int, default=300)
    parser.add_argument("--only", default="", help="schemas with this in their JSON")
    options = parser.parse_args()
    forms, refused = supported(options.nested, options.seed, options.only)
    vocabulary = Vocabulary(Bytes(), 257, [256])  # type: ignore[arg-type]
    valid = cut = 0
    wrong = list[str]()
    for i in range(options.answers):
        schema, spec = forms[i % len(forms)]
        text = answer(vocabulary, spec, random.Random(options.seed << 32 | i))
        if text is None:
            cut += 1
        elif why := fault(schema, text):
            wrong.append(f"{json.dumps(schema)[:200]}\n    {text[:200]!r}\n    {why}")
        else:
            valid += 1
    print(f"{len(forms)} schemas; {sum(refused.values())} refused:")
    print("".join(f"  {n:3} {reason}\n" for reason, n in refused.most_common()), end="")
    print(f"{options.answers} answers: {valid} valid, {cut} cut, {len(wrong)} invalid")
    print("\n".join(wrong[:40]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
