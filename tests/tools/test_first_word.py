"""bench --first-word: which tokens are read in which case.  Counts, never times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import edge
from edge.cli.group import cli
from edge.tools import first_word


def test_the_question_has_as_many_words_as_is_said() -> None:
    assert len(first_word.QUESTION.split()) == len(first_word.NEXT.split()) == first_word.WORDS


def test_what_is_read_in_each_case(bundled_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITNET_EDGE_CACHE", str(tmp_path))
    report = first_word.run(str(bundled_model), 256, threads=1)
    rows = {row.case: row for row in report.rows}
    assert list(rows) == list(first_word.CASES)
    assert rows["cold"].read == rows["cold"].prompt > 256
    question = rows["cold"].prompt - report.header["system_tokens"]
    assert 40 <= rows["second process"].read <= question
    assert 40 <= rows["same process"].read <= question + 8
    assert 1 <= rows["typed"].read <= 8  # the last word, and what the template puts behind it
    assert report.header["starves"] == (report.header["words_per_minute"] < first_word.SPOKEN)
    assert not (tmp_path / "beginnings").exists()  # those of the user are left alone


def test_a_word_gets_no_more_than_its_time(bundled_model: Path) -> None:
    with edge.load(bundled_model, ctx=512, threads=1) as engine:
        session = engine.session(first_word.system_prompt(engine, 128)[0])
        first_word.typed(session, first_word.QUESTION, words_per_minute=1e12)  # no time at all: nothing was read
        assert session.n_tokens == 0
        first_word.typed(session, first_word.QUESTION)
        assert session.n_tokens > 128


def test_the_command(bundled_model: Path) -> None:
    words = ["bench", "-m", str(bundled_model), "--first-word", "128", "-r", "1", "-t", "1"]
    done = CliRunner().invoke(cli, [*words, "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert [row["case"] for row in facts["rows"]] == list(first_word.CASES) and facts["threads"] == 1
    shown = first_word.Report({key: value for key, value in facts.items() if key != "rows"},
                              [first_word.Row(**row) for row in facts["rows"]]).to_markdown()
    assert all(f"| {case}" in shown for case in first_word.CASES) and "words a minute" in shown
    for wrong in (["--csv"], ["--share", "-"], ["--kv", "int8,f16"], ["--parallel", "1,2"]):
        done = CliRunner().invoke(cli, [*words, *wrong])
        assert done.exit_code == 2 and "--first-word measures one setting" in done.output, done.output
    assert CliRunner().invoke(cli, ["bench", "--first-word", "8"]).exit_code == 2


def test_the_number_can_be_left_out(monkeypatch: pytest.MonkeyPatch, bundled_model: Path) -> None:
    asked: list[int] = []

    def run(model: str, n: int, *_: object, **__: object) -> first_word.Report:
        asked.append(n)
        return first_word.Report({}, [])

    monkeypatch.setattr(first_word, "run", run)
    for words in (["--first-word", "--json", "-m", str(bundled_model)],
                  ["--json", "-m", str(bundled_model), "--first-word"]):
        assert CliRunner().invoke(cli, ["bench", *words]).exit_code == 0
    assert asked == [1000, 1000]
