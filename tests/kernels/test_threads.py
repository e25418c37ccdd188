"""Threads and processes: what may be started, what is refused, and that nothing waits for ever."""

from __future__ import annotations

import array
import contextlib
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import edge
from edge.errors import InvalidFile, UsageError
from edge.formats import open_checkpoint
from edge.machine.cores import Cores
from edge.model.weights import build
from pyx import machine
from pyx.kv import KVCache
from pyx.step import Head, Pace, Transformer, attention
from pyx.weights import StoredRows
from tests import handmade
from tests.handmade import F32, value
from tests.kernels.test_transformer import logits
from tests.services import REAL, ROOT, can_limit_threads, environment, few_threads, in_python
from tests.vectors.stored import tiny

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


def test_halves_at_odd_addresses_are_read_right():
    numbers = [((i * 37) % 101 - 50) / 8 for i in range(64 * 64)]
    raw = struct.pack(f"<{len(numbers)}e", *numbers)
    even, odd = StoredRows("F16", raw, 64, 64), StoredRows("F16", memoryview(b"x" + raw)[1:], 64, 64)
    x = array.array("f", [((i * 7) % 13 - 6) / 4 for i in range(64)])
    for kind in ("int8", "two-stage", "f16", "f32"):
        assert Head(odd, kind).apply(x) == Head(even, kind).apply(x)


def built(folder: Path, **model: Any) -> Transformer:
    return build(open_checkpoint(handmade.model_file(folder, handmade.model(**model))))


BAD = [0.0, float("nan"), float("inf")]
MULTIPLIERS = {"embedding_scale": 12.0, "residual_scale": 0.5, "logit_scale": 0.25}


@pytest.mark.parametrize("bad", [*BAD[1:], -float("inf")])
@pytest.mark.parametrize("name", ["blk.0.ffn_norm", "blk.0.attn_sub_norm", "output_norm"])
def test_norms_must_be_finite(tmp_path, bad, name):
    norm = np.ones(handmade.HIDDEN, np.float32)
    norm[3] = bad
    with pytest.raises(InvalidFile, match=f"{name} holds a number that is not finite"):
        built(tmp_path, tensors={f"{name}.weight": ((handmade.HIDDEN,), 0, norm.tobytes())})


