"""Pages that leave a window and come back: bit for bit as if they had never left, and a file nobody has to tidy up."""

from __future__ import annotations

import gc
import os
import resource
import sys

import pytest

import edge
from edge.errors import UsageError
from edge.options import Options
from edge.sampling import Sampling
from pyx.kv import KVCache, PagePool
from tests.streams import Stream, restored

SHAPE, LENGTH = (2, 2, 8), 900
STREAM, OTHER = (Stream(LENGTH, 4, 2, 8, seed=seed, n_layer=2) for seed in (21, 22))
PLANS = {
    "window": {"window": 100, "sinks": 4},
    "spare": {"window": 64, "sinks": 33, "spare": 2},
    "no sinks": {"window": 70},
    "budgets": {"sinks": 4, "budgets": [[20, 130], [1, 64]]},
    "quarter": {"window": 128, "policy": "quarter"},
}
ROOM = 1 << 20


def make(folder, kv_type="int8", plan="window", nbytes=ROOM, **more):
    return KVCache(*SHAPE, LENGTH, kv_type, spill=folder and (str(folder), nbytes), **PLANS[plan], **more)


def page_bytes(cache):
    """Bytes of one page of every head."""
    return 4 * len(cache.page(0, 1, cache.held(0, 1)[1])[0])


@pytest.mark.parametrize("kv_type", ["f32", "f16", "int8", "int8:int4", "int4c:int4"])
@pytest.mark.parametrize("plan", PLANS)
def test_back_as_if_never_gone_further(tmp_path, plan, kv_type):
    cache = make(tmp_path, kv_type, plan)
    STREAM.run(cache, [500, 1, 1, 211])
    for wanted in (650, 400, 397, 130, 40):
        kept = cache.crop(wanted)
        assert wanted - 31 <= kept <= wanted
        fresh = make(None, kv_type, plan)
        STREAM.run(fresh, [kept])
        copy = restored(make(None, kv_type, plan), cache)
        for each in (cache, copy):  # another text from here on, long enough to push pages out again
            assert OTHER.run(each, [160, 3]).tobytes() == OTHER.run(fresh.fork(), [160, 3]).tobytes()
        assert cache.crop(kept) >= kept - 31  # and back once more, for the next round
    assert cache.spill.error is None and cache.spill.read > 0


def test_the_file_is_bounded(tmp_path):
    probe = make(tmp_path)
    STREAM.run(probe, [140])
    cache = make(tmp_path, nbytes=3 * page_bytes(probe) + 1)
    STREAM.run(cache, [860])
    assert os.fstat(cache.spill.descriptor).st_size == cache.spill.max_bytes == 3 * page_bytes(probe)
    twin = cache.fork()
    assert twin.spill.max_bytes == cache.spill.max_bytes and twin.spill.descriptor == -1
    assert twin.crop(850 - 64) == 0  # a fork has what its own tokens push out, and nothing of before
    oldest = min(cache.held(0, 1)[1:])
    held = (oldest + 1) * 32  # the next query there sees three pages that have left
    assert cache.crop(held) == held
    STREAM.run(cache, [150])
    assert cache.crop(held - 64) == 0  # and there six


def test_no_file_before_a_page_leaves_and_none_behind(tmp_path):
    cache = make(tmp_path)
    STREAM.run(cache, [160])
    assert cache.spill.descriptor == -1
    STREAM.run(cache, [1])
    descriptor = cache.spill.descriptor
    assert descriptor >= 0 and os.listdir(tmp_path) == []
    assert os.readlink(f"/proc/self/fd/{descriptor}").endswith("(deleted)") or not sys.platform.startswith("linux")
    del cache
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(descriptor)


