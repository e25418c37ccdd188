"""Run a batch on a Ray cluster.  Each actor loads the model once; Ray Data distributes the requests.

    pip install "ray[data]" bitnet-edge
    python examples/ray_batch.py in.jsonl out.jsonl [--actors 2] [--model PATH]

Requests and answers have the format of OpenAI's batch files (docs/serve.md).  Use one actor per board or CPU socket:
the model uses all cores it can.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from typing import Any


class Answers:
    """An actor: it loads the engine once and runs a batch for each block of requests."""

    def __init__(self, model: str | None) -> None:
        import edge

        self.engine = edge.load(model, ctx=1024, threads=1)

    def __call__(self, block: dict[str, Any]) -> dict[str, list[str]]:
        """Answer a block ``{"line": requests}``; returns ``{"line": answers}``."""
        from edge.tools.batch import Batch

        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
            with open(source, "w", encoding="utf-8") as file:
                file.writelines(str(line) + "\n" for line in block["line"])
            with Batch(self.engine, source, target) as batch:
                batch.run()
            with open(target, encoding="utf-8") as file:
                return {"line": file.read().splitlines()}


def main() -> None:
    import ray

    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--model")
    options = parser.parse_args()
    with open(options.source, encoding="utf-8") as file:
        requests = [{"line": line.strip()} for line in file if line.strip()]
    answers = ray.data.from_items(requests).map_batches(
        Answers, fn_constructor_args=(options.model,), batch_size=32, concurrency=options.actors, num_cpus=1
    )
    failed = 0
    with open(options.target, "w", encoding="utf-8") as file:
        for row in answers.iter_rows():
            failed += json.loads(row["line"])["error"] is not None
            file.write(row["line"] + "\n")
    print(f"{len(requests)} requests, {failed} errors")


if __name__ == "__main__":
    main()
