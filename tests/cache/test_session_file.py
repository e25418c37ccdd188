"""Sessions on disk: they go on as if never saved, survive every kill, and no wrong file gets in."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import zlib
from array import array
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge
from edge.cache import kv_file
from edge.errors import Busy, EdgeError, InvalidFile, UsageError
from edge.files import exclusive
from edge.formats import open_checkpoint
from edge.model.fingerprint import WHOLE, fingerprint
from edge.sampling import Sampling
from pyx.kv import KVCache
from pyx.step import attention
from tests.services import ROOT

HOT = Sampling(temperature=1.0, seed=5)
GREEDY = Sampling(temperature=0.0)


def ids(pieces) -> list[int]:
    return [i for piece in pieces for i in piece.ids]


@cache
def engine_of(kv: str = "int8", overflow: str = "slide", ctx: int = 128, threads: int = 1, **more):
    model = ROOT / "edge" / "bundled" / "demo.gguf"
    return edge.load(model, kv=kv, overflow=overflow, ctx=ctx, threads=threads, **more)


@pytest.fixture
def engine(bundled_model):
    return engine_of()


@pytest.fixture
def saved(engine, tmp_path) -> Path:
    """A session of two turns, saved."""
    session = engine.session(system="You are a waiter.")
    for question in ("Hello!", "A tea, please."):
        list(session.ask(question, sampling=HOT, max_tokens=20))
    session.save(tmp_path / "talk.bes")
    return tmp_path / "talk.bes"


# ---- pages -----------------------------------------------------------------------------------------------------------


def floats(rng: random.Random, n: int) -> array:
    return array("f", [(byte - 128) / 64 for byte in rng.randbytes(n)])


def step(kv: KVCache, rng: random.Random, n: int, threads: int, shape) -> bytes:
    layers, heads, dim = shape
    out = b""
    for layer in range(layers):
        q, k, v = floats(rng, n * heads * 2 * dim), floats(rng, n * heads * dim), floats(rng, n * heads * dim)
        out += bytes(attention(kv, layer, q, k, v, threads, layer == layers - 1))
    return out


@pytest.mark.parametrize(
    "window, n_tokens, most",
    [
        (0, -1, 0), (0, 513, 513), (0, 5, 4), (0, 0, 1), (0, 40, -1), (0, 40, 513), (64, 1 << 61, 1 << 61),
        (64, 1000, 0), (64, 1000, 1100),
    ],
)
def test_counters_that_cannot_be(window, n_tokens, most):
    kv = KVCache(1, 1, 8, 512, "int8", window, 4 if window else 0)
    with pytest.raises(ValueError, match="no cache of this plan"):
        kv.restore(n_tokens, most, lambda view: pytest.fail("nothing may be written"))


def test_a_failed_restore_leaves_an_empty_cache():
    kv = KVCache(1, 1, 8, 512, "f16")
    step(kv, random.Random(2), 40, 1, (1, 1, 8))
    with pytest.raises(OSError):
        kv.restore(40, 40, lambda view: open("/nonexistent"))
    assert kv.counters == (0, 0)


# ---- round trips -----------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    st.sampled_from(
        [("int8", "slide", 0), ("f16", "slide", 0), ("int8", "stop", 0), ("f16", "stop", 0), ("int8", "slide", 40),
         ("int4", "slide", 0), ("int8:int4", "slide", 40), ("int4c:fp8", "stop", 0), ("binary:fp8", "slide", 40)]
    ),
    st.integers(1, 100),
    st.integers(0, 150),
    st.integers(1, 40),
    st.sampled_from([1, 2, 3]),
)
def test_a_loaded_session_goes_on(tmp_path_factory, plan, prompt, answer, more, threads):
    """The same tokens, on another number of threads, mid-page and mid-ring."""
    kv, overflow, window = plan
    first = engine_of(kv, overflow, window=window)
    second = engine_of(kv, overflow, threads=threads, window=window)
    path = tmp_path_factory.getbasetemp() / "round.bes"
    words = first.tokenizer.encode("the quick brown fox jumps over the lazy dog and " * 12)[:prompt]
    session = first.session()
    said = ids(session.complete(words, sampling=HOT, max_tokens=answer, ignore_eos=True))
    session.save(path)
    loaded = second.load_session(path)
    kept = [(each.state.n_tokens, each.state.evicted) for each in (loaded, session)]
    assert kept[0] == kept[1]
    then = [*words, *said][:100] + words[:5]
    results = [
        (
            ids(each.complete(then, sampling=HOT, max_tokens=more, ignore_eos=True)),
            each.outcome.usage,
            list(each.state.logits),
        )
        for each in (session, loaded)
    ]
    assert results[0] == results[1]


def test_a_conversation_goes_on(engine, saved):
    """Messages and cached tokens; twice saved, and never spoken to."""
    twice = engine.load_session(saved)
    assert [m["role"] for m in twice.messages] == ["system", "user", "assistant", "user", "assistant"]
    first = [piece.text for piece in twice.ask("And a cake.", sampling=HOT, max_tokens=30)]
    assert twice.outcome.usage.cached > 20
    again = engine.load_session(saved)
    again.save(saved)
    again = engine.load_session(saved)
    assert [piece.text for piece in again.ask("And a cake.", sampling=HOT, max_tokens=30)] == first
    assert again.messages == twice.messages and again.outcome.usage == twice.outcome.usage


def test_a_session_that_was_never_used(engine, tmp_path):
    fresh = engine.session(system="Grüße, \u2744!")
    fresh.save(tmp_path / "new.bes")
    loaded = engine.load_session(tmp_path / "new.bes")
    assert loaded.messages == fresh.messages and loaded.state.n_tokens == 0
    assert ids(loaded.ask("Hello", sampling=HOT, max_tokens=9)) == ids(fresh.ask("Hello", sampling=HOT, max_tokens=9))


# ---- wrong files -----------------------------------------------------------------------------------------------------


def refused(engine, path, match=".") -> None:
    with pytest.raises(InvalidFile, match=match) as caught:
        engine.load_session(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_damage_anywhere(engine, saved, tmp_path):
    good = saved.read_bytes()
    rng = random.Random(4)
    bad = tmp_path / "bad.bes"
    for at in [*range(24), *(rng.randrange(len(good)) for _ in range(60)), *range(len(good) - 5, len(good))]:
        data = bytearray(good)
        data[at] ^= 1 << rng.randrange(8)
        bad.write_bytes(data)
        refused(engine, bad)


def test_cut_off_or_too_long(engine, saved, tmp_path):
    good = saved.read_bytes()
    bad = tmp_path / "bad.bes"
    for n in [0, 1, 8, 15, 16, 19, 20, 21, 200, len(good) // 2, len(good) - 5, len(good) - 1]:
        bad.write_bytes(good[:n])
        refused(engine, bad)
    bad.write_bytes(good + b"\0")
    refused(engine, bad, "bytes and should have")
    bad.write_bytes(b"dear diary, " * 50)
    refused(engine, bad, "not a session file")


def forge(good: bytes, **changes) -> bytes:
    """Other values in the header, all checksums right; a string replaces the header itself."""
    magic, version, length = struct.unpack("<8sII", good[:16])
    header, rest = good[20 : 20 + length], good[20 + length : -4]
    text = changes.pop("text", None)
    version = changes.pop("version", version)
    header = text if text is not None else json.dumps({**json.loads(header), **changes}).encode()
    start = struct.pack("<8sII", magic, version, len(header))
    whole = start + struct.pack("<I", zlib.crc32(start + header)) + header + rest
    return whole + struct.pack("<I", zlib.crc32(whole))


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"version": 1}, "version 1"),
        ({"model": "0" * 64, "name": "evil\x1b[2J\nname"}, "another model .evil"),
        ({"kv": []}, "kv"),
        ({"n_tokens": 1 << 59}, "tokens"),
        ({"n_tokens": 1 << 61}, "n_tokens"),
        ({"n_tokens": True}, "n_tokens"),
        ({"n_tokens": 3}, "damaged"),
        ({"n_tokens": 0}, "damaged"),
        ({"most": 1 << 40}, "no cache of this plan"),
        ({"most": -1}, "most"),
        ({"lost": [-1]}, "lost"),
        ({"lost": [1 << 30]}, "vocabulary"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "root", "content": ""}]}, "messages"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
        ({"text": b"[" * 100_000}, "JSON"),
        ({"text": b"\xff"}, "JSON"),
        ({"text": b"[]"}, "header"),
        ({"text": b"9" * 10_000}, "JSON"),
    ],
)
def test_forged_headers(engine, saved, changes, match):
    saved.write_bytes(forge(saved.read_bytes(), **changes))
    refused(engine, saved, match)


def test_forged_tokens(engine, saved):
    data = bytearray(saved.read_bytes())
    at = 20 + struct.unpack_from("<I", data, 12)[0]
    struct.pack_into("<i", data, at, engine.config.n_vocab)
    struct.pack_into("<I", data, len(data) - 4, zlib.crc32(data[:-4]))
    saved.write_bytes(data)
    refused(engine, saved, "vocabulary")


def test_another_model(engine, saved, tiny_model):
    with edge.load(tiny_model, ctx=128) as other:
        refused(other, saved, "another model")


@pytest.mark.parametrize("plan", [
    {"ctx": 160}, {"ctx": 64}, {"overflow": "stop"}, {"window": 32}, {"window": 32, "kv": "f16"}, {"sinks": 9},
    {"kv_policy": "quarter"},
], ids=str)
def test_another_kv_cache_reads_the_text_again(saved, caplog, plan):
    """The next answers are those of a session that began with this cache and said the same; and so when saved again."""
    other = engine_of(**plan)
    again, fresh = other.load_session(saved), other.session()
    said = [record.message for record in caplog.records]
    made = "128 tokens, int8" if plan.keys() & {"ctx", "kv"} else "other settings"
    assert said == [f"session file {saved}: made for another KV cache ({made}); its text is read again"]
    assert again.state.n_tokens == 0 and len(again.messages) == 5
    fresh.messages = [dict(each) for each in again.messages]
    again.save(saved)
    resaved = other.load_session(saved)
    assert len(caplog.records) == 1
    for question in ("And a cake.", "How much is that?"):
        found = [[(piece.text, *piece.ids) for piece in each.ask(question, sampling=HOT, max_tokens=20)]
                 for each in (fresh, again, resaved)]
        assert found[0] == found[1] == found[2]
        assert fresh.state.logits == again.state.logits == resaved.state.logits
    assert again.messages == fresh.messages


def test_what_was_left_out_counts_again_in_a_longer_context(tmp_path):
    """With what a full context had dropped, as if it had never been full."""
    with edge.load(ctx=64, overflow="slide", threads=1) as small:
        session = small.session()
        for question in ("Hello!", "A tea, please.", "And a cake.", "How much is that?"):
            list(session.ask(question, sampling=HOT, max_tokens=16))
        session.save(tmp_path / "talk.bes")
    again = engine_of().load_session(tmp_path / "talk.bes", list)
    fresh = engine_of().session()
    fresh.messages = [dict(each) for each in again.messages]
    assert len(again.messages) == 8
    found = [each.ask("Thanks!", sampling=HOT, max_tokens=8).text for each in (again, fresh)]
    assert found[0] == found[1] and again.outcome.usage == fresh.outcome.usage


@pytest.mark.parametrize("kv", [
    {}, {"budgets": 5, "sinks": [], "window": "9", "n_ctx": {}, "policy": []}, {"n_ctx": "\x1b[2J\n" * 99},
])
def test_a_forged_kv_cache_is_read_again(engine, saved, caplog, kv):
    saved.write_bytes(forge(saved.read_bytes(), kv=kv))
    session = engine.load_session(saved)
    assert session.state.n_tokens == 0 and len(session.messages) == 5
    assert caplog.records[0].message.isprintable() and len(caplog.records[0].message) < 300
    data = bytearray(saved.read_bytes())
    data[-9] ^= 1
    saved.write_bytes(data)
    refused(engine, saved, "damaged")


def test_fingerprint(bundled_model):
    """Of the same file always the same; another where a convention, a small tensor or a sampled byte differs."""
    found = open_checkpoint(str(bundled_model))
    print_ = fingerprint(found.config, found)
    assert print_ == fingerprint(*(lambda again: (again.config, again))(open_checkpoint(str(bundled_model))))
    assert print_ == fingerprint(dataclasses.replace(found.config, name="other"), found)
    last = found.config.layers[-1]
    other = dataclasses.replace(last, mixer=dataclasses.replace(last.mixer, window=1234))
    assert print_ != fingerprint(dataclasses.replace(found.config, layers=found.config.layers[:-1] + (other,)), found)
    for large in (False, True):
        name = next(n for n, t in found.tensors.items() if (t.data.nbytes > WHOLE) == large)
        tensor = found.tensors[name]
        data = bytearray(tensor.data)
        data[-1] ^= 1
        found.tensors[name] = tensor._replace(data=memoryview(data))
        assert fingerprint(found.config, found) != print_
        found.tensors[name] = tensor
    assert fingerprint(found.config, found) == print_


def test_what_cannot_be_read(engine, tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        engine.load_session(tmp_path / "none.bes")
    with pytest.raises(UsageError, match="Is a directory"):
        engine.load_session(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    refused(engine, tmp_path / "pipe", "not a file")


# ---- saving ----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import edge
moment, path = sys.argv[1:]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
with edge.load(ctx=128, threads=1) as engine:
    session = engine.load_session(path)
    list(session.ask("A coffee.", max_tokens=5))
    if moment == "write":
        kv = session.state.kv
        class Dying:
            counters, states = kv.counters, kv.states
            n_tokens = kv.n_tokens
            def dump(self):
                yield from kv.dump()[:3]
                die()
        session.state.kv = Dying()
    elif moment != "end":
        setattr(os, moment, die)
    session.save(path)
    die()
"""


