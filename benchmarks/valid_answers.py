"""Is an answer that follows a schema ever invalid?  Sampled answers over the public JSON Schema test suite, validated.

    cd JSON-Schema-Test-Suite/tests
    python .../benchmarks/valid_answers.py draft2020-12 draft7 [--answers 10000] [--model PATH]

Random logits choose the tokens of the bundled model's vocabulary, which tries what no model would; with --model (or
--model bundled) a model answers.  A schema that is refused is counted and not sampled.  The suite's own instances are
put through each grammar, too: none that is invalid may be taken.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from decimal import Decimal, getcontext
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import regex

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge
from edge.constrain.constraint import Constraint
from edge.constrain.spec import Spec
from edge.constrain.vocabulary import Vocabulary
from edge.errors import UsageError
from pyx.tokens.sampler import Sampler

DIALECTS = {"draft7": "http://json-schema.org/draft-07/schema#"}


def schemas(folders: list[Path]) -> list[tuple[str, Any, list[dict[str, Any]]]]:
    """(where it stands, the schema, its tests), without those that need the network; each schema once."""
    found: dict[str, tuple[str, Any, list[dict[str, Any]]]] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            for case in json.loads(path.read_text()):
                schema = case["schema"]
                plain = schema
                if isinstance(schema, dict):
                    plain = {key: value for key, value in schema.items() if key != "$schema"}
                    if folder.name in DIALECTS:
                        schema = {"$schema": DIALECTS[folder.name], **schema}
                if "localhost" not in json.dumps(schema):
                    name = f"{folder.name}/{path.stem}: {case['description']}"
                    found.setdefault(json.dumps(plain), (name, schema, case["tests"]))
    return list(found.values())


def sampled(vocabulary: Vocabulary, spec: Spec, seed: int, most: int) -> tuple[str, bool]:
    """An answer from random logits, and whether it is whole."""
    random, sampler = np.random.default_rng(seed), Sampler(vocabulary.n_vocab, seed)
    constraint, ids = Constraint(vocabulary, spec, "", most), list[int]()
    while not constraint.done and len(ids) < most:
        logits = random.normal(0, 3, vocabulary.n_vocab).astype(np.float32)
        token = sampler.sample(logits, 1.0)
        while not constraint.allows(token, most - len(ids)):
            token = sampler.sample(logits, 1.0, mask=constraint.mask())
        if token in vocabulary.stop_ids:
            break
        constraint.accept(token)
        ids.append(token)
    return b"".join(map(vocabulary.token_bytes, ids)).decode(), constraint.satisfied


def takes(engine: edge.Engine, spec: Spec, text: str) -> bool:
    """Whether the grammar takes a text."""
    matcher = engine.model.vocabulary().matcher(spec.rules())
    tokens = engine.tokenizer.encode(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--most", type=int, default=160, help="tokens of an answer")
    parser.add_argument("--model")
    options = parser.parse_args()
    getcontext().prec = 2000
    jsonschema._keywords.re = regex  # "re" does not know \p{Letter}, which ECMA's expressions and ours do
    engine = edge.load(None if options.model in (None, "demo") else options.model, threads=1, ctx=1024)
    vocabulary, session = engine.model.vocabulary(), engine.session()
    supported, refused, wrong, taken = [], Counter[str](), list[str](), Counter[str]()
    for where, schema, tests in schemas(options.folders):
        try:
            spec = Spec.of(schema=schema)
            assert spec is not None
            vocabulary.matcher(spec.rules())
        except UsageError as error:
            refused[str(error).rpartition("/")[2][:60]] += 1
            continue
        supported.append((where, schema, spec))
        for test in tests:
            took = takes(engine, spec, json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False))
            taken[f"{'valid' if test['valid'] else 'invalid'}, {'taken' if took else 'not taken'}"] += 1
            if took and not test["valid"]:
                wrong.append(f"{where}: {test['description']}: takes {test['data']!r}")
    each, whole, cut = -(-options.answers // len(supported)), 0, 0
    for where, schema, spec in supported:
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
        for seed in range(each):
            if options.model is None:
                text, ended = sampled(vocabulary, spec, seed, options.most)
            else:
                session.clear()
                wild = edge.Sampling(temperature=1.2, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
                answer = session.ask("Say something", schema=schema, sampling=wild, max_tokens=options.most)
                text, ended = answer.text, answer.finish_reason == "stop"
            if not ended:
                cut += 1
                print(f"cut: {where}: {text[:60]!r}...")
                continue
            try:
                if "multipleOf" in json.dumps(schema):  # jsonschema divides; decimals are exact
                    exact = json.loads(json.dumps(schema), parse_float=Decimal)
                    kind(exact, format_checker=kind.FORMAT_CHECKER).validate(json.loads(text, parse_float=Decimal))
                else:
                    validator.validate(json.loads(text))
                whole += 1
            except (ValueError, jsonschema.ValidationError) as error:
                wrong.append(f"{where}: {text[:100]!r}: {str(error).splitlines()[0][:200]}")
    print(f"{len(supported)} schemas supported, {sum(refused.values())} refused: {dict(refused.most_common(30))}")
    print(f"instances of the suite: {dict(taken)}")
    print(f"{whole + cut} answers: {whole} whole and valid, {cut} cut and reported, {len(wrong)} wrong")
    print("\n".join(wrong[:40]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
