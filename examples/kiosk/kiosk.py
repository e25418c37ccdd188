#!/usr/bin/env python3
"""A kiosk: each line of standard input is what a guest says; the replies are spoken or printed, sentence by sentence.

    speech-to-text | SPEAK='espeak-ng --stdin' python kiosk.py house.txt

The house file is the system prompt.  The model writes orders as JSON, and answers what the file answers.  Code does the
rest: names and prices are those of the menu, orders are added up and read back, a "yes" keeps them, a "no" drops them.
Before the first guest comes, the model must understand nine of ten orders; one that cannot take orders is refused.
Variables: SPEAK, a command that speaks its standard input; ORDERS, a file (orders.jsonl); IDLE, after so many seconds
of silence (60) the next guest comes; BITNET_EDGE_MODEL.  Exit codes: 0 at the end of the input, 130 and 143 after
SIGINT and SIGTERM, 2 for a model that cannot take orders, else those of bitnet-edge.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from decimal import Decimal
from typing import Any

COUNTER = "I do not know that. Please ask at the counter."
SORRY = "Sorry, that did not work. Please ask at the counter."
KNOWN = 'A guest asks: "{}" Do the statements above answer that, yes or no?'
SAID = 'A guest says: "{}"'
EXACT: dict[str, Any] = {"temperature": 0, "repeat_penalty": 1}  # to repeat the guest, or the file, is no fault
#: an order that the model is tried with -> how many of each thing
TRIALS = {
    "One {}, please.": (1,), "Two {}s, please.": (2,), "3 {}s": (3,), "I'd like a {} and a {}.": (1, 1),
    "can i have four {}s and two {}s": (4, 2), "One {} to go, please.": (1,), "5 {}s and 1 {}, please": (5, 1),
    "Could we get a {} and three {}s?": (1, 3), "We take two {}s and 2 {}s.": (2, 2), "I will have a {}, please.": (1,),
}
ENOUGH = 9  # of them
CANNOT = "kiosk: this model understood {} of {} orders; it cannot take orders here. Use another model, such as " \
         "qwen2.5-coder-0.5b, or a kiosk without orders (bitnet-edge serve --kiosk)"
TILL = "You are the till of a café. Write down as JSON what each guest orders from this menu: {}."


def read_house(path: str) -> tuple[str, dict[str, Decimal]]:
    """(text, menu: name -> price) of a house file.  Raises ValueError without a menu, or for a bad line in it."""
    with open(path, encoding="utf-8") as file:
        text, menu = file.read().strip(), {}
    for line in (line.strip() for line in text.splitlines() if line.lstrip().startswith("- ")):
        if not (item := re.fullmatch(r"- (.+?)\s*:\s*(\d{1,6}(?:[.,]\d\d?)?)", line)):
            raise ValueError(f"{path}: '{line}' is no line of a menu; it must be like '- black tea: 2.80'")
        menu[item[1]] = Decimal(item[2].replace(",", ".")).quantize(Decimal("0.01"))
    if not menu:
        raise ValueError(f"{path} has no menu; it needs lines like '- black tea: 2.80'")
    return text, menu


def short_names(menu: dict[str, Decimal]) -> dict[str, str]:
    """What a guest may call a thing -> its name; "toast" for "cheese toast", where there is one kind of toast."""
    last = [name.split()[-1] for name in menu]
    return {**{word: name for word, name in zip(last, menu) if last.count(word) == 1}, **{name: name for name in menu}}


def examples(a: str, b: str) -> list[dict[str, str]]:
    """What guests say about two things, and what it is.  The numbers are rare: a model copies what looks alike."""
    said: dict[str, Any] = {
        f"Hello! Seven {a}s and a {b}, please.": [(f"Seven {a}s", 7, a), (f"a {b}", 1, b)],
        "When do you close today?": "question",
        f"i want six {b}s": [(f"six {b}s", 6, b)],
        f"How much is a {b}?": "question",
        "Yes, that's right.": "yes",
        f"Can I get a small {b} without sugar?": [(f"a small {b} without sugar", 1, b)],
        "can I sit outside?": "question",
        "No, thank you.": "no",
        f"and one {b} and nine {a}s to go, too": [(f"one {b}", 1, b), (f"nine {a}s", 9, a)],
        "Is there a car park?": "question",
    }
    for words, meant in said.items():
        if isinstance(meant, list):
            said[words] = {"kind": "order", "items": [dict(zip(("said", "count", "name"), item)) for item in meant]}
        else:
            said[words] = {"kind": meant}
    return [{"role": role, "content": text} for words, meant in said.items()
            for role, text in (("user", SAID.format(words)), ("assistant", json.dumps(meant, ensure_ascii=False)))]


def trials(names: dict[str, str]) -> list[tuple[str, Counter[str]]]:
    """Orders of what is on the menu, as guests say them, and what is ordered."""
    spoken: dict[str, str] = {}
    for word, name in names.items():
        spoken.setdefault(name, word)  # the short one, where it has one
    made, things = [], list(spoken)
    for start, (said, counts) in enumerate(TRIALS.items()):
        chosen = [things[(start + i) % len(things)] for i in range(len(counts))]
        order = Counter(name for name, count in zip(chosen, counts) for _ in range(count))
        made.append((said.format(*(spoken[name] for name in chosen)), order))
    return made


def priced(order: Counter[str], menu: dict[str, Decimal]) -> str:
    """As in "2 black tea, 1 latte: 9.20 in all."."""
    total = sum(count * menu[name] for name, count in order.items())
    return ", ".join(f"{count} {name}" for name, count in order.items()) + f": {total} in all."


def keep(order: Counter[str], menu: dict[str, Decimal]) -> None:
    """Add an order to the file ORDERS, as a JSON object on a line."""
    line = {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "order": order, "text": priced(order, menu)}
    with open(os.environ.get("ORDERS", "orders.jsonl"), "a", encoding="utf-8") as file:
        print(json.dumps(line, ensure_ascii=False), file=file)


def clean(text: str) -> str:
    """On one line, without control characters."""
    return " ".join("".join(c if c.isprintable() and not "\ud800" <= c <= "\udfff" else " " for c in text).split())


def notify(state: str) -> None:
    """Notify systemd, if it started this program: READY=1 or WATCHDOG=1."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, contextlib.suppress(OSError):
            channel.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)


