"""Faults of the system: full disks, writes that fail, memory that is refused, a kill in the middle of saving.

    python -m tests.campaigns.faults [--minutes 3] [--seed 1]

Each number is one run of the program under one fault, at a point that the number chooses.  Allowed are an exit code of
docs/contract.md with at most one line on standard error, and the kill that was ours; a session file holds what it held
before or what was saved, whole.  Prints the counts; exit 1 when something was wrong, with the number: ``--only N`` runs
it again.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge.errors import EXIT_CODES
from edge.registry.library import demo
from tests.limits import can_limit_threads, few_threads
from tests.services import REAL, environment

ASK = ("-n", "8", "--seed", "1", "hello")
#: a system prompt that takes longer to read than to load
SYSTEM = ("run", "--json", "-t", "1", "--isa", "scalar", "-n", "8", "--greedy", "--system",
          " ".join(f"Table {i} has {i % 7} seats and stands by window {i % 5}." for i in range(60)), "hello")
BOUND = 120  # seconds


class Fault:
    """Run ``number``, in a folder of its own.  ``session``: a session file that is whole; ``prompt``: a file with what
    was read of SYSTEM; ``answer``: what is said with that.
    """

    def __init__(self, folder: Path, number: int, session: Path, prompt: Path, answer: str) -> None:
        self.folder, self.session, self.prompt, self.answer = folder, session, prompt, answer
        self.rng = random.Random(number)

    def run(
        self, *arguments: str, limit: tuple[int, int] | None = None, kill: float | None = None,
        stdout: str | None = None, stdin: bytes = b"", prepare: Callable[[], None] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """The program under a limit (resource, value) or prepared otherwise, killed after so many seconds, or writing
        to a file."""
        def limited() -> None:
            if limit is not None:
                resource.setrlimit(limit[0], (limit[1], limit[1]))

        out = subprocess.PIPE if stdout is None else open(stdout, "wb")  # noqa: SIM115  closed below
        try:
            process = subprocess.Popen(
                [*REAL, *arguments], cwd=self.folder, env=environment(**remembering(self.folder)),
                stdin=subprocess.PIPE, stdout=out, stderr=subprocess.PIPE, preexec_fn=prepare or limited,
            )
            try:
                said, error = process.communicate(stdin, timeout=BOUND if kill is None else kill)
            except subprocess.TimeoutExpired:
                assert kill is not None, f"no end after {BOUND} seconds"
                process.kill()
                said, error = process.communicate()
        finally:
            if stdout is not None:
                out.close()  # type: ignore[union-attr]
        done = subprocess.CompletedProcess(arguments, process.returncode, said, error)
        allowed = {*EXIT_CODES, -signal.SIGKILL} if kill is not None else set(EXIT_CODES)
        assert done.returncode in allowed, f"exit code {done.returncode}: {error[-300:]!r}"
        assert error.count(b"\n") <= 1 and b"Traceback" not in error, f"standard error: {error[-300:]!r}"
        return done

    def remembered(self, data: bytes | None = None) -> Path:
        """The folder of remembered prompts: with ``data`` as the file; else the prompt is to be written there."""
        kept = self.folder / "cache" / "beginnings" / self.prompt.name
        for each in (kept.parent.parent, kept.parent):
            each.mkdir(mode=0o700)
        if data is None:
            kept.with_suffix(".seen").touch()
        else:
            kept.write_bytes(data)
        return kept

    def right(self, **how: Any) -> int:
        """Ask with SYSTEM.  Returns how many tokens were not read again."""
        done = self.run(*SYSTEM, **how)
        if done.returncode < 0:
            return 0
        assert done.returncode == 0, done
        said = json.loads(done.stdout)
        assert said["text"] == self.answer, f"another answer: {said['text']!r}"
        return int(said["usage"]["cached"])

    def copied(self) -> str:
        shutil.copy(self.session, self.folder / "s.bes")
        return str(self.folder / "s.bes")

    def whole(self, path: str) -> None:
        """The session can be gone on with, and what was saved before is in it."""
        done = self.run("run", "--session", path, "--session-ro", "--json", *ASK)
        assert done.returncode == 0, f"the session file is not whole: {done.stderr!r}"
        usage = json.loads(done.stdout)["usage"]
        assert usage["cached"] > 20, f"what was saved is gone: {usage}"

    # ---- the faults --------------------------------------------------------------------------------------------------

    def disk_full_while_saving(self) -> str:
        """A file may not grow beyond some size: the session is the old one."""
        path = self.copied()
        size = self.session.stat().st_size
        before = self.session.read_bytes()
        done = self.run("run", "--session", path, *ASK, limit=(resource.RLIMIT_FSIZE, self.rng.randint(0, size)))
        assert done.returncode in (0, 1, 2), done.returncode
        if done.returncode:
            assert Path(path).read_bytes() == before, "a failed save changed the file"
        assert not [each for each in self.folder.iterdir() if each.name not in ("s.bes",)], "something was left behind"
        self.whole(path)
        return f"exit {done.returncode}"

    def killed_while_saving(self) -> str:
        """A chat saves after every answer, as fast as it can."""
        path = self.copied()
        hello, seconds = b"hello\n" * 5000, self.rng.uniform(0.3, 2)
        done = self.run("chat", "-q", "--session", path, "-n", "2", stdin=hello, kill=seconds)
        self.whole(path)
        return "killed" if done.returncode < 0 else f"exit {done.returncode}"

    def output_cannot_be_written(self) -> str:
        how = self.rng.choice([("run",), ("run", "--json"), ("run", "--jsonl"), ("run", "--by", "sentence")])
        done = self.run(*how, *ASK, stdout="/dev/full")
        assert done.returncode == 1 and done.stderr, done
        return "exit 1"

    def output_is_cut(self) -> str:
        """A file that takes so many bytes and no more."""
        path = str(self.folder / "out")
        done = self.run("run", "-n", "200", "--ignore-eos", "hello", stdout=path,
                        limit=(resource.RLIMIT_FSIZE, self.rng.randint(0, 400)))
        assert done.returncode in (0, 1), done.returncode
        return f"exit {done.returncode}"

    def memory_refused(self) -> str:
        """Less address space than the program wants, from none to enough."""
        limit = self.rng.randint(24, 64) << 20
        done = self.run("run", *ASK, limit=(resource.RLIMIT_AS, limit))
        return f"exit {done.returncode}"

    def few_descriptors(self) -> str:
        """With four, Python itself cannot start."""
        done = self.run("run", *ASK, limit=(resource.RLIMIT_NOFILE, self.rng.randint(5, 24)))
        return f"exit {done.returncode}"

    def no_threads(self) -> str:
        """Fewer threads than are wanted: an answer on fewer, or one line."""
        if not can_limit_threads():
            return "not possible here"
        threads = self.rng.randint(1, 8)
        done = self.run("run", "-t", "8", *ASK, prepare=few_threads(threads))
        assert done.returncode == 0 and (b"instead of 8" in done.stderr) == (threads < 8), (threads, done)
        return "exit 0 on fewer threads" if threads < 8 else "exit 0"

    def model_is_cut(self) -> str:
        """A model file that ends anywhere."""
        data = Path(demo()).read_bytes()
        (self.folder / "m.gguf").write_bytes(data[: self.rng.randrange(len(data))])
        done = self.run("run", "-m", "m.gguf", *ASK)
        assert done.returncode == 4, done.returncode
        return "exit 4"

    def session_is_cut(self) -> str:
        """A session file that ends anywhere is refused, and left as it is."""
        data = self.session.read_bytes()
        data = data[: self.rng.randrange(1, len(data))]
        path = self.folder / "s.bes"
        path.write_bytes(data)
        done = self.run("run", "--session", "s.bes", *ASK)
        assert done.returncode == 4 and path.read_bytes() == data, done.returncode
        return "exit 4"

    def remembered_prompt_is_damaged(self) -> str:
        """Bytes that are wrong, missing or too many: the answer is right, and the file is replaced or gone."""
        data = bytearray(self.prompt.read_bytes())
        for _ in range(self.rng.randint(1, 4)):
            at = self.rng.choice((self.rng.randrange(400), self.rng.randrange(len(data))))
            kind = self.rng.randrange(4)
            if kind == 0:
                data[at] ^= 1 << self.rng.randrange(8)
            elif kind == 1:
                del data[at : at + self.rng.randint(1, 5000)]
            elif kind == 2:
                data[at:at] = self.rng.randbytes(self.rng.randint(1, 5000))
            else:
                del data[self.rng.randrange(len(data)) :]
                break
        self.remembered(bytes(data))
        cached = self.right()
        assert not cached or bytes(data) == self.prompt.read_bytes(), "a damaged file was used"
        return "read again"

    def killed_while_remembering(self) -> str:
        kept = self.remembered()
        self.right(kill=self.rng.uniform(0.2, 1.2))
        there = kept.exists()
        assert (self.right() > 100) == there, "half a file was used, or a whole one was not"
        return "written before" if there else "not written"

    def disk_full_while_remembering(self) -> str:
        kept = self.remembered()
        assert self.right(limit=(resource.RLIMIT_FSIZE, self.rng.randint(0, self.prompt.stat().st_size - 1))) == 0
        left = [each.name for each in kept.parent.iterdir() if each.suffix not in (".seen", ".model")]
        assert not left, f"something was left behind: {left}"
        return "not written"


def remembering(folder: Path) -> dict[str, str]:
    """Variables: prompts are remembered in this folder, if it has a folder for them."""
    cache = folder / "cache"
    return {"BITNET_EDGE_CACHE": str(cache), "BITNET_EDGE_NO_CACHE": "" if cache.is_dir() else "1"}


FAULTS: tuple[Callable[[Fault], str], ...] = (
    Fault.disk_full_while_saving, Fault.killed_while_saving, Fault.output_cannot_be_written, Fault.output_is_cut,
    Fault.memory_refused, Fault.few_descriptors, Fault.no_threads, Fault.model_is_cut, Fault.session_is_cut,
    Fault.remembered_prompt_is_damaged, Fault.killed_while_remembering, Fault.disk_full_while_remembering,
)


def campaign(
    seconds: float = 180, seed: int = 1, only: int | None = None, most: int = 1 << 30
) -> tuple[Counter[str], list[str]]:
    """(counts, what was wrong)."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        session = Path(name) / "whole.bes"
        question = "Tell me about the tea, the boats, and everything else that there is to see in the harbour, please."
        subprocess.run([*REAL, "run", "--session", str(session), "-n", "8", "--seed", "1", question], check=True,
                       env=environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND)
        (Path(name) / "cache").mkdir(mode=0o700)
        for _ in range(2):  # it is written when it is read for the second time
            done = subprocess.run([*REAL, *SYSTEM], check=True, env=environment(**remembering(Path(name))),
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND)
        (prompt,) = (Path(name) / "cache" / "beginnings").glob("*.bes")
        answer = json.loads(done.stdout)["text"]
        until = time.monotonic() + seconds
        number = seed * 1_000_000 if only is None else only
        while time.monotonic() < until and sum(counts.values()) < most:
            fault = FAULTS[number % len(FAULTS)]
            folder = Path(name) / str(number)
            folder.mkdir()
            try:
                counts[f"{fault.__name__}: {fault(Fault(folder, number, session, prompt, answer))}"] += 1
            except (AssertionError, ValueError, KeyError) as error:
                wrong.append(f"number {number} ({fault.__name__}): {str(error)[:400]}")
                counts[f"{fault.__name__}: wrong"] += 1
            shutil.rmtree(folder)
            if only is not None:
                break
            number += 1
    return counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.minutes:g} minutes")
    counts, wrong = campaign(60 * arguments.minutes, arguments.seed, arguments.only)
    for name, n in sorted(counts.items()):
        print(f"{n:>9} {name}")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
