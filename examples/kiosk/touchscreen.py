#!/usr/bin/env python3
"""A touchscreen client of the service: type or touch a question, read the answer while it is generated.

    python3 touchscreen.py [--socket /run/bitnet-edge/socket] [--suggest "Where is the lift?"] [--terminal]

Needs only Python's standard library (Debian: python3, python3-tk).  Without a display it runs in the terminal and reads
one question per line.  It uses the JSONL protocol of `bitnet-edge chat --socket`.  No input of a visitor ends the
program; if the service restarts, it reconnects and continues.  After a minute without input, it clears the chat.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial

LONGEST = 500  # characters of a question
TURNS = 6  # messages that are remembered
WAITING = "One moment, please."
SORRY = "Sorry, I cannot answer that now."


def clean(text: object, longest: int = LONGEST) -> str:
    """Text made safe to send and show: control characters and surrogates become spaces; at most ``longest`` long."""
    kept = (c if c.isprintable() and not "\ud800" <= c <= "\udfff" else " " for c in str(text))
    return " ".join("".join(kept).split())[:longest]


class Link:
    """The connection to the service; a separate thread reconnects it.

    ``events`` brings ("up", ""), ("down", why), ("text", part of an answer) and ("end", finish reason or "error").
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.events: queue.Queue[tuple[str, str]] = queue.Queue()
        self._socket: socket.socket | None = None
        self._number = 0
        threading.Thread(target=self._work, daemon=True).start()

    def ask(self, messages: list[dict[str, str]]) -> None:
        """Send a question; its answer comes as events."""
        self._number += 1
        request = {"v": 1, "id": self._number, "op": "chat", "messages": messages, "max_tokens": 120, "by": "word",
                   "timeout": 60}  # fmt: skip
        try:
            if self._socket is None:
                raise OSError("not connected")
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            self.events.put(("end", "error"))

    def forget(self) -> None:
        """Events of an answer that is still coming will be dropped."""
        self._number += 1

    def _work(self) -> None:
        while True:
            why = "closed"
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(self.path)
                    with connection.makefile("rb") as lines:
                        for line in lines:
                            self._take(line, connection)
            except Exception as error:
                why = str(error)
            self._socket = None
            self.events.put(("down", why))
            time.sleep(1.0)

    def _take(self, line: bytes, connection: socket.socket) -> None:
        event = json.loads(line)
        kind = event.get("ev")
        if kind == "ready":
            self._socket = connection
            self.events.put(("up", ""))
        elif event.get("id") != self._number:
            pass  # of a question that was given up
        elif kind == "text":
            self.events.put(("text", event["text"]))
        elif kind in ("done", "error"):
            self.events.put(("end", str(event.get("finish_reason", "error"))))


class Dialogue:
    """What was said, and what is being said; the same for the screen and the terminal."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.messages: collections.deque[dict[str, str]] = collections.deque(maxlen=TURNS)
        self.answer = ""
        self.busy = False
        self.up = False

    def ask(self, typed: object) -> bool:
        """False where there is nothing to ask, or while an answer is being given."""
        question = clean(typed)
        if not question or self.busy or not self.up:
            return False
        while self.messages and self.messages[0]["role"] != "user":
            self.messages.popleft()
        self.messages.append({"role": "user", "content": question})
        self.answer, self.busy = "", True
        self.link.ask(list(self.messages))
        return True

    def hear(self, kind: str, text: str) -> str:
        """One event of the link -> what to add to the answer."""
        if kind in ("up", "down"):
            self.up = kind == "up"
            if self.up or not self.busy:
                return ""
            kind, text = "end", "error"  # the service went away during the answer
        if not self.busy:
            return ""
        if kind == "text":
            self.answer += text
            return text
        self.busy = False
        if text in ("stop", "length") and self.answer.strip():
            self.messages.append({"role": "assistant", "content": self.answer})
            return ""
        self.messages.pop()  # a question without an answer would confuse the next one
        return "" if self.answer.strip() and text == "timeout" else f" {SORRY}" if self.answer else SORRY

    def wipe(self) -> None:
        """Another visitor."""
        self.link.forget()
        self.messages.clear()
        self.answer, self.busy = "", False


# ---- the terminal ----------------------------------------------------------------------------------------------------


def terminal(link: Link, idle: float) -> int:
    """A question a line; ends with the input."""
    dialogue = Dialogue(link)
    touched = time.monotonic()
    for line in standard_input():
        if time.monotonic() - touched > idle:
            dialogue.wipe()
        touched = time.monotonic()
        while not link.events.empty():  # did the service go away meanwhile?
            dialogue.hear(*link.events.get())
        told = False
        while not dialogue.up:
            dialogue.hear(*link.events.get())
            if not dialogue.up and not told:
                print(WAITING, file=sys.stderr, flush=True)
                told = True
        if not dialogue.ask(line.decode(errors="replace")):
            continue
        while dialogue.busy:
            print(clean_lines(dialogue.hear(*link.events.get())), end="", flush=True)
        print(flush=True)
    return 0


def clean_lines(text: str) -> str:
    """As printable as :func:`clean`, blanks and line ends kept."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def standard_input() -> Iterator[bytes]:
    """Its lines; what is too long comes in parts, of which the dialogue keeps the beginning."""
    while line := sys.stdin.buffer.readline(1 << 16):
        yield line


