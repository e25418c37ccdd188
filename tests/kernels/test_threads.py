"""Threads and processes: what may be started, what is refused, and that nothing waits for ever."""

from __future__ import annotations

import array
import gc
import json
import mmap
import os
import re
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import edge
from edge import threads
from edge.cache.store import common
from edge.cli.group import cli
from edge.errors import InvalidFile, UsageError
from edge.formats import open_checkpoint
from edge.machine.cores import Cores
from edge.model.weights import build
from pyx.head.output_head import Head
from pyx.kv.cache import KVCache
from pyx.kv.pool import PagePool
from pyx.layers.attention import attention
from pyx.layers.rotary import Rotary
from pyx.machine import cpu
from pyx.step.transformer import Segment, Transformer
from pyx.weights.stored_rows import StoredRows
from pyx.weights.ternary import TernaryMatrix
from tests import handmade
from tests.at_once import together
from tests.handmade import ARR, F32, STR, value
from tests.kernels.test_transformer import IDS, TINY, layout_of
from tests.limits import can_limit_threads, few_threads
from tests.services import REAL, environment, short_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def checkpoint():
    return open_checkpoint(TINY[0], i2s_layout=layout_of(TINY[0]))


# ---- numbers that do not fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, -1, 100_000])
def test_impossible_numbers_of_threads_are_refused(n):
    stored = StoredRows("F32", bytes(4 * 64 * 64), 64, 64)
    with pytest.raises(ValueError, match="threads"):
        Head(stored, "int8", n)
    with pytest.raises(ValueError, match="threads"):
        Head(stored, "two-stage", n)
    kv = KVCache(1, 1, 64, n_ctx=64)
    with pytest.raises(ValueError, match="threads"):
        attention(kv, 0, array.array("f", bytes(256)), array.array("f", bytes(256)), array.array("f", bytes(256)), n)


def test_a_head_or_an_embedding_made_for_fewer_threads_is_refused(checkpoint, tmp_path):
    """A thread more would write behind their working memory."""
    config = checkpoint.config
    file = tmp_path / "rows"
    file.write_bytes(bytes(4 * config.n_vocab * config.hidden))
    with open(file, "rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as map:
        view = memoryview(map)
        stored = StoredRows("F32", view, config.n_vocab, config.hidden)
        with pytest.raises(ValueError, match="threads"):
            stored.read_from(view, source.fileno(), 0)
        stored.read_from(view, source.fileno(), 1)
        other = StoredRows("F32", view, config.n_vocab, config.hidden)
        for embedding, head, match in (
            (stored, Head(other, "int8", 2), "the embedding for 1"), (other, Head(other, "int8", 1), "made for 1")
        ):
            with pytest.raises(ValueError, match=f"2 threads, but .*{match}"):
                Transformer(config, embedding, head, [], array.array("f", [1.0] * config.hidden), n_threads=2)
        del stored, other, embedding, head
        gc.collect()
        view.release()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["blk.0.ffn_norm", "blk.0.attn_sub_norm", "output_norm"])
def test_norms_must_be_finite(tmp_path, value, name):
    norm = np.ones(handmade.HIDDEN, np.float32)
    norm[3] = value
    path = tmp_path / "m.gguf"
    path.write_bytes(handmade.model(tensors={f"{name}.weight": ((handmade.HIDDEN,), 0, norm.tobytes())}))
    with pytest.raises(InvalidFile, match=f"{name} holds a number that is not finite"):
        build(open_checkpoint(path))


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_divisors_of_the_rotation_must_be_numbers_to_divide_by(checkpoint, value):
    rotation = checkpoint.config.attention[0].rotation
    divisors = [1.0] * (rotation.dim // 2)
    Rotary(rotation, divisors)
    divisors[-1] = value
    with pytest.raises(ValueError, match="rope_freqs"):
        Rotary(rotation, divisors)


def test_an_endless_cache_ends_before_page_numbers_do():
    kv = KVCache(1, 1, 64, n_ctx=64, window=32, sinks=4)
    assert kv.dump_bytes((1 << 36) - 1, (1 << 36) - 1)
    with pytest.raises(ValueError, match="no cache of this plan"):
        kv.dump_bytes(1 << 36, 1 << 36)


def test_a_cache_with_arguments_that_are_not_known_is_an_error():
    with pytest.raises(TypeError):
        KVCache(1, 1, 64, 64, k_type="f16")


def test_rows_whose_sums_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="out of range"):
        TernaryMatrix.pack("I2_S", b"", 1, (1 << 23) + 128)


