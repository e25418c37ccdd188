"""The assistant of a home, asked through the API of `bitnet-edge serve`, with its clock in two places.

    bitnet-edge serve -m MODEL --ctx 2048
    python examples/home/home.py [http://127.0.0.1:8080]

With the clock in the system prompt everything behind it is read again in each minute.  With the clock behind the
question, in the last message, only what is new is read (docs/kv.md).  Home Assistant itself speaks to the same
server by its integrations for Ollama and OpenAI.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

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
    """Tokens of the prompt of one turn, and of these read, as they were not in the KV cache."""

    prompt: int
    read: int


def turns(url: str, clock_first: bool, answer_tokens: int = 16) -> Iterator[Turn]:
    """The conversation with the clock in the system prompt, or behind each question."""
    said: list[dict[str, str]] = []
    for minute, question in enumerate(QUESTIONS, 41):
        clock = f"It is 10:{minute}." if minute < 60 else f"It is 11:{minute - 60:02}."
        system = f"{clock}\n{HOME}" if clock_first else HOME
        said.append({"role": "user", "content": question if clock_first else f"{question}\n({clock})"})
        body = {"messages": [{"role": "system", "content": system}, *said], "max_tokens": answer_tokens,
                "temperature": 0}
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            answer = json.load(response)
        said.append(answer["choices"][0]["message"])
        prompt = answer["usage"]["prompt_tokens"]
        yield Turn(prompt, prompt - answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def main(url: str = "http://127.0.0.1:8080") -> None:
    """Print both."""
    first, last = list(turns(url, True)), list(turns(url, False))
    print(f"{'turn':>4} | {'clock first: read':>17} {'of':>5} | {'clock last: read':>16} {'of':>5}")
    for i, (a, b) in enumerate(zip(first, last), 1):
        print(f"{i:>4} | {a.read:>17} {a.prompt:>5} | {b.read:>16} {b.prompt:>5}")
    a, b = (Turn(*map(sum, zip(*each))) for each in (first, last))
    print(f"{'all':>4} | {a.read:>17} {a.prompt:>5} | {b.read:>16} {b.prompt:>5}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
