"""Measure what planes lose: python benchmarks/planes.py model.gguf --text prose.txt --text talk.txt 3:32 2:64

Converts the dense model in each way named, runs the result with our engine, and compares its predictions of held-out
texts with those of the source in floats: decoded by the gguf package and run by the slow NumPy of tests/oracles, so
that no code of ours judges itself.  Ways: PLANES:GROUP, or a file that was made before.  Prints one row for each way
and text, and one for all texts.  SOURCE must be a GGUF file.  Pieces of the texts are read in turn, a piece of each;
with --keep the same command continues after an interruption.
"""

from __future__ import annotations

import argparse
import array
import hashlib
import itertools
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from edge.formats import open_checkpoint  # noqa: E402
from edge.model.weights import build  # noqa: E402
from edge.prompt.tokenizer import Tokenizer  # noqa: E402
from edge.tools.convert import convert  # noqa: E402
from edge.tools.planes import Planes  # noqa: E402
from pyx.kv import KVCache  # noqa: E402
from pyx.step import Segment  # noqa: E402
from tests.oracles import family  # noqa: E402

CHUNK = 128


Run = Callable[[list[int]], np.ndarray]  # tokens [n] -> logits float32 [n][vocabulary]


def source_run(path: str) -> Run:
    """The source in floats."""
    import gguf

    config = open_checkpoint(path, dense=True).config
    weights = {tensor.name: np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
               for tensor in gguf.GGUFReader(path).tensors}
    model = family.Model(config, weights)
    return lambda piece: np.asarray(model.logits(piece), np.float32)


def our_run(path: str, n_threads: int) -> Run:
    """A file of ours by the engine."""
    checkpoint = open_checkpoint(path)
    c = checkpoint.config
    model = build(checkpoint, n_threads=n_threads, chunk=CHUNK)

    def run(piece: list[int]) -> np.ndarray:
        cache = KVCache(c.n_layer, c.n_kv_head, c.head_dim, len(piece), "f16", windows=c.windows)
        logits = np.zeros((len(piece), c.n_vocab), np.float32)
        for at in range(0, len(piece), CHUNK):
            ids = array.array("i", piece[at : at + CHUNK])
            model.step([Segment(cache, ids, logits[at : at + len(ids)].reshape(-1), all_logits=True)])
        return logits

    return run


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def compared(exact: np.ndarray, ours: np.ndarray, piece: list[int]) -> np.ndarray:
    """Sums over a piece: tokens, KL in nats, same first choices, tokens predicted, nats of both for these."""
    p, q = log_softmax(exact), log_softmax(ours)
    following = np.arange(len(piece) - 1), piece[1:]
    return np.array([len(piece), (np.exp(p) * (p - q)).sum(), (p.argmax(-1) == q.argmax(-1)).sum(), len(piece) - 1,
                     -p[following].sum(), -q[following].sum()])


def place(folder: str, way: str, file: str, piece: list[int]) -> Path:
    """Where the sums of a piece are kept: by a file's name and size, or a way to make one, and by the tokens."""
    about = (way, os.path.getsize(file) if way == file else None, piece)
    return Path(folder) / f"{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}.npy"


def row(way: str, text: str, sums: np.ndarray, made: Mapping[str, Any], seconds: float) -> str:
    """A row of the table."""
    tokens, kl, same, predicted, nats, our_nats = sums
    before, after = math.exp(nats / predicted), math.exp(our_nats / predicted)
    bits, error = made["bitnet-edge.planes.bits"], made["bitnet-edge.planes.error"]
    return (f"| {way} | {bits:.2f} | {error:.5f} | {text} | {tokens:.0f} | {kl / tokens:.4f} | {same / tokens:.1%} | "
            f"{before:.2f} -> {after:.2f} ({after / before:.3f}x) | {seconds:.0f} |")


def way(text: str, n_threads: int) -> Planes:
    """Planes from "3:32"."""
    count, group = map(int, text.split(":"))
    return Planes(count, group, n_threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("ways", nargs="+")
    parser.add_argument("--text", action="append", required=True, help="held-out text; each gives as many tokens")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--piece", type=int, default=500, help="tokens read at once")
    parser.add_argument("--keep", metavar="DIR", help="an existing folder for what was measured of each piece")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count() or 1)
    flags = parser.parse_args()

    tokenizer = Tokenizer.of(open_checkpoint(flags.source, dense=True))
    first = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    room = flags.piece - len(first)
    by_text: list[list[tuple[str, list[int]]]] = []
    for path in flags.text:
        ids = tokenizer.encode(Path(path).read_text(encoding="utf-8"))[: flags.tokens // len(flags.text)]
        by_text.append([(path, [*first, *ids[at : at + room]]) for at in range(0, len(ids) - 1, room)])
    pieces = [piece for turn in itertools.zip_longest(*by_text) for piece in turn if piece is not None]
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, tuple[str, float]] = {}  # way -> file, seconds
        for each in flags.ways:
            began = time.monotonic()
            path = each if each.endswith(".gguf") else convert(
                flags.source, Path(folder) / f"{len(made)}.gguf", planes=way(each, flags.threads)).path
            made[each] = str(path), time.monotonic() - began
        exact = source_run(flags.source)
        runs = {each: our_run(path, flags.threads) for each, (path, _) in made.items()}
        sums = {(each, path): np.zeros(6) for each in made for path in flags.text}
        for number, (path, piece) in enumerate(pieces, 1):
            print(f"piece {number} of {len(pieces)}", file=sys.stderr)
            logits = None
            for each, run in runs.items():
                at = place(flags.keep, each, made[each][0], piece) if flags.keep else None
                if at is not None and at.exists():
                    sums[each, path] += np.load(at)
                    continue
                logits = exact(piece) if logits is None else logits
                found = compared(logits, run(piece), piece)
                sums[each, path] += found
                if at is not None:
                    np.save(at, found)
        print("| planes : group | bits a weight | relative error | text | tokens | KL, nats | same first choice | "
              "perplexity | seconds |")
        print("|---|---|---|---|---|---|---|---|---|")
        for each, (file, seconds) in made.items():
            about = open_checkpoint(file).metadata
            for path in flags.text:
                print(row(each, Path(path).stem, sums[each, path], about, seconds))
            print(row(each, "all", sum((sums[each, path] for path in flags.text), np.zeros(6)), about, seconds))


if __name__ == "__main__":
    main()