@pytest.mark.parametrize("moment", ["write", "fsync", "replace", "end"])
def test_a_kill_leaves_the_old_file_or_the_new(engine, saved, moment):
    before = saved.read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, moment, str(saved)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (saved.read_bytes() == before) == (moment != "end")
    session = engine.load_session(saved)
    assert len(session.messages) == (7 if moment == "end" else 5)
    session.save(saved)  # what the killed process left is no obstacle, and is gone
    assert os.listdir(saved.parent) == [saved.name]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(engine, saved, monkeypatch, call):
    before = saved.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    session = engine.load_session(saved)
    monkeypatch.setattr(os, call, full)
    with pytest.raises(EdgeError, match="No space left") as caught:
        session.save(saved)
    assert caught.value.exit_code == 1
    assert saved.read_bytes() == before and os.listdir(saved.parent) == [saved.name]


def test_two_savers_and_a_reader(engine, saved):
    fd = exclusive(str(saved.parent / ".talk.bes.tmp"))
    try:
        with pytest.raises(Busy, match=r"thread is writing .*/talk\.bes$"):
            engine.load_session(saved).save(saved)
    finally:
        os.close(fd)
    engine.load_session(saved).save(saved)


def test_where_it_is_saved(engine, saved, tmp_path):
    """Private if new, the mode of the old file otherwise; through a link; never over another file."""
    session = engine.load_session(saved)
    assert saved.stat().st_mode & 0o777 == 0o600
    saved.chmod(0o640)
    (tmp_path / "link").symlink_to(saved)
    session.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and saved.stat().st_mode & 0o777 == 0o640
    (tmp_path / "notes.txt").write_text("mine")
    for wrong in (tmp_path / "notes.txt", tmp_path, tmp_path / "none" / "x.bes", Path("/dev/null")):
        with pytest.raises(UsageError):
            session.save(wrong)
    assert (tmp_path / "notes.txt").read_text() == "mine"


