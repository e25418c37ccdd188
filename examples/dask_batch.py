"""Run a batch on a Dask cluster.  Each worker loads the model once and keeps it between blocks.

    pip install "dask[distributed]" bitnet-edge
    python examples/dask_batch.py in.jsonl out.jsonl [--workers 2] [--scheduler tcp://HOST:8786] [--model PATH]

Requests and answers have the format of OpenAI's batch files (docs/serve.md).  Without --scheduler, a cluster of
processes is started on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from functools import cache
from typing import Any

BLOCK = 32  # requests per block


@cache
def engine(model: str | None) -> Any:
    """The engine of this worker, loaded with its first block."""
    import edge

    return edge.load(model, ctx=1024, threads=1)


def answer(lines: list[str], model: str | None) -> list[str]:
    """Answer lines of requests; returns lines of answers in the same order."""
    from edge.tools.batch import Batch

    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        with open(source, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        with Batch(engine(model), source, target) as batch:
            batch.run()
        with open(target, encoding="utf-8") as file:
            return file.read().splitlines()


def main() -> None:
    from dask.distributed import Client, LocalCluster, as_completed

    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scheduler")
    parser.add_argument("--model")
    options = parser.parse_args()
    with open(options.source, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    cluster = None
    if options.scheduler is None:  # one thread for each process: a worker answers one block at a time
        cluster = LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=None)
    failed = 0
    with Client(options.scheduler or cluster) as client, open(options.target, "w", encoding="utf-8") as file:
        blocks = [lines[at : at + BLOCK] for at in range(0, len(lines), BLOCK)]
        for done in as_completed([client.submit(answer, block, options.model, pure=False) for block in blocks]):
            for line in done.result():
                failed += json.loads(line)["error"] is not None
                file.write(line + "\n")
    if cluster is not None:
        cluster.close()
    print(f"{len(lines)} requests, {failed} errors")


if __name__ == "__main__":
    main()
