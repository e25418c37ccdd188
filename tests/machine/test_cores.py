"""Which cores the threads of a step run on, and how many threads: made-up machines, and the masks of real threads."""

from __future__ import annotations

import array
import os
import threading
import time
from collections.abc import Callable, Iterable

import pytest
from click.testing import CliRunner

import edge
from edge.cli.group import cli
from edge.errors import UsageError
from edge.machine import cores
from edge.model.weights import build
from pyx.kv import KVCache
from pyx.step import Segment, Transformer
from tests.kernels.test_transformer import IDS
from tests.services import in_python, tree
from tests.vectors.stored import tiny

MINE = tuple(sorted(os.sched_getaffinity(0)))


def speeds(name: str, values: Iterable[int | str]) -> dict[str, str]:
    return {f"sys/devices/system/cpu/cpu{core}/{name}": f"{value}\n" for core, value in enumerate(values)}


CAPACITY, CLOCK = "cpu_capacity", "cpufreq/cpuinfo_max_freq"
RK3588 = speeds(CAPACITY, [530] * 4 + [1024] * 4) | speeds(CLOCK, [1_800_000] * 4 + [2_400_000] * 4)
LAPTOP = {"sys/devices/cpu_core/cpus": "0-3,6\n", "sys/devices/cpu_atom/cpus": "4-5,7\n"}
QUOTA = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}


# ---- what the system says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("files", "allowed", "fast", "source"), [
    ({}, range(4), "0-3", None),
    (RK3588, range(8), "4-7", CAPACITY),
    (RK3588, (0, 1, 4, 6), "4,6", CAPACITY),  # of those that the mask leaves
    (RK3588, range(4), "0-3", None),  # taskset on the slow ones: the user's wish
    (speeds(CAPACITY, [1024] * 4), range(4), "0-3", None),  # Raspberry Pi
    (speeds(CLOCK, [1_400_000, 2_200_000, 2_200_000]), range(3), "1-2", CLOCK),
    (speeds(CAPACITY, [1024, 500]), range(3), "0-2", None),  # of one core nothing is known
    (speeds(CAPACITY, ["", "x", "-"]), range(3), "0-2", None),
    (LAPTOP, range(8), "0-3,6", "cpu_core/cpus"),
    ({"sys/devices/cpu_core/cpus": "3-0\n"}, range(2), "0-1", None),
])
def test_the_fast_cores(tmp_path, files, allowed, fast, source):
    found = cores.find(tree(tmp_path, files), set(allowed))
    assert cores.spell(found.fast) == fast and found.allowed == tuple(allowed)
    assert (found.source or "").endswith(source or "") and (found.source is None) == (source is None)


