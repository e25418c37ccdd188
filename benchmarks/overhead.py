"""Python time per token: what the loop around step and sample costs, on the bundled model.

    python benchmarks/overhead.py [MODEL] [-n TOKENS]

The time inside ``Transformer.step`` and ``Sampler.sample`` is measured by wrappers and taken away from the time between
two tokens; what the wrappers themselves cost stays in, so the figures are upper bounds.  Prints the median and the
99th percentile in microseconds, for the plainest call and for one that uses everything.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge


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


def measure(engine: edge.Engine, n: int, options: dict[str, Any]) -> list[float]:
    """Seconds of Python per token, sorted."""
    step = engine.transformer = Timed(engine.transformer, "step")
    make, samplers = engine.new_sampler, []

    def new_sampler(seed: int) -> Timed:
        samplers.append(Timed(make(seed), "sample"))
        return samplers[-1]

    engine.new_sampler = new_sampler  # type: ignore[method-assign]
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
        engine.transformer, engine.new_sampler = step.inner, make  # type: ignore[method-assign]
    return sorted(python)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="default: the bundled model")
    parser.add_argument("-n", type=int, default=1000, help="tokens per measurement")
    arguments = parser.parse_args()
    full = edge.Sampling(temp=0.8, repeat_penalty=1.1, repeat_last_n=64, seed=1)
    with edge.load(arguments.model, draft="off") as engine:
        print(f"{engine.config.name}, {engine.n_threads} threads, {arguments.n} tokens")
        cases: dict[str, dict[str, Any]] = {
            "greedy": {"sampling": edge.Sampling(temp=0.0)},
            "penalties, stop strings, timeout": {"sampling": full, "stop": ["\0never", "xyzzy"], "timeout": 3600.0},
        }
        for name, options in cases.items():
            measure(engine, 50, options)
            seconds = measure(engine, arguments.n, options)
            median, p99 = seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]
            print(f"{name:<34} median {median * 1e6:6.1f} us   p99 {p99 * 1e6:6.1f} us")


if __name__ == "__main__":
    main()
