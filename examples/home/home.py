"""The assistant of a home, with its clock in two places: how many tokens are read again in each turn.

    python examples/home/home.py [MODEL]

With the clock in the system prompt everything behind it is read again in each minute.  With the clock behind the
question, in the last message, only what is new is read (docs/first-word.md).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import edge

HOME = """You are the assistant of a home. You answer in one short sentence.
Hall: a lamp (on), the front door (locked), a thermometer (19 degrees).
Kitchen: a lamp (off), the oven (off), the dish washer (finished), a window (open).
Living room: two lamps (on), the blinds (half open), the television (off), the heating (set to 21 degrees).
Bedroom: a lamp (off), the blinds (shut), the heating (set to 17 degrees).
Bathroom: a lamp (off), the washing machine (running, 34 minutes left), a window (shut).
Garden: the sprinkler (off), a lamp (on at dusk), the gate (shut)."""

QUESTIONS = (
    "Is the front door locked?", "What is still on in the kitchen?", "Switch off the lamp in the hall.",
    "How warm is the living room?", "When will the washing machine be ready?", "Open the blinds in the bedroom.",
    "Is a window open?", "Water the garden for ten minutes.", "Is the gate shut?", "Which lamps are on?",
    "Make the bedroom warmer.", "Is the oven off?", "Turn on the television.", "What did I ask first?",
    "Shut the window in the kitchen.", "Is the dish washer ready?", "How long does the washing still take?",
    "Lock the gate.", "Switch off everything downstairs.", "Good night.",
)


class Turn(NamedTuple):
    """Tokens of the prompt of one turn, of these read, and of these read before."""

    prompt: int
    read: int
    again: int


def turns(engine: edge.Engine, clock_first: bool, answer_tokens: int = 16) -> Iterator[Turn]:
    """The conversation with the clock in the system prompt, or behind each question."""
    session = engine.session(HOME)
    for minute, question in enumerate(QUESTIONS, 41):
        clock = f"It is 10:{minute}." if minute < 60 else f"It is 11:{minute - 60:02}."
        if clock_first:
            session.system = f"{clock}\n{HOME}"
        else:
            question = f"{question}\n({clock})"
        answer = session.ask(question, max_tokens=answer_tokens, temperature=0)
        for _piece in answer:
            pass
        known = answer.again is not None and answer.again.reason != "new"
        usage = answer.usage
        yield Turn(usage.prompt, usage.prompt - usage.cached, answer.again.tokens if known else 0)


def main(model: str | None = None) -> None:
    """Print both."""
    with edge.load(model, ctx=2048, overflow="stop", remember=False) as engine:
        first, last = list(turns(engine, True)), list(turns(engine, False))
    print(f"{'turn':>4} | {'clock first: read':>17} {'again':>6} | {'clock last: read':>16} {'again':>6}")
    for i, (a, b) in enumerate(zip(first, last), 1):
        print(f"{i:>4} | {a.read:>17} {a.again:>6} | {b.read:>16} {b.again:>6}")
    reads = [sum(turn.read for turn in each) for each in (first, last)]
    agains = [sum(turn.again for turn in each) for each in (first, last)]
    print(f"{'all':>4} | {reads[0]:>17} {agains[0]:>6} | {reads[1]:>16} {agains[1]:>6}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
