"""What KV caches cost: python packaging/docs/make_kv_claims.py --measure writes it into docs/kv_claims.md.

Of the bundled model, with kv_dialogues.jsonl, what the dialogue grammar in training/ at commit 580c278 printed as its
test split (seed 1, twenty guests one behind the other in each dialogue), whose names and titles the model has not seen
in training.  With -m of another model, with calibration.txt: prose, dialogues and documentation.
Nothing here is a claim about other models than those named.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import edge
from edge.engine import Engine
from edge.errors import UsageError
from edge.tools.kv_table import TYPES
from lab import calibrate, evaluate, heads
from lab.evaluate import Mode

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DEMO_TEXT = ROOT / "benchmarks" / "kv_dialogues.jsonl"
#: in turns, parts of "A Scandal in Bohemia" (Arthur Conan Doyle, 1891, in the public domain), of our dialogues (every
#: second one of dialogues.jsonl), and of our documentation
TEXT = ROOT / "benchmarks" / "calibration.txt"
CONTEXT = 2048
SEGMENTS = 4  # of a whole context each
DROPPED = 6  # layers that are left out, one at a time
MIXED = ("int8:int4", "int4:int8", "int4c:int4", "int4:int4c")
KEEP = 0.25  # of the budgets that are compared
SINKS = 4
COMPRESSIONS = (2, 5, 10)
RULES = ("uniform", "entropy", "inverse", "support")  # of budgets that need no measurement of each head by itself


@dataclass(frozen=True)
class Measured:
    """What is measured with what; ``model`` None: the bundled one."""

    model: str | None = None
    segments: int = SEGMENTS

    @property
    def text(self) -> Path:
        """The file that is read."""
        return DEMO_TEXT if self.model is None else TEXT

    @property
    def parts(self) -> dict[str, Part]:
        """What is measured, by name."""
        return PARTS if self.model is None else REAL_PARTS

    @property
    def command(self) -> str:
        """What measures it."""
        model = "" if self.model is None else f" -m {Path(self.model).name} --segments {self.segments}"
        return f"python packaging/docs/make_kv_claims.py --measure{model}"

    @property
    def results(self) -> Path:
        """The file of what was measured."""
        name = "kv_quality" if self.model is None else f"kv_quality-{Path(self.model).stem}"
        return RESULTS / f"{name}.json"


class Text(NamedTuple):
    """What is read."""

    name: str
    tokens: array[int]


def read(engine: Engine, path: Path, n: int) -> Text:
    """The first n tokens of a file."""
    tokens = evaluate.read(engine, str(path))
    if len(tokens) < n:
        raise UsageError(f"{path.name} has {len(tokens)} tokens, {n} are wanted")
    return Text(path.name, tokens[:n])


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
    layers = -(-engine.config.n_layer // DROPPED)  # from one that is dropped to the next
    return [
        *windows,
        "int8 kv_policy=quarter",
        f"int8 {quarter}",
        f"int8 {quarter} positions=cache",
        f"int8 {quarter} kv_policy=heavy",
        *(f"int8 window={n // times - 1} sinks=1" for times in COMPRESSIONS),
        *(f"int8 kv_drop_layers={layer}" for layer in range(0, engine.config.n_layer, layers)),
    ]


def quality(engine: Engine, text: Text, modes: Sequence[str], against: str = "f32") -> evaluate.Report:
    """What ``python -m lab kv`` measures."""
    parsed = [Mode.parse(mode) for mode in modes]
    return evaluate.kv_quality(engine, text.tokens, parsed, text.name, against=Mode.parse(against))


def facts_of(report: evaluate.Report) -> dict[str, Any]:
    """A report without its speeds: whoever runs this need not have the machine to himself."""
    facts = report.to_dict()
    for row in facts["rows"]:
        del row["tokens_per_second"]
    return facts


def budgets(engine: Engine, text: Text) -> dict[str, Any]:
    """Plans of one size by every method, made on the first half of the text, compared on the second."""
    report, plans = calibrate.compare(engine, text.tokens, KEEP, sinks=SINKS, text=text.name)
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


def oracle(engine: Engine, text: Text, length: int = 32) -> dict[str, Any]:
    """Cosine of rows of attention on short texts with what is left of them when a fraction of the tokens stays: the
    largest of that very row, or the first and the newest."""
    from pyx.step import probe
    from pyx.step.transformer import Segment

    kv = engine.space.new_cache(Mode("f32", {"kv": "f32"}).plan(engine, length))
    queries, n_head = engine.model.transformer.keep_queries(), engine.config.n_head
    best: dict[int, list[float]] = {times: [] for times in COMPRESSIONS}
    recent: dict[int, list[float]] = {times: [] for times in COMPRESSIONS}
    for piece in itertools.islice(evaluate.segments(engine, text.tokens, length), 20):
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


def types(engine: Engine, text: Text) -> dict[str, Any]:
    """Every type against F32 pages."""
    return facts_of(quality(engine, text, type_modes()))


def against_f16(engine: Engine, text: Text) -> dict[str, Any]:
    """The usual types against F16 pages, what most people have."""
    return facts_of(quality(engine, text, ["f32", "int8", "int8:int4", "int4", "int4c"], "f16"))


def ablations(engine: Engine, text: Text) -> dict[str, Any]:
    """Where 4 bits cost what."""
    return facts_of(quality(engine, text, ablation_modes(engine)))


def policies(engine: Engine, text: Text) -> dict[str, Any]:
    """Ways of forgetting."""
    return facts_of(quality(engine, text, policy_modes(engine)))


def layers(engine: Engine, text: Text) -> dict[str, Any]:
    """The first and the last four layers without their caches, alone and together."""
    last = range(engine.config.n_layer - 4, engine.config.n_layer)
    dropped = [",".join(map(str, each)) for each in (range(4), last, (*range(4), *last))]
    return facts_of(quality(engine, text, [f"int8 kv_drop_layers={each}" for each in dropped]))


def compressed(engine: Engine, text: Text) -> dict[str, Any]:
    """Budgets of the heads by simple rules, at COMPRESSIONS: made on the second half of the text, compared on the
    first, which the other parts read, too.
    """
    middle = len(text.tokens) // 2
    first, second = text.tokens[:middle], text.tokens[middle:]
    facts = heads.measure(engine, second, SINKS)
    modes = [Mode("int8", {"kv": "int8"})]
    for times in COMPRESSIONS:
        for rule in RULES:
            plan = calibrate.calibrate(engine, second, 1 / times, rule, "int8", SINKS, facts)
            modes.append(Mode(f"int8 {times}x {rule}", {"kv": "int8", "kv_budget": plan.budget}))
    return {"heads": len(facts), **facts_of(evaluate.kv_quality(engine, first, modes, text.name))}


def offload(engine: Engine, text: Text) -> dict[str, Any]:
    """What going back by half a text costs behind a window, without and with a file for the pages that leave it; and
    whether the next prediction is the same bit for bit as if nothing had come after.
    """
    from pyx.step.transformer import Segment

    n, mode = len(text.tokens), f"int8 window={512 - SINKS} sinks={SINKS}"
    kv_config, found = Mode.parse(mode).kv_config, []

    def read(kv: Any, ids: array[int]) -> bytes:
        logits = memoryview(array("f", bytes(4 * engine.config.n_vocab)))
        for at in range(0, len(ids), engine.model.chunk):
            engine.model.transformer.step([Segment(kv, ids[at : at + engine.model.chunk], logits)])
        return logits.tobytes()

    def cache(**more: str) -> Any:
        return engine.space.new_cache(Mode(mode, {**kv_config, **more}).plan(engine, n))

    straight = cache()
    expected = read(straight, text.tokens[: n // 2])
    with tempfile.TemporaryDirectory() as folder:
        for more in ({}, {"kv_offload": folder}):
            kv = cache(**more)
            read(kv, text.tokens)
            written = kv.spill.written if more else 0
            kept = kv.crop(n // 2 - 1)
            same = read(kv, text.tokens[kept : n // 2]) == expected
            found.append({"offload": bool(more), "read_again": n // 2 - kept, "written": written, "same": same})
    return {"mode": mode, "tokens": n, "back_to": n // 2, "rows": found}


def looks(engine: Engine, text: Text) -> dict[str, Any]:
    """Classes of heads."""
    lengths = [length for length in (32, 512, 2048) if length <= engine.plan.n_ctx]
    return heads.classes(engine, text.tokens, lengths, SINKS).to_dict()


Part = Callable[[Engine, Text], dict[str, Any]]
PARTS: dict[str, Part] = {each.__name__: each for each in (
    types, ablations, against_f16, policies, budgets, looks, oracle)}
#: parts of a real model, whose many heads make budgets by measured cost take hours
REAL_PARTS: dict[str, Part] = {each.__name__: each for each in (
    types, ablations, against_f16, policies, looks, oracle, layers, compressed, offload)}


def measure(measured: Measured, names: Sequence[str] = ()) -> None:
    """These parts, or all, into the file of results; what it has of the same model and text stays."""
    parts, path, n = measured.parts, measured.results, measured.segments * CONTEXT
    for name in names or parts:
        with edge.load(measured.model, ctx=CONTEXT, kv="f32", overflow="stop", threads=1) as engine:
            text = read(engine, measured.text, n)
            about = {
                "command": measured.command,
                "model": engine.config.name,
                "fingerprint": engine.fingerprint,
                "text": hashlib.sha256(text.tokens.tobytes()).hexdigest(),
            }
            found = parts[name](engine, read(engine, measured.text, 2 * CONTEXT) if name == "compressed" else text)
            facts = json.loads(path.read_text()) if path.exists() else {}
            if any(facts.get(key) != value for key, value in about.items()):
                facts = dict(about)
            facts[name] = found
            path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
