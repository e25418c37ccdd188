"""benchmarks/against_peers.py with a made-up llama-bench; benchmarks/first_token.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

import pytest

import edge
from benchmarks import against_peers, first_token
from benchmarks.against_peers import Series
from edge.registry.library import demo

#: a llama-bench that claims the speeds it is told
FAKE = '''
import json, sys

arguments = sys.argv[1:]
if "--help" in arguments:
    print("  -d, --n-depth <n>")
    sys.exit(0)
if "broken" in arguments:
    print("first line", "out of luck", sep=chr(10), file=sys.stderr)
    sys.exit(3)
value = dict(zip(arguments, arguments[1:]))
speeds = [float(value["-m"]) + i for i in range(int(value["-r"]))]
common = {"samples_ts": speeds, "model_type": "fake", "build_commit": "abc"}
rows = [{**common, "n_prompt": int(n), "n_gen": 0} for n in value["-p"].split(",") if n != "0"]
if value["-n"] != "0":
    rows.append({**common, "n_prompt": 0, "n_gen": int(value["-n"])})
print(json.dumps(rows, indent=1).replace("[", "[" + chr(10) + "impl: a remark", 1))
'''


def test_medians_and_ratios() -> None:
    def of(engine: str, *speeds: float) -> Series:
        return Series(engine, "tg32", 2, "f16", list(speeds), 5 * 10**6, [2e9])

    table = against_peers.markdown([of("a", 10, 30, 20), of("mine", 30, 31, 90), of("b", 62)], ["mine"])
    lines = table.splitlines()
    assert lines[0] == "**tg32, 2 threads, KV f16**"
    assert lines[2] == "| engine | t/s | slowest - fastest | samples | memory GB/s | RSS MB | mine / it |"
    assert lines[4:] == [
        "| b | 62.00 | 62.00 - 62.00 | 1 | 2 | 5 | 0.50 |",
        "| mine | 31.00 | 30.00 - 90.00 | 3 | 2 | 5 | 1.00 |",
        "| a | 20.00 | 10.00 - 30.00 | 3 | 2 | 5 | 1.55 |",
    ]


def test_rounds_in_turns_and_samples_kept(
    tiny_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours and a peer, really run; a second run adds to the file."""
    rates: list[float] = []

    def rate(threads: int) -> float:
        rates.append(1e9 * (threads + len(rates)))
        return rates[-1]

    monkeypatch.setattr(against_peers, "memory_rate", rate)  # which has a test of its own
    kept = tmp_path / "kept.json"
    command = ["--ours", f"ours=-m {tiny_model} --set weights=map", "--threads", "1", "--rounds", "2", "--repeats", "1"]
    command += ["--prompt", "16", "--gen", "3", "--depth", "0,20", "--json", str(kept)]
    (tmp_path / "llama-bench.py").write_text(FAKE)
    program = f"{sys.executable} {tmp_path}/llama-bench.py"
    assert against_peers.main([*command, "--peer", f"fast={program} -m 1e9", "--peer", f"slow={program} -m 0.001"]) == 0
    shown = capsys.readouterr()
    turns = [(1, "ours"), (1, "fast"), (1, "slow"), (2, "ours"), (2, "fast"), (2, "slow")]
    assert shown.err.splitlines() == [f"round {turn}, threads 1, KV f16: {name}" for turn, name in turns]
    content = json.loads(kept.read_text())
    tests = {"pp16", "tg3", "tg3 @20"}
    assert {(s["engine"], s["test"]) for s in content["series"]} == {
        (name, test) for name in ("ours", "fast", "slow") for test in tests
    }
    assert all(len(s["speeds"]) == 2 for s in content["series"]) and len(content["series"]) == 3 * 3
    names = ["ours", "fast", "slow"]
    assert len(rates) == 6 and all(s["memory"] == rates[names.index(s["engine"])::3] for s in content["series"])
    tables = shown.out.split("\n\n**")
    assert len(tables) == 3
    for table in tables:
        names = [line.split(" | ")[0].strip("| ") for line in table.splitlines() if line.startswith("| ")]
        assert names == ["engine", "fast", "ours", "slow"]
    assert "* ours: bitnet-edge" in shown.out

    assert against_peers.main([*command, "--rounds", "1", "--peer", f"slow={program} -m 0.001 broken"]) == 1
    again = json.loads(kept.read_text())["series"]
    assert [len(s["speeds"]) for s in again] == [3 if s["engine"] == "ours" else 2 for s in again]
    assert "* failed: slow, threads 1, KV f16: exit 3" in capsys.readouterr().out


# ---- the time to the first token -------------------------------------------------------------------------------------


def test_a_round_on_the_bundled_model():
    (row,) = first_token.measure(demo(), threads=[1], n=8, rounds=1)
    assert row["tokens"] == 8
    assert all(row[name][0] > 0 for name in ("start", "first_token", "prompt"))
    assert row["ratio"] == median(row["first_token"]) / median(row["prompt"])


def test_the_prompt_has_as_many_tokens_as_asked_for():
    with edge.load(demo(), ctx=64) as engine:
        for n in (2, 8, 33):
            assert len(engine.model.encode_raw(first_token.prompt_of(engine, n))) == n
