"""Models with experts are used as the others: they chat, four at once, are saved, go back, and share beginnings."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import edge
from benchmarks import make_model

GREEDY = edge.Sampling(temperature=0.0)
QUESTIONS = ["hello there", "what is it?", "a b c d e f", "tell me more of that"]
SYSTEM = "You answer in one word. " * 8


@pytest.fixture(scope="module", params=["tiny-qwen3moe", "tiny-maple"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[edge.Engine]:
    path = tmp_path_factory.mktemp("m") / "m.gguf"
    make_model.make(path, request.param, "PQ2_0", "Q8_0")
    with edge.load(path, ctx=512, kv="f16", threads=2, parallel=4, system=SYSTEM, template="chatml") as engine:
        engine.share_prefixes("16M")
        yield engine


def asked(session: edge.Session, question: str) -> str:
    return session.ask(question, max_tokens=24, sampling=GREEDY).text


def test_four_at_once_answer_as_each_alone(engine: edge.Engine) -> None:
    alone = []
    for question in QUESTIONS:
        with engine.session() as session:
            alone.append((asked(session, question), asked(session, "and now?")))
    assert len(set(alone)) == 4
    together: dict[str, tuple[str, str]] = {}

    def talk(question: str) -> None:
        with engine.session() as session:
            together[question] = asked(session, question), asked(session, "and now?")

    threads = [threading.Thread(target=talk, args=(question,)) for question in QUESTIONS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [together[question] for question in QUESTIONS] == alone


def test_undo_save_and_shared_beginnings(engine: edge.Engine, tmp_path: Path) -> None:
    with engine.session() as other:
        asked(other, QUESTIONS[3])
    with engine.session() as session:
        first = asked(session, QUESTIONS[0])
        assert session.usage.cached > 40, "the system prompt was read by another session"
        second = asked(session, QUESTIONS[1])
        session.undo()
        assert asked(session, QUESTIONS[1]) == second
        session.undo()
        session.undo()
        assert asked(session, QUESTIONS[0]) == first
        session.save(tmp_path / "talk.bes")
    with engine.load_session(tmp_path / "talk.bes") as session:
        assert asked(session, QUESTIONS[1]) == second
        assert session.usage.cached > 40


def test_commands_open_such_files(engine: edge.Engine) -> None:
    from click.testing import CliRunner

    from edge.cli.group import cli

    for command in (["model", "show", engine.path], ["fit", engine.path], ["kv", "plan", engine.path],
                    ["run", "-m", engine.path, "-n", "5", "--temp", "0", "hello"],
                    ["bench", "-m", engine.path, "--depths", "64", "-n", "8", "--repeats", "1"]):  # fmt: skip
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, (command, done.output)
        if command[:2] == ["model", "show"]:
            assert "experts, of which a token uses" in done.output
        if command[0] == "bench":
            assert "MB/token" in done.output
