"""The first token of ``bitnet-edge run``, from the start of the process, and the time that reading its prompt takes.

    python benchmarks/first_token.py MODEL [--threads 1,2] [--weights map,auto] [--tokens 32] [--rounds 7] [--json]
        [--command "python -m edge"]

Each round starts the real command once for every number of threads and every place of the weights, and reads the clock
when its first byte arrives; then it evaluates the same tokens in one step of a model that this process has loaded
before: the pure time of the prompt, with the logits of its last token.  ``start`` is ``--version``, the command with
hardly anything imported.  Printed are medians with the least and the most of the rounds, and the ratios of the medians.
The first round of all is not counted: from then on the file lies in the system's cache, without which this would
measure the disk.
"""

from __future__ import annotations

import argparse
import array
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge
from pyx.step import Segment

ROOT = Path(__file__).resolve().parent.parent
WORDS = "the river runs down from the hills and through the old town before it finds its way to the sea again "


def prompt_of(engine: edge.Engine, n: int) -> str:
    """A text of n tokens, the one that the model puts first included.  Raises SystemExit where there is none."""
    tokenizer = engine.tokenizer
    wanted = n - (tokenizer.add_bos and tokenizer.bos_id is not None)
    text = WORDS * (n // 4 + 1)
    for end in range(1, len(text)):
        if not text[end - 1].isspace() and len(tokenizer.encode(text[:end])) == wanted:
            return text[:end]
    raise SystemExit(f"first_token.py: found no text of {n} tokens in this vocabulary")


def seconds_to_first_byte(command: Sequence[str]) -> float:
    """From the start of a process to the first byte it writes.  Raises SystemExit when it writes nothing."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=ROOT, bufsize=0) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        seconds = time.perf_counter() - begun
        process.stdout.read()
    if not first or process.returncode:
        raise SystemExit(f"first_token.py: {' '.join(command)} gave no token, exit {process.returncode}")
    return seconds


def seconds_of_step(engine: edge.Engine, ids: array.array[int], logits: array.array[float]) -> float:
    """One step over all ids, into an empty cache."""
    cache = engine.space.new_cache()
    begun = time.perf_counter()
    engine.model.transformer.step([Segment(cache, ids, logits)])
    return time.perf_counter() - begun


def measure(
    model: str,
    threads: Sequence[int] = (1, 2),
    weights: Sequence[str] = ("map",),
    n: int = 32,
    rounds: int = 7,
    program: Sequence[str] = (sys.executable, "-m", "edge"),
) -> list[dict[str, Any]]:
    """One row per number of threads and place of the weights; seconds of every round."""
    engines = {each: edge.load(model, threads=each, weights="map", ctx=max(2 * n, 64)) for each in threads}
    engine = engines[threads[0]]
    prompt = prompt_of(engine, n)
    bos = [engine.tokenizer.bos_id] if engine.tokenizer.add_bos else []
    ids = array.array("i", [*bos, *engine.tokenizer.encode(prompt)])
    logits = array.array("f", bytes(4 * engine.config.n_vocab))
    rows: list[dict[str, Any]] = [
        {"threads": each, "weights": place, "tokens": len(ids), "start": [], "first_token": [], "prompt": []}
        for each, place in product(threads, weights)
    ]
    for number in range(rounds + 1):
        for row in rows:
            command = [*program, "run", "--raw", "-m", model, "-t", str(row["threads"])]
            # a few tokens, as the first may be half a character
            command += ["--set", f"weights={row['weights']}", "--temp", "0", "-n", "4", "-p", prompt]
            found = {
                "start": seconds_to_first_byte([*program, "--version"]),
                "first_token": seconds_to_first_byte(command),
                "prompt": seconds_of_step(engines[row["threads"]], ids, logits),
            }
            if number:
                for name, seconds in found.items():
                    row[name].append(seconds)
    for row in rows:
        row["ratio"] = median(row["first_token"]) / median(row["prompt"])
    return rows


def shown(seconds: Sequence[float]) -> str:
    return f"{1e3 * median(seconds):.0f} [{1e3 * min(seconds):.0f}-{1e3 * max(seconds):.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--weights", default="map", help="map, auto and huge, with commas between them")
    parser.add_argument("--tokens", type=int, default=32, help="of the prompt")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--command", default=f"{sys.executable} -m edge", help="another bitnet-edge: installed, frozen")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measure(
        arguments.model,
        [int(each) for each in arguments.threads.split(",")],
        arguments.weights.split(","),
        arguments.tokens,
        arguments.rounds,
        shlex.split(arguments.command),
    )
    if arguments.json:
        print(json.dumps(rows))
        return
    print("| threads | weights | tokens | start, ms | first token, ms | prompt, ms | ratio |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        times = " | ".join(shown(row[name]) for name in ("start", "first_token", "prompt"))
        print(f"| {row['threads']} | {row['weights']} | {row['tokens']} | {times} | **{row['ratio']:.2f}** |")


if __name__ == "__main__":
    main()
