"""An endless answer through a window: resident memory and time per token, on the way to a million tokens.

    python benchmarks/endless.py                         # the bundled model, a window of 2,044 tokens
    python benchmarks/endless.py --ctx 260 --tokens 100000
    python benchmarks/endless.py -m model.gguf --by word

Time per token is the median of blocks of 500 tokens, since the mark before; memory is what the process holds then.
"""

from __future__ import annotations

import argparse
import statistics
import time

import edge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a model file; the bundled one if none is given")
    parser.add_argument("--ctx", type=int, default=2048, help="tokens of the context, which slides")
    parser.add_argument("--by", default="token", choices=("token", "word", "sentence"))
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("-t", "--threads", type=int)
    args = parser.parse_args()
    marks = [n for n in (1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000) if n <= args.tokens]
    with edge.load(args.model, ctx=args.ctx, threads=args.threads) as engine:
        session = engine.session()
        answer = session.ask(
            "Tell me everything.", max_tokens=marks[-1], ignore_eos=True, temperature=1.0, seed=1, by=args.by)
        print(f"{'tokens':>9} {'rss MB':>8} {'anon MB':>8} {'us/token':>9}")
        count, block, begun, times = 0, 0, time.perf_counter(), []
        for piece in answer:
            count += len(piece.ids)
            block += len(piece.ids)
            if block >= 500:
                now = time.perf_counter()
                times.append((now - begun) / block)
                begun, block = now, 0
            if marks and count >= marks[0]:
                held = engine.rss()
                us = statistics.median(times) * 1e6
                print(f"{marks.pop(0):>9} {held['rss'] / 1e6:>8.2f} {held['anon'] / 1e6:>8.2f} {us:>9.1f}", flush=True)
                times.clear()


if __name__ == "__main__":
    main()