def form(**keys: Any) -> dict[str, Any]:
    """The JSON schema of an object with these keys."""
    return {"type": "object", "properties": keys, "required": list(keys)}


class Speaker:
    """Speaks sentences by a shell command.  While it speaks one, the model writes the next."""
    def __init__(self, command: str) -> None:
        self.command, self.text = command, ""
        self.voice: subprocess.Popen[bytes] | None = None
        self.starting, self.stopped = False, 0  # is there a voice that is not yet known; the exit code after a signal

    def say(self, text: str) -> None:
        if not (text := clean(text)):
            return
        self.wait()
        self.text, self.starting = text, True
        self.voice = subprocess.Popen(self.command, shell=True, stdin=subprocess.PIPE, start_new_session=True)
        self.starting = False
        if self.stopped:
            sys.exit(self.stopped)
        with contextlib.suppress(BrokenPipeError), self.voice.stdin as pipe:  # it may end without reading
            pipe.write(self.text.encode() + b"\n")

    def wait(self, seconds: float = 50) -> None:
        """Until all is said; what takes longer than so many seconds is cut off."""
        notify("WATCHDOG=1")
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.voice and self.voice.wait(seconds):
                print(f"kiosk: speaking failed; the sentence was: {self.text}", file=sys.stderr, flush=True)
        if self.voice and self.voice.poll() is None:
            os.killpg(self.voice.pid, signal.SIGKILL)  # a pipeline, too
            self.voice.wait()
        self.voice = None