@pytest.mark.parametrize("bad", [1.0, *BAD])
def test_a_rotation_is_divided_by_numbers(tmp_path, bad):
    divisors = np.ones(handmade.HEAD_DIM // 2, np.float32)
    divisors[-1] = bad
    with contextlib.nullcontext() if bad == 1.0 else pytest.raises(InvalidFile, match="^[^\n]*rope_freqs[^\n]*$"):
        built(tmp_path, tensors={"rope_freqs.weight": (divisors.shape, 0, divisors.tobytes())})


@pytest.mark.parametrize("bad", [1.0, *BAD])
@pytest.mark.parametrize("name", MULTIPLIERS)
def test_multipliers_are_numbers_to_multiply_by(tmp_path, name, bad):
    keys = {f"minicpm.{key}": value(F32, number) for key, number in {**MULTIPLIERS, name: bad}.items()}
    with contextlib.nullcontext() if bad == 1.0 else pytest.raises(InvalidFile, match=f"^[^\n]*{name}[^\n]*$"):
        built(tmp_path, arch="minicpm", sub_norm=False, keys=keys)


# ---- processes -------------------------------------------------------------------------------------------------------

LOAD = "session = edge.load(threads=2).session()"
ANSWER = "list(session.complete('The', max_tokens=2))"
FORK = """
import os, sys, edge
from edge.errors import UsageError
{parent}
child = os.fork()
if child == 0:
    try:
        {child}
    except UsageError as error:
        print(error, flush=True)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("parent", "child", "told"), [
    (f"{LOAD}; {ANSWER}", ANSWER, True), (f"{LOAD}; {ANSWER}", LOAD, True), ("", f"{LOAD}; {ANSWER}", False)])
def test_a_forked_child_of_a_process_with_a_model_is_told_so(parent, child, told):
    printed = in_python(FORK.format(parent=parent, child=child))
    assert "forked" in printed and "spawn" in printed if told else printed == ""


# ---- a system that allows no more threads ----------------------------------------------------------------------------


LIMITED = """
import resource, edge
from edge.errors import EdgeError
from pyx.step import Pace

most = resource.getrlimit(resource.RLIMIT_NPROC)[1]


def limit(n):
    resource.setrlimit(resource.RLIMIT_NPROC, (n, most))


def numbers(engine):
    answer = engine.session().ask("Hi", max_tokens=8, temperature=0, logprobs=3)
    answer.text
    return answer.logprobs


with edge.load(threads=1) as engine:
    expected = numbers(engine)
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
    limit(1)
    try:
        next(engine.session().ask("Hi", max_tokens=8, temperature=0))
    except EdgeError as error:
        assert "allows no more threads" in str(error) and error.exit_code == 1
    else:
        raise AssertionError("it was answered without a thread")
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
@pytest.mark.parametrize("what", [FEWER_AND_MORE, OWN_THREADS], ids=["fewer and more", "own threads"])
def test_a_limit_on_threads_leaves_the_answer_as_it_is(limited, what):
    """OpenMP's library would end the process."""
    code, _, error = limited(1000, sys.executable, "-c", LIMITED + what)
    assert code == 0, error


@pytest.mark.timeout(600)
def test_who_gets_fewer_threads_than_asked_for_is_told_so(limited):
    ask = ("-n", "4", "--temp", "0", "Hi")
    code, said, error = limited(2, *REAL, "run", "-t", "4", *ask)
    assert (code, said, "") == limited(1000, *REAL, "run", "-t", "1", *ask)
    assert error.count("\n") == 1 and "1 instead of 4" in error
    assert limited(2, *REAL, "-q", "run", "-t", "4", *ask) == (0, said, "")


# ---- one process, many callers ---------------------------------------------------------------------------------------


def test_the_instruction_set_of_an_open_engine_is_not_changed(no_open_engine):
    other = next((isa for isa in machine.supported() if isa != machine.isa()), None)
    if other is None:
        pytest.skip("this processor runs one row only")
    before = machine.isa()
    with edge.load(threads=1):
        with pytest.raises(UsageError, match="open engine"):
            edge.load(threads=1, isa=other)
        assert machine.isa() == before
        edge.load(threads=1, isa=before).close()
    with edge.load(threads=1, isa=other):
        assert machine.isa() == other
    with edge.load(threads=1):  # the choice has ended with the engine that made it
        assert machine.isa() == before


@pytest.mark.parametrize(("wanted", "n", "adapts"), [(None, 4, True), (-1, 3, True), (2, 2, False), (4, 4, False)])
def test_threads_that_nobody_chose_follow_a_busy_machine(monkeypatch, wanted, n, adapts):
    four = (0, 1, 2, 3)
    monkeypatch.setattr("edge.machine.cores.find", lambda: Cores(four, four, None, None))
    with edge.load(threads=wanted) as engine:
        pace = engine.model.transformer.pace
        assert engine.n_threads == n and (pace is not None) == adapts
        assert pace is None or pace.most == n


# ---- how many threads a step takes: on a made-up machine with a clock of its own, where real load plays no part ------

SLICE = 4_000_000  # nanoseconds for which a busy machine takes a core away


class Machine:
    """Cores, some of them busy; a step of one row takes ``work`` nanoseconds on one thread."""

    def __init__(self, cores: int, work: int) -> None:
        self.cores, self.work, self.busy, self.now = cores, work, 0, 0
        self.random = random.Random(1)

    def step(self, pace: Any) -> None:
        n = pace.threads()
        ns = self.work / n * self.random.uniform(0.95, 1.1)
        shared = max(0, n + self.busy - self.cores)  # threads that share their core with something busy
        away = 0.0
        if shared and n > 1:  # in each millisecond of work, and at least once a step, all wait for one of them
            away = sum(
                max(self.random.uniform(0, SLICE) for _ in range(shared)) for _ in range(max(1, int(ns / 1e6))))
        elif shared:
            away = ns  # half of the core
        begun, self.now = self.now, self.now + int(ns + away)
        pace.took(1, begun, self.now, int(ns))

    def run(self, pace: Any, seconds: float) -> float:
        """Steps for so long; steps a second."""
        begun, n_step = self.now, 0
        while self.now - begun < seconds * 1e9:
            self.step(pace)
            n_step += 1
        return n_step / (self.now - begun) * 1e9

    def fixed(self, n: int, seconds: float) -> float:
        """Steps a second of n threads."""
        other = Machine(self.cores, self.work)
        other.busy = self.busy
        return other.run(SimpleNamespace(threads=lambda: n, took=lambda *_: None), seconds)


@pytest.mark.parametrize("work", [150_000, 2_000_000, 80_000_000])
@pytest.mark.parametrize(("cores", "busy"), [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 3)])
def test_while_other_programs_run_the_choice_reaches_the_best_fixed_number(cores, busy, work):
    machine, pace = Machine(cores, work), Pace(cores)
    seconds = 4.0 if work < 10_000_000 else 40.0
    machine.run(pace, 1.0)
    machine.busy = busy
    machine.run(pace, 1.0)
    assert machine.run(pace, seconds) >= 0.9 * max(machine.fixed(n, seconds / 2) for n in range(1, cores + 1))


@pytest.mark.parametrize("work", [150_000, 2_000_000])
@pytest.mark.parametrize("cores", [2, 4, 8])
def test_all_threads_are_back_within_a_second(cores, work):
    machine, pace = Machine(cores, work), Pace(cores)
    machine.busy = cores
    machine.run(pace, 3.0)
    machine.busy = 0
    machine.run(pace, 1.0)
    assert pace.settled == cores and not pace.trial


class Turns(Pace):
    """Another number of threads for every step."""

    steps = 0

    def threads(self) -> int:
        self.steps += 1
        return (1, 4, 2, 3)[self.steps % 4]


@pytest.mark.parametrize("chunk", [1, 3, 32])
def test_the_number_of_threads_changes_between_steps_and_no_bit_does(chunk):
    checkpoint = tiny(0)
    ids = [(7 * i * i + 3 * i) % 500 for i in range(60)]
    expected = logits(build(checkpoint, n_threads=1), checkpoint.config, ids, chunk=chunk)
    model = build(checkpoint, n_threads=4, adapt=True)
    pace = model.pace = Turns(4)
    assert logits(model, checkpoint.config, ids, chunk=chunk).tobytes() == expected.tobytes()
    assert pace.steps == -(-len(ids) // chunk)
