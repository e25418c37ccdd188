"""S1: twenty thousand tokens through a window of 512: memory and work per token stay flat, and so does perplexity."""

from __future__ import annotations

import array
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

import edge
from edge.cache import plan as plans
from edge.formats import open_checkpoint
from edge.machine.linux import rss
from edge.model.weights import build
from lab import evaluate
from pyx.kv import KVCache
from pyx.step import Segment
from pyx.tokens import log_likelihoods
from tests.oracles.attention import PAGE

WINDOW, SINKS, CHUNK = 508, 4, 100


@pytest.fixture(scope="module")
def tiny(tiny_model):
    """A model of random weights, and what it is built from."""
    checkpoint = open_checkpoint(tiny_model)
    return checkpoint.config, build(checkpoint)


def test_twenty_thousand_tokens(tiny):
    config, model = tiny
    plan = {"window": WINDOW, "sinks": SINKS, "spare": 1}
    cache = KVCache(*config.kv_shape, 512, "int8", **plan)
    logits = array.array("f", bytes(4 * config.n_vocab))
    rng = random.Random(1)
    text = [rng.randrange(config.n_vocab) for _ in range(20_000)]
    pages, memory = [], []
    for start in range(0, len(text), CHUNK):
        single = start % 1000 == 0  # mostly in chunks, to be quick; some one by one
        for at in range(start, start + CHUNK, 1 if single else CHUNK):
            model.step([Segment(cache, array.array("i", text[at : at + (1 if single else CHUNK)]), logits)])
        pages.append(max(len(cache.held(i, j)) for i in range(config.n_layer) for j in range(config.n_kv_head)))
        memory.append(rss()["anon"])
    assert all(abs(x) < 1e6 for x in logits)  # neither NaN nor infinite
    assert cache.n_tokens == 20_000 and cache.evicted == 20_000 + 1 - WINDOW - SINKS
    assert cache.pool.used <= cache.nbytes == cache.pool.nbytes
    assert memory[-1] - memory[20] <= 256 * 1024  # warm after 2000 tokens
    # what a token is compared with does not depend on how many there were
    assert max(pages) == max(pages[:10]) <= 512 // PAGE + 3


def test_perplexity_at_the_end_of_the_stream(bundled_model):
    """The last 1024 of 20,000 tokens, ten times what the model was trained on: not much worse than the same windows
    after a history of one or two windows only.  The sinks are further away than any token of a training text.
    """
    block = 128
    with edge.load(ctx=1024, threads=1) as engine:
        c, step, rng = engine.config, engine.model.transformer.step, random.Random(1)
        assert engine.tokenizer.bos_id is not None
        talks = [json.loads(line)["messages"] for line in evaluate.DIALOGUES.read_text().splitlines() if line.strip()]
        coded = [engine.template.encode(engine.tokenizer, talk, add_generation_prompt=False)[1:] for talk in talks]
        text = array.array("i", [engine.tokenizer.bos_id])
        while len(text) <= 20_000 + block:
            text.extend(rng.choice(coded))
        logits = array.array("f", bytes(4 * c.n_vocab * block))
        plan = {"window": WINDOW, "sinks": SINKS}
        starts = range(19_072, 19_072 + 1024, block)

        def loss(cache, at):
            step([Segment(cache, text[at : at + block], logits, all_logits=True)])
            return -sum(log_likelihoods(logits, text[at + 1 : at + block + 1], c.n_vocab)) / 1024

        def read(cache, ids):
            for at in range(0, len(ids), block):
                step([Segment(cache, ids[at : at + block])])

        def of(history):
            total = 0.0
            for at in starts:
                cache = KVCache(*c.kv_shape, 512, "int8", **plan)
                read(cache, text[:SINKS] + text[at - history : at])
                total += loss(cache, at)
            return total

        cache = KVCache(*c.kv_shape, 512, "int8", **plan)
        read(cache, text[: starts[0]])
        streamed = sum(loss(cache, at) for at in starts)
        assert cache.n_tokens == 20_096
    for windows in (1, 2):
        assert abs(math.expm1(streamed - of(windows * WINDOW))) < 0.1