def test_halves_at_odd_addresses_are_read_right():
    numbers = [((i * 37) % 101 - 50) / 8 for i in range(64 * 64)]
    raw = struct.pack(f"<{len(numbers)}e", *numbers)
    even, odd = StoredRows("F16", raw, 64, 64), StoredRows("F16", memoryview(b"x" + raw)[1:], 64, 64)
    x = array.array("f", [((i * 7) % 13 - 6) / 4 for i in range(64)])
    for kind in ("int8", "two-stage", "f16", "f32"):
        assert Head(odd, kind).apply(x) == Head(even, kind).apply(x)


BAD = [0.0, float("nan"), float("inf")]
MULTIPLIERS = {"embedding_scale": 12.0, "residual_scale": 0.5, "logit_scale": 0.25}


def ends(tmp_path, **model) -> tuple[int, str]:
    """(exit code, standard error) of an answer by a model made by hand, of letters and two pairs of them."""
    tokens = [*map(chr, range(97, 97 + handmade.VOCAB - 2)), "ab", "cd"]
    keys = {"tokenizer.ggml.tokens": value(ARR, (STR, tokens)), **model.pop("keys", {})}
    path = tmp_path / "m.gguf"
    path.write_bytes(handmade.model(keys=keys, **model))
    done = CliRunner().invoke(cli, ["run", "-m", str(path), "-n", "1", "ab"])
    return done.exit_code, done.stderr