class Kiosk:
    """The words and the order of one guest."""
    def __init__(self, engine: Any, menu: dict[str, Decimal], speaker: Speaker) -> None:
        self.menu, self.say, self.order, self.names = menu, speaker.say, Counter[str](), short_names(menu)
        names = list(self.names)
        self.till = engine.session(system=TILL.format(", ".join(menu)), examples=examples(names[0], names[-1]))
        self.session = engine.session()
        for each in (self.till, self.session):
            each.warm()  # all that is the same for every guest is read before the first one comes
        count = {"type": "integer", "minimum": 1, "maximum": 20}
        # the guest's words come first: the model reads the rest off them
        item = form(said={"type": "string", "maxLength": 40}, count=count, name={"enum": names})
        items = {"type": "array", "items": item, "minItems": 1, "maxItems": 8}
        self.schema = {"anyOf": [form(kind={"const": "order"}, items=items),
                                 form(kind={"enum": ["question", "yes", "no"]})]}

    def understand(self, said: str) -> tuple[str, Counter[str]]:
        """(order, question, yes or no; what is ordered)."""
        self.till.clear()  # back to the examples
        written = self.till.ask(SAID.format(said), schema=self.schema, timeout=50, **EXACT).value
        notify("WATCHDOG=1")
        order = Counter[str]()
        for item in written.get("items", ()):
            order[self.names[item["name"]]] += item["count"]
        return written["kind"], order

    def can_take_orders(self) -> bool:
        """Try it, and say on standard error how many orders were understood."""
        print("kiosk: trying the model with orders from the menu", file=sys.stderr, flush=True)
        start, tried, right = time.monotonic(), trials(self.names), 0
        for said, order in tried:
            with contextlib.suppress(Exception):  # such as an answer that is cut off
                right += self.understand(said)[1] == order
        print(f"kiosk: {right} of {len(tried)} orders were understood, in {time.monotonic() - start:.0f} s"
              if right >= ENOUGH else CANNOT.format(right, len(tried)), file=sys.stderr, flush=True)
        return right >= ENOUGH

    def hear(self, said: str) -> None:
        """Reply; whatever goes wrong becomes a sentence.  Nothing was said: the next guest comes."""
        if not said:
            self.order.clear()
            return self.session.clear()
        try:
            kind, order = self.understand(said)
            if kind == "order":
                self.order += order
                self.say(priced(self.order, self.menu))
                self.say("Is that right?")
            elif kind == "question" or not self.order:
                self.answer(said)
            else:
                if kind == "yes":
                    keep(self.order, self.menu)
                self.order.clear()
                self.say("Thank you. Your order is noted." if kind == "yes" else "All right, nothing is ordered.")
        except Exception as error:
            print(f"kiosk: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self.say(SORRY)

    def answer(self, said: str) -> None:
        """The answer of the statements, if they have one."""
        if self.session.choose(KNOWN.format(said), ["yes", "no"])[0].text == "no":
            return self.say(COUNTER)
        for piece in self.session.ask(said, by="sentence", max_tokens=80, timeout=50, **EXACT):
            notify("WATCHDOG=1")
            self.say(piece.text)
        if self.session.outcome.finish_reason == "timeout":
            self.say(SORRY)


def heard(idle: float, speaker: Speaker) -> Any:
    """The words of guests, line by line; "" when nobody has spoken for so many seconds."""
    held, last = b"", time.monotonic()
    while True:
        speaker.wait()  # a microphone should not hear it
        if select.select([0], [], [], min(idle, 1))[0]:
            data = os.read(0, 1 << 16)
            *lines, held = (held + (data or b"\n")).split(b"\n")
            held = held[: 1 << 16]  # a line without end must not fill the memory
            yield from filter(None, (clean(line.decode(errors="replace"))[:500] for line in lines))
            if not data:
                return speaker.wait()
        elif time.monotonic() - last >= idle:
            yield ""
        else:
            continue
        last = time.monotonic()


def main() -> None:
    if sys.argv[1:] in (["-h"], ["--help"]):
        return print(__doc__)
    if len(sys.argv) != 2:
        sys.exit(print("usage: kiosk.py HOUSE (--help says more)", file=sys.stderr) or 2)
    speaker = Speaker(os.environ.get("SPEAK", "cat"))

    def stop(number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the end
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        speaker.stopped = 128 + number
        if not speaker.starting:
            sys.exit(speaker.stopped)  # an exception, which `except Exception` lets through

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        import edge

        system, menu = read_house(sys.argv[1])
        with edge.load(system=system, constrained=True, think=False) as engine:
            kiosk = Kiosk(engine, menu, speaker)
            if not kiosk.can_take_orders():
                sys.exit(2)
            notify("READY=1")
            speaker.say("Hello, what can I do for you?")
            for said in heard(float(os.environ.get("IDLE", "60")), speaker):
                kiosk.hear(said)
    except Exception as error:  # the house file, the model
        print(f"kiosk: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
    finally:
        speaker.wait(0)


if __name__ == "__main__":
    main()
