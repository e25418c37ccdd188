"""Keys of requests (edge/serve/keys.py): every key that OpenAI and Ollama publish is honoured, refused, or named as
harmless in docs/serve.md.

``vectors/published_keys.json`` is what tests/vectors/make_published_keys.py reads from the official packages; where
they are installed (.venv-clients), their present keys are walked, too.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.serve import keys
from edge.serve.calls import Fields, Refusal
from edge.serve.keys import Keys
from edge.serve.protocols import ollama, openai, responses
from tests.services import ROOT

VECTORS = ROOT / "tests" / "vectors"
CLIENTS = ROOT / ".venv-clients" / "bin" / "python"
MESSAGES = [{"role": "user", "content": "Hi"}]

#: name in the packages -> the table, the function that reads it, a valid request, and where the keys are in it
ROUTES: dict[str, tuple[Keys, Callable[[Any], object], dict[str, Any], str]] = {
    "openai chat": (keys.CHAT, lambda body: openai.chat(body, {}), {"messages": MESSAGES}, ""),
    "openai completion": (keys.COMPLETION, lambda body: openai.completion(body, {}), {"prompt": "Hi"}, ""),
    "openai responses": (keys.RESPONSES, lambda body: responses.parse(body, {}), {"input": "Hi"}, ""),
    "openai embedding": (keys.EMBEDDING, lambda body: openai.embedding(body, 256), {"input": "Hi"}, ""),
    "ollama chat": (keys.OLLAMA_CHAT, lambda body: ollama.chat(body, {}), {"messages": MESSAGES}, ""),
    "ollama generate": (keys.OLLAMA_GENERATE, lambda body: ollama.generate(body, {}), {"prompt": "Hi"}, ""),
    "ollama embed": (keys.OLLAMA_EMBED, lambda body: ollama.embed(body, 256), {"input": "Hi"}, ""),
    "ollama embeddings": (keys.OLLAMA_EMBEDDINGS, ollama.embeddings_of_old, {"prompt": "Hi"}, ""),
    "ollama options": (keys.OLLAMA_OPTIONS, lambda body: ollama.chat(body, {}), {"messages": MESSAGES}, "options"),
}


def published() -> dict[str, list[str]]:
    """The keys of each kind of request: those of the file, and of the packages where they are installed."""
    found: dict[str, list[str]] = json.loads((VECTORS / "published_keys.json").read_text())["keys"]
    if CLIENTS.exists():
        done = subprocess.run([str(CLIENTS), str(VECTORS / "make_published_keys.py")], capture_output=True, text=True)
        if done.returncode == 0:
            found = {name: sorted({*found[name], *each}) for name, each in json.loads(done.stdout)["keys"].items()}
    return found


def asked(name: str, key: str, value: Any) -> None:
    """Read a request that is valid but for this key.  Raises Refusal."""
    _, read, body, where = ROUTES[name]
    read({**body, where: {key: value}} if where else {**body, key: value})


@pytest.mark.parametrize("name", ROUTES)
def test_every_published_key_has_its_place(name: str) -> None:
    table = ROUTES[name][0]
    groups = [table.honoured, frozenset(table.refused), table.harmless]
    assert sum(map(len, groups)) == len(frozenset().union(*groups)), "a key stands in two places"
    unknown = set(published()[name]) - frozenset().union(*groups)
    assert not unknown, f"{name}: neither honoured, refused nor harmless"


@pytest.mark.parametrize("name", ROUTES)
def test_honoured_keys_are_read(name: str) -> None:
    """A value of a wrong type is refused, and the message or the parameter names the key."""
    for key in ROUTES[name][0].honoured:
        told = []
        for value in ({"\ud800": [7]}, -7.5):
            try:
                asked(name, key, value)
            except Refusal as refused:
                assert refused.status == 400
                told.append(f"{refused.param} {refused}")
        assert told and all(key in each for each in told), (key, told)


@pytest.mark.parametrize("name", ROUTES)
def test_refused_keys_are_named_with_the_reason(name: str) -> None:
    for key, (why, idle) in ROUTES[name][0].refused.items():
        for value in (True, 7, "x", ["x"], {"x": 1}):
            if value in idle:
                continue
            with pytest.raises(Refusal) as refused:
                asked(name, key, value)
            assert refused.value.status == 400 and f"{key} is not supported: {why}" in str(refused.value)
            assert (refused.value.param or "").endswith(key)
        for value in (*idle, None):
            asked(name, key, value)


@pytest.mark.parametrize("name", ROUTES)
def test_harmless_keys_are_named_in_the_manual(name: str) -> None:
    manual = Path(ROOT, "docs", "serve.md").read_text()
    for key in ROUTES[name][0].harmless:
        assert f"`{key}`" in manual, key
        if key != "model":
            asked(name, key, 7)


def test_unknown_keys_are_ignored() -> None:
    for name in ROUTES:
        asked(name, "x_new_key", {"anything": 1})


def test_values_that_ask_for_nothing_are_of_their_type() -> None:
    with pytest.raises(Refusal, match="best_of is not supported"):
        keys.COMPLETION.check(Fields({"best_of": True}).body)
