"""Several answers at once: tokens/s of all together, and of one; and a prompt that is read meanwhile.

    python benchmarks/many.py [MODEL] [-t THREADS] [--parallel 1,2,4,8] [--depth 64] [-n 64] [--prompt 1500]
        [--in-turn]

Each answer has a session and a thread of its own, without drafts.  All begin together and are measured from the moment
when the last of their prompts has been read.  With --prompt, three answers write while a fourth session reads a prompt
of so many tokens: printed is the speed of the three meanwhile, of that alone, and the newcomer's time to its first
token, of that alone.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge

OPTIONS = {"temperature": 0.0, "ignore_eos": True}


def ids(n: int, seed: int, engine: edge.Engine) -> list[int]:
    """n tokens, others for each seed."""
    return [300 + (7 * i + 131 * seed) % (engine.config.n_vocab - 400) for i in range(n)]


def together(engine: edge.Engine, parallel: int, depth: int, n: int) -> float:
    """Tokens per second of all answers."""
    ready, stamps = threading.Barrier(parallel), []

    def work(i: int) -> None:
        with engine.session("") as session:
            answer = session.complete(ids(depth, i, engine), max_tokens=n + 1, **OPTIONS)
            next(answer)
            ready.wait(600)
            begun = time.perf_counter()
            answer.text  # noqa: B018
            stamps.append((begun, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(parallel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return parallel * n / (max(end for _, end in stamps) - min(begun for begun, _ in stamps))


def in_turn(engine: edge.Engine, parallel: int, depth: int, n: int) -> tuple[float, float]:
    """Seconds a token of whole answers, one after the other and at once, prompts included."""

    def work(i: int) -> None:
        with engine.session("") as session:
            answer = session.complete(ids(depth, i, engine), max_tokens=n, **OPTIONS)
            answer.text  # noqa: B018

    begun = time.perf_counter()
    for i in range(parallel):
        work(i)
    middle = time.perf_counter()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(parallel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (middle - begun) / (parallel * n), (time.perf_counter() - middle) / (parallel * n)


def with_prompt(engine: edge.Engine, depth: int, prompt: int) -> tuple[float, float]:
    """(tokens/s of three answers, seconds to the first token of a newcomer) while a prompt is read; 0: alone."""
    stop, begun_reading, times = threading.Event(), threading.Event(), []
    counts = [0, 0, 0]

    def write(i: int) -> None:
        with engine.session("") as session:
            for _piece in session.complete(ids(depth, i, engine), max_tokens=1 << 20, **OPTIONS):
                counts[i] += 1
                if stop.is_set():
                    break

    threads = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    while min(counts) < 8:
        time.sleep(0.01)
    del begun_reading
    first, begun = sum(counts), time.perf_counter()
    if prompt:
        with engine.session("") as session:
            next(iter(session.complete(ids(prompt, 9, engine), max_tokens=2, **OPTIONS)))
    else:
        time.sleep(3)
    seconds = time.perf_counter() - begun
    times.append((sum(counts) - first) / seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return times[0], seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--parallel", default="1,2,4,8")
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=0)
    parser.add_argument("--in-turn", action="store_true", help="whole answers at once, and one after the other")
    parser.add_argument("--kv", default="int8")
    parser.add_argument("--weights", default="map")
    parser.add_argument("--official", action="store_true", help="a file of make_model.py: nothing about it is guessed")
    arguments = parser.parse_args()
    ctx = max(arguments.depth + arguments.n, arguments.prompt) + 64
    official: dict[str, Any] = {"i2s_layout": "128", "activation": "relu2"} if arguments.official else {}
    # as `serve --parallel` loads it: the output head is one for several at once
    with edge.load(
        arguments.model, ctx=max(ctx, 256), threads=arguments.threads, draft="off", kv=arguments.kv,
        weights=arguments.weights, parallel=max(map(int, arguments.parallel.split(","))), **official,
    ) as engine:
        together(engine, 2, arguments.depth, 8)
        one = 0.0
        for parallel in map(int, arguments.parallel.split(",") if arguments.in_turn else ()):
            rounds = [in_turn(engine, parallel, arguments.depth, arguments.n) for _ in range(arguments.rounds)]
            ratio, turn, once = sorted((turn / once, turn, once) for turn, once in rounds)[len(rounds) // 2]
            print(f"{parallel} in turn {turn * 1e6:.0f} us a token, at once {once * 1e6:.0f} us: {ratio:.2f} x",
                  flush=True)
        for parallel in map(int, () if arguments.in_turn else arguments.parallel.split(",")):
            rates = sorted(together(engine, parallel, arguments.depth, arguments.n) for _ in range(arguments.rounds))
            middle = rates[len(rates) // 2]
            one = one or middle
            print(f"{parallel} at once: {middle:.1f} tokens/s in all, {middle / one:.2f} of the first", flush=True)
        if arguments.prompt:
            with engine.session("") as session:
                begun = time.perf_counter()
                next(iter(session.complete(ids(arguments.prompt, 9, engine), max_tokens=2, **OPTIONS)))
                alone = time.perf_counter() - begun
            three, _ = with_prompt(engine, arguments.depth, 0)
            slowed, seconds = with_prompt(engine, arguments.depth, arguments.prompt)
            print(f"three while {arguments.prompt} tokens are read: {slowed:.1f} of {three:.1f} tokens/s")
            print(f"the newcomer's first token: {seconds:.2f} s, alone {alone:.2f} s: {seconds / alone:.2f}")


if __name__ == "__main__":
    main()