# ---- the screen ------------------------------------------------------------------------------------------------------


class Screen:
    """A window over the whole display: the conversation, a line to type in, buttons for questions often asked."""

    def __init__(self, link: Link, suggestions: list[str], idle: float, windowed: bool) -> None:
        import tkinter as tk
        from tkinter import scrolledtext

        self.dialogue = Dialogue(link)
        self.idle = idle
        self.touched = time.monotonic()
        self.root = tk.Tk()
        self.root.title("bitnet-edge")
        self.root.attributes("-fullscreen", not windowed)
        self.root.protocol("WM_DELETE_WINDOW", lambda: None)  # a kiosk cannot be closed by touch
        self.root.report_callback_exception = self._survive
        self.status = tk.Label(self.root, text=WAITING, font=("TkDefaultFont", 14))
        self.status.pack(side=tk.TOP, fill=tk.X)
        bottom = tk.Frame(self.root)
        bottom.pack(side=tk.BOTTOM, fill=tk.X)
        for words in suggestions:
            button = tk.Button(bottom, text=words, font=("TkDefaultFont", 18), command=partial(self.ask, words))
            button.pack(side=tk.TOP, fill=tk.X)
        self.entry = tk.Entry(bottom, font=("TkDefaultFont", 22))
        self.entry.pack(side=tk.LEFT, fill=tk.X, expand=True)
        self.entry.bind("<Return>", lambda _event: self.ask(self.entry.get()))
        button = tk.Button(bottom, text="Ask", font=("TkDefaultFont", 22), command=lambda: self.ask(self.entry.get()))
        button.pack(side=tk.RIGHT)
        self.view = scrolledtext.ScrolledText(self.root, font=("TkDefaultFont", 20), wrap=tk.WORD, state=tk.DISABLED)
        self.view.pack(fill=tk.BOTH, expand=True)
        self.entry.focus_set()
        self.root.bind_all("<Any-KeyPress>", self._touch)
        self.root.bind_all("<Any-Button>", self._touch)
        self.root.after(50, self._tick)

    def run(self) -> int:
        """Until a signal comes."""
        self.root.mainloop()
        return 0

    def ask(self, typed: object) -> None:
        """A question, from the line or a button."""
        self._touch()
        if self.dialogue.ask(typed):
            self.entry.delete(0, "end")
            self.show(f"\n> {self.dialogue.messages[-1]['content']}\n")

    def show(self, text: str) -> None:
        """Append to the conversation."""
        self.view.configure(state="normal")
        self.view.insert("end", text)
        self.view.delete("1.0", "end - 500 lines")  # a visitor who never stops must not fill the memory
        self.view.configure(state="disabled")
        self.view.see("end")

    def _touch(self, _event: object = None) -> None:
        self.touched = time.monotonic()

    def _tick(self) -> None:
        self.root.after(50, self._tick)  # first: whatever fails below, the next tick comes
        link, dialogue = self.dialogue.link, self.dialogue
        while not link.events.empty():
            self.show(clean_lines(dialogue.hear(*link.events.get())))
        self.status.configure(text=WAITING if dialogue.busy or not dialogue.up else "Ask me something.")
        if dialogue.messages and not dialogue.busy and time.monotonic() - self.touched > self.idle:
            dialogue.wipe()
            self.view.configure(state="normal")
            self.view.delete("1.0", "end")
            self.view.configure(state="disabled")

    def _survive(self, kind: type[BaseException], error: BaseException, _trace: object) -> None:
        """Tk calls this for every exception in a callback."""
        if not isinstance(error, Exception):
            raise error
        print(f"touchscreen: {kind.__name__}: {error}", file=sys.stderr, flush=True)


def main() -> int:
    """A screen where there is one."""
    parser = argparse.ArgumentParser(description="A touchscreen for the bitnet-edge service.")
    parser.add_argument("--socket", default="/run/bitnet-edge/socket", help="socket of the service")
    parser.add_argument("--suggest", action="append", default=[], metavar="QUESTION", help="add a button; repeatable")
    parser.add_argument("--idle", type=float, default=60, help="clear the screen after these seconds without input")
    parser.add_argument("--windowed", action="store_true", help="use a window instead of the full screen")
    parser.add_argument("--terminal", action="store_true", help="use the terminal even if there is a display")
    options = parser.parse_args()
    if len(os.fsencode(options.socket)) > 107:
        print("touchscreen: the path of a socket has at most 107 bytes", file=sys.stderr)
        return 2
    # At once, wherever the program stands: there is nothing to save.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    link = Link(options.socket)
    if not options.terminal:
        try:
            return Screen(link, options.suggest, options.idle, options.windowed).run()
        except Exception as error:  # no tkinter, no display
            print(f"touchscreen: no window ({error}); using the terminal", file=sys.stderr, flush=True)
    return terminal(link, options.idle)


if __name__ == "__main__":
    sys.exit(main())
