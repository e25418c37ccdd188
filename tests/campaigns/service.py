"""Hostile clients of ``chat --socket``: slow, half-closed, gone at any moment, sending rubbish, in crowds.

    python -m tests.campaigns.service [--minutes 3] [--clients 24] [--seed 1]

Each client behaves as its number says, all at the same time, over the bundled model with two contexts.  Meanwhile
polite clients ask questions whose answers are known.  Nobody may get another's answer, wait for ever or end the
service; at the end nothing is left of them: no request, no descriptor, no memory beyond the first minute's.  Prints
the counts; exit 1 when something was wrong, with the client's number: ``--only N`` runs that one alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.services import Talk, service, short_folder

OPTIONS = ("--parallel", "2", "--ctx", "512")
QUESTIONS = ("Two teas and a scone, please.", "When do you open?", "A large latte.", "Is there a lift?")
ASKED = {"max_tokens": 24, "temperature": 0}


class Visitor:
    """Client ``number``.  ``answers``: question -> what the model says to it."""

    def __init__(self, path: Path, number: int, answers: dict[str, str]) -> None:
        self.path, self.answers = path, answers
        self.rng = random.Random(number)

    def visit(self) -> str:
        """Behave; returns as what.  Raises AssertionError where the service was wrong."""
        kind = self.rng.choice(KINDS)
        with Talk(self.path) as talk:
            if talk.next().get("ev") != "ready":
                return "refused: too many clients"
            getattr(self, kind)(talk)
        return kind

    def check(self, talk: Talk) -> None:
        """The service still answers this client, with its own answer."""
        question = self.rng.choice(QUESTIONS)
        assert talk.answer(question, ident="check", **ASKED) == self.answers[question], f"another answer to {question}"

    def polite(self, talk: Talk) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.check(talk)

    def leaving(self, talk: Talk) -> None:
        """Gone at any moment: while it waits, while its prompt is read, in the middle of a line."""
        for ident in range(self.rng.randint(1, 5)):
            talk.ask(self.rng.choice(QUESTIONS) * self.rng.choice([1, 50]), ident, max_tokens=400, ignore_eos=True)
        if self.rng.random() < 0.3:
            talk.send(b'{"op":"chat","mess')
        time.sleep(self.rng.random() ** 3)

    def half_closed(self, talk: Talk) -> None:
        talk.ask(QUESTIONS[0], **ASKED)
        talk.socket.shutdown(1)
        said = ""
        while (event := talk.next()).get("ev") != "done":
            assert event, "the connection ended before the answer"
            said += event.get("text", "")
        assert said == self.answers[QUESTIONS[0]] and talk.next() == {}

    def deaf(self, talk: Talk) -> None:
        """Asks much and reads nothing for a while: dropped, or answered in full."""
        for ident in range(30):
            talk.ask("Tell me everything.", ident, max_tokens=2000, ignore_eos=True)
        time.sleep(self.rng.random() * 3)
        with contextlib.suppress(OSError, AssertionError):
            talk.send({"op": "ping"})
            talk.until("pong")

    def rubbish(self, talk: Talk) -> None:
        wrong = 0
        for _ in range(self.rng.randint(1, 60)):
            line = self.rng.choice([
                self.rng.randbytes(self.rng.randint(1, 400)).replace(b"\n", b" ").strip() or b"x",
                b"[" * self.rng.choice([3, 50_000]), b"GET / HTTP/1.1", b'{"op":"chat"}',
                b'{"op":"chat","messages":[{}]}',
                b'{"op":"cancel","id":"nobody"}', b'{"v":9,"op":"ping"}', b'{"op":"chat","messages":5,"id":[1]}',
                b'{"op":"chat","messages":[{"role":"user","content":"x"}],"timeout":' + b"9" * 500 + b"}",
            ])  # fmt: skip
            wrong += bool(line.strip())
            talk.send(line + b"\n")
        talk.send({"op": "ping"})
        events = talk.until("pong")
        assert [event["ev"] for event in events] == ["error"] * wrong + ["pong"], [event["ev"] for event in events]
        self.check(talk)

    def huge(self, talk: Talk) -> None:
        """A line beyond the limit, and one as long as it may be."""
        piece = b"x" * 65536
        for _ in range(self.rng.choice([70, 90])):
            talk.send(piece)
        talk.send(b"\n")
        assert talk.next()["code"] in ("too_long", "busy")  # busy: others hold the memory for requests
        talk.ask("y" * (3 << 20), timeout=0.5)
        assert talk.until("done", "error")[-1]["ev"] in ("done", "error")
        self.check(talk)

    def dripping(self, talk: Talk) -> None:
        """A byte at a time."""
        data = json.dumps({"op": "chat", "id": 1, "messages": [{"role": "user", "content": QUESTIONS[1]}], **ASKED})
        for byte in data.encode() + b"\n":
            talk.send(bytes([byte]))
        events = talk.until("done")
        assert "".join(event.get("text", "") for event in events) == self.answers[QUESTIONS[1]]

    def cancelling(self, talk: Talk) -> None:
        """Cancels and short times: every request gets exactly one last event."""
        idents = list(range(self.rng.randint(1, 20)))
        for ident in idents:
            more: dict[str, Any] = {"timeout": self.rng.random() / 5 + 0.001} if self.rng.random() < 0.5 else {}
            talk.ask(self.rng.choice(QUESTIONS), ident, max_tokens=300, ignore_eos=True, **more)
        for ident in self.rng.sample(idents, len(idents) // 2):
            talk.send({"op": "cancel", "id": ident})
        last: Counter[Any] = Counter()
        deadline = time.monotonic() + 120
        while len(last) < len(idents) and time.monotonic() < deadline:
            event = talk.next()
            assert event, "the connection ended"
            if event["ev"] == "done" or (event["ev"] == "error" and event["code"] != "unknown_id"):
                last[event["id"]] += 1
                assert event["ev"] == "done" and set(event["usage"]) >= {"prompt", "cached", "completion", "evicted"}
        assert set(last.values()) == {1}, last
        self.check(talk)

    def crowd(self, talk: Talk) -> None:
        """Many at once, of whom some find no place."""
        with contextlib.ExitStack() as stack:
            for _ in range(self.rng.randint(10, 80)):
                more = stack.enter_context(Talk(self.path))
                if self.rng.random() < 0.3:
                    with contextlib.suppress(OSError):
                        more.send({"op": "info"})
            time.sleep(self.rng.random() / 2)
        self.check(talk)


KINDS = ("polite", "leaving", "half_closed", "deaf", "rubbish", "huge", "dripping", "cancelling", "crowd")


def facts_of(pid: int) -> tuple[int, int]:
    """(open descriptors, resident bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return len(os.listdir(f"/proc/{pid}/fd")), pages * os.sysconf("SC_PAGE_SIZE")


def campaign(
    seconds: float = 180, clients: int = 24, seed: int = 1, only: int | None = None
) -> tuple[Counter[str], list[str]]:
    """(counts, what was wrong)."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with short_folder() as folder:
        path = folder / "socket"
        with service(path, *OPTIONS) as process:
            with Talk(path) as talk:
                talk.next()
                answers = {question: talk.answer(question, **ASKED) for question in QUESTIONS}
            before, _ = facts_of(process.pid)
            until = time.monotonic() + seconds
            numbers = iter(range(seed * 1_000_000, (seed + 1) * 1_000_000))
            lock = threading.Lock()
            most = 0

            def run() -> None:
                while time.monotonic() < until and not wrong:
                    with lock:
                        number = next(numbers) if only is None else only
                    try:
                        kind = Visitor(path, number, answers).visit()
                    except (AssertionError, OSError, KeyError, ValueError) as error:
                        # a client beyond the limit may be reset while it still sends
                        if isinstance(error, (BrokenPipeError, ConnectionResetError)):
                            kind = "disconnected while sending"
                        else:
                            wrong.append(f"client {number}: {type(error).__name__}: {str(error)[:300]}")
                            return
                    counts[kind] += 1
                    if only is not None:
                        return

            threads = [threading.Thread(target=run, daemon=True) for _ in range(clients if only is None else 1)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads) and time.monotonic() < until + 300:
                time.sleep(0.2)
                if process.poll() is not None:
                    wrong.append(f"the service ended with {process.returncode}")
                    break
                most = max(most, facts_of(process.pid)[1])
            if any(thread.is_alive() for thread in threads):
                wrong.append("clients that are still waiting after five minutes")
            if process.poll() is None:
                wrong += _aftermath(process.pid, path, answers, before)
                counts["resident MB at most"] = most // 1_000_000
                process.send_signal(signal.SIGTERM)
                if process.wait(60) != 143 or path.exists():
                    wrong.append(f"SIGTERM: exit code {process.returncode}, socket left: {path.exists()}")
                assert process.stderr
                if said := process.stderr.read():
                    wrong.append(f"standard error: {said[:300]!r}")
    return counts, wrong


def _aftermath(pid: int, path: Path, answers: dict[str, str], before: int) -> list[str]:
    """What is left when all have gone; nothing should be."""
    deadline = time.monotonic() + 30
    while True:
        with Talk(path) as talk:
            if talk.next().get("ev") == "ready":
                talk.send({"op": "info"})
                pending = talk.next()["pending"]
                told = {question: talk.answer(question, **ASKED) for question in QUESTIONS}
            else:
                pending, told = -1, answers
        descriptors, _ = facts_of(pid)
        if told != answers:
            return ["answers are other ones at the end"]
        if pending == 0 and descriptors <= before + 2:
            return []
        if time.monotonic() > deadline:
            return [f"left at the end: {pending} requests, {descriptors - before} descriptors"]
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.clients} clients at a time, {arguments.minutes:g} minutes")
    counts, wrong = campaign(60 * arguments.minutes, arguments.clients, arguments.seed, arguments.only)
    for name, n in sorted(counts.items()):
        print(f"{n:>9} {name}")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
