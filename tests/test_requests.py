"""What a request may say to `bitnet-edge serve`, `batch`, the JSONL protocol and the library, and that it has effect."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

import edge
from edge.session.sampling import Sampling
from tests.http_service import BOUND, GREEDY, Server, serving
from tests.services import REAL, ROOT, environment

pytestmark = pytest.mark.usefixtures("bundled_model")

QUESTION = "Two teas and a scone, please."
WILD = {"temperature": 3.0, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 24, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One service for all tests that leave it as it was."""
    with serving("--parallel", "2", "--queue", "8", "--ctx", "512", "--name", "guide", "--seed", "3") as server:
        yield server


@pytest.fixture(scope="module")
def engine() -> Iterator[edge.Engine]:
    with edge.load(threads=1, ctx=512) as engine:
        yield engine


def user(text: str = QUESTION) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


# ---- seeds --------------------------------------------------------------------------------------------------------


def test_a_seed_of_minus_one_is_random(server: Server) -> None:
    """As in llama.cpp and Ollama, and with every other seed it is not; also on a server that was given one."""
    def openai(seed: Any) -> str:
        return server.chat(QUESTION, **WILD, seed=seed)["choices"][0]["message"]["content"]

    def ollama(seed: Any) -> str:
        options = {**{key: value for key, value in WILD.items() if key != "max_tokens"}, "num_predict": 24}
        body = {"messages": user(), "stream": False, "options": {**options, "seed": seed}}
        return server.ask("POST", "/api/chat", body)[2]["message"]["content"]

    for ask in (openai, ollama):
        for same in (7, 0, -2, 7.0, 4294967295, 1 << 63, None):
            assert ask(same) == ask(same), same
        assert len({ask(-1) for _ in range(4)}) == 4
        assert len({ask(-1.0) for _ in range(4)}) == 4
    several = server.chat(QUESTION, **WILD, n=3, seed=-2)["choices"]  # none of them becomes -1
    assert several == server.chat(QUESTION, **WILD, n=3, seed=-2)["choices"]


def test_random_after_a_seed_is_random(engine: edge.Engine) -> None:
    session, found = engine.session(), set()
    for _ in range(4):
        session.complete("Hello", **WILD, seed=5).text  # noqa: B018  runs it
        found.add(session.complete("Hello", **WILD).text)
    assert len(found) == 4
    assert Sampling(seed=-1).seed is None and Sampling(top_k=-1).top_k == 0
    assert len({engine.session().complete("Hello", **WILD, seed=-1).text for _ in range(4)}) == 4


def lines(*requests: dict[str, Any], options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The events of `chat --jsonl` for these requests."""
    done = subprocess.run([*REAL, "chat", "--jsonl", "--ctx", "512", *options], cwd=ROOT, env=environment(), text=True,
                          input="".join(json.dumps(each) + "\n" for each in requests), capture_output=True,
                          timeout=BOUND)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(each) for each in done.stdout.splitlines()]


def test_seeds_of_lines_and_of_the_command_line() -> None:
    asked = [{"op": "chat", "id": f"{seed} {i}", "messages": user(), **WILD, "by": "all", "seed": seed}
             for seed in (-1, 9, None) for i in range(3)]  # fmt: skip
    found = [each for each in lines(*asked, options=("--seed", "-1")) if each["ev"] == "text"]
    assert [len({each["text"] for each in found if each["id"].startswith(name)}) for name in ("-1", "9", "N")] == [3, 1, 3]
