"""An installed llama-cpp-python with the face of llama-bench, for against_peers.py.

    python benchmarks/llama_cpp_python.py -m model.gguf -p 512 -n 0 -t 2 -r 3 -o json

Knows -m, -p, -n, -d, -t, -r, -ctk, -ctv, -fa and -o json; batches as llama-bench has them (2048, in pieces of 512).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Any


def numbers(text: str) -> list[int]:
    """``128,512``."""
    return [int(word) for word in text.split(",")]


def measure(llama: Any, n_prompt: int, n_gen: int, depth: int) -> float:
    """Tokens per second of reading n_prompt tokens or writing n_gen, behind ``depth`` others."""
    draw = random.Random(1)
    n_vocab = llama.n_vocab()

    def read(n: int) -> None:
        llama.eval([draw.randrange(n_vocab) for _ in range(n)])

    llama.reset()
    if depth:
        read(depth)
    start = time.perf_counter()
    if n_prompt:
        read(n_prompt)
    for _ in range(n_gen):
        read(1)
    return (n_prompt + n_gen) / (time.perf_counter() - start)


def main() -> None:
    """Load once, warm up, measure, print."""
    parser = argparse.ArgumentParser(description="llama-cpp-python as llama-bench")
    parser.add_argument("-m", required=True)
    parser.add_argument("-p", type=numbers, default=[512])
    parser.add_argument("-n", type=numbers, default=[128])
    parser.add_argument("-d", "--n-depth", type=int, default=0)
    parser.add_argument("-t", type=int, default=2)
    parser.add_argument("-r", type=int, default=5)
    parser.add_argument("-ctk", choices=("f16", "q8_0", "q4_0"), default="f16")
    parser.add_argument("-ctv", choices=("f16", "q8_0", "q4_0"), default="f16")
    parser.add_argument("-fa", type=int, default=0)
    parser.add_argument("-o", choices=("json",), default="json")
    chosen = parser.parse_args()

    import llama_cpp

    kinds = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0, "q4_0": llama_cpp.GGML_TYPE_Q4_0}
    tests = [(n, 0) for n in chosen.p if n] + [(0, n) for n in chosen.n if n]
    llama = llama_cpp.Llama(
        chosen.m,
        n_ctx=chosen.n_depth + max(sum(test) for test in tests),
        n_batch=2048,
        n_threads=chosen.t,
        n_threads_batch=chosen.t,
        type_k=kinds[chosen.ctk],
        type_v=kinds[chosen.ctv],
        flash_attn=bool(chosen.fa),
        verbose=False,
    )
    measure(llama, 0, 1, 0)
    rows = [
        {
            "build_commit": f"llama-cpp-python {llama_cpp.__version__}",
            "model_type": llama.metadata.get("general.name", ""),
            "n_prompt": n_prompt,
            "n_gen": n_gen,
            "n_depth": chosen.n_depth,
            "samples_ts": [measure(llama, n_prompt, n_gen, chosen.n_depth) for _ in range(chosen.r)],
        }
        for n_prompt, n_gen in tests
    ]
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