CALLS = [
    {"role": "user", "content": "Is it warm?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "warm", "arguments": "{\"where\": \"here\"}"}}]},
    {"role": "tool", "content": "yes"},
]


def test_a_session_with_calls_of_functions_goes_on(engine, tmp_path):
    """Saved in the middle of a conversation with calls: the same answer as if it had never been saved."""
    path = tmp_path / "calls.bes"
    session = engine.session(system="")
    first = session.chat(CALLS, max_tokens=5, sampling=GREEDY).text
    session.save(path)
    other = engine.load_session(path)
    assert other.messages == session.messages == [*CALLS, {"role": "assistant", "content": first}]
    assert other.ask("And now?", max_tokens=8, sampling=GREEDY).text == session.ask(
        "And now?", max_tokens=8, sampling=GREEDY).text
    assert other.outcome.usage.cached == session.outcome.usage.cached > 0


def test_nothing_is_asked_of_a_session_while_another_thread_saves_it(engine, tmp_path, monkeypatch):
    """Otherwise the file could have tokens and pages of two moments."""
    session, begun, done = engine.session(system=""), threading.Event(), threading.Event()
    list(session.ask("Hello", max_tokens=4, sampling=GREEDY))
    write = kv_file.write

    def slow(*args):
        begun.set()
        assert done.wait(60)
        write(*args)

    monkeypatch.setattr(kv_file, "write", slow)
    saving = threading.Thread(target=session.save, args=(tmp_path / "talk.bes",))
    saving.start()
    assert begun.wait(60)
    try:
        for call in (lambda: session.ask("A tea, please.").text, session.warm, session.undo, session.clear,
                     lambda: session.save(tmp_path / "other.bes")):
            with pytest.raises(UsageError, match="being saved"):
                call()
    finally:
        done.set()
        saving.join()
    assert session.ask("A tea, please.", max_tokens=4, sampling=GREEDY).text
    assert len(engine.load_session(tmp_path / "talk.bes").messages) == 2


