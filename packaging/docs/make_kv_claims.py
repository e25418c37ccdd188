"""Writes docs/kv_claims.md, what others say about KV caches and what is so: python packaging/docs/make_kv_claims.py

kv_claims.md.in is the page with {names} for figures.  Sizes are computed here by edge.tools.kv_table, that is, by what
a cache allocates.  Measured figures come from benchmarks/results/kv_quality*.json: those of a real model answer what is
claimed about types and policies, those of the demo model what needs many measurements.  With --measure they are
measured anew (lab/claims.py; some minutes), with --measure types looks these parts of them; -m names the
model.  tests/lab/test_claims.py fails when the page is not what this makes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kv_claims.md"
sys.path.insert(0, str(ROOT))

from edge.config import ModelConfig  # noqa: E402
from edge.model.sizes import PAPER_BITS, Weights  # noqa: E402
from edge.registry import shapes  # noqa: E402
from edge.tools import kv_table  # noqa: E402

CONTEXTS = (512, 1024, 2048, 4096)
RESULTS = ROOT / "benchmarks" / "results" / "kv_quality.json"
REAL = RESULTS.with_name("kv_quality-smollm2-135m.json")
REAL_NAME = "SmolLM2-135M-Instruct"
#: gates of the project: type -> (change of perplexity at most, share of equal first choices at least)
SHOWN = 5  # the compression of which a claim quotes the rules of budgets
GATES = {"int8": (0.001, 0.99), "int4": (0.005, 0.97)}


def page() -> str:
    """The whole page."""
    facts, real = (json.loads(path.read_text()) for path in (RESULTS, REAL))
    types = list(by_mode(facts["types"]))
    return Path(__file__).with_name("kv_claims.md.in").read_text().format(
        **sizes(types), **sentences(facts, real), real=measured_on_real(real), measured=measured(facts))


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def shape(name: str, **changes: Any) -> ModelConfig:
    """A published model, with other dimensions."""
    return replace(shapes.SHAPES[name], **changes).config(name)


def guide_model(dim: int, n_layer: int = 1) -> ModelConfig:
    """The model that source 2 describes: keys of ``dim`` dimensions in heads of 128."""
    return shape("llama3-8b", n_layer=n_layer, hidden=dim, n_head=dim // 128, n_kv_head=dim // 128)


def mb(n: float) -> str:
    """Bytes in MB."""
    return f"{n / 1e6:.1f}"


def kv(config: ModelConfig, kv_type: str, n: int = 1) -> int:
    """Bytes of n tokens, scales included, as published tables count."""
    return kv_table.bytes_per_token(config, kv_type) * n


def gain(config: ModelConfig, kv_type: str, n: int, head: float) -> str:
    """How much faster than with F16 pages decoding gets at most, if a token reads ``head`` bytes of output head."""
    read = Weights.of(config).projections + head
    return f"{(read + kv(config, 'f16', n)) / (read + kv(config, kv_type, n)):.2f}x"


def sizes(types: Sequence[str] = kv_table.TYPES) -> dict[str, str]:
    """Every figure that needs no measurement; of the tables, these types."""
    large, two_b, llama = shape("large"), shape("2b-4t"), guide_model(2048, 32)
    w, w_large = Weights.of(two_b), Weights.of(large)
    matrices = w_large.projections * 8 / 2  # of large, in parameters: two bits each
    untied = (matrices + 2 * large.n_vocab * large.hidden) * PAPER_BITS / 8
    resident = 1124.81 * 2**20  # of weights, as bitnet.cpp reports it for 2B-4T (microsoft/BitNet issue 229)
    embedding = two_b.n_vocab * two_b.hidden
    paper = ((large, 2048, untied), (two_b, 2048, w.paper), (two_b, 4096, w.paper))
    f16 = {n: kv(two_b, "f16", n) for n in CONTEXTS}
    per_token = {each: kv(guide_model(1024), each) for each in types}
    as_mha = shape("2b-4t", n_kv_head=two_b.n_head)
    return {
        "sizes": size_table((large, two_b), types),
        "large_f16": ", ".join(mb(kv(large, "f16", n)) for n in CONTEXTS[:3]),
        "two_b_f16": ", ".join(mb(f16[n]) for n in CONTEXTS),
        "two_b_mib": f"{f16[2048] / 2**20:.2f}",
        "two_b_int8": mb(kv(two_b, "int8", 4096)),
        "two_b_paper": mb(w.paper),
        "large_paper": mb(w_large.paper),
        "large_untied": mb(untied),
        "projections": mb(w.projections),
        "read": mb(w.read),
        "resident": mb(resident),
        "paper_shares": ", ".join(f"{kv(c, 'f16', n) / (kv(c, 'f16', n) + rest):.1%}" for c, n, rest in paper),
        "flat_share": f"{kv(large, 'f16', 2048) / (kv(large, 'f16', 2048) + 0.7e9 * PAPER_BITS / 8):.1%}",
        "real_shares": ", ".join(f"{f16[n] / (f16[n] + resident):.1%}" for n in CONTEXTS),
        "gqa_same": f"{kv(as_mha, 'f16') / kv(two_b, 'f16'):.0f}",
        "gqa_large": f"{kv(large, 'f16') / kv(two_b, 'f16'):.2f}",
        "zig_layer": f"{kv(shape('large', n_layer=1), 'f32', 100):,}",
        "zig": f"{kv(large, 'f32', 100):,}",
        "zig_mb": f"{kv(large, 'f32', 100) / 1e6:.2f}",
        "zig_mib": f"{kv(large, 'f32', 100) / 2**20:.1f}",
        "guide_1024": f"{per_token['f16']:,}",
        "guide_2048": f"{kv(guide_model(2048), 'f16'):,}",
        "guide_types": ", ".join(f"{t} {per_token[t]:,}" for t in ("int8", "int4", "binary") if t in per_token),
        "gains": f"{gain(two_b, 'int8', 4096, 2 * embedding)} with an F16 head, {gain(two_b, 'int8', 4096, embedding)} "
        f"with 8 bits, {gain(two_b, 'int8', 4096, embedding / 2)} with 4",
        "four_of_32": f"{4 / 32:.1%}",
        "four_of_16": f"{4 / 16:.0%}",
        "eight_of_32": f"{8 / 32:.0%}",
        "card": f"{kv(two_b, 'int8', 4096) / 90e6:.1f}",
        "llama_token": f"{kv(llama, 'f16'):,}",
        "llama_all": mb(kv(llama, "f16", 2048)),
        "llama_layer": mb(kv(guide_model(2048), "f16", 2048)),
        "contiguous": f"{kv(llama, 'f16', 1536) / 1e9:.2f}",
        "paged": f"{kv(llama, 'f16', 4096) / 1e9:.2f}",
    }


def size_table(models: Iterable[ModelConfig], types: Sequence[str]) -> str:
    """Bytes per token, and MB at CONTEXTS."""
    rows = []
    for c in models:
        for kv_type in types:
            name = f"{c.name}: {c.n_layer} layers, {c.n_kv_head} heads of {c.head_dim}"
            rows.append([name, kv_type, f"{kv(c, kv_type):,}", *(mb(kv(c, kv_type, n)) for n in CONTEXTS)])
    return table(["model", "type", "bytes per token", *(f"{n}, MB" for n in CONTEXTS)], rows, 2)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Markdown; the first ``texts`` columns are words."""
    lines = [head, ["---"] * texts + ["---:"] * (len(head) - texts), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- measured --------------------------------------------------------------------------------------------------------


def by_mode(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Mode -> row."""
    return {row["mode"]: row for row in report["rows"]}


def brief(row: dict[str, Any]) -> str:
    """A mode in half a sentence."""
    return f"KL {row['kl_mean']:.1e}, perplexity {row['change']:+.2%}, same first choice {row['top1']:.1%}"


def sentences(facts: dict[str, Any], real: dict[str, Any]) -> dict[str, str]:
    """What was measured, on the demo model and on a real one, where a claim asks for it."""
    types, policies, context = by_mode(real["types"]), by_mode(real["policies"]), real["types"]["context"]
    classes, oracle = real["looks"]["classes"], real["oracle"]["cosines"]
    focused = [f"{classes[n]['sink'] + classes[n]['focused']:.0%} at {n} tokens" for n in classes]
    best = [f"{times}x {chosen:.1%} (first and newest: {newest:.1%})" for times, chosen, newest in oracle]
    kept = [(times, policies[f"int8 window={context // times - 1} sinks=1"]) for times, *_ in oracle]
    preserved = [f"{times}x {row['mass']:.1%} of attention, {row['top1']:.1%} of first choices" for times, row in kept]
    flat = ", ".join(f"{times:.2f}" for _, times in facts["budgets"]["flat_rule"])
    kl = {row["mode"].split()[-1]: row["kl_mean"] for row in facts["budgets"]["report"]["rows"]}
    better = "code" if kl["entropy"] < kl["inverse"] else "script"
    plain = types["f32"]["perplexity"]
    dropped = [f"{mode.split('=')[1]} {row['change']:+.0%}" for mode, row in policies.items() if "drop_lay" in mode]
    first, last, both = real["layers"]["rows"][1:]
    rules = {row["mode"].split()[-1]: row for row in real["compressed"]["rows"] if f" {SHOWN}x " in row["mode"]}
    small = next(mode for mode in policies if mode.endswith("sinks=4"))
    some = [f"{t} {types[t]['change']:+.2%} (KL {types[t]['kl_mean']:.1e})" for t in ("int8", "fp8", "int4", "binary")]
    return {
        "flat_rule": f"With the entropies of the demo model the rule gives {flat}x. Each head has its own "
        "pages here, so that a quarter of the tokens takes a quarter of the memory",
        "classes": f"{REAL_NAME}, on one text: {', '.join(focused)}",
        "oracle": f"{REAL_NAME} on {real['oracle']['tokens']} tokens: {', '.join(best)}. What a cache of the first and "
        f"the newest really preserves at {context}: {'; '.join(preserved)}",
        "budgets": f"{REAL_NAME}, KL at equal memory, {SHOWN}x: "
        + ", ".join(f"{name} {row['kl_mean']:.1e}" for name, row in rules.items())
        + ". The demo model, a quarter kept: "
        + ", ".join(f"{name} {kl[name]:.1e}" for name in ("uniform", "entropy", "inverse", "support", "greedy"))
        + f" (inverse is what was measured); the better sign is that of the {better}",
        "types": f"{REAL_NAME}: {', '.join(some)}",
        "int8": f"{REAL_NAME}: {types['int8']['change']:+.3%} +- {types['int8']['error']:.3%} of {plain:.2f}",
        "layers": f"{REAL_NAME} without one of its layers: {', '.join(dropped)} perplexity; without the first four "
        f"{first['change']:+.0%}, the last four {last['change']:+.0%}, both {both['change']:+.0%}",
        "quarter": f"{REAL_NAME}: {brief(policies['int8 kv_policy=quarter'])}; `{small}`: {brief(policies[small])}",
        "binary": f"{REAL_NAME}: {brief(types['binary'])}",
    }


def measured_on_real(facts: dict[str, Any]) -> str:
    """What a real model showed."""
    types = facts["types"]
    f16 = by_mode(types)["f16"]
    n_heads = facts["compressed"]["heads"]
    return f"""\
{REAL_NAME} with three planes, groups of 32 (what `bitnet-edge pull smollm2-135m` makes; fingerprint
{facts["fingerprint"][:12]}), perplexity {types["rows"][0]["perplexity"]:.3f} on {types["tokens"]} tokens of
`edge/bundled/{types["text"]}`, in segments of {types["context"]}. What the columns mean is said
[below](#measured-on-the-demo-model). Measured by

    {facts["command"]}

### {REAL_NAME}: types, against F32 pages

{quality_table(types["rows"])}

{chr(10).join(of_types(types))}
* F16 pages, which most programs have, agree with F32 pages in {f16["top1"]:.2%} of first choices
  (KL {f16["kl_mean"]:.1e}): compare the other types with that. The text is short: mind the spread of each perplexity.

### {REAL_NAME}: dropping tokens, with int8 pages

{quality_table(facts["policies"]["rows"])}

### {REAL_NAME}: layers without a cache

These layers see the current token only.

{quality_table(facts["layers"]["rows"])}

### {REAL_NAME}: budgets per head

Plans made from the next {facts["compressed"]["context"]} tokens of the text. At each compression all rules keep about
as many bytes. Budgets by measured cost (greedy, joint) were not made: each of {n_heads} heads has to be measured alone.

{quality_table(facts["compressed"]["rows"])}

{of_rules(facts["compressed"]["rows"])}

### {REAL_NAME}: what 4 bits cost

{quality_table(facts["ablations"]["rows"])}

{four_bits(facts)}

### {REAL_NAME}: types, against F16 pages

{quality_table(facts["against_f16"]["rows"])}

### {REAL_NAME}: going back behind a window

{offloaded(facts["offload"])}

### {REAL_NAME}: entropy of attention

{entropy_table(facts["looks"])}"""


def of_rules(rows: Sequence[dict[str, Any]]) -> str:
    """The best rule at each compression."""
    best: dict[str, dict[str, Any]] = {}
    for row in rows[2:]:  # behind the reference and all tokens
        times = row["mode"].split()[1]
        best[times] = min(best.get(times, row), row, key=lambda each: each["kl_mean"])
    return "Lowest KL: " + ", ".join(f"{times} {row['mode'].split()[-1]}" for times, row in best.items()) + "."


def offloaded(facts: dict[str, Any]) -> str:
    """What going back costs without and with a file."""
    without, file = facts["rows"]
    return f"""\
With `{facts["mode"]}`, {facts["tokens"]} tokens were read, then the cache went back to {facts["back_to"]}: without a
file {without["read_again"]} tokens had to be read again; with `kv_offload` {file["read_again"]}, and
{file["written"] / 1e6:.1f} MB had been written. The next prediction was
{"the same bit for bit" if without["same"] and file["same"] else "another"} as if nothing had come after. The file
changes nothing else: what left the window stays unseen until the cache goes back."""


def measured(facts: dict[str, Any]) -> str:
    """What the demo model showed."""
    types, context = facts["types"], facts["types"]["context"]
    lengths = ",".join(facts["looks"]["classes"])
    budgets = facts["budgets"]
    keeps = [[name, *(str(n) for row in keep for n in row)] for name, keep in budgets["keep"].items()]
    places = [f"{i}.{j}" for i, row in enumerate(budgets["keep"]["uniform"]) for j in range(len(row))]
    return f"""\
{facts["model"]} (fingerprint {facts["fingerprint"][:12]}), perplexity {types["rows"][0]["perplexity"]:.3f} on
{types["tokens"]} tokens of dialogues that were not in its training data, in segments of {context}.
KL is the divergence of the predictions from the reference, in nats; mass is the share of the reference's attention on
tokens that are still in the cache. `python -m lab kv` measures the same, and the speed, for any model and text.

### Types, against F32 pages

{quality_table(types["rows"])}

`fp8` and `binary` have no vector kernels: every token unpacks each page to F16 or int8. They save memory and cost time:
with 4096 tokens and the heads of 2B-4T, the attention of one token takes 40 and 103 ms on one thread; `int8` takes 12,
`int4c` 12 and `f16` 25 ms (command and spread: [logbook](../benchmarks/log/2026-11.md#kv-unpacked)).

![KL against memory](pictures/kv_quality.svg)

{gates(facts)}

### What 4 bits cost

F32 pages with rotated keys are exact except for the order of sums: their row is the noise of this measurement, and
whatever another row has in addition is caused by the cache. A window as long as the text keeps the first tokens in F16.

{quality_table(facts["ablations"]["rows"])}

{four_bits(facts)}

### Types, against F16 pages

{quality_table(facts["against_f16"]["rows"])}

### Dropping tokens, with int8 pages

{quality_table(facts["policies"]["rows"])}

### Budgets per head, a quarter of the context kept, equal memory

Made from one half of the text, measured on the other.

{quality_table(budgets["report"]["rows"])}

Tokens kept by each layer.head:

{table(["", *places], keeps)}

### Entropy of attention

Share of query heads by the entropy of their attention, at the end of texts of this many tokens: sink below 0.5 bits,
focused 1.5, moderate 2.5, mixed 3.5. `python -m lab heads --lengths {lengths}` prints each.

{entropy_table(facts["looks"])}"""


def entropy_table(looks: dict[str, Any]) -> str:
    """Classes of heads by the length of the text."""
    names = list(next(iter(looks["classes"].values())))
    rows = []
    for n, shares in looks["classes"].items():
        bits = [each["entropy"] for each in looks["heads"] if str(each["length"]) == n]
        rows.append([n, *(f"{shares[name]:.0%}" for name in names), f"{sum(bits) / len(bits):.2f}"])
    return table(["tokens", *names, "mean, bits"], rows)


def quality_table(rows: Sequence[dict[str, Any]]) -> str:
    """What ``python -m lab kv`` prints, as Markdown."""
    return table(
        ["mode", "bytes per token", "perplexity", "KL mean", "KL 99.9%", "same first choice", "mass"],
        [
            [
                f"`{row['mode']}`",
                f"{row['bytes_per_token']:.0f}",
                f"{row['change']:+.3%} +- {row['error']:.3%}",
                f"{row['kl_mean']:.1e}",
                f"{row['kl_p999']:.1e}",
                f"{row['top1']:.2%}",
                f"{row['mass']:.1%}",
            ]
            for row in rows
        ],
    )


def four_bits(facts: dict[str, Any]) -> str:
    """The ablation in words."""
    types, rows = by_mode(facts["types"]), by_mode(facts["ablations"])
    kl = {mode: row["kl_mean"] for mode, row in {**types, **rows}.items()}
    whole = next(mode for mode in rows if mode.startswith("int4 window"))
    channels = next(mode for mode in rows if mode.startswith("int4c window"))
    return (
        f"Keys of 4 bits cost KL {kl['int4:f16 kv_hadamard=off']:.1e}, values {kl['f16:int4']:.1e}: keys go through an "
        f"exponential, errors of values average out. Rotated keys take int4 from {kl['int4 kv_hadamard=off']:.1e} to "
        f"{kl['int4 kv_hadamard=on']:.1e}, first tokens in F16 to {kl[whole]:.1e}; scales by channel (int4c) cost "
        f"{kl['int4c']:.1e}, with first tokens in F16 {kl[channels]:.1e}; int8 keys with int4 values cost "
        f"{kl['int8:int4']:.1e}."
    )


def of_types(report: dict[str, Any]) -> list[str]:
    """What was wanted of types, and what came out."""
    types, lines = by_mode(report), []
    for name, (change, same) in GATES.items():
        row = types[name]
        lines.append(
            f"* {name}: perplexity: goal within {change:.1%}, measured {row['change']:+.3%} +- {row['error']:.3%}"
            f"{verdict(abs(row['change']) <= change)}; same first choice: goal {same:.0%}, measured "
            f"{row['top1']:.2%}{verdict(row['top1'] >= same)}."
        )
    order = [types[name]["kl_mean"] for name in ("int8", "int8:int4", "int4")]
    return [*lines, f"* int8:int4 is between int8 and int4 in KL{verdict(order == sorted(order))}."]


def gates(facts: dict[str, Any]) -> str:
    """What was wanted of the demo model, what came out."""
    lines = of_types(facts["types"])
    floor = by_mode(facts["ablations"])["f32 kv_hadamard=on"]
    lines.append(
        f"* The noise: an exact cache that sums in another order agrees in {floor['top1']:.2%} of first choices "
        f"(KL {floor['kl_mean']:.1e}), because activations are rounded to 8 bits, and the smallest change reverses "
        "some of these roundings."
    )
    kl = {row["mode"].split()[-1]: row["kl_mean"] for row in facts["budgets"]["report"]["rows"]}
    best = all(kl["support"] < kl[other] for other in ("uniform", "entropy", "inverse"))
    lines.append(
        f"* budgets by support have a lower KL than uniform and both entropy rules at a quarter{verdict(best)}; "
        f"budgets by measured cost (greedy) divide it by {kl['support'] / kl['greedy']:.1f}, and if the type is "
        f"chosen, too (joint), by {kl['support'] / kl['joint']:.1f}."
    )
    return "\n".join(lines)


def verdict(good: bool) -> str:
    """Behind a figure."""
    return "" if good else " (**missed**)"


def main() -> None:
    """Measure, if that is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", metavar="PART", help="measure these parts, or all, anew")
    parser.add_argument("-m", "--model", help="of this model, with the calibration text; else of the demo model")
    parser.add_argument("--segments", type=int, help="how many times 2048 tokens of text")
    flags = parser.parse_args()
    if flags.measure is not None:
        from lab import claims

        claims.measure(claims.Measured(flags.model, flags.segments or claims.SEGMENTS), flags.measure)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
