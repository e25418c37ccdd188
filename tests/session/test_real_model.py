"""Models of other people, as bitnet-edge pull stores them: SmolLM2-135M answers as a person expects, and with the same
tokens everywhere; Qwen2.5-Coder-0.5B fills a form with what a text says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edge
from edge.cache import state
from pyx import machine
from tests.at_once import at_once
from tests.http_service import serving
from tests.services import ROOT, bitnet_edge
from tests.vectors import make_golden
from tests.vectors.make_golden import REAL, answers

pytestmark = pytest.mark.real_model
CAPITAL = "What is the capital of France?"


def test_run_knows_the_capital_of_france(real_model: Path) -> None:
    done = bitnet_edge("run", "-m", real_model, "--temperature", "0", "-n", "24", CAPITAL)
    assert done.returncode == 0 and "Paris" in done.stdout, done


def test_chat_over_http_does_so_too(real_model: Path) -> None:
    with serving("-m", str(real_model), "--ctx", "512") as server:
        body = server.chat(CAPITAL, max_tokens=24)
        assert "Paris" in body["choices"][0]["message"]["content"], body
        talk = [{"role": "user", "content": CAPITAL}, body["choices"][0]["message"],
                {"role": "user", "content": "In which country is it?"}]
        assert "France" in server.chat(talk, max_tokens=32)["choices"][0]["message"]["content"]


def test_the_conversation_in_readme(real_model: Path) -> None:
    """One chat; its last answer may be cut after a sentence."""
    shown = next(block for block in re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
                 if block.startswith("> "))
    talks = [talk.split("\n", 1) for talk in shown.removeprefix("> ").split("\n> ")]
    assert len(talks) == 3
    assert f"| 93 MB | {real_model.stat().st_size / 1e6:.0f} MB |" in (ROOT / "README.md").read_text()
    shown = json.loads(bitnet_edge("model", real_model, "--json").stdout)["types"]
    assert sum(entry["values"] for entry in shown.values()) == 134_515_008  # as the model's page says
    assert shown["TP32_R64"]["stored"] == 3 * shown["TP32_R64"]["values"]
    with edge.load(real_model, ctx=512) as engine, engine.session() as session:
        for question, answer in talks:
            answer = " ".join(answer.split())
            text = session.ask(question, temperature=0, max_tokens=60).text
            assert " ".join(text.split()).startswith(answer) and answer.endswith("."), (question, text)


MEMBERS = {  # what each text says: name, age, day, has paid
    "Anna Berg, 34, joined on 2 March 2024 and has paid.": ("Anna Berg", 34, "2024-03-02", True),
    "Our new member is Tom Hill. He is 51 years old, joined on 2023-11-19 and has not paid yet.":
        ("Tom Hill", 51, "2023-11-19", False),
    "Maria Lopez (27) signed up on July 4, 2025. Her fee is paid.": ("Maria Lopez", 27, "2025-07-04", True),
    "On 15 January 2022 Peter Novak, aged 68, joined. He still owes the fee.": ("Peter Novak", 68, "2022-01-15", False),
    "Joined: Lena Fischer, 19 years, 2024-08-30, fee received.": ("Lena Fischer", 19, "2024-08-30", True),
}


def test_a_form_is_filled_with_what_the_text_says(coder_model: Path) -> None:
    keys = {"name": {"type": "string"}, "age": {"type": "integer"}, "date": {"type": "string", "format": "date"},
            "paid": {"type": "boolean"}}
    schema = {"type": "object", "properties": keys, "required": list(keys)}
    exactly: dict[str, Any] = {"temperature": 0, "repeat_penalty": 1}  # with 1.1, as its maker advises, a day is wrong
    with edge.load(coder_model, ctx=512, constrained=True) as engine, engine.session() as session:
        for said, meant in MEMBERS.items():
            session.clear()
            answer = session.ask(f'Write as JSON, the date as YYYY-MM-DD: "{said}"', schema=schema, **exactly)
            assert answer.value == dict(zip(keys, meant)), said


# ---- golden conversations --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden(real_model: Path) -> list[list[list[int]]]:
    """The ids that were written down, for this very file."""
    record = json.loads(make_golden.REAL_FILE.read_text(encoding="utf-8"))
    assert record["model_sha256"] == make_golden.sha256(real_model), (
        "the conversion has changed: run python -m tests.vectors.make_golden real")
    assert [[turn["user"] for turn in talk] for talk in record["conversations"]] == [said for _, said in REAL]
    assert any("Paris" in turn["assistant"] for turn in record["conversations"][0])
    return [[turn["ids"] for turn in talk] for talk in record["conversations"]]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("isa", machine.supported())
def test_every_instruction_set_answers_so(
    no_open_engine: None, real_model: Path, golden: Any, isa: str, threads: int
) -> None:
    chosen = range(10) if isa != "scalar" else [4 * (threads - 1)]  # its answers take minutes
    with edge.load(real_model, ctx=1024, isa=isa, threads=threads) as engine:
        for i, given in zip(chosen, answers(engine, [REAL[i] for i in chosen]), strict=True):
            assert given == golden[i], REAL[i]


@pytest.fixture(scope="module")
def engine(real_model: Path) -> Iterator[edge.Engine]:
    with edge.load(real_model, ctx=1024, threads=2, parallel=4) as engine:
        yield engine


@pytest.mark.parametrize("first", [1, 7, 64])
def test_chunks_of_any_size(
    engine: edge.Engine, golden: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FIRST_CHUNK", first)
    monkeypatch.setattr(state, "CHUNK_SECONDS", 0.0)  # all further chunks are the least
    monkeypatch.setattr(state, "LEAST_CHUNK", first)
    assert list(answers(engine, REAL[:4])) == golden[:4]


def test_four_at_a_time(engine: edge.Engine, golden: Any) -> None:
    found = at_once(lambda first: list(answers(engine, REAL[first::4])), range(4))
    assert [found[i % 4][i // 4] for i in range(10)] == golden
