"""While other programs run: tokens/s with each number of threads and with the engine's own choice, by busy cores.

    python benchmarks/busy.py [MODEL] [--busy 0,1,2] [--seconds 3] [--rounds 3] [--held]

``--busy``: how many endless loops run meanwhile, each a process and a session of its own, as another service would be.
Every setting answers for ``--seconds`` in turns, ``--rounds`` times; the table has medians, [least - most], and the own
choice as a share of the best fixed number.  Then the loops end and the own choice goes on: how long until it is back at
0.9 of the speed it had before them.  ``--held``: a column for the own choice with its threads held on all allowed
cores, in the way in which they are held on the fast ones where there are slow ones: what that costs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge
from edge.machine.cores import find

#: tokens of one answer, so that every answer has the same depths
ANSWER = 400


@contextlib.contextmanager
def load(n: int) -> Iterator[None]:
    """Keep n cores busy."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(n)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def answer(engine: edge.Engine, seconds: float) -> list[float]:
    """Answer for so long; when each token came."""
    greedy = edge.Sampling(temperature=0.0)
    times: list[float] = [time.perf_counter()]
    with engine.session() as session:
        while times[-1] - times[0] < seconds:
            for _piece in session.complete("The", max_tokens=ANSWER, sampling=greedy, ignore_eos=True):
                times.append(time.perf_counter())
                if times[-1] - times[0] > seconds:
                    break
    return times


def speed(times: list[float]) -> float:
    return (len(times) - 1) / (times[-1] - times[0])


def recovery(engine: edge.Engine, before: float, n: int, seconds: float) -> float | None:
    """Seconds after n loops end until tokens come at 0.9 of the speed ``before``; None: not within ``seconds``."""
    with load(n):
        answer(engine, 1.5)
    ended = time.perf_counter()
    step = max(0.1, 4 / before)
    while time.perf_counter() - ended < seconds:
        if speed(answer(engine, step)) >= 0.9 * before:
            return time.perf_counter() - ended
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--busy", default=f"0,1,{os.cpu_count()}")
    parser.add_argument("--threads", help="fixed numbers, such as 1,2 (default: 1 to the number of cores)")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--held", action="store_true")
    options = parser.parse_args()
    fixed = [int(n) for n in options.threads.split(",")] if options.threads else list(range(1, find().threads + 1))
    engines = {str(n): edge.load(options.model, threads=n, weights="map") for n in fixed}
    engines["own"] = edge.load(options.model, weights="map")
    if options.held:
        found = find()
        with mock.patch("edge.machine.cores.find", lambda: found._replace(allowed=(*found.allowed, 1023))):
            engines["held"] = edge.load(options.model, weights="map")
    for engine in engines.values():
        answer(engine, 0.3)
    own: dict[int, float] = {}
    for n in map(int, options.busy.split(",")):
        speeds: dict[str, list[float]] = {name: [] for name in engines}
        with load(n):
            for _ in range(options.rounds):
                for name, engine in engines.items():
                    speeds[name].append(speed(answer(engine, options.seconds)))
        own[n] = median(speeds["own"])
        best = max(median(speeds[str(f)]) for f in fixed)
        row = "  ".join(
            f"{name}: {median(v):.5g} [{min(v):.5g} - {max(v):.5g}]" for name, v in speeds.items())
        print(f"{n} busy  {row}  own/best {own[n] / best:.2f}", flush=True)
    if own.get(0):
        for n in (n for n in own if n):
            back = recovery(engines["own"], own[0], n, 5.0)
            print(f"{n} busy  back after {f'{back:.2f} s' if back else 'more than 5 s'}", flush=True)


if __name__ == "__main__":
    main()
