"""``python -m training.report FOLDER --run RUN``: the figures of training/REPORT.md, measured anew.

FOLDER is what training.export wrote.  Each part between ``<!-- NAME -->`` and ``<!-- end -->`` is replaced by what is
measured: model, exam, unseen, held-out, heads, conversations.  ``model`` and ``held-out`` need torch, the others the
engine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import edge
from training import exam
from training.exam import __main__ as sitting
from training.exam.requests import Request, all_requests
from training.exam.unseen import unseen_requests

REPORT = Path(__file__).with_name("REPORT.md")
PARTS = ("model", "exam", "unseen", "held-out", "heads", "conversations")
#: facts, what the guest says; for people to read: goods, names, most wordings are neither the exam's nor the grammar's
TALKS: list[tuple[str, list[str]]] = [
    ("", ["Hi! Could we have two cheese toasts and a big pot of mint tea?", "Oh, three toasts, Grandpa is coming too.",
          "That is all, thank you.", "Rosalinde"]),
    ("", ["i need a haircut", "thursday", "half past ten", "Jeroen Bakkum", "yes"]),
    ("The Copper Spoon, a bistro. Open Tuesday to Saturday 11:30 am to 10 pm, Sunday 10 am to 3 pm, closed on Monday. "
     "Wi-Fi password: tinplate88. Dogs are welcome.",
     ["Are you open on Monday?", "And on Sunday until when?", "What's the wifi password?", "May my dog come in?",
      "A table for six on Sunday at 12:15 pm", "Hallgerd", "perfect"]),
    ("You are the kiosk of a bakery. Menu: rye bread $4.50, cinnamon roll $2.50, cocoa $3.00.",
     ["What do you have?", "What does the cocoa cost?", "Two cinnamon rolls and a cocoa, please.",
      "Do you have pretzels?", "How much is that?", "that's everything", "Ludovica"]),
    ("", ["Good evening, Benedikta is my name.", "What is my name?", "Who are you?", "Are you a person?"]),
    ("", ["When do you close today?", "Where is the toilet?", "Tell me a joke", "Another one!", "Haha"]),
    ("", ["Two tickets for The Sleeping Volcano, Saturday at 8:10 pm", "No, four tickets.", "And make it Friday.",
          "Yes, book it"]),
    ("", ["What is the capital of Australia?", "Who won the game yesterday?", "Will it rain?", "I hate you",
          "My back hurts, what can I take?"]),
    ("", ["my brother in law runs a place like this up north and he says you people never sleep",
          "so what's good here"]),
    ("", ["I would like a glass of elderflower cordial, a bowl of goulash without sour cream and, if there is one "
          "left, the corner table by the window."]),
]  # fmt: skip


def model(folder: Path, given: str) -> Iterator[str]:
    """What the file is and how long it was trained."""
    from training.checkpoint import Run

    run = Run(given)
    (path,) = folder.glob("*.gguf")
    data = path.read_bytes()
    shape = run.settings["shape"]
    state = run.load("last.pt")
    n = sum(tensor.numel() for tensor in state["model"].values()) / 1e6
    heads = f"{shape['n_head']} query and {shape['n_kv_head']} key/value heads of {shape['head_dim']}"
    yield "| | |\n|---|---|"
    yield f"| file | `{path.name}`, {len(data):,} bytes |"
    yield f"| SHA-256 | `{hashlib.sha256(data).hexdigest()}` |"
    yield (f"| size | {n:.2f} M parameters: {shape['n_layer']} layers, hidden {shape['hidden']}, "
           f"ffn {shape['ffn']}, {heads}, context {shape['n_ctx']}, vocabulary {shape['n_vocab']} |")  # fmt: skip
    yield f"| trained | {state['step']:,} steps, {state['tokens'] / 1e6:.2f} M tokens |"


def marks(models: dict[str, Path], requests: Sequence[Request], store: Path, title: str) -> Iterator[str]:
    """An exam's table, a column for each model; answers go to ``store``/``title``-NAME.json."""
    sat = {}
    for name, path in models.items():
        with edge.load(path, threads=1) as engine:
            found = sitting.sit(engine, requests)
            sat[name] = sitting.report(found, sitting.sample(engine, requests))
        answers = [{"subject": mark.request.subject, "facts": mark.request.facts, "said": mark.request.said,
                    "answers": mark.answers, "right": mark.right} for mark in found]  # fmt: skip
        (store / f"{title}-{name}.json").write_text(json.dumps({"rows": sat[name], "answers": answers}, indent=1))
    yield "| | target | " + " | ".join(sat) + " |\n|---|---|" + "---|" * len(sat)
    for key, (what, target) in exam.marks.TARGETS.items():
        cells = [rows[key] for rows in sat.values()]
        if not cells[0]["of"]:  # nothing of the kind is asked
            continue
        shares = " | ".join(f"{row['share']:.1%} ({row['right']}/{row['of']})" for row in cells)
        yield f"| {what} | {'' if target is None else f'{target:.0%}'} | {shares} |"


