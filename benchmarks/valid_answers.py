"""How many complete answers are valid?  A model that steers towards the edge of each schema, judged by ``jsonschema``.

    python benchmarks/valid_answers.py [--answers 10000] [--seed 0] [--suite JSON-Schema-Test-Suite/tests/draft2020-12]

The vocabulary is the 256 bytes, so the model can write whatever a form allows: it copies edges from a list (29
February, a 61st second, a host of 250 characters, escapes, -0), repeats what stands there already, and makes texts and
numbers long or short.  The schemas are those of the public JSON Schema test suite that tests/vectors holds, and made
ones, about formats, patterns, bounds and what these are in.  The format checker of jsonschema is on.

With --suite also: how many schemas of that folder are accepted, here and by llguidance alone, and how many of their
instances are taken, of which those that are invalid should be none.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, getcontext
from pathlib import Path
from typing import Any

import jsonschema
import regex

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from edge.constrain.constraint import Closing
from edge.constrain.spec import Spec
from edge.constrain.vocabulary import Vocabulary
from edge.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
EDGES = [
    "2023-02-29", "2024-02-29", "1900-02-29", "0000-01-01", "2024-04-31", "2024-02-29T23:59:60Z", "24:00:00Z",
    "23:59:60Z", "00:00:00+24:00", "PT", "P1Y2D", "P1W2D", "a" * 64 + ".com", ".".join(["a" * 63] * 4) + ".b", "-a.b",
    "a..b", "x" * 65 + "@a.b", ".a@b", "a@[256.1.1.1]", "256.1.1.1", "01.2.3.4", "::", "1::2::3", "::ffff:1.2.3.4",
    "http://[1::2::3]/", "http://%zz", "a:b#c#d", "-0", "-0.0", "1e400", "0.30000000000000001", "5e-324", "9" * 40,
    "9223372036854775808", "2147483648", "2.9999999999999999999", "3.0000000000000000001", "9007199254740993",
    "\\u0061", "\\ud83d\\ude00", "\\u0000", "\\n", "\\/", "\u00e9", "\U0001f600", "\u2028", "\u0661", "\x7f", "\u00a0",
    "null", '{"a":', '"b":', "aa", "a", "b",
]
FORMATS = "date time date-time duration email hostname ipv4 ipv6 uuid uri".split()
PATTERNS = [
    "^[a-z]+$", "a|b$", "^(a|b)$|^c$", "\\d{2}", "^\\D{2}$", "^\\S+$", "^\\s+$", "^\\w{2,4}$", "^\\W$", "^.{3}$", "^$",
    "^[^\\s]{2}$", "^[\\]\\[]$", "^\\.$", "^\\u0041\\x42$", "^\\/$", "^(?:x|y)+?$", "^\u00e9\U0001f600$", "^[^a]$",
    "^[\\w.+-]+@[\\w-]+\\.\\w+$", "^#[0-9A-Fa-f]{6}$", "^\\(\\d{3}\\) \\d{3}-\\d{4}$", "^[A-Z]{2}\\d+(?:-\\d+)*$",
]
NUMBERS = (0, 1, -1, 0.5, -0.5, 0.1, 0.30000000000000004, 2.5, 10, 99, -100, 1e-7, 1e15, 9007199254740993, 2**63 - 1)


class Bytes:
    """A tokenizer of single bytes, and one token that ends an answer."""

    n_vocab, opens_with_blank = 257, False
    unused: frozenset[int] = frozenset()
    markers: dict[str, int] = {}  # noqa: RUF012

    def token_bytes(self, i: int) -> bytes:
        return bytes((i,)) if i < 256 else b""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


def made(dice: random.Random) -> Iterator[Any]:
    """Schemas of one value each."""
    for name in FORMATS:
        yield {"type": "string", "format": name}
        yield {"type": "string", "format": name, "minLength": 11, "maxLength": 20}
    for pattern in PATTERNS:
        yield {"type": "string", "pattern": pattern}
        yield {"type": "object", "patternProperties": {pattern: {"type": "integer"}}, "additionalProperties": False}
    for kind in ("integer", "number"):
        for low in ("minimum", "exclusiveMinimum"):
            for high in ("maximum", "exclusiveMaximum"):
                for _ in range(15):
                    a, b = sorted(dice.sample(NUMBERS, 2))
                    yield {"type": kind, low: a, high: b}
        for multiple in (1, 2, 7, 0.5, 0.01, 1.5):
            yield {"type": kind, "multipleOf": multiple}
    yield from ({"const": each} for each in (1.0, 0.1, 9007199254740993, 'a\u007f\u2028"\\', {"a": [1, {"b": None}]}))


def nested(dice: random.Random, leaves: list[Any], depth: int = 2) -> Any:
    """One of the schemas inside objects, lists and combinations."""
    if depth == 0:
        return dice.choice(leaves)
    inner = [nested(dice, leaves, depth - 1) for _ in range(dice.randint(1, 3))]
    kind = dice.randrange(5)
    if kind == 0:
        names = dice.sample(["a", "b", "aa", "\u00e9", "__proto__"], len(inner))
        extra = dice.choice(({}, {"additionalProperties": inner[0]}, {"additionalProperties": False}))
        return {"type": "object", "properties": dict(zip(names, inner)),
                "required": dice.sample(names, dice.randint(0, len(names))), **extra}
    if kind == 1:
        return {"type": "array", "items": inner[0], "minItems": dice.randint(0, 2), "maxItems": dice.randint(2, 3)}
    if kind == 2:
        return {"type": "array", "prefixItems": inner, "items": dice.choice((False, inner[0])), "minItems": 1}
    return {"anyOf": [*inner, {"type": "null"}]} if kind == 3 else {"allOf": inner[:2]}


def accepted(schemas: Iterator[Any]) -> Iterator[tuple[Any, Spec]]:
    for schema in schemas:
        try:
            spec = Spec.of(schema=schema)
        except UsageError:
            continue
        assert spec is not None
        yield schema, spec


def answer(vocabulary: Vocabulary, spec: Spec, dice: random.Random, most: int = 300) -> str | None:
    """One answer; None if it came to no end."""
    matcher, out, target = vocabulary.matcher(spec.rules()), bytearray(), b""
    copy, edge, blank = dice.random() * 0.6, dice.random() * 0.7, dice.random() * 0.03
    stop = dice.choice((0.02, 0.3, 1.0))
    liked = dice.choice((b'"}]', b"9", b"0", b",", b"-", b"a", b"eE.", b"{[", b"\\u", b""))
    while True:
        bits = vocabulary.allowed(matcher, spec)
        able = [i for i in range(256) if bits >> i & 1]
        if matcher.is_accepting() and (not able or dice.random() < stop):
            return out.decode()
        if len(out) > most or not able:
            way = Closing(vocabulary, spec).way(matcher, 400)
            return None if way is None else (out + bytes(way)).decode()
        quiet = [i for i in able if i not in b" \t\r\n"]
        able = quiet if quiet and dice.random() > blank else able
        if not target and dice.random() < edge and (not out or out[-1] in b'"-.:,['):
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
            plain = [i for i in some or able if i < 127]
            token = dice.choice(plain if plain and dice.random() < 0.9 else some or able)
        matcher.consume_token(token)
        out.append(token)


def fault(schema: Any, text: str) -> str | None:
    """The keyword that an answer is not valid for; None if it is."""
    exact: dict[str, Any] = {"parse_float": lambda number: Decimal(number if len(number) < 99 else "1e999")}
    given = exact if "multipleOf" in json.dumps(schema) else {}  # jsonschema divides
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        kind(json.loads(json.dumps(schema), **given), format_checker=kind.FORMAT_CHECKER).validate(
            json.loads(text, **given))
    except jsonschema.ValidationError as error:
        return f"{error.validator} {error.validator_value}" if error.validator == "format" else str(error.validator)
    return None


def suite(folder: Path) -> None:
    """Print how many schemas of the public suite are accepted, and which of their instances are taken."""
    from llguidance import LLMatcher, LLTokenizer

    def here(schema: Any) -> str:
        spec = Spec.of(schema=schema)
        assert spec is not None
        return spec.rules()

    def alone(schema: Any) -> str:
        rules = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        if LLMatcher.validate_grammar(rules):
            raise UsageError("refused")
        return rules

    cases = [case for path in sorted(folder.glob("*.json")) for case in json.loads(path.read_text())]
    for name, rules_of in (("here", here), ("llguidance alone", alone)):
        taken, n = Counter[str](), 0
        for case in cases:
            try:
                matcher = LLMatcher(LLTokenizer("byte"), rules_of(case["schema"]), log_level=0)
            except UsageError:
                continue
            n += 1
            for test in case["tests"]:
                text = json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False).encode()
                at = matcher.deep_copy()
                took = at.try_consume_tokens(list(text)) == len(text) and at.is_accepting()
                taken[f"{'valid' if test['valid'] else 'invalid'} instances {'taken' if took else 'refused'}"] += 1
        print(f"{name}: {n} of {len(cases)} schemas accepted; {dict(taken)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--suite", type=Path)
    options = parser.parse_args()
    getcontext().prec = 2000
    jsonschema._keywords.re = regex  # "re" does not know \p{Letter}
    if options.suite:
        suite(options.suite)
    dice = random.Random(options.seed)
    lines = (ROOT / "tests" / "vectors" / "json_schemas.jsonl").read_text().splitlines()
    forms = [*accepted(json.loads(line)["schema"] for line in lines), *accepted(made(dice))]
    leaves = [schema for schema, _ in forms[len(lines) :]]
    forms += accepted(nested(dice, leaves) for _ in range(300))
    vocabulary = Vocabulary(Bytes(), 257, [256])  # type: ignore[arg-type]
    faults, cut, n, examples = Counter[str](), 0, 0, list[str]()
    while n < options.answers:
        schema, spec = forms[(n + cut) % len(forms)]
        text = answer(vocabulary, spec, random.Random(options.seed << 32 | n + cut))
        if text is None:
            cut += 1
            continue
        n += 1
        if why := fault(schema, text):
            faults[why] += 1
            examples.append(f"{json.dumps(schema)[:160]}\n    {text[:160]}")
    print(f"{len(forms)} schemas, {n} complete answers: {n - faults.total()} valid; {cut} others came to no end")
    print(f"not valid, by keyword: {dict(faults.most_common())}")
    print("\n".join(random.Random(0).sample(examples, min(5, len(examples)))))


if __name__ == "__main__":
    main()
