"""Where the time of a token goes: every stage of a step, sampling, and the Python around them, on the bundled model.

    python benchmarks/overhead.py [MODEL] [-t THREADS] [-n TOKENS]

First Python: the time inside ``Transformer.step`` and ``Sampler.sample``, measured by wrappers, is taken away from that
between two tokens; what the wrappers themselves cost stays in, so the figures are upper bounds.  Prints the median
and the 99th percentile in microseconds, for the plainest call and for one that uses everything.

Then the stages of the step, microseconds a token for each thread, mean over a greedy answer: the step notes the time
when a stage ends (some 30 ns each, which is in the figures).  "waiting" is at the barriers; attention and head have
barriers of their own in them; the rest of the step is what starts and ends its parallel region and what the call costs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge
from pyx.step.transformer import STAGES

CLOCK = 16  # numbers that one thread keeps, see Transformer.keep_times


class Timed:
    """An object whose one method is timed; everything else is passed through."""

    def __init__(self, inner: Any, method: str) -> None:
        self.seconds = 0.0
        self.inner = inner
        call, clock = getattr(inner, method), time.perf_counter

        def timed(*arguments: Any) -> Any:
            begun = clock()
            result = call(*arguments)
            self.seconds += clock() - begun
            return result

        setattr(self, method, timed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def stages(engine: edge.Engine, n: int) -> tuple[list[list[float]], float]:
    """Microseconds of each stage by thread, and of a whole step, mean over a greedy answer of n tokens."""
    transformer = engine.model.transformer
    clocks = memoryview(transformer.keep_times()).cast("B").cast("q")
    step = engine.model.transformer = Timed(transformer, "step")
    try:
        with engine.session() as session:
            pieces = session.complete("The", max_tokens=n + 1, ignore_eos=True, sampling=edge.Sampling(temperature=0.0))
            next(pieces)  # the first token comes out of the prompt
            for i in range(len(clocks)):
                clocks[i] = 0
            step.seconds = 0.0
            for _piece in pieces:
                pass
            steps = session.outcome.usage.completion - 1
    finally:
        engine.model.transformer = transformer
    table = [
        [clocks[CLOCK * thread + stage] / steps / 1e3 for stage in range(len(STAGES))]
        for thread in range(engine.n_threads)
    ]
    return table, step.seconds / steps * 1e6


def measure(engine: edge.Engine, n: int, options: dict[str, Any]) -> list[float]:
    """Seconds of Python per token, sorted."""
    step = engine.model.transformer = Timed(engine.model.transformer, "step")
    make, samplers = engine.space.new_sampler, []

    def new_sampler(seed: int) -> Timed:
        samplers.append(Timed(make(seed), "sample"))
        return samplers[-1]

    engine.space.new_sampler = new_sampler  # type: ignore[method-assign]
    try:
        session = engine.session()
        pieces = session.complete("The", max_tokens=n, ignore_eos=True, **options)
        python: list[float] = []
        before = None
        for _piece in pieces:
            now = time.perf_counter() - step.seconds - samplers[0].seconds
            if before is not None:
                python.append(now - before)
            before = time.perf_counter() - step.seconds - samplers[0].seconds
        session.close()
    finally:
        engine.model.transformer, engine.space.new_sampler = step.inner, make  # type: ignore[method-assign]
    return sorted(python)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="default: the bundled model")
    parser.add_argument("-t", "--threads", type=int, help="default: one for each fast core")
    parser.add_argument("-n", type=int, default=1000, help="tokens per measurement")
    arguments = parser.parse_args()
    full = edge.Sampling(temperature=0.8, repeat_penalty=1.1, repeat_last_n=64, seed=1)
    with edge.load(arguments.model, threads=arguments.threads, draft="off") as engine:
        print(f"{engine.config.name}, {engine.n_threads} threads, {arguments.n} tokens")
        cases: dict[str, dict[str, Any]] = {
            "greedy": {"sampling": edge.Sampling(temperature=0.0)},
            "penalties, stop strings, timeout": {"sampling": full, "stop": ["\0never", "xyzzy"], "timeout": 3600.0},
        }
        for name, options in cases.items():
            measure(engine, 50, options)
            seconds = measure(engine, arguments.n, options)
            median, p99 = seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]
            print(f"{name:<34} median {median * 1e6:6.1f} us   p99 {p99 * 1e6:6.1f} us")

        # last: from here on the transformer reads the clock
        stages(engine, 50)
        table, step = stages(engine, arguments.n)
        for stage, name in enumerate(STAGES):
            print(f"{name:<34}", *(f"{of_thread[stage]:8.1f}" for of_thread in table))
        print(f"{'rest of the step':<34} {step - max(map(sum, table)):8.1f}   of {step:.1f} us")


if __name__ == "__main__":
    main()
