"""Engine and sessions on the bundled model: what was promised with the fake one holds on the real one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import edge
from edge import loading as module
from edge.cache import kv_file
from edge.cache import state as context
from edge.errors import MemoryRefused
from edge.loading import STILL_TO_COME
from edge.sampling import Sampling
from tests.services import in_python

GREEDY = Sampling(temperature=0.0)
QUESTIONS = ["Hello, can I order a coffee?", "A large one, please.", "And how much is that?", "Thank you, goodbye!"]


def text(pieces) -> str:
    return "".join(piece.text for piece in pieces)


def ids(pieces) -> list[int]:
    return [i for piece in pieces for i in piece.ids]


def ask(session, question, **options) -> str:
    return text(session.ask(question, **{"sampling": GREEDY, "max_tokens": 24, **options}))


@pytest.fixture(scope="module", params=["int8 slide", "int8 stop", "f16 slide", "f16 stop"])
def engine(request, bundled_model):
    kv, overflow = request.param.split()
    with edge.load(ctx=256, kv=kv, overflow=overflow) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(bundled_model):
    with edge.load(ctx=512) as engine:
        yield engine


def test_a_conversation_is_the_same_with_and_without_its_cache(engine):
    session = engine.session(system="You are a waiter.")
    for question in QUESTIONS:
        before = [dict(m) for m in session.messages]
        fresh = engine.session()
        fresh.messages = list(before)
        assert ask(session, question) == ask(fresh, question)
        assert fresh.outcome.usage.cached == 0
        if before[1:]:
            assert session.outcome.usage.cached > 0
        assert session.messages == fresh.messages
        fresh.close()


@pytest.mark.parametrize("cut", [1, 2, 31, 32, 33, 63, 64, 65, 99])
def test_every_way_to_go_back(engine, cut):
    """A prompt that shares its first tokens with what is held, up to and across page boundaries."""
    words = engine.tokenizer.encode("the quick brown fox jumps over the lazy dog and " * 12)[:100]
    session = engine.session()
    ids(session.complete(words, sampling=GREEDY, max_tokens=20))
    again = [*words[:cut], *words[:5]]
    expected = ids(engine.session().complete(again, sampling=GREEDY, max_tokens=12, ignore_eos=True))
    assert ids(session.complete(again, sampling=GREEDY, max_tokens=12, ignore_eos=True)) == expected
    assert ids(session.complete(again, sampling=GREEDY, max_tokens=12, ignore_eos=True)) == expected


@pytest.mark.parametrize("first", [1, 7, 32, 64])
def test_chunks_of_any_size_are_the_same(plain, first, monkeypatch):
    words = plain.tokenizer.encode("a cup of tea and a slice of cake please " * 12)[:120]
    expected = ids(plain.session().complete(words, sampling=GREEDY, max_tokens=16, ignore_eos=True))
    monkeypatch.setattr(context, "FIRST_CHUNK", first)
    monkeypatch.setattr(context, "CHUNK_SECONDS", 0.0)  # all further chunks are the least
    monkeypatch.setattr(context, "LEAST_CHUNK", first)
    assert ids(plain.session().complete(words, sampling=GREEDY, max_tokens=16, ignore_eos=True)) == expected


def test_threads_and_instruction_sets_give_the_same_tokens():
    """In a process of its own: one process has one instruction set while an engine is open."""
    code = (
        "import edge\n"
        "from pyx import machine\n"
        "found = []\n"
        "for arguments in ({}, {'threads': 1}, {'threads': 3}, *({'isa': isa} for isa in machine.supported())):\n"
        "    with edge.load(ctx=512, **arguments) as engine:\n"
        "        answer = engine.session().complete('User: What is on the menu?', max_tokens=32, ignore_eos=True,\n"
        "                                           temperature=1.0, seed=11)\n"
        "        found.append([id for piece in answer for id in piece.ids])\n"
        "print(len(found), len(found[0]), all(each == found[0] for each in found))\n"
    )
    n, tokens, equal = in_python(code).split()
    assert int(n) >= 4 and int(tokens) == 32 and equal == "True"


def test_the_context_slides_for_ever(bundled_model):
    with edge.load(ctx=128) as engine:
        session = engine.session()
        for i in range(12):
            assert ask(session, QUESTIONS[i % 4], max_tokens=32) or session.outcome.finish_reason == "stop"
            assert session.outcome.finish_reason in ("stop", "length")
        assert session.state.n_tokens > 256 and session.state.evicted > 0 and session.context.left_out == 0
        # A ring that was filled turn by turn answers as one that reads all of it at once.
        seen = session.state.tokens
        more = [*seen, *engine.tokenizer.encode("\nUser: More!\nAssistant:")]
        expected = ids(engine.session().complete(more, sampling=GREEDY, max_tokens=16, ignore_eos=True))
        assert ids(session.complete(more, sampling=GREEDY, max_tokens=16, ignore_eos=True)) == expected
        assert session.outcome.usage.cached >= len(seen) - 1
        for _ in range(8):
            session.undo()
        assert ask(session, QUESTIONS[0]) is not None  # whatever is lost is read again


def test_a_context_that_ends_drops_nothing(bundled_model):
    with edge.load(ctx=128, overflow="stop") as engine, engine.session() as session:
        ids(session.ask("A large latte, please.", max_tokens=300, ignore_eos=True, sampling=GREEDY))
        assert session.outcome.finish_reason == "context_full" and session.state.n_tokens == 128
        assert session.state.evicted == session.context.evicted == 0


def test_the_system_prompt_stays_in_sight(bundled_model, tmp_path):
    """It is pinned, to the token; what it does not suit is as it was."""
    system = "You are a waiter in a small cafe by the sea, and you never talk about the weather."
    with edge.load(ctx=160, threads=1, system=system) as engine:
        session = engine.session(system)
        session.warm()
        n = engine.template.beginning(engine.tokenizer, system)
        assert engine.plan.sinks == n == session.state.n_tokens > 8 and engine.plan.window == 160 - n
        for i in range(12):
            ask(session, QUESTIONS[i % 4])
        assert session.state.evicted > 100
        # what is seen: exactly the system prompt and the window, as if the rest had never been
        kv = session.state.kv
        assert all(kv.held(layer, 0)[: (n + 31) // 32] == list(range((n + 31) // 32)) for layer in range(2))
        assert kv.sinks == n and kv.stats["attended"] == 160 - 1
        session.save(tmp_path / "talk.bes")
        assert kv_file.made_with(tmp_path / "talk.bes") == {"sinks": n, "ctx": 160, "kv": engine.plan.kv_type}
    for more in ({"ctx": 32}, {"overflow": "stop"}, {"sinks": 2}, {"kv_policy": "quarter"}, {"ctx": 64, "window": 60}):
        with edge.load(**{"ctx": 160, "threads": 1, "system": system, **more}) as engine:
            assert engine.plan.sinks == {"stop": 0}.get(more.get("overflow"), 0 if "kv_policy" in more else
                                                        more.get("sinks", 4))


def test_loading_within_limits(bundled_model):
    with edge.load(memory="2G", kv="f16") as engine:
        assert engine.plan.kv_type == "f16" and engine.plan.total_bytes <= 2e9
    with pytest.raises(MemoryRefused, match="the limit is"):
        edge.load(memory="1M")


def test_memory_that_is_not_there(bundled_model, monkeypatch):
    monkeypatch.setattr(module, "available_memory", lambda: 1_000_000)
    with pytest.raises(MemoryRefused, match="force_memory=True tries anyway"):
        edge.load()
    edge.load(force_memory=True).close()


ALONE = """
import json, sys
import edge
with edge.load() as engine:
    session = engine.session(system="Be brief.")
    greedy = edge.Sampling(temperature=0.0)
    answer = "".join(piece.text for piece in session.ask("Hello", sampling=greedy, max_tokens=8))
    heavy = sorted({m.split(".")[0] for m in sys.modules} & {"numpy", "click", "jinja2", "prompt_toolkit", "torch"})
    prompt = engine.tokenizer.encode("tea " * 600)[:600]
    for piece in session.complete(prompt, sampling=edge.Sampling(), max_tokens=700, ignore_eos=True):
        pass
    print(json.dumps({"heavy": heavy, "answer": answer, "memory": engine.memory(), "stats": session.stats_line()}))
"""


def test_the_process_holds_what_was_planned_and_imports_nothing_heavy(root, bundled_model):
    """Less than planned is no mistake while the system drops pages of the program's own files: then it is tried again.
    """
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", ALONE], cwd=root, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        said = json.loads(done.stdout)
        assert said["answer"] and said["heavy"] == []
        memory = said["memory"]
        slack = max(memory["planned"] * 0.02, 1 << 20)
        assert memory["rss"] - memory["planned"] <= slack, memory
        if memory["planned"] - memory["rss"] <= slack + STILL_TO_COME:  # of which one short answer needs little
            break
    else:
        pytest.fail(f"it never takes what was planned: {memory}")
