"""Measure bitnet-edge and other engines in turns on one machine, and print the ratios.

    python benchmarks/against_peers.py \\
        --ours "map=-m 2b-4t.gguf --set weights=map" --ours "huge=-m 2b-4t.gguf --set weights=huge" \\
        --peer "ik IQ2_BN=ik/bin/llama-bench -m 2b-4t-iq2_bn.gguf" \\
        --peer "llama.cpp TQ2_0=llama.cpp/bin/llama-bench -m 2b-4t-tq2_0.gguf" \\
        --prompt 128,512 --gen 32 --depth 0,2048 --threads 1,2 --rounds 3

A peer is any program with the command line and the JSON of llama-bench.  What ours gets are options of ``bitnet-edge
bench``.

One round runs every engine once, each in a process of its own; the rounds are what makes the engines comparable on a
machine whose speed comes and goes.  The figure of an engine is the median over all its turns, with the slowest and
the fastest; a ratio divides medians.  pp is the speed of reading a prompt, tg that of writing after a context of
``depth`` tokens, in tokens per second; RSS is the peak of the process; memory is what a plain sum with as many threads
reads before each turn, the bound of all engines when they write.  With --json, what was measured is added to what is
already in the file and the tables are made of all: long measurements can be done in pieces.  Such files in
benchmarks/results are what packaging/docs makes the table and the picture of.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

#: KV type of ours -> of llama-bench
KV_NAMES = {"f16": "f16", "int8": "q8_0", "int4": "q4_0", "f32": "f32"}


class Failed(Exception):
    """An engine did not do its work; the text says why."""


@dataclass
class Series:
    """The timings of one engine in one test."""

    engine: str
    test: str  # "pp512", "tg32" or "tg32 @2048"
    threads: int
    kv: str
    speeds: list[float]  # tokens per second
    rss: int  # peak bytes of the processes
    memory: list[float] = field(default_factory=list)  # bytes per second of a plain sum with the same threads, in turn

    @property
    def key(self) -> tuple[str, int, str, str]:
        """The values that set it apart, the engine last."""
        return self.test, self.threads, self.kv, self.engine

    def add(self, other: Series) -> None:
        """Continue with the next turn."""
        self.speeds += other.speeds
        self.memory += other.memory
        self.rss = max(self.rss, other.rss)


@dataclass(frozen=True)
class Work:
    """The work of one engine in one turn."""

    prompts: tuple[int, ...]  # read so many tokens
    n_gen: int  # write so many tokens; 0: none
    depths: tuple[int, ...]  # after a context of so many
    threads: int
    kv: str
    repeats: int


def generation(n_gen: int, depth: int) -> str:
    """Name of a test that writes."""
    return f"tg{n_gen} @{depth}" if depth else f"tg{n_gen}"


def run(command: Sequence[str]) -> tuple[str, int]:
    """Standard output of a program and its peak resident bytes.  Raises Failed."""
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stderr
            out, err = process.stdout.read(), process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    if process.returncode:
        last = err.strip().splitlines()[-1:] or ["no message"]
        raise Failed(f"exit {process.returncode} of {shlex.join(command)}: {last[0]}")
    return out, usage.ru_maxrss * 1024


def memory_rate(threads: int) -> float:
    """Bytes per second, see edge.tools.bench.memory_speed; in a process of its own, since a child's peak of
    resident bytes starts at what its parent holds."""
    program = f"from edge.tools import bench as b; print(b.memory_speed('huge', '', b.MOST, {threads}))"
    return float(run([sys.executable, "-c", program])[0])


class Ours:
    """bitnet-edge, as it stands in this copy of the source."""

    def __init__(self, name: str, options: Sequence[str]) -> None:
        self.name = name
        self.options = list(options)
        self.build = ""

    def measure(self, work: Work) -> list[Series]:
        """One turn.  Raises Failed."""
        found = []
        if work.prompts:
            for depth, pp, _, rss in self._bench(work, work.prompts, 2):
                found.append(Series(self.name, f"pp{depth}", work.threads, work.kv, pp, rss))
        if work.n_gen:
            # a context of one token is as good as none; the first token of an answer comes out of the prompt
            for depth, _, tg, rss in self._bench(work, [max(1, depth) for depth in work.depths], work.n_gen + 1):
                test = generation(work.n_gen, depth if depth > 1 else 0)
                found.append(Series(self.name, test, work.threads, work.kv, tg, rss))
        return found

    def _bench(
        self, work: Work, depths: Sequence[int], n_gen: int
    ) -> Iterable[tuple[int, list[float], list[float], int]]:
        command = [sys.executable, "-m", "edge", "bench", *self.options, "--json", "-q"]
        command += ["-d", ",".join(map(str, depths)), "-n", str(n_gen), "-r", str(work.repeats)]
        out, _ = run([*command, "-t", str(work.threads), "--kv", work.kv])
        report = json.loads(out)
        self.build = f"bitnet-edge {report['version']}, row {report['rows'][0]['isa']}"
        for row in report["rows"]:  # the peak of the process would have the yardstick of bench in it
            yield row["depth"], row["pp_samples"], row["tg_samples"], max(report["peak_bytes"], row["rss_bytes"])


class Peer:
    """A program with the command line of llama-bench."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = list(command)
        self.build = ""

    def measure(self, work: Work) -> list[Series]:
        """One turn.  Raises Failed."""
        common = [*self.command, "-o", "json", "-r", str(work.repeats), "-t", str(work.threads)]
        kv = KV_NAMES[work.kv]
        if kv != "f16":
            common += ["-ctk", kv, "-ctv", kv, "-fa", "1"]  # quantised values need flash attention
        found = []
        if work.prompts:
            prompts = ",".join(map(str, work.prompts))
            for row, rss in self._rows([*common, "-p", prompts, "-n", "0"]):
                found.append(self._series(row, f"pp{row['n_prompt']}", work, rss))
        for depth in work.depths if work.n_gen else ():
            for row, rss in self._rows([*common, *self.at_depth(work.n_gen, depth)]):
                found.append(self._series(row, generation(work.n_gen, depth), work, rss))
        return found

    def at_depth(self, n_gen: int, depth: int) -> list[str]:
        """Flags that time n_gen tokens after ``depth`` others; forks of llama-bench differ."""
        if not depth:
            return ["-p", "0", "-n", str(n_gen)]
        usage = _usage(tuple(self.command[: self._program()]))
        if "--n-depth" in usage:
            return ["-p", "0", "-n", str(n_gen), "-d", str(depth)]
        if "-gp <pp,tg>" in usage:
            return ["-p", "0", "-n", "0", "-gp", f"{depth},{n_gen}"]
        raise Failed(f"{self.command[0]} cannot measure at a depth")

    def _program(self) -> int:
        """How many words of the command come before its options."""
        return next((i for i, word in enumerate(self.command) if word.startswith("-")), len(self.command))

    def _rows(self, command: Sequence[str]) -> Iterable[tuple[dict[str, Any], int]]:
        out, rss = run(command)
        lines = [line for line in out.splitlines() if not line[:1].isalpha()]  # some print remarks in between
        try:
            rows = json.loads("\n".join(lines))
        except ValueError:
            raise Failed(f"no JSON from {shlex.join(command)}") from None
        for row in rows:
            self.build = f"{row.get('model_type', '')}, build {row.get('build_commit', '')}"
            yield row, rss

    def _series(self, row: dict[str, Any], test: str, work: Work, rss: int) -> Series:
        return Series(self.name, test, work.threads, work.kv, row["samples_ts"], rss)


