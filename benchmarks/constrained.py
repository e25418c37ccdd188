"""What a form costs: the tables for a vocabulary, and a token; in microseconds, and as a share of a step of 2B-4T.

    python benchmarks/constrained.py [VOCABULARY.gguf ...]         # without: the bundled model

A vocabulary may be a file without weights, as llama.cpp's tests have them.  Tokens are drawn from random logits, so
that nearly every one is refused at first and a mask has to be made: the worst case.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.needs import numpy as np
from edge.constrain.constraint import Constraint
from edge.constrain.spec import Spec
from edge.constrain.vocabulary import Vocabulary, bytes_for
from edge.formats.gguf_tokenizer import read_tokenizer
from edge.machine.linux import rss
from edge.prompt.tokenizer import Tokenizer
from pyx.tokens.sampler import Sampler

ROOT = Path(__file__).resolve().parent.parent
STEP = 31.9e-3  # seconds of a step of 2B-4T, 2 threads, AVX512-VNNI (benchmarks/log#large-pages)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "cups": {"type": "integer"}, "drink": {"enum": ["tea", "coffee"]},
                   "notes": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "cups", "drink", "notes"],
}


def main() -> None:
    for path in sys.argv[1:] or [str(each) for each in sorted((ROOT / "edge" / "bundled").glob("*.gguf"))]:
        tokenizer = Tokenizer.build(read_tokenizer(path))
        before, begun = rss()["anon"], time.perf_counter()
        vocabulary = Vocabulary(tokenizer, tokenizer.n_vocab, tokenizer.eos_ids)
        seconds, taken = time.perf_counter() - begun, rss()["anon"] - before
        spec, n = Spec.of(schema=SCHEMA), vocabulary.n_vocab
        assert spec is not None
        sampler, spent, steps, plain = Sampler(n, 1), [], [], []
        rows = np.random.default_rng(1).normal(0, 3, (16, n)).astype(np.float32)
        first = time.perf_counter()
        Constraint(vocabulary, spec, "", 400)
        first = time.perf_counter() - first
        for _ in range(12):
            constraint, count = Constraint(vocabulary, spec, "", 400), 0
            while not constraint.done and count < 400:
                logits = rows[count % 16].copy()
                begun = time.perf_counter()
                token = sampler.sample(logits, 0.8, 40)
                chosen = time.perf_counter()
                while not constraint.allows(token, 400 - count):
                    token = sampler.sample(logits, 0.8, 40, mask=constraint.mask())
                if token in vocabulary.stop_ids:
                    break
                constraint.accept(token)
                forced = constraint.forced()
                spent.append(time.perf_counter() - chosen)
                plain.append(chosen - begun)
                steps.append(len(forced))
                count += 1
        spent.sort()
        middle, worst, mean = statistics.median(spent), spent[int(len(spent) * 0.99)], statistics.mean(spent)
        print(f"{path.rpartition('/')[2]}: {n} tokens: made in {seconds:.2f} s, {taken / 1e6:.1f} MB "
              f"(planned {bytes_for(n) / 1e6:.1f}); first answer {1e3 * first:.1f} ms")
        print(f"  a token: median {1e6 * middle:.0f} us, mean {1e6 * mean:.0f}, 99 % {1e6 * worst:.0f} "
              f"({100 * mean / STEP:.2f} % of a step of 2B-4T); choosing alone {1e6 * statistics.median(plain):.0f}")


if __name__ == "__main__":
    main()