# ---- what an endless answer keeps ------------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers count as endless after 1,024 tokens."""
    monkeypatch.setattr(plans, "ENDLESS", 1024)
    monkeypatch.setattr(plans.Plan, "recalled", property(lambda plan: 512))


LONG = {"max_tokens": 3000, "ignore_eos": True, "temperature": 1.0, "seed": 5}


def test_an_endless_answer_is_the_same_and_keeps_its_end(request: pytest.FixtureRequest) -> None:
    with edge.load(ctx=128, threads=1) as engine:
        whole = [piece.text for piece in engine.session("Be short.").ask("Tell me all.", **LONG)]
        request.getfixturevalue("soon")
        session = engine.session("Be short.")
        answer, said, most = session.ask("Tell me all.", **LONG), [], 0
        for piece in answer:
            said.append(piece.text)
            most = max(most, len(session.state.tokens))
        assert said == whole and answer.usage.completion == 3000
        assert most <= 1024 + 512 + 64 and session.state.n_tokens > 3000
        kept = session.messages[-1]["content"]
        assert kept.startswith("… ") and "".join(said).endswith(kept[2:]) and len(kept) < 1000
        with pytest.raises(edge.EdgeError, match="use its pieces as they come"):
            answer.text  # noqa: B018


def test_all_of_an_endless_answer_for_those_who_ask_at_once(soon: None) -> None:
    with edge.load(ctx=128, threads=1) as engine:
        session = engine.session()
        answer = session.ask("Tell me all.", **LONG)
        whole = "".join(piece.text for piece in engine.session().ask("Tell me all.", **LONG))
        assert answer.text == answer.text == whole
        assert session.messages[-1]["content"].startswith("… ")


def test_a_talk_goes_on_behind_an_endless_answer(soon: None, tmp_path: Path) -> None:
    """As a new session with the same messages would, and as one that was saved in between."""
    with edge.load(ctx=256, threads=1) as engine:
        session = engine.session("Be short.")
        for _ in session.ask("Tell me all.", **LONG):
            pass
        session.save(tmp_path / "talk.bes")
        messages = [*session.messages, {"role": "user", "content": "And then?"}]
        expected = engine.chat(messages, temperature=0, max_tokens=20).text
        assert session.ask("And then?", temperature=0, max_tokens=20).text == expected
        assert session.outcome.usage.cached == 0 and session.state.dropped == 0
        again = engine.load_session(tmp_path / "talk.bes")
        assert again.ask("And then?", temperature=0, max_tokens=20).text == expected
        session.undo()
        assert session.ask("And then?", temperature=0, max_tokens=20).text == expected


def test_penalties_over_all_tokens_keep_them(soon: None) -> None:
    with edge.load(ctx=128, threads=1) as engine:
        session = engine.session()
        for _ in session.ask("Tell me all.", **LONG, repeat_penalty=1.1, repeat_last_n=-1):
            pass
        assert session.state.dropped == 0 and len(session.state.tokens) > 3000


@pytest.mark.slow
def test_memory_does_not_grow_with_the_answer(root: Path) -> None:
    """From 10,000 tokens to 30,000."""
    code = (
        "import edge\n"
        "with edge.load(ctx=128, threads=1) as engine:\n"
        "    seen, n = [], 0\n"
        "    for piece in engine.session().ask('Go on.', max_tokens=30_000, ignore_eos=True, temperature=1, seed=1):\n"
        "        n += len(piece.ids)\n"
        "        if n >= 10_000 + 20_000 * len(seen):\n"
        "            seen.append(engine.rss()['anon'])\n"
        "    print(*seen)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    first, last = map(int, done.stdout.split())
    assert last - first < 320_000  # 8 bytes a token are ids and text, as many the allocator's
