"""Write what models answer, greedily; logits are the same bits on every instruction set, for every number of threads,
chunk and batch, so one list of tokens serves them all.

    python -m tests.vectors.make_golden        golden.json: what the bundled model continues ten conversations with,
                                               under every KV mode; next to the model MODEL.golden.json, the answers of
                                               tests/oracles/forward.py that `bitnet-edge doctor` asks for
    python -m tests.vectors.make_golden real   conversations.json: what SmolLM2-135M answers, as bitnet-edge pull
                                               smollm2-135m stores it without a hub

Run it again when the demo model is replaced, a KV mode is added or the conversion changes a bit, never to make a
failing test pass.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE, REAL_FILE = (Path(__file__).with_name(name) for name in ("golden.json", "conversations.json"))

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
#: what a person says to SmolLM2-135M, turn by turn
REAL: list[tuple[str, Sequence[str]]] = [
    ("", ["What is the capital of France?"]),
    ("", ["Hello! Who are you?", "What can you help me with?"]),
    ("", ["What is the largest planet in our solar system?"]),
    ("", ["Write one sentence about a lighthouse."]),
    ("", ["How many legs does a spider have?"]),
    ("", ["Name three colours of the rainbow."]),
    ("", ["Explain in one sentence why the sky is blue.", "And why is it red in the evening?"]),
    ("", ["Translate 'good morning' into Spanish."]),
    ("", ["I have 3 apples and buy 2 more. How many apples do I have?"]),
    ("", ["Please list the days of the week."]),
]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bundled() -> Path:
    (path,) = (ROOT / "edge" / "bundled").glob("*.gguf")
    return path


def answers(engine: Any, conversations: Sequence[tuple[str, Sequence[str]]]) -> Iterator[list[list[int]]]:
    """For each conversation the token ids of its answers, all as long for a single question of CONVERSATIONS."""
    for facts, said in conversations:
        demo = (facts, said) in CONVERSATIONS
        options = {"temperature": 0.0, "max_tokens": 24 if demo else 40, "ignore_eos": demo and len(said) == 1}
        with engine.session(system=facts or None) as session:
            yield [[number for piece in session.ask(text, **options) for number in piece.ids] for text in said]


#: what doctor asks; the best token leads by far at each step, or another question is to be taken
QUESTIONS = ["can i get two large pepperoni pizzas with mushrooms", "good morning"]


def oracle(path: Path) -> dict[str, Any]:
    """The answers of the NumPy model, which shares no code with ours."""
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


def demo() -> None:
    import edge

    golden = bundled().with_suffix(".golden.json")
    golden.write_text(json.dumps(oracle(bundled()), indent=2) + "\n")

    found = {}
    for name, mode in MODES.items():
        with edge.load(threads=1, **mode) as engine:
            found[name] = list(answers(engine, CONVERSATIONS))
    record = {"about": "made by make_golden.py", "model": sha256(bundled()), "answers": found}
    FILE.write_text(json.dumps(record, separators=(",", ":")) + "\n")


def real() -> None:
    import edge
    from edge.registry.known import KNOWN
    from edge.registry.library import resolve

    name = "smollm2-135m"
    model, known = Path(resolve(name)), KNOWN[name]
    with edge.load(model, ctx=1024) as engine:
        talks = zip(REAL, answers(engine, REAL), strict=True)
        found = [[{"user": text, "ids": ids, "assistant": engine.tokenizer.decode(ids)}
                  for text, ids in zip(said, given, strict=True)] for (_, said), given in talks]
    assert known.package is not None
    record = {
        "about": "made by make_golden.py from the model that bitnet-edge pull smollm2-135m stores without a hub",
        "source": str(known.package), "source_sha256": known.package.sha256,
        "licence": known.licence, "model_sha256": sha256(model), "conversations": found,
    }
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    text = re.sub(r"\[\s+([\d,\s]+?)\s+\]", lambda ids: f"[{' '.join(ids[1].split())}]", text)
    REAL_FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    (real if sys.argv[1:] == ["real"] else demo)()
