"""Models with experts are used as the others: they chat, four at once, are saved, go back, and share beginnings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import edge
from benchmarks import make_model
from edge.cli.group import cli
from tests.at_once import at_once

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
    def talk(question: str) -> tuple[str, str]:
        with engine.session() as session:
            return asked(session, question), asked(session, "and now?")

    alone = [talk(question) for question in QUESTIONS]
    assert len(set(alone)) == 4 and at_once(talk, QUESTIONS) == alone


def test_undo_save_and_shared_beginnings(engine: edge.Engine, tmp_path: Path) -> None:
    with engine.session() as other:
        asked(other, QUESTIONS[3])
    with engine.session() as session:
        first = asked(session, QUESTIONS[0])
        assert session.outcome.usage.cached > 40, "the system prompt was read by another session"
        second = asked(session, QUESTIONS[1])
        session.undo()
        assert asked(session, QUESTIONS[1]) == second
        session.undo()
        session.undo()
        assert asked(session, QUESTIONS[0]) == first
        session.save(tmp_path / "talk.bes")
    with engine.load_session(tmp_path / "talk.bes") as session:
        assert asked(session, QUESTIONS[1]) == second
        assert session.outcome.usage.cached > 40


@pytest.mark.parametrize(("shape", "head", "words"), [
    ("tiny-qwen3moe", "Q8_0", "experts, of which a token uses"),
    ("tiny-maple", "Q8_0", "experts, of which a token uses"),
    ("tiny-bonsai2", "PQ2_0", "3 of 4 layers have 6 states of 64 x 128 instead")])
def test_commands_open_files_of_such_and_hybrid_models(tmp_path: Path, shape: str, head: str, words: str) -> None:
    path = str(tmp_path / "m.gguf")
    make_model.make(path, shape, "PQ2_0", head)
    for command in (["model", path], ["fit", path],
                    ["run", "-m", path, "-n", "5", "--temp", "0", "hello"],
                    ["bench", "-m", path, "--depths", "64", "-n", "8", "--repeats", "1"]):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, (command, done.output)
        assert words in done.output or command[0] != "model"
        assert "a token reads" in done.output or command[0] != "bench"
