"""Write conversations.json: what SmolLM2-135M, as bitnet-edge pull stores it, answers to ten questions, greedily.

    bitnet-edge pull smollm2-135m
    python -m tests.vectors.make_conversations [MODEL.gguf]

Logits are the same bits on every instruction set, for every number of threads, chunk and batch, so one list of tokens
serves them all (tests/session/test_real_model.py).  The file is made from one published file by one conversion, so its
SHA-256 is recorded, too: a conversion that changes a bit must say so here.  Run it again when the conversion changes,
never to make a failing test pass.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("conversations.json")
NAME = "smollm2-135m"
TOKENS = 40  # most of each answer

#: what a person says, turn by turn
CONVERSATIONS: list[Sequence[str]] = [
    ["What is the capital of France?"],
    ["Hello! Who are you?", "What can you help me with?"],
    ["What is the largest planet in our solar system?"],
    ["Write one sentence about a lighthouse."],
    ["How many legs does a spider have?"],
    ["Name three colours of the rainbow."],
    ["Explain in one sentence why the sky is blue.", "And why is it red in the evening?"],
    ["Translate 'good morning' into Spanish."],
    ["I have 3 apples and buy 2 more. How many apples do I have?"],
    ["Please list the days of the week."],
]


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def answers(engine: Any, conversations: Sequence[Sequence[str]] = CONVERSATIONS) -> Iterator[list[list[int]]]:
    """For each conversation the token ids of its answers."""
    for said in conversations:
        with engine.session() as session:
            yield [[number for piece in session.ask(text, temperature=0.0, max_tokens=TOKENS) for number in piece.ids]
                   for text in said]


def main(path: str | None = None) -> None:
    import edge
    from edge.registry.known import KNOWN
    from edge.registry.library import resolve

    model = Path(path or resolve(NAME))
    with edge.load(model, ctx=1024) as engine:
        talks = zip(CONVERSATIONS, answers(engine), strict=True)
        found = [[{"user": text, "ids": ids, "assistant": engine.tokenizer.decode(ids)}
                  for text, ids in zip(said, given, strict=True)] for said, given in talks]
    known = KNOWN[NAME]
    assert known.package is not None
    record = {
        "about": "made by make_conversations.py from the model that bitnet-edge pull smollm2-135m stores without a hub",
        "source": str(known.package), "source_sha256": known.package.sha256,
        "licence": known.licence, "model_sha256": sha256(model), "conversations": found,
    }
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    text = re.sub(r"\[\s+([\d,\s]+?)\s+\]", lambda ids: f"[{' '.join(ids[1].split())}]", text)
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