@lru_cache
def _usage(program: tuple[str, ...]) -> str:
    """The help text of a program."""
    shown = subprocess.run([*program, "--help"], capture_output=True, text=True)
    return shown.stdout + shown.stderr


# ---- the tables ------------------------------------------------------------------------------------------------------


def _order(series: Series) -> tuple[Any, ...]:
    kind, _, depth = series.test.partition(" @")
    return (kind[:2] != "tg", series.kv, int(depth or 0), int(kind[2:]), series.threads)


def markdown(measured: Iterable[Series], ours: Sequence[str]) -> str:
    """A table per test, number of threads and KV type: engines by speed, and how many times as fast each of ours is."""
    tables: dict[tuple[str, int, str], list[Series]] = {}
    for series in sorted(measured, key=_order):
        tables.setdefault(series.key[:3], []).append(series)
    parts = []
    for (test, threads, kv), chosen in tables.items():
        middle = {series.engine: median(series.speeds) for series in chosen}
        own = [name for name in ours if name in middle]
        lines = [
            f"**{test}, {threads} thread{'s' * (threads > 1)}, KV {kv}**",
            "",
            f"| engine | t/s | slowest - fastest | samples | memory GB/s | RSS MB |"
            f"{''.join(f' {name} / it |' for name in own)}",
            f"|---|--:|--:|--:|--:|--:|{'--:|' * len(own)}",
        ]
        for each in sorted(chosen, key=lambda series: -middle[series.engine]):
            cells = [each.engine, f"{middle[each.engine]:.2f}", f"{min(each.speeds):.2f} - {max(each.speeds):.2f}"]
            cells += [str(len(each.speeds)), f"{median(each.memory) / 1e9:.0f}", f"{each.rss / 1e6:.0f}"]
            lines.append(f"| {' | '.join([*cells, *(f'{middle[name] / middle[each.engine]:.2f}' for name in own)])} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


# ---- the command -----------------------------------------------------------------------------------------------------


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 1,2") from None


def _named(text: str) -> tuple[str, list[str]]:
    name, equals, command = text.partition("=")
    if not equals or not name.strip() or not command.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name.strip(), shlex.split(command)


def arguments_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure bitnet-edge and other engines in turns; print the ratios.")
    parser.add_argument("--ours", type=_named, action="append", default=[], metavar="NAME=OPTIONS",
                        help="ours, with options of bitnet-edge bench (-m FILE --set weights=huge); may be repeated")
    parser.add_argument("--peer", type=_named, action="append", default=[], metavar="NAME=COMMAND",
                        help="a llama-bench with its model (path/llama-bench -m FILE); may be repeated")
    parser.add_argument("--prompt", type=_numbers, default=(), metavar="N,N", help="prompt lengths to read (pp)")
    parser.add_argument("--gen", type=int, default=0, metavar="N", help="tokens to write (tg)")
    parser.add_argument("--depth", type=_numbers, default=(0,), metavar="N,N", help="contexts to write after (0)")
    parser.add_argument("--threads", type=_numbers, default=(os.cpu_count() or 1,), metavar="N,N")
    parser.add_argument("--kv", default="f16", metavar="TYPE,TYPE", help=f"of {', '.join(KV_NAMES)} (default f16)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every engine (default 3)")
    parser.add_argument("--repeats", type=int, default=2, help="timings in each turn (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add what was measured to this file")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Measure, print; 1 if an engine failed."""
    parser = arguments_parser()
    chosen = parser.parse_args(arguments)
    kvs = chosen.kv.split(",")
    if unknown := set(kvs) - set(KV_NAMES):
        parser.error(f"KV type {sorted(unknown)[0]!r} is none of {', '.join(KV_NAMES)}")
    engines: list[Ours | Peer] = [Ours(*each) for each in chosen.ours] + [Peer(*each) for each in chosen.peer]
    if len({engine.name for engine in engines}) < len(engines):
        parser.error("every engine needs a name of its own")
    earlier = json.loads(chosen.json.read_text()) if chosen.json and chosen.json.exists() else {}
    measured = {series.key: series for series in (Series(**each) for each in earlier.get("series", []))}
    builds: dict[str, str] = earlier.get("builds", {})
    ours: list[str] = list(dict.fromkeys([*earlier.get("ours", []), *(name for name, _ in chosen.ours)]))
    failures: dict[str, str] = {}
    for turn in range(chosen.rounds):
        for threads in chosen.threads:
            for kv in kvs:
                work = Work(chosen.prompt, chosen.gen, chosen.depth, threads, kv, chosen.repeats)
                for engine in engines:
                    print(f"round {turn + 1}, threads {threads}, KV {kv}: {engine.name}", file=sys.stderr)
                    memory = memory_rate(threads)
                    try:
                        for series in engine.measure(work):
                            series.memory = [memory]
                            if (known := measured.setdefault(series.key, series)) is not series:
                                known.add(series)
                    except Failed as failure:
                        failures[f"{engine.name}, threads {threads}, KV {kv}"] = str(failure)
                    builds[engine.name] = engine.build or builds.get(engine.name, "")
                    if chosen.json:
                        _save(chosen.json, measured.values(), builds, ours)
    print(markdown(measured.values(), ours))
    for name, build in builds.items():
        print(f"* {name}: {build}")
    for name, why in failures.items():
        print(f"* failed: {name}: {why}")
    return 1 if failures else 0


def _save(path: Path, measured: Iterable[Series], builds: dict[str, str], ours: Sequence[str]) -> None:
    from edge.machine.board import Board

    content = {"date": datetime.date.today().isoformat(), **Board().summary(),
               "ours": list(ours), "builds": builds}
    lines = ",\n".join(f"  {json.dumps(asdict(series))}" for series in measured)
    path.write_text(f'{json.dumps(content, indent=1)[:-2]},\n "series": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    sys.exit(main())
