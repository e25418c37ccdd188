"""docs/kv_claims.md: made from the code, and the code gives what was published or was computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import edge
import make_kv_claims as claims
from edge.errors import UsageError
from edge.tools import kv_table
from lab import calibrate, heads
from lab import claims as measuring

#: name in kv_claims.md.in -> what it must come to; published, or worked out on paper from published dimensions
EXPECTED = {
    "large_f16": "75.5, 151.0, 302.0",
    "two_b_f16": "39.3, 78.6, 157.3, 314.6",
    "two_b_mib": "150.00",
    "two_b_int8": "159.7",
    "two_b_paper": "476.5",
    "large_paper": "143.9",
    "large_untied": "153.6",
    "projections": "521.0",
    "read": "849.9",
    "resident": "1179.4",
    "paper_shares": "66.3%, 24.8%, 39.8%",
    "flat_share": "68.6%",
    "real_shares": "3.2%, 6.3%, 11.8%, 21.1%",
    "gqa_same": "4",
    "gqa_large": "1.92",
    "zig_layer": "1,228,800",
    "zig": "29,491,200",
    "zig_mb": "29.49",
    "zig_mib": "28.1",
    "guide_1024": "4,096",
    "guide_2048": "8,192",
    "gains": "1.12x with an F16 head, 1.15x with 8 bits, 1.18x with 4",
    "four_of_32": "12.5%",
    "four_of_16": "25%",
    "eight_of_32": "25%",
    "card": "1.8",
    "llama_token": "262,144",
    "llama_all": "536.9",
    "llama_layer": "16.8",
    "contiguous": "0.40",
    "paged": "1.07",
}
#: bytes per token of the guide's model, in heads of 128: codes, and 2 bytes for each scale (and least value)
GUIDE = {"int8": 2048 + 2 * 8 * 2, "int4": 1024 + 8 * 4 * (2 + 4), "binary": 256 + 2 * 8 * 2}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_computed_row_by_row(name: str) -> None:
    assert claims.sizes()[name] == EXPECTED[name]


def test_nothing_else_is_computed() -> None:
    assert set(claims.sizes()) == {*EXPECTED, "sizes", "guide_types"}


@pytest.mark.parametrize("kv_type", kv_table.TYPES)
def test_types_of_the_guide(kv_type: str) -> None:
    if kv_type in GUIDE:
        assert f"{kv_type} {GUIDE[kv_type]:,}" in claims.sizes()["guide_types"]
    assert f"| {kv_type} |" in claims.sizes()["sizes"]


def test_the_page_is_what_the_script_makes() -> None:
    assert claims.PAGE.read_text() == claims.page(), "run python packaging/docs/make_kv_claims.py"


def test_what_was_measured_is_whole() -> None:
    """Every part, of one model, every type; nothing is missing on the page."""
    facts, real = (json.loads(path.read_text()) for path in (claims.RESULTS, claims.REAL))
    about = {"command", "model", "fingerprint", "text"}
    assert set(facts) == {*about, *measuring.PARTS}
    assert {facts[part]["fingerprint"] for part in ("types", "ablations", "policies")} == {facts["fingerprint"]}
    assert set(real) == {*about, *measuring.REAL_PARTS}
    parts = ("types", "ablations", "policies", "layers", "compressed")
    assert {real[part]["fingerprint"] for part in parts} == {real["fingerprint"]}
    for each in (facts, real):
        assert set(kv_table.TYPES) <= set(claims.by_mode(each["types"]))
    assert {row["mode"].split()[-1] for row in facts["budgets"]["report"]["rows"]} >= set(calibrate.METHODS)
    assert all(text.strip() for text in claims.sentences(facts, real).values())
    assert "nan" not in claims.measured(facts) + claims.measured_on_real(real)


def test_the_texts_are_long_enough() -> None:
    """For a whole measurement of a model of context 2048."""
    measured = measuring.Measured()
    with edge.load(ctx=64) as engine:
        for path in (measured.text, measuring.Measured("m.gguf").text):
            assert len(measuring.read(engine, path, measured.segments * 2048).tokens) == measured.segments * 2048
        with pytest.raises(UsageError, match="are wanted"):
            measuring.read(engine, measured.text, 1 << 20)


def test_a_model_has_its_own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured on another model stands next to that of the demo model, and a second part next to the first."""
    monkeypatch.setattr(measuring, "RESULTS", tmp_path)
    monkeypatch.setattr(measuring, "CONTEXT", 64)
    monkeypatch.setattr(measuring, "policy_modes", lambda engine: ["int8 window=16 sinks=1"])
    model = tmp_path / "other.gguf"
    model.write_bytes((measuring.ROOT / "edge" / "bundled" / "demo.gguf").read_bytes())
    measured = measuring.Measured(str(model), 1)
    measuring.measure(measured, ["oracle"])
    measuring.measure(measured, ["policies"])
    (path,) = tmp_path.glob("*.json")
    assert path.name == "kv_quality-other.json"
    facts = json.loads(path.read_text())
    assert facts["command"] == "python packaging/docs/make_kv_claims.py --measure -m other.gguf --segments 1"
    assert set(facts) == {"command", "model", "fingerprint", "text", "oracle", "policies"}
    assert facts["policies"]["text"] == "calibration.txt"


def test_going_back_behind_a_window() -> None:
    """Without a file all is read again, with one less than a page; the prediction is the same either way."""
    with edge.load(ctx=2048, kv="f32", overflow="stop", threads=1) as engine:
        facts = measuring.offload(engine, measuring.read(engine, measuring.DEMO_TEXT, 1536))
    without, file = facts["rows"]
    assert without["read_again"] == facts["back_to"] == 768 and without["written"] == 0
    assert 1 <= file["read_again"] <= 32 and file["written"] > 0
    assert without["same"] and file["same"]


def test_budgets_of_one_size() -> None:
    """At one compression every rule keeps as many bytes but for shares of pages, at a higher one fewer."""
    with edge.load(ctx=256, kv="f32", overflow="stop", threads=1) as engine:
        facts = measuring.compressed(engine, measuring.read(engine, measuring.DEMO_TEXT, 512))
        assert facts["heads"] == engine.config.n_layer * engine.config.n_kv_head
    size = {row["mode"]: row["kv_bytes"] for row in facts["rows"]}
    for times in measuring.COMPRESSIONS:
        sizes = [size[f"int8 {times}x {rule}"] for rule in measuring.RULES]
        assert max(sizes) <= 1.05 * min(sizes)
    assert size["int8"] > size["int8 2x uniform"] > size["int8 5x uniform"]


def test_the_flat_rule() -> None:
    """One hungry head in a layer decides for it: 2048 tokens, clamp(H / mean H, 0.3, 2.5) of a fifth."""
    facts = [heads.HeadFacts(layer, head, h, h, 0.0, 1.0, 1.0) for layer, head, h in
             ((0, 0, 1.0), (0, 1, 1.0), (1, 0, 0.0), (1, 1, 2.0))]
    engine = SimpleNamespace(plan=SimpleNamespace(n_ctx=2048), config=SimpleNamespace(n_kv_head=2))
    assert measuring.flat_rule(engine, facts, 0.2) == pytest.approx(2048 / ((409 + 819) / 2))
