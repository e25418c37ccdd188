"""Write golden.json: what the bundled model continues ten conversations with, greedily, under every KV mode.

    python -m tests.vectors.make_golden

And next to the model MODEL.golden.json, the answers of tests/oracles/forward.py that `bitnet-edge doctor` asks for.

Logits are the same bits on every instruction set and for every thread count, so one list of tokens per KV mode serves
them all (test_golden.py).  Run it again when the demo model is replaced or a KV mode is added, never to make
a failing test pass.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("golden.json")
TOKENS = 24  # of each answer; long conversations end where a window of 64 has moved on

#: name -> arguments of edge.load
MODES: dict[str, dict[str, Any]] = {
    "f32": {"kv": "f32"},
    "f16": {"kv": "f16"},
    "int8": {"kv": "int8"},
    "int8, window 64 of 4 sinks": {"kv": "int8", "window": 64, "sinks": 4},
    **{kv: {"kv": kv} for kv in ("int4", "int8:int4", "f16:int8", "fp8", "int4c")},
}
NOTICE = (
    "Corner Deli. Open Monday to Friday 7:30 am to 6 pm, Saturday 9 am to 2 pm, closed on Sunday. "
    "Soup of the day $4.50, bagel $2.00."
)
#: facts, what the guest says
CONVERSATIONS: list[tuple[str, Sequence[str]]] = [
    ("", ["A medium mango tea would be nice."]),
    ("", ["Three of the big pretzels and one cider, to take home."]),
    ("", ["We are five people and want to eat at 7:20 pm on Thursday."]),
    ("", ["Hi, folks call me Ferdinando."]),
    ("", ["Pleased to meet you, Imka is my name.", "One black tea then.", "That was everything I wanted."]),
    (NOTICE, ["Do you open before eight on a Wednesday?"]),
    (NOTICE, ["And what about Sunday lunch?", "How much for a bagel and a soup?"]),
    (NOTICE, ["Two bagels.", "Sorry, three bagels.", "Good, what do I owe?"]),
    ("", ["Which river runs through Vienna?"]),
    ("", ["Cheer me up with some joke!", "Got one more like this?"]),
]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bundled() -> Path:
    (path,) = (ROOT / "edge" / "bundled").glob("*.gguf")
    return path


def answers(engine: Any, conversations: Sequence[tuple[str, Sequence[str]]]) -> Iterator[list[list[int]]]:
    """For each conversation the token ids of its answers."""
    import edge

    greedy = edge.Sampling(temperature=0.0)
    for facts, said in conversations:
        options = {"sampling": greedy, "max_tokens": TOKENS, "ignore_eos": len(said) == 1}
        with engine.session(system=facts or None) as session:
            yield [[number for piece in session.ask(text, **options) for number in piece.ids] for text in said]


#: what doctor asks; the best token leads by far at each step, or another question is to be taken
QUESTIONS = ["can i get two large pepperoni pizzas with mushrooms", "good morning"]


def oracle(path: Path) -> dict[str, Any]:
    """What the NumPy model answers, which shares no code with ours."""
    from edge.formats import open_checkpoint
    from edge.prompt.template import Template
    from edge.prompt.tokenizer import Tokenizer
    from tests.oracles.forward import Model

    checkpoint = open_checkpoint(str(path))
    tokenizer, template = Tokenizer.build(checkpoint.tokenizer), Template.for_model(checkpoint)
    model = Model(checkpoint)
    turns = []
    for question in QUESTIONS:
        asked = list(template.encode(tokenizer, [{"role": "user", "content": question}]))
        ids = model.greedy(asked, set(template.stop_ids(tokenizer)) | set(tokenizer.eos_ids), 64)
        turns.append({"question": question, "answer": tokenizer.decode(ids), "ids": ids})
    about = "greedy answers of the model next to this file, computed by tests/oracles/forward.py (NumPy float64)"
    return {"about": about, "turns": turns}


def main() -> None:
    import edge

    golden = bundled().with_suffix(".golden.json")
    golden.write_text(json.dumps(oracle(bundled()), indent=2) + "\n")

    found = {}
    for name, mode in MODES.items():
        with edge.load(threads=1, **mode) as engine:
            found[name] = list(answers(engine, CONVERSATIONS))
    record = {"about": "made by make_golden.py", "model": sha256(bundled()), "answers": found}
    FILE.write_text(json.dumps(record, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
