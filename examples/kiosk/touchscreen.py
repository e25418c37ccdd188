#!/usr/bin/env python3
"""A touch screen: what is on the menu is touched, questions are typed, and the service answers them.

    bitnet-edge serve --socket /tmp/kiosk.socket --system-file house.txt &
    python3 touchscreen.py house.txt /tmp/kiosk.socket

Needs python3-tk and kiosk.py in its folder, but not the package.  When the service restarts, the screen goes on.
"""

import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections import Counter

from kiosk import COUNTER, KNOWN, SORRY, clean, keep, notify, priced, read_house


def ask(path, question, **options):
    """The pieces of the service's answer: HTTP on its socket; docs/serve.md describes the request."""
    body = json.dumps({"messages": [{"role": "user", "content": question}], "stream": True, **options}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(path)
        connection.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        for line in connection.makefile("rb"):
            if line.startswith(b"data: {"):
                choice = json.loads(line[6:])["choices"][0]
                yield choice["delta"].get("content") or ""
    if choice["finish_reason"] not in ("stop", "length"):
        raise OSError(f"no answer: {choice}")


def reply(path, question, show):
    """Show the answer in pieces; whatever goes wrong becomes a sentence."""
    try:
        known = "".join(ask(path, KNOWN.format(question), choices=["yes", "no"]))
        for piece in ask(path, question, max_tokens=80) if known == "yes" else [COUNTER]:
            show(piece)
    except Exception as error:
        print(f"touchscreen: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        show(f" {SORRY}")
    show("\n")


class Screen:
    """A button for each thing on the menu, the order, a line for questions, and what was said."""
    def __init__(self, house, path):
        import tkinter as tk  # python3-tk, which may not be installed

        (_, self.menu), self.path, self.order = read_house(house), path, Counter()
        self.pieces, self.thread, self.touched = queue.Queue(), threading.Thread(), time.monotonic()
        self.root = tk.Tk()
        self.root.attributes("-fullscreen", True)
        self.root.option_add("*Font", "TkDefaultFont 20")
        self.root.protocol("WM_DELETE_WINDOW", lambda: None)  # nobody closes it by touch
        self.root.report_callback_exception = lambda _, error, __: print(f"touchscreen: {error!r}", file=sys.stderr)
        for event in ("<Any-KeyPress>", "<Any-Button>"):
            self.root.bind_all(event, lambda _: setattr(self, "touched", time.monotonic()))
        buttons = [(f"{name}  {self.menu[name]}", lambda name=name: self.order.update([name])) for name in self.menu]
        for i, (text, command) in enumerate([*buttons, ("Order", self.keep), ("Clear", self.clear), ("Ask", self.ask)]):
            tk.Button(text=text, command=command).grid(row=i // 3, column=i % 3, sticky="ew")
        self.bill, self.entry, self.view = tk.Label(), tk.Entry(), tk.Text(wrap=tk.WORD)
        for row, widget in ((97, self.bill), (98, self.entry), (99, self.view)):
            widget.grid(row=row, columnspan=3, sticky="nsew")
        self.root.columnconfigure((0, 1, 2), weight=1)
        self.root.rowconfigure(99, weight=1)
        self.entry.bind("<Return>", lambda _: self.ask())
        self.tick()

    def show(self, text):
        self.view.insert("end", "".join(c if c.isprintable() or c == "\n" else " " for c in text))
        self.view.see("end")

    def clear(self):
        self.order.clear()
        self.view.delete("1.0", "end")

    def keep(self):
        if self.order:
            keep(self.order, self.menu)
            self.show(f"Thank you. Your order is noted: {priced(self.order, self.menu)}\n")
            self.order.clear()

    def ask(self):
        question = clean(self.entry.get())[:500]
        if question and not self.thread.is_alive():
            self.entry.delete(0, "end")
            self.show(f"> {question}\n")
            self.thread = threading.Thread(target=reply, args=[self.path, question, self.pieces.put], daemon=True)
            self.thread.start()

    def tick(self):
        self.root.after(50, self.tick)  # first: it goes on, whatever fails below
        notify("WATCHDOG=1")
        while not self.pieces.empty():
            self.show(self.pieces.get())
        self.bill.configure(text=priced(self.order, self.menu) if self.order else "Touch to order, or ask something.")
        if time.monotonic() - self.touched > 60 and not self.thread.is_alive():
            self.clear()  # the next guest comes


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os._exit(128 + number))  # at once: there is nothing to save
    try:
        screen = Screen(*sys.argv[1:])
    except Exception as error:
        sys.exit(f"touchscreen.py HOUSE SOCKET (needs python3-tk): {error}")
    notify("READY=1")
    screen.root.mainloop()
