"""Faults of the system: full disks, writes that fail, memory that is refused, a kill in the middle of saving.

Each number is one run of the program under one fault, at a point that the number chooses.  Allowed are an exit code of
docs/contract.md with at most one line on standard error, and the kill that was ours; a session file holds what it held
before or what was saved, whole.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from edge.errors import EXIT_CODES
from tests.services import REAL, environment

ASK = ("-n", "8", "--seed", "1", "hello")
BOUND = 120  # seconds


class Fault:
    """Run ``number``, in a folder of its own.  ``session``: a session file that is whole."""

    def __init__(self, folder: Path, number: int, session: Path) -> None:
        self.folder, self.session = folder, session
        self.rng = random.Random(number)

    def run(
        self, *arguments: str, limit: tuple[int, int] | None = None, kill: float | None = None,
        stdout: str | None = None, stdin: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        """The program under a limit (resource, value), killed after so many seconds, or writing
        to a file."""
        def limited() -> None:
            if limit is not None:
                resource.setrlimit(limit[0], (limit[1], limit[1]))

        out = subprocess.PIPE if stdout is None else open(stdout, "wb")  # noqa: SIM115  closed below
        try:
            process = subprocess.Popen(
                [*REAL, *arguments], cwd=self.folder, env=environment(),
                stdin=subprocess.PIPE, stdout=out, stderr=subprocess.PIPE, preexec_fn=limited,
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
        how = self.rng.choice([("run",), ("run", "--json"), ("run", "--by", "sentence")])
        done = self.run(*how, *ASK, stdout="/dev/full")
        assert done.returncode == 1 and done.stderr, done
        return "exit 1"

    def memory_refused(self) -> str:
        """Less address space than the program wants, from none to enough."""
        limit = self.rng.randint(24, 64) << 20
        done = self.run("run", *ASK, limit=(resource.RLIMIT_AS, limit))
        return f"exit {done.returncode}"

    def few_descriptors(self) -> str:
        """With four, Python itself cannot start."""
        done = self.run("run", *ASK, limit=(resource.RLIMIT_NOFILE, self.rng.randint(5, 24)))
        return f"exit {done.returncode}"


FAULTS: tuple[Callable[[Fault], str], ...] = (
    Fault.disk_full_while_saving, Fault.killed_while_saving, Fault.output_cannot_be_written, Fault.memory_refused,
    Fault.few_descriptors,
)


def campaign(
    seconds: float, seed: int, only: int | None = None, most: int = 1 << 30
) -> tuple[Counter[str], list[str]]:
    """(counts, what was wrong)."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        session = Path(name) / "whole.bes"
        question = "Tell me about the tea, the boats, and everything else that there is to see in the harbour, please."
        subprocess.run([*REAL, "run", "--session", str(session), "-n", "8", "--seed", "1", question], check=True,
                       env=environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND)
        until = time.monotonic() + seconds
        number = seed * 1_000_000 if only is None else only
        while time.monotonic() < until and sum(counts.values()) < most:
            fault = FAULTS[number % len(FAULTS)]
            folder = Path(name) / str(number)
            folder.mkdir()
            try:
                counts[f"{fault.__name__}: {fault(Fault(folder, number, session))}"] += 1
            except (AssertionError, ValueError, KeyError) as error:
                wrong.append(f"number {number} ({fault.__name__}): {str(error)[:400]}")
                counts[f"{fault.__name__}: wrong"] += 1
            shutil.rmtree(folder)
            if only is not None:
                break
            number += 1
    return counts, wrong