@pytest.mark.parametrize("bad", [1.0, *BAD])
def test_a_file_whose_rotation_divides_by_no_number_ends_with_exit_4(tmp_path, bad):
    divisors = np.ones(handmade.HEAD_DIM // 2, np.float32)
    divisors[-1] = bad
    code, said = ends(tmp_path, tensors={"rope_freqs.weight": (divisors.shape, 0, divisors.tobytes())})
    assert (code, said) == (0, "") if bad == 1.0 else code == 4 and "rope_freqs" in said and said.count("\n") == 1


@pytest.mark.parametrize("bad", [None, *BAD])
@pytest.mark.parametrize("name", MULTIPLIERS)
def test_a_file_whose_multipliers_are_no_numbers_to_multiply_by_ends_with_exit_4(tmp_path, name, bad):
    numbers = MULTIPLIERS if bad is None else {**MULTIPLIERS, name: bad}
    keys = {f"minicpm.{key}": value(F32, number) for key, number in numbers.items()}
    code, said = ends(tmp_path, arch="minicpm", sub_norm=False, keys=keys)
    assert (code, said) == (0, "") if bad is None else code == 4 and name in said and said.count("\n") == 1


# ---- nothing waits for ever ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["f16", "int8"])
def test_a_pool_whose_counts_are_wrong_is_an_error_and_no_hang(checkpoint, kind):
    c = checkpoint.config
    model, pool = build(checkpoint), PagePool()
    kv = KVCache(*c.kv_shape, 256, kind, pool=pool)
    model.step([Segment(kv, array.array("i", IDS), None)])
    pool.occupy()
    with pytest.raises(RuntimeError, match="pool"):
        for _ in range(40):
            model.step([Segment(kv, array.array("i", [1]), None)])
    assert kv.n_tokens == 0


# ---- processes -------------------------------------------------------------------------------------------------------

FORK = """
import os, sys, edge
from edge.errors import UsageError
engine = edge.load(threads=2)
list(engine.session().complete("The", max_tokens=2))
session = engine.session()
child = os.fork()
if child == 0:
    try:
        {what}
    except UsageError as error:
        print(error, flush=True)
        os._exit(0)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", ["list(session.complete('The', max_tokens=2))", "edge.load(threads=2)"])
def test_a_forked_child_is_told_so(what):
    done = subprocess.run(
        [sys.executable, "-c", FORK.format(what=what)], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "forked" in done.stdout and "spawn" in done.stdout


@pytest.mark.timeout(600)
def test_a_child_of_a_process_without_a_model_may_load_one():
    code = FORK.replace("engine = edge.load(threads=2)", "").replace(
        "list(engine.session().complete(\"The\", max_tokens=2))\nsession = engine.session()", "").format(
        what="list(edge.load(threads=2).session().complete('The', max_tokens=2)); os._exit(0)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr


# ---- a system that allows no more threads ----------------------------------------------------------------------------


def test_fewer_threads_where_the_system_starts_no_more(monkeypatch):
    assert threads.claim(3) == (3, [])
    monkeypatch.setattr("pyx.machine.team.startable", lambda n: min(n, 3))
    n, notes = threads.claim(8)
    assert n == 2 and len(notes) == 1 and "2 instead of 8" in notes[0] and "only 3 more" in notes[0]


LIMITED = """
import resource, threading, edge
from edge.errors import EdgeError
from pyx.machine.pace import Pace

most = resource.getrlimit(resource.RLIMIT_NPROC)[1]


def limit(n):
    resource.setrlimit(resource.RLIMIT_NPROC, (n, most))


def numbers(engine):
    answer = engine.session().ask("Hi", max_tokens=8, temperature=0, logprobs=3)
    answer.text
    return answer.logprobs


def elsewhere(engine):
    got = []
    other = threading.Thread(target=lambda: got.append(numbers(engine)))
    other.start()
    other.join()
    return got[0]


with edge.load(threads=1) as engine:
    expected = numbers(engine)
"""

SECOND_CALLER = """
limit(6)
with edge.load(threads=4) as engine:
    assert engine.n_threads == 4 and not engine.warnings
    assert numbers(engine) == expected
    for _ in range(3):  # with this one and its three there is room for the next caller and one more
        assert elsewhere(engine) == expected
"""

FEWER_AND_MORE = """
class Chosen(Pace):
    n = 4

    def threads(self):
        return self.n


with edge.load(threads=4) as engine:
    chosen = engine.model.transformer.pace = Chosen(4)
    assert numbers(engine) == expected
    chosen.n = 2  # ends the other two
    assert numbers(engine) == expected
    limit(2)
    for chosen.n in (4, 1, 4, 2):
        assert numbers(engine) == expected
"""

OWN_THREADS = """
with edge.load(threads=1, parallel=4) as engine:
    first, second = (engine.session().ask("Hi", max_tokens=8, temperature=0) for _ in range(2))
    next(first)
    limit(1)
    try:
        next(second)
    except EdgeError as error:
        assert "allows no more threads" in str(error) and error.exit_code == 1
    else:
        raise AssertionError("one thread did for two answers")
    limit(most)  # nothing is left half begun
    both = [engine.session().ask("Hi", max_tokens=8, temperature=0) for _ in range(2)]
    assert [next(each).text for each in both] and both[0].text == both[1].text
"""


@pytest.fixture(scope="module")
def limited() -> Callable[..., tuple[int, str, str]]:
    """limited(n, command ...): (exit code, output, errors) of a program that may have n threads."""
    if not can_limit_threads():
        pytest.skip("needs Linux, and root's right to become another user")

    def run(n: int, *command: str) -> tuple[int, str, str]:
        done = subprocess.run(command, preexec_fn=few_threads(n), capture_output=True, text=True, timeout=300, cwd=ROOT,
                              env=environment())
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", [SECOND_CALLER, FEWER_AND_MORE, OWN_THREADS],
                         ids=["second caller", "fewer and more", "own threads"])
def test_a_limit_on_threads_leaves_the_answer_as_it_is(limited, what):
    """OpenMP's library would end the process."""
    code, _, error = limited(1000, sys.executable, "-c", LIMITED + what)
    assert code == 0, error


@pytest.mark.timeout(600)
def test_who_gets_fewer_threads_than_asked_for_is_told_so(limited):
    ask = ("-n", "4", "--greedy", "Hi")
    code, said, error = limited(1, *REAL, "run", "-t", "4", *ask)
    assert (code, said, "") == limited(1000, *REAL, "run", "-t", "1", *ask)
    assert error.count("\n") == 1 and "1 instead of 4" in error
    assert limited(1, *REAL, "-q", "run", "-t", "4", *ask) == (0, said, "")


@pytest.mark.timeout(1000)
def test_a_batch_under_a_limit_on_threads_ends_with_answers_or_one_line(limited):
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}
    request = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    with short_folder() as folder:
        folder.chmod(0o777)  # the command asks what its real user may do
        requests = folder / "requests"
        requests.write_text("".join(json.dumps({"custom_id": str(i), **request}) + "\n" for i in range(3)))
        for n in (1, 3, 5, 6, 7, 8, 9, 10, 12, 50):
            code, _, error = limited(n, *REAL, "batch", "-t", "4", str(requests), str(folder / f"answers {n}"))
            *before, last = error.splitlines()
            assert all("instead of 4" in line for line in before), error
            assert code in (0, 1) and ("allows no more threads" if code else "3 answered") in last, (n, code, error)
    assert code == 0


# ---- one process, many callers ---------------------------------------------------------------------------------------


