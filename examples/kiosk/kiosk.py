#!/usr/bin/env python3
"""A kiosk in Python: reads one question per line from standard input and speaks the answer sentence by sentence.

    speech-to-text | python kiosk.py --system museum.txt --speak 'espeak-ng --stdin'

The next sentence is generated while the last one is spoken.  After a minute of silence the conversation is cleared for
the next visitor.  Under systemd (Type=notify, WatchdogSec=60) it reports READY=1 and feeds the watchdog.  Exit codes: 0
at the end of the input, 143 on SIGTERM, 130 on SIGINT, and the documented code of bitnet-edge if the model cannot be
loaded.  No input of a visitor ends the program.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import edge

LONGEST = 500  # characters of a question
SORRY = "Sorry, I cannot answer that now."


class Stop(BaseException):
    """A signal ended the kiosk; passes through `except Exception`."""


def notify(state: str) -> None:
    """Send "READY=1" or "WATCHDOG=1" to systemd, if it started this program."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):  # a name without a file
        address = "\0" + address[1:]
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, contextlib.suppress(OSError):
            channel.sendto(state.encode(), address)


class Speaker:
    """Speaks sentences in order in a separate thread; without a command it prints them."""

    def __init__(self, command: str) -> None:
        self.command = shlex.split(command)
        self._sentences: queue.Queue[str] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._starting = threading.Lock()  # held while the command starts: stop() must know every process
        if self.command:
            threading.Thread(target=self._work, daemon=True).start()

    def say(self, sentence: str) -> None:
        """Returns at once when a command speaks."""
        sentence = " ".join("".join(c if c.isprintable() else " " for c in sentence).split())
        if not sentence:
            return
        if self.command:
            self._sentences.put(sentence)
        else:
            print(sentence, flush=True)

    def wait(self) -> None:
        """Until all is said: a microphone should not hear us."""
        while self._sentences.unfinished_tasks:
            notify("WATCHDOG=1")
            time.sleep(0.1)

    def _work(self) -> None:
        while True:
            sentence = self._sentences.get()
            try:
                with self._starting:
                    if self._stopped:
                        return
                    self._process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=sys.stderr.fileno())
                self._process.communicate(sentence.encode() + b"\n", timeout=60)
                failed = self._process.returncode != 0
            except (OSError, ValueError):
                failed = True
            except subprocess.TimeoutExpired:
                self._silence()
                failed = True
            if failed and not self._stopped:
                print(f"kiosk: speaking failed; the sentence was: {sentence}", file=sys.stderr)
            self._sentences.task_done()

    def _silence(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Silence the voice, and speak nothing more."""
        with self._starting:
            self._stopped = True
            self._silence()


def questions(idle: float) -> Iterator[str | None]:
    """Lines of standard input, made harmless; None each time nobody has spoken for ``idle`` seconds."""
    held = b""
    heard: float | None = None  # when, and None when there is nothing to forget
    while True:
        notify("WATCHDOG=1")
        if not select.select([0], [], [], min(idle, 1.0))[0]:
            if heard is not None and time.monotonic() - heard >= idle:
                heard = None
                yield None
            continue
        data = os.read(0, 1 << 16)
        *lines, held = (held + data).split(b"\n")
        held = held[: 1 << 16]  # a line without end must not fill the memory
        if not data:
            lines.append(held)
        for line in lines:
            text = "".join(c if c.isprintable() else " " for c in line.decode(errors="replace"))
            if text.strip():
                yield text.strip()[:LONGEST]
        heard = time.monotonic()
        if not data:
            return


def answer(session: edge.Session, question: str, speaker: Speaker, options: argparse.Namespace) -> None:
    """Think and speak; whatever goes wrong becomes a sentence."""
    try:
        for piece in session.ask(
            question,
            max_tokens=options.max_tokens,
            by="sentence",
            timeout=options.timeout,
            on_prefill=lambda done, total, cached: notify("WATCHDOG=1"),
        ):
            # A sentence takes at most --timeout seconds, which is why feeding the watchdog here is often enough.
            notify("WATCHDOG=1")
            speaker.say(piece.text)
        if session.finish_reason == "timeout":
            speaker.say("Sorry, that took too long.")
    except BrokenPipeError:  # nobody listens any more
        raise
    except Exception as error:
        print(f"kiosk: {type(error).__name__}: {error}", file=sys.stderr)
        speaker.say(SORRY)


def main() -> int:
    """Load, greet, answer until the input ends."""
    parser = argparse.ArgumentParser(description="A kiosk: questions on standard input, answers spoken or printed.")
    parser.add_argument("--model", help="model file (default: the bundled model)")
    parser.add_argument("--system", metavar="FILE", help="text file with the system prompt")
    parser.add_argument("--speak", default="", metavar="COMMAND", help="program that speaks its standard input")
    parser.add_argument("--ctx", type=int, help="context in tokens")
    parser.add_argument("--memory", help="memory limit, such as 1500M")
    parser.add_argument("--threads", type=int, help="threads; leave one core for the display")
    parser.add_argument("--max-tokens", type=int, default=80, help="maximum length of an answer (default 80)")
    parser.add_argument("--timeout", type=float, default=30, help="timeout of an answer in seconds (default 30)")
    parser.add_argument("--idle", type=float, default=60, help="clear the chat after these seconds of silence")
    options = parser.parse_args()

    def stop(number: int, _frame: object) -> None:
        ignore_signals()  # a second one must not interrupt the end
        raise Stop(128 + number)

    def ignore_signals() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    speaker = Speaker(options.speak)
    try:
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        system = Path(options.system).read_text(encoding="utf-8").strip() if options.system else None
        wishes = {"ctx": options.ctx, "memory": options.memory, "threads": options.threads}
        with edge.load(options.model, system=system, **wishes) as engine:  # the system prompt never slides out of sight
            session = engine.session(system)
            session.warm()  # the system prompt is read once, before the first visitor comes
            notify("READY=1")
            speaker.say("Hello, what would you like to know?")
            for question in questions(options.idle):
                if question is None:
                    session.clear()
                    continue
                answer(session, question, speaker, options)
                speaker.wait()
            speaker.wait()
    except Stop as signalled:
        return int(signalled.args[0])
    except edge.EdgeError as error:
        print(f"kiosk: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the last flush must not fail again
        return 0
    except (OSError, ValueError) as error:  # --system
        print(f"kiosk: {error}", file=sys.stderr)
        return 2
    finally:
        ignore_signals()
        speaker.stop()
        notify("STOPPING=1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