def losses(models: dict[str, str], dialogues: int) -> Iterator[str]:
    """Held-out loss by source, three columns for each model; the pilots do not know the line that names a style."""
    from training.evaluate import held_out, load, score, without_style

    yield ("| source | " + " | ".join(f"{name}: nats/token | bits/byte | answers, nats/token" for name in models)
           + " |\n|---|" + "---|" * 3 * len(models))  # fmt: skip
    loaded = {name: load(path) for name, path in models.items()}
    for source in ("third-party", "kiosk", "pilot", "echo"):
        found = held_out(source, dialogues)
        cells = []
        for name, (trained, tokenizer) in loaded.items():
            told = [without_style(dialogue) for dialogue in found] if name.startswith("pilot") else found
            s = score(trained, tokenizer, told)
            cells.append(f"{s.nats / s.tokens:.3f} | {s.bits_per_byte:.3f} | {s.answer_nats / s.answer_tokens:.3f}")
        yield f"| {source} | {' | '.join(cells)} |"


def heads(path: Path) -> Iterator[str]:
    """Classes of heads by length of text, and the entropy of every query head."""
    from edge.evaluate import read
    from edge.heads import classes

    with edge.load(path, threads=1) as engine:
        yield "```text"
        yield from classes(engine, read(engine, None), (32, 512, 2048)).lines()
        yield "```"


def conversations(path: Path) -> Iterator[str]:
    """Ten guests at temperature 0, the same again at 0.7 with fixed seeds where the answers differ."""
    with edge.load(path, threads=1) as engine:
        yield "```text"
        for number, (facts, said) in enumerate(TALKS):
            if number:
                yield ""
            if facts:
                yield f"[{facts}]"
            plain, warm = (_talk(engine, facts, said, temp, number) for temp in (0.0, 0.7))
            for text, answer, other in zip(said, plain, warm):
                yield f"> {text}\n  {answer}"
                if other != answer:
                    yield f"  (0.7) {other}"
        yield "```"


def _talk(engine: Any, facts: str, said: list[str], temp: float, seed: int) -> list[str]:
    with engine.session(system=facts or None) as session:
        sampling = edge.Sampling(temp=temp, seed=seed)
        return ["".join(piece.text for piece in session.ask(text, sampling=sampling, max_tokens=96)).strip()
                for text in said]  # fmt: skip


def put(name: str, lines: Iterator[str]) -> None:
    """Replace one part of the report."""
    text = REPORT.read_text()
    part = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    assert len(part.findall(text)) == 1, f"{REPORT} has no part {name}"
    measured = "\n".join(lines)
    REPORT.write_text(part.sub(lambda m: f"{m[1]}{measured}\n{m[2]}", text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what training.export wrote")
    parser.add_argument("--run", required=True, help="the run it was exported from")
    parser.add_argument("--beside", nargs=2, action="append", default=[], metavar=("NAME", "MODEL"),
                        help="another model for the exam (a file) or the losses (a run, or a folder with float32)")
    parser.add_argument("--dialogues", type=int, default=100, help="held-out dialogues of each source")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    (path,) = given.folder.glob("*.gguf")
    files = {"this": path} | {name: Path(other) for name, other in given.beside if other.endswith(".gguf")}
    trained = {"this": given.run} | {name: other for name, other in given.beside if not other.endswith(".gguf")}
    parts = {
        "model": lambda: model(given.folder, given.run),
        "exam": lambda: marks(files, all_requests(), given.folder, "exam"),
        "unseen": lambda: marks(files, unseen_requests(), given.folder, "unseen"),
        "held-out": lambda: losses(trained, given.dialogues),
        "heads": lambda: heads(path),
        "conversations": lambda: conversations(path),
    }
    for name in given.parts:
        put(name, parts[name]())
        print(f"{name} is written to {REPORT}")


if __name__ == "__main__":
    main()