def test_what_cannot_be_saved(engine, saved):
    session = engine.load_session(saved)
    session.messages.append({"role": "wizard", "content": "x"})
    with pytest.raises(UsageError, match="messages"):
        session.save(saved)
    del session.messages[-1]
    answer = session.ask("Hello", max_tokens=9, sampling=GREEDY)
    next(answer)
    with pytest.raises(UsageError, match="still answering"):
        session.save(saved)
    answer.close()
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.save(saved)


def test_loading_stays_within_the_memory_limit(bundled_model, tmp_path):
    """An idle session gives way to one that is read from a file, as to one that reads its prompt."""
    with engine_of.__wrapped__("f32", ctx=4096) as engine:
        limit = engine.plan.total_bytes - engine.plan.kv_bytes // 2
    with engine_of.__wrapped__("f32", ctx=4096, memory=limit) as engine:  # room for less than two
        def held() -> bool:
            return engine.space.pool.used <= engine.space.pool.limit

        first, long = engine.session("Be brief."), "word " * 3900
        expected = first.ask(long, sampling=GREEDY, max_tokens=8).text
        first.save(tmp_path / "first.bes")
        second = engine.load_session(tmp_path / "first.bes")
        assert held() and second.state is not None and len(second.state.tokens) > 3000
        first.ask(long, sampling=GREEDY, max_tokens=2).text  # noqa: B018
        second.ask(long, sampling=GREEDY, max_tokens=2).text  # noqa: B018
        assert held()
        assert second.messages[2]["content"] == expected
