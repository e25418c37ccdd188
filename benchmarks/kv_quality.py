"""What KV caches cost on the bundled model: python docs/make_kv_claims.py --measure writes it into docs/kv_claims.md.

The text, kv_dialogues.jsonl, is what the dialogue grammar in training/ at commit 580c278 printed as its test split
(seed 1, twenty guests one behind the other in each dialogue), whose names and titles the model has not seen in
training.  Nothing here is a claim about other models.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from array import array
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import edge  # noqa: E402
from edge.cache.table import TYPES  # noqa: E402
from edge.engine import Engine  # noqa: E402
from edge.errors import UsageError  # noqa: E402
from edge.tools.lab import calibrate, evaluate, heads  # noqa: E402
from edge.tools.lab.evaluate import Mode  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "kv_quality.json"
TEXT = ROOT / "benchmarks" / "kv_dialogues.jsonl"
SEGMENTS = 4  # of a whole context each
MIXED = ("int8:int4", "int4:int8", "int4c:int4", "int4:int4c")
KEEP = 0.25  # of the budgets that are compared
SINKS = 4
COMPRESSIONS = (2, 5, 10)


def text(engine: Engine, n: int) -> array[int]:
    """The first n tokens of the dialogues."""
    tokens = evaluate.read(engine, str(TEXT))
    if len(tokens) < n:
        raise UsageError(f"{TEXT.name} has {len(tokens)} tokens, {n} are wanted")
    return tokens[:n]


def type_modes() -> list[str]:
    """Every type, some with different keys and values."""
    return list(dict.fromkeys(each for each in (*TYPES, *MIXED) if each != "f32"))


def ablation_modes(engine: Engine) -> list[str]:
    """What 4 bits cost where; and what nothing costs: F32 pages with rotated keys differ in the order of sums only."""
    whole = f"window={engine.plan.n_ctx - SINKS} sinks={SINKS}"
    return [
        "f32 kv_hadamard=on",
        "int4 kv_hadamard=off",
        "int4 kv_hadamard=on",
        "int4:f16 kv_hadamard=off",
        "f16:int4",
        "int4c kv_hadamard=on",
        f"int4 {whole}",
        f"int4c {whole}",
    ]


def policy_modes(engine: Engine) -> list[str]:
    """Ways of forgetting, all with int8 pages."""
    n = engine.plan.n_ctx
    windows = [f"int8 window={n // 16} sinks=0", f"int8 window={n // 16 - SINKS} sinks={SINKS}"]
    quarter = f"window={n // 4 - SINKS} sinks={SINKS}"
    return [
        *windows,
        "int8 kv_policy=quarter",
        f"int8 {quarter}",
        f"int8 {quarter} positions=cache",
        f"int8 {quarter} kv_policy=heavy",
        *(f"int8 window={n // times - 1} sinks=1" for times in COMPRESSIONS),
        *(f"int8 kv_drop_layers={layer}" for layer in range(engine.config.n_layer)),
    ]


def quality(engine: Engine, tokens: Sequence[int], modes: Sequence[str], against: str = "f32") -> evaluate.Report:
    """What ``lab kv`` measures."""
    parsed = [Mode.parse(mode) for mode in modes]
    return evaluate.kv_quality(engine, tokens, parsed, TEXT.name, against=Mode.parse(against))


def facts_of(report: evaluate.Report) -> dict[str, Any]:
    """A report without its speeds: whoever runs this need not have the machine to himself."""
    facts = report.to_dict()
    for row in facts["rows"]:
        del row["tokens_per_second"]
    return facts


def budgets(engine: Engine, tokens: Sequence[int]) -> dict[str, Any]:
    """Plans of one size by every method, made on the first half of the text, compared on the second."""
    report, plans = calibrate.compare(engine, tokens, KEEP, sinks=SINKS, text=TEXT.name)
    facts = plans[0].heads
    return {
        "report": facts_of(report),
        "keep": {plan.method: plan.budget.keep for plan in plans},
        "heads": [asdict(each) for each in facts],
        "flat_rule": [(keep, flat_rule(engine, facts, keep)) for keep in (0.5, 0.3, 0.2, 0.1)],
    }


def flat_rule(engine: Engine, facts: Sequence[heads.HeadFacts], keep: float) -> float:
    """Compression by the rule of microsoft/BitNet PR #497 as published: each layer's hungriest head sets its need, the
    mean of these is one budget for all."""
    n, columns = engine.plan.n_ctx, engine.config.n_kv_head
    weights = calibrate.weights("entropy", facts)
    needs = [max(1, min(n, int(n * keep * weight))) for weight in weights]
    layers = [max(needs[i : i + columns]) for i in range(0, len(needs), columns)]
    return n / (sum(layers) / len(layers))


def oracle(engine: Engine, tokens: Sequence[int], length: int = 32) -> dict[str, Any]:
    """Cosine of rows of attention on short texts with what is left of them when a fraction of the tokens stays: the
    largest of that very row, or the first and the newest."""
    from pyx import probe
    from pyx.transformer import Segment

    kv = engine.space.new_cache(Mode("f32", {"kv": "f32"}).plan(engine, length))
    queries, n_head = engine.model.transformer.keep_queries(), engine.config.n_head
    best: dict[int, list[float]] = {times: [] for times in COMPRESSIONS}
    recent: dict[int, list[float]] = {times: [] for times in COMPRESSIONS}
    for piece in itertools.islice(evaluate.segments(engine, tokens, length), 20):
        kv.reset()
        engine.model.transformer.step([Segment(kv, piece)])
        for layer in range(engine.config.n_layer):
            rows = memoryview(probe.rows(kv, layer, queries))
            for head in range(n_head):
                squares = [p * p for p in rows[head * len(piece) : (head + 1) * len(piece)]]
                for times in COMPRESSIONS:
                    k = max(2, len(piece) // times)
                    best[times].append((sum(sorted(squares)[-k:]) / sum(squares)) ** 0.5)
                    recent[times].append(((squares[0] + sum(squares[1 - k :])) / sum(squares)) ** 0.5)
    mean = {t: (sum(best[t]) / len(best[t]), sum(recent[t]) / len(recent[t])) for t in COMPRESSIONS}
    return {"tokens": length, "cosines": [[times, *mean[times]] for times in COMPRESSIONS]}


def types(engine: Engine, tokens: Sequence[int]) -> dict[str, Any]:
    """Every type against F32 pages."""
    return facts_of(quality(engine, tokens, type_modes()))


def against_f16(engine: Engine, tokens: Sequence[int]) -> dict[str, Any]:
    """The usual types against F16 pages, what most people have."""
    return facts_of(quality(engine, tokens, ["f32", "int8", "int8:int4", "int4", "int4c"], "f16"))


def ablations(engine: Engine, tokens: Sequence[int]) -> dict[str, Any]:
    """Where 4 bits cost what."""
    return facts_of(quality(engine, tokens, ablation_modes(engine)))


def policies(engine: Engine, tokens: Sequence[int]) -> dict[str, Any]:
    """Ways of forgetting."""
    return facts_of(quality(engine, tokens, policy_modes(engine)))


def looks(engine: Engine, tokens: Sequence[int]) -> dict[str, Any]:
    """Classes of heads."""
    lengths = [length for length in (32, 512, 2048) if length <= engine.plan.n_ctx]
    return heads.classes(engine, tokens, lengths, SINKS).to_dict()


PARTS = {each.__name__: each for each in (types, ablations, against_f16, policies, budgets, looks, oracle)}


def measure(names: Sequence[str] = ()) -> None:
    """These parts, or all, into RESULTS; what it has of the same model and text stays."""
    with edge.load(kv="f32", overflow="stop", threads=1) as engine:
        tokens = text(engine, SEGMENTS * engine.plan.n_ctx)
        about = {
            "model": engine.config.name,
            "fingerprint": engine.fingerprint,
            "text": hashlib.sha256(tokens.tobytes()).hexdigest(),
        }
        facts = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        if any(facts.get(name) != value for name, value in about.items()):
            facts = about
        for name in names or PARTS:
            facts[name] = PARTS[name](engine, tokens)
            RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