@pytest.mark.parametrize("harm", ["flip", "cut", "empty"])
def test_a_damaged_file_costs_time_only(tmp_path, harm):
    cache, fresh = make(tmp_path), make(None)
    STREAM.run(cache, [700])
    descriptor, size = cache.spill.descriptor, os.fstat(cache.spill.descriptor).st_size
    if harm == "flip":
        for at in range(7, size, 64):
            os.pwrite(descriptor, bytes([os.pread(descriptor, 1, at)[0] ^ 1]), at)
    else:
        os.truncate(descriptor, size // 2 if harm == "cut" else 0)
    assert cache.crop(320) == 0 and cache.counters == (0, 0)
    assert cache.spill.error and "\n" not in cache.spill.error and str(tmp_path) in cache.spill.error
    written = cache.spill.written
    assert STREAM.run(cache, [700]).tobytes() == STREAM.run(fresh, [700]).tobytes()
    assert cache.spill.written == written and cache.crop(320) == 0


def test_a_full_disk_ends_it_and_nothing_else(tmp_path):
    cache, fresh = make(tmp_path), make(None)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        out = STREAM.run(cache, [700])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert out.tobytes() == STREAM.run(fresh, [700]).tobytes()
    assert "File too large" in cache.spill.error and cache.crop(320) == 0


def test_a_folder_that_is_not_there(tmp_path):
    cache = make(tmp_path / "none")
    STREAM.run(cache, [400])
    assert "No such file" in cache.spill.error and cache.crop(200) == 0
    with pytest.raises(ValueError, match="a page of every KV head takes"):
        make(tmp_path, nbytes=100)


def test_the_limit_of_the_pool_holds(tmp_path):
    """Pages that come back count as any others; where there is no room for them they stay away."""
    pool = PagePool()
    cache = make(tmp_path, pool=pool)
    STREAM.run(cache, [700])
    twin = cache.fork()  # what the first gives back now frees nothing
    tight = PagePool(limit=pool.used + 4096)  # less than the window, enough for a step
    other = make(tmp_path, pool=tight)
    STREAM.run(other, [28] * 25)
    twin_of_other = other.fork()
    assert cache.crop(320) == 320 and other.crop(320) == 0
    assert tight.used <= tight.limit and twin.n_tokens == twin_of_other.n_tokens == 700


GREEDY = Sampling(temperature=0.0)
QUESTIONS = ["Hello, can I order a coffee?", "A large one, please.", "And how much is that?", "Is there cake, too?"]


def talk(engine, before_undo=lambda session: None):
    """Ask three rounds of questions, take two rounds back, ask another: (answer, usage)."""
    session = engine.session(system="You are a waiter in a small cafe.")
    for question in QUESTIONS * 3:
        list(session.ask(question, sampling=GREEDY, max_tokens=24))
    assert session.state.evicted > 150
    before_undo(session)
    for _ in range(8):
        session.undo()
    answer = "".join(piece.text for piece in session.ask("A tea, then.", sampling=GREEDY, max_tokens=24))
    return answer, session.outcome.usage, session.state.offload_error


def test_undo_in_a_long_talk(tmp_path, bundled_model):
    with edge.load(window=96, ctx=1024, threads=1) as engine:
        answer, usage, _ = talk(engine)
        assert usage.cached == 0
    with edge.load(window=96, ctx=1024, threads=1, kv_offload=tmp_path) as engine:
        again, with_file, error = talk(engine)
        assert again == answer and error is None
        assert with_file.prompt == usage.prompt and with_file.cached > 60
        harmed, read_again, error = talk(engine, lambda session: os.truncate(session.state.kv.spill.descriptor, 0))
        assert harmed == answer and read_again.cached == 0 and str(tmp_path) in error
        engine.share_prefixes("4M")  # sessions that go on from a common beginning have files, too
        again, with_file, error = talk(engine)
        again, with_file, error = talk(engine)
        assert again == answer and error is None and with_file.cached > 60


def test_what_is_refused(tmp_path):
    for wrong in ({"kv_offload": str(tmp_path / "none")}, {"kv_offload": __file__},
                  {"kv_offload_size": "much"}):
        with pytest.raises(UsageError, match="kv_offload"):
            Options(**wrong)
    with pytest.raises(UsageError, match="32 tokens of this model need"):
        edge.load(kv_offload=tmp_path, kv_offload_size=1000)
