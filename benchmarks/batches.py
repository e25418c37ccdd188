"""`bitnet-edge batch`: tokens/s of answers, several at once and one after the other, by lengths of both texts.

    python benchmarks/batches.py MODEL [-t THREADS] [--at-once 1,4,8] [--requests 8] [--prompt 16] [-n 32]
        [--common 0] [--kinds 1] [--rounds 1]

Every request has a prompt of its own, behind one of ``--kinds`` beginnings of ``--common`` tokens, which alternate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge
from edge.tools.batch import Batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--at-once", default="1,4,8")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("-n", type=int, default=32)
    parser.add_argument("--common", type=int, default=0)
    parser.add_argument("--kinds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    counts = [int(each) for each in options.at_once.split(",")]
    found: dict[int, list[float]] = {n: [] for n in counts}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.jsonl"
        with open(source, "w") as file:
            for i in range(options.requests):
                system = f"kind {i % options.kinds} " + "of shop " * (options.common // 2)
                said = f"{i} " + "tea " * options.prompt
                messages = [{"role": "system", "content": system}] * bool(options.common)
                body = {"messages": [*messages, {"role": "user", "content": said}], "max_tokens": options.n,
                        "temperature": 0}
                file.write(json.dumps({"custom_id": str(i), "body": body}) + "\n")
        with edge.load(options.model, threads=options.threads, ctx=1024, parallel=max(counts), draft="off",
                       remember=False) as engine:
            engine.wait_for_weights()
            for n in counts * options.rounds:
                target = Path(folder) / "out.jsonl"
                target.unlink(missing_ok=True)
                with Batch(engine, str(source), str(target), defaults={"ignore_eos": True}) as batch:
                    batch.at_once = n
                    done = batch.run()
                found[n].append(done.tokens / done.seconds)
                usage = [json.loads(line)["response"]["body"]["usage"] for line in target.open()]
                print(f"{n} at once: {found[n][-1]:.1f}", file=sys.stderr)
    print(f"prompts of {statistics.mean(each['prompt_tokens'] for each in usage):.0f} tokens, answers of {options.n}")
    base = statistics.median(found[counts[0]])
    for n, rates in found.items():
        middle = statistics.median(rates)
        print(f"{n} at once: {middle:6.1f} tokens/s ({min(rates):.1f} to {max(rates):.1f}), {middle / base:.2f}x")


if __name__ == "__main__":
    main()
