"""Measure what planes lose: python benchmarks/planes.py model.gguf --text prose.txt --text talk.txt 3:32 auto:64:5.0

Converts the dense model in each way named, runs the result with our engine, and compares its predictions of held-out
texts with those of the source in floats: decoded by the gguf package and run by the slow NumPy of tests/oracles, so
that no code of ours judges itself.  Ways: PLANES:GROUP, and with :calibrate or, for auto, :BITS calibrated.  Prints one
row for each way.  SOURCE must be a GGUF file.
"""

from __future__ import annotations

import argparse
import array
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from edge.formats import open_checkpoint  # noqa: E402
from edge.model.weights import build  # noqa: E402
from edge.prompt.tokenizer import Tokenizer  # noqa: E402
from edge.tools.convert import convert  # noqa: E402
from edge.tools.planes.target import Planes  # noqa: E402
from pyx.kv import KVCache  # noqa: E402
from pyx.transformer import Segment  # noqa: E402
from tests.oracles import family  # noqa: E402

CHUNK = 128


def source_run(path: str, pieces: list[list[int]]) -> list[np.ndarray]:
    """Logits [n][vocabulary] of the source in floats, for each piece."""
    import gguf

    config = open_checkpoint(path, dense=True).config
    weights = {tensor.name: np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
               for tensor in gguf.GGUFReader(path).tensors}  # fmt: skip
    model = family.Model(config, weights)
    return [model.logits(piece).astype(np.float32) for piece in pieces]


def our_run(path: str, pieces: list[list[int]], n_threads: int) -> list[np.ndarray]:
    """The same by our engine."""
    checkpoint = open_checkpoint(path)
    c = checkpoint.config
    model = build(checkpoint, n_threads=n_threads, chunk=CHUNK)
    found = []
    for piece in pieces:
        cache = KVCache(c.n_layer, c.n_kv_head, c.head_dim, len(piece), "f16", windows=c.windows)
        logits = np.zeros((len(piece), c.n_vocab), np.float32)
        for at in range(0, len(piece), CHUNK):
            ids = array.array("i", piece[at : at + CHUNK])
            model.step([Segment(cache, ids, logits[at : at + len(ids)].reshape(-1), all_logits=True)])
        found.append(logits)
    return found


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def compared(exact: list[np.ndarray], ours: list[np.ndarray], pieces: list[list[int]]) -> tuple[float, ...]:
    """KL in nats, share of the same first choice, both perplexities."""
    kl = same = nats = our_nats = 0.0
    for a, b, piece in zip(exact, ours, pieces, strict=True):
        p, q = log_softmax(a), log_softmax(b)
        kl += float((np.exp(p) * (p - q)).sum())
        same += float((p.argmax(-1) == q.argmax(-1)).sum())
        nats -= float(p[np.arange(len(piece) - 1), piece[1:]].sum())
        our_nats -= float(q[np.arange(len(piece) - 1), piece[1:]].sum())
    n, predicted = sum(map(len, pieces)), sum(len(piece) - 1 for piece in pieces)
    return kl / n, same / n, math.exp(nats / predicted), math.exp(our_nats / predicted)


def way(text: str, n_threads: int) -> Planes:
    """Planes from "3:32", "3:64:calibrate", "auto:64:5.0"."""
    count, group, *rest = text.split(":")
    more: dict[str, Any] = {"calibrate": bool(rest)}
    if rest and rest[0] != "calibrate":
        more["bits"] = float(rest[0])
    return Planes(None if count == "auto" else int(count), int(group), n_threads, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("ways", nargs="+")
    parser.add_argument("--text", action="append", required=True, help="held-out text; each gives as many tokens")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--piece", type=int, default=500, help="tokens read at once")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count() or 1)
    flags = parser.parse_args()

    tokenizer = Tokenizer.of(open_checkpoint(flags.source, dense=True))
    first = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    pieces, room = [], flags.piece - len(first)
    for path in flags.text:
        ids = tokenizer.encode(Path(path).read_text(encoding="utf-8"))[: flags.tokens // len(flags.text)]
        pieces += [[*first, *ids[at : at + room]] for at in range(0, len(ids) - 1, room)]
    print(f"{sum(map(len, pieces))} tokens of {len(flags.text)} texts in pieces of {flags.piece}", file=sys.stderr)
    exact = source_run(flags.source, pieces)
    print("| planes : group | bits a weight | relative error | KL, nats | same first choice | perplexity | seconds |")
    print("|---|---|---|---|---|---|---|")
    for text in flags.ways:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            made = convert(flags.source, Path(folder) / "m.gguf", planes=way(text, flags.threads)).path
            seconds = time.monotonic() - began
            said = open_checkpoint(made).metadata
            kl, same, before, after = compared(exact, our_run(made, pieces, flags.threads), pieces)
        print(f"| {text} | {said['bitnet-edge.planes.bits']:.2f} | {said['bitnet-edge.planes.error']:.5f} | {kl:.4f} | "
              f"{same:.1%} | {before:.2f} -> {after:.2f} ({after / before:.3f}x) | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
