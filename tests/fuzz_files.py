"""Mutated files of every format against their readers.  `make fuzz-files COUNT=100000` runs it; by hand:

    python tests/fuzz_files.py COUNT [SEED] [--only FORMAT] [--one NUMBER] [--resume]

Mutation number n of a seed is the same bytes on every machine: SEED and NUMBER repeat it.  A reader may accept a file
or raise an EdgeError of one line; anything else is printed with its number, and the exit code is 1.  A crash or a hang
ends the process: the number that was being tried is in the record file (--record), so that it can be repeated.
--resume continues the run in the record file, with its seed and its counts, up to COUNT.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import struct
import sys
import tempfile
import time
import traceback
import zlib
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import edge  # noqa: E402
from edge.errors import EdgeError  # noqa: E402
from edge.formats import open_checkpoint, safetensors  # noqa: E402
from edge.kv.policy import VERSION, read_budget  # noqa: E402
from edge.session.sampling import Sampling  # noqa: E402
from edge.tools.convert import convert  # noqa: E402

VECTORS = ROOT / "tests" / "vectors"
#: what readers treat in a special way: limits of their integers, NaN, infinity
WORDS = [b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\xc0\x7f", b"\0\0\x80\x7f",
         b"\xff" * 7 + b"\x7f", b"\x01" + b"\0" * 7, b'"', b"{", b"[" * 64, b"\\u0000", b"1e999", b"-1",
         b"\xed\xa0\x80"]  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One to eight changes; most of them in the first 4 KiB, where headers are."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not changed:
            break
        near = min(len(changed), 4096) if rng.random() < 0.8 else len(changed)
        at = rng.randrange(near)
        kind = rng.randrange(7)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at] = rng.randrange(256)
        elif kind == 2:
            word = rng.choice(WORDS)
            changed[at : at + len(word)] = word
        elif kind == 3:
            del changed[at : at + rng.choice((1, 4, 8, 64, 4096))]
        elif kind == 4:
            changed[at:at] = changed[at : at + rng.choice((1, 8, 64, 512))]
        elif kind == 5:
            del changed[at:]
        else:  # a part of the file in another place: doubled keys, tensors that overlap
            other, n = rng.randrange(len(changed)), rng.choice((8, 32, 128))
            changed[at : at + n] = changed[other : other + n]
    return bytes(changed)


def with_checksums(data: bytes) -> bytes:
    """A session file whose checksums are right, so that what lies behind them is tried."""
    if len(data) < 24:
        return data
    length = min(struct.unpack_from("<I", data, 12)[0], len(data) - 24)
    header, rest = data[20 : 20 + length], data[20 + length : -4]
    whole = data[:16] + struct.pack("<I", zlib.crc32(data[:16] + header)) + header + rest
    return whole + struct.pack("<I", zlib.crc32(whole))


def checkpoint(path: Path) -> None:
    """All that can be read of a model: tensors, vocabulary, template; then the model itself where it is legal."""
    found = open_checkpoint(str(path))
    for tensor in found.tensors.values():
        len(bytes(tensor.data[:64]))
    with edge.load(str(path), ctx=32, threads=1, draft="off") as engine:
        list(engine.session().complete(array("i", [1, 2, 3]), max_tokens=2))


def formats(folder: Path) -> dict[str, tuple[bytes, Path, Callable[[], object]]]:
    """format -> (good bytes, the file to write, what reads it)."""
    from benchmarks import make_model

    make_model.make(folder / "tiny.gguf", "tiny")
    make_model.make(folder / "groups.gguf", "tiny-qwen3", "PQ2_0", "PQ2_0")
    convert(folder / "groups.gguf", folder / "panels.gguf")
    good = VECTORS / "oracle" / "relu2_gqa_tied" / "packed_auto_f32"
    model = folder / "hf"
    shutil.copytree(good, model)
    engine = edge.load(folder / "tiny.gguf", ctx=64, threads=1, draft="off")
    session = engine.session()
    list(session.complete(array("i", range(1, 40)), max_tokens=4, sampling=Sampling(temperature=0.0)))
    session.save(folder / "talk.bes")
    config = engine.config
    keep = [[40] * config.n_kv_head] * config.n_layer
    facts = {"version": VERSION, "n_layer": config.n_layer, "n_kv_head": config.n_kv_head, "keep": keep, "sinks": 4}
    return {
        "gguf": ((folder / "tiny.gguf").read_bytes(), folder / "m.gguf", lambda: checkpoint(folder / "m.gguf")),
        "panels": ((folder / "panels.gguf").read_bytes(), folder / "p.gguf", lambda: checkpoint(folder / "p.gguf")),
        "session": ((folder / "talk.bes").read_bytes(), folder / "s.bes",
                    lambda: engine.load_session(folder / "s.bes")),
        "safetensors": ((good / "model.safetensors").read_bytes(), folder / "m.safetensors",
                        lambda: safetensors.read(str(folder / "m.safetensors"))),
        "directory": ((good / "config.json").read_bytes(), model / "config.json", lambda: open_checkpoint(str(model))),
        "budget": (json.dumps(facts).encode(), folder / "b.json",
                   lambda: read_budget(str(folder / "b.json"), config)),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=int(time.time()))
    parser.add_argument("--only", default="")
    parser.add_argument("--one", type=int, default=-1)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", type=Path, default=ROOT / "build" / "fuzz-files.json")
    options = parser.parse_args()
    options.record.parent.mkdir(exist_ok=True)
    seen: Counter[str] = Counter()
    first = 0
    if options.resume:
        kept = json.loads(options.record.read_text())
        options.seed, options.only, first = kept["seed"], kept["only"], kept["number"]
        seen.update(kept["seen"])
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name, open(options.record, "w") as record:
        known = formats(Path(name))
        for data, path, read in known.values():  # what is mutated must be good
            path.write_bytes(data)
            read()
        names = [options.only] if options.only else sorted(known)
        numbers = range(first, options.count) if options.one < 0 else [options.one]
        for number in numbers:
            kind = names[number % len(names)]
            data, path, read = known[kind]
            record.seek(0)
            json.dump({"seed": options.seed, "only": options.only, "number": number, "seen": seen}, record)
            record.truncate()
            record.flush()
            path.unlink(missing_ok=True)  # what is still mapped keeps its bytes
            rng = random.Random(f"{options.seed} {number}")
            changed = mutate(rng, data)
            path.write_bytes(with_checksums(changed) if kind == "session" and rng.random() < 0.9 else changed)
            try:
                read()
                outcome = "accepted"
            except EdgeError as error:
                outcome = "refused"
                if "\n" in str(error) or not str(error):
                    outcome = "refused, not in one line"
            except Exception as error:
                outcome = type(error).__name__
                traceback.print_exc()
            if outcome not in ("accepted", "refused"):
                print(f"seed {options.seed} number {number} ({kind}): {outcome}", flush=True)
            seen[f"{kind} {outcome}"] += 1
            if number % 10_000 == 9_999:
                print(number + 1, dict(sorted(seen.items())), flush=True)
    print(*(f"{n:>9} {what}" for what, n in sorted(seen.items())), sep="\n")
    wrong = sum(n for what, n in seen.items() if what.split(" ", 1)[1] not in ("accepted", "refused"))
    print(f"{sum(seen.values())} files, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