def test_the_instruction_set_of_an_open_engine_is_not_changed(no_open_engine):
    other = next((isa for isa in cpu.supported() if isa != cpu.isa()), None)
    if other is None:
        pytest.skip("this processor runs one row only")
    before = cpu.isa()
    with edge.load(threads=1):
        with pytest.raises(UsageError, match="open engine"):
            edge.load(threads=1, isa=other)
        assert cpu.isa() == before
        edge.load(threads=1, isa=before).close()
    with edge.load(threads=1, isa=other):
        assert cpu.isa() == other
    with edge.load(threads=1):  # the choice has ended with the engine that made it
        assert cpu.isa() == before


@pytest.mark.timeout(600)
def test_memory_can_be_asked_while_sessions_come_and_go():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with edge.load(threads=1) as engine:
            held: list[object] = []

            def come_and_go() -> None:
                for _ in range(2000):
                    held.append(engine.session())
                    if len(held) > 50:
                        del held[:]

            def ask() -> None:
                for _ in range(300):
                    engine.memory()

            assert together(come_and_go, ask, come_and_go, ask, bound=600) == [None] * 4
    finally:
        sys.setswitchinterval(interval)


def test_the_list_of_sessions_does_not_grow_while_somebody_walks_it(monkeypatch):
    walking, added = threading.Event(), threading.Event()

    class Slow(weakref.WeakSet):
        """Whoever walks it waits at its first entry until something was added, or half a second."""

        def __iter__(self):
            for each in super().__iter__():
                if not walking.is_set():
                    walking.set()
                    added.wait(0.5)
                yield each

    with monkeypatch.context() as patch:
        patch.setattr("edge.engine.weakref.WeakSet", Slow)
        engine = edge.load(threads=1)
    with engine:
        held = [engine.session() for _ in range(3)]
        errors = meanwhile(engine.memory, walking, lambda: held.append(engine.session()), added)
        assert not errors and len(held) == 4
        assert "4 sessions" in repr(engine)


def test_shared_prefixes_do_not_change_while_somebody_looks_one_up(monkeypatch):
    looking, added = threading.Event(), threading.Event()

    def slow(*tokens):
        if not looking.is_set():
            looking.set()
            added.wait(0.5)
        return common(*tokens)

    with edge.load(threads=1) as engine:
        store = engine.share_prefixes("64M")
        states = []
        for text in ("one", "two", "three"):
            session = engine.session()
            list(session.complete(text, max_tokens=1))
            states.append(session.state)
        for state in states[:2]:
            store.add(state)
        monkeypatch.setattr("edge.cache.store.common", slow)
        ids = array.array("i", states[0].tokens)
        errors = meanwhile(lambda: store.find(ids), looking, lambda: store.add(states[2]), added)
        assert not errors and len(store) == 3


def meanwhile(first, begun, second, done) -> list[BaseException]:
    """The errors of ``first``, and of ``second`` in another thread once ``begun`` is set; ``done``: it has ended."""
    errors: list[BaseException] = []

    def other() -> None:
        try:
            assert begun.wait(60)
            second()
        except BaseException as error:
            errors.append(error)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        first()
    except BaseException as error:
        errors.append(error)
    thread.join()
    return errors


@pytest.mark.parametrize(("wanted", "n", "adapts"), [(None, 4, True), (-1, 3, True), (2, 2, False), (4, 4, False)])
def test_threads_that_nobody_chose_follow_a_busy_machine(monkeypatch, wanted, n, adapts):
    four = (0, 1, 2, 3)
    monkeypatch.setattr("edge.machine.cores.find", lambda: Cores(four, four, None, None))
    with edge.load(threads=wanted) as engine:
        pace = engine.model.transformer.pace
        assert engine.n_threads == n and (pace is not None) == adapts
        assert pace is None or pace.most == n


@pytest.mark.skipif(sys.platform != "linux", reason="libgomp's own setting")
@pytest.mark.parametrize(("own", "expected"), [({}, "4000"), ({"GOMP_SPINCOUNT": "77"}, "77")])
def test_waiting_threads_spin_briefly(own: dict[str, str], expected: str) -> None:
    """libgomp reads its environment when it is loaded: a module that is linked with it must be the first."""
    others = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", "import pyx.machine.bandwidth, os; print(os.environ.get('GOMP_SPINCOUNT'))"], cwd=ROOT,
        capture_output=True, text=True, env={**others, "OMP_DISPLAY_ENV": "verbose", **own})
    found = re.search(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    assert done.stdout.strip() == own.get("GOMP_SPINCOUNT", "None")  # not left behind for other programs
    if found is None and "OPENMP DISPLAY ENVIRONMENT BEGIN" in done.stderr:
        pytest.skip("another OpenMP library than libgomp")
    assert found is not None and found[1] == expected, done.stderr