@pytest.mark.parametrize(("files", "expected"), [
    ({}, None),
    ({"proc/self/cgroup": "0::/a.slice/b.service\n", "sys/fs/cgroup/a.slice/cpu.max": "50000 100000\n",
      "sys/fs/cgroup/a.slice/b.service/cpu.max": "max 100000\n"}, 0.5),
    ({"proc/self/cgroup": "0::/outside/the/container\n", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
    ({"proc/self/cgroup": "garbage\n\n1:cpu\n", "sys/fs/cgroup/cpu.max": "x y z"}, None),
])
def test_the_quota_of_control_groups(tmp_path, files, expected):
    assert cores.quota(tree(tmp_path, files)) == expected


# ---- what follows ----------------------------------------------------------------------------------------------------


def choice(monkeypatch: pytest.MonkeyPatch, found: cores.Cores, threads: int | None) -> tuple[int, str | None]:
    monkeypatch.setattr(cores, "find", lambda: found)
    n, held = cores.choose(threads)
    return n, None if held is None else cores.spell(held)


@pytest.mark.parametrize(("more", "threads", "expected"), [
    ({}, None, (4, "4-7")),
    ({}, 1, (1, "4-7")),
    ({}, 4, (4, "4-7")),
    ({}, 5, (5, None)),  # more than fast cores: who asks for them wants the others, too
    ({}, -1, (3, "4-7")),  # leaves a core to others
    ({}, -9, (1, "4-7")),
    (QUOTA, None, (3, "4-7")),
    (QUOTA, -1, (2, "4-7")),
])
def test_threads_and_their_cores(tmp_path, monkeypatch, more, threads, expected):
    found = cores.find(tree(tmp_path, RK3588 | more), set(range(8)))
    assert choice(monkeypatch, found, threads) == expected


def test_the_affinity_mask_bounds_the_default():
    code = (f"import os; os.sched_setaffinity(0, {{{MINE[0]}}}); from edge.machine.cores import find;"
            "print(find().threads)")
    assert in_python(code) == "1\n"
    assert 1 <= cores.find().threads <= len(MINE)


@pytest.mark.parametrize("threads", [0, 257, -257, True, 1.0, "2"])
def test_impossible_wishes_are_refused(threads):
    with pytest.raises(UsageError, match="whole number"):
        edge.load(threads=threads)


def test_numbers_on_the_command_line():
    refused = CliRunner().invoke(cli, ["run", "--threads", "0", "hello"])
    assert refused.exit_code == 2 and "it must be a whole number from 1" in refused.output
    assert CliRunner().invoke(cli, ["run", "-t", "-1", "--temp", "0", "-n", "2", "hello"]).exit_code == 0


# ---- real threads ----------------------------------------------------------------------------------------------------


def small(**how: object) -> Transformer:
    return build(tiny(0), n_threads=3, **how)  # type: ignore[arg-type]


def answer(model: Transformer, n: int = 5) -> bytes:
    kv = KVCache(*model.kv_shape, 256)
    logits = array.array("f", bytes(4 * model.n_vocab))
    for _ in range(n):
        model.step([Segment(kv, array.array("i", IDS[:4]), logits)])
    return logits.tobytes()


def running() -> set[str]:
    """The threads of this process, once none ends any more: the list may leave others out while some do."""
    seen: set[str] = set()
    for _ in range(500):
        last, seen = seen, set(os.listdir("/proc/self/task"))
        if seen == last:
            break
        time.sleep(0.02)
    return seen


def masks(work: Callable[[], object]) -> tuple[list[set[int]], set[int]]:
    """The masks of all threads that ``work`` starts, in a thread of its own, whose mask afterwards is the second."""
    found: list[set[int]] = []
    own: list[set[int]] = []

    def run() -> None:
        before = running()
        work()
        found.extend(os.sched_getaffinity(int(tid)) for tid in running() - before)
        own.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found, own[0]


@pytest.mark.parametrize("wanted", [MINE[:1], MINE[-1:], MINE])
def test_workers_stay_on_the_cores_and_the_caller_does_not(wanted):
    held, free = small(cores=wanted), small()
    expected = answer(free)
    workers, own = masks(lambda: answer(held))
    assert workers == [set(wanted)] * 2 and own == set(MINE)
    assert answer(held) == expected
    workers, own = masks(lambda: answer(free))
    assert workers == [set(MINE)] * 2 and own == set(MINE)


REDUCED = """
import os, threading
os.sched_setaffinity(0, {{{mine}}})
from tests.machine.test_cores import answer, masks, small
model = small(cores={cores})
workers, own = masks(lambda: answer(model))
assert workers == [{{{mine}}}] * 2 and own == {{{mine}}}, (workers, own)
"""


@pytest.mark.parametrize("wanted", [MINE, MINE[:1], (1023,)])
def test_a_reduced_mask_is_never_left(wanted):
    in_python(REDUCED.format(mine=MINE[-1], cores=list(wanted)))


def test_an_engine_holds_its_threads(monkeypatch):
    """From the made-up system file to the masks of the threads that answer."""
    monkeypatch.setattr(cores, "find", lambda: cores.Cores((*MINE, 1022, 1023), (*MINE[-1:], 1022), "made up", None))

    engines = []

    def ask() -> None:
        engines.append(edge.load(threads=2, ctx=64))
        list(engines[0].session().complete("The", max_tokens=8))

    found, own = masks(ask)
    engines[0].close()
    assert {MINE[-1]} in found and own == set(MINE)  # the workers; and between steps the engine's thread is not held
