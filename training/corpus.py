"""Dialogues to train on: turns with their operations, questions with their facts, the third-party corpus.

A dialogue is a list of (role, text), role being system, user or assistant.  What training.turns prints is endless and
fresh for every seed.  The corpus lies beside the project (``../shared/data/corpus``; sources and licences stand on the
page of the bundled model) or where ``BITNET_EDGE_CORPUS`` says; its files carry their split, made by hash (96/2/2).

Every third-party dialogue begins with a system turn that names its style, so that what strangers wrote about films and
football is kept apart from operations.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

from training import turns
from training.heldout import clean
from training.turns import Dialogue

FOLDER = Path(os.environ.get("BITNET_EDGE_CORPUS") or Path(__file__).resolve().parents[2] / "shared/data/corpus")

#: source tag of the files -> (our source, style line)
STYLES = {
    "tm4-coffee": ("task", "Style: coffee bar talk."),
    "tm3-movies": ("task", "Style: cinema talk."),
    "star": ("task", "Style: service desk talk."),
    "camrest676": ("task", "Style: restaurant guide talk."),
    "multiwoz": ("task", "Style: town guide talk."),
    "dstc9-faq": ("faq", "Style: hotel questions."),
    "personality-chat": ("small", "Style: small talk."),
    "chatterbot": ("small", "Style: small talk."),
    "self-dialogue": ("free", "Style: free talk."),
    "topical-chat": ("free", "Style: free talk."),
}
PRINTED = ("kiosk",)  # by training.turns, without end
SOURCES = (*PRINTED, "faq", "task", "small", "free")

#: an assistant must not say these: it is no person and reads no cards
_UNFIT = re.compile(r"\b(?:my (?:wife|husband|girlfriend|boyfriend|kids|son|daughter)|i'?m (?:a|only) human|turker|"
                    r"mturk|amazon turk|credit card number|social security)\b", re.IGNORECASE)  # fmt: skip


def dialogues(source: str, split: str = "train", seed: int = 0) -> Iterator[Dialogue]:
    """The dialogues of a source: those of ``PRINTED`` without end, the others once, in an order given by the seed.

    Raises FileNotFoundError where the corpus is not there.
    """
    if source == "kiosk":
        return turns.dialogues(seed, split)
    if source not in SOURCES:
        raise ValueError(f"no source {source!r}; known are {', '.join(SOURCES)}")
    if source == "faq":
        return turns.questions([(talk[1][1], talk[2][1]) for talk in _read("faq", split)], seed)
    found = _read(source, split)
    Random(f"{source} {split} {seed}").shuffle(found)
    return iter(found)


def available() -> bool:
    """Whether the third-party corpus is on this machine."""
    return any(FOLDER.glob("*.jsonl*"))


def _read(source: str, split: str) -> list[Dialogue]:
    groups = ("permissive", "topical-cdla") if source == "free" else ("permissive",)
    found = []
    for group in groups:
        for line in lines(group, split):
            record = json.loads(line)
            tag = record["source"]
            ours, style = STYLES[tag]
            if ours != source:
                continue
            dialogue = [("system", style)]
            dialogue += [(turn["role"], " ".join(turn["content"].split())) for turn in record["messages"]]
            if fit(dialogue):
                found.append(dialogue)
    return found


def fit(dialogue: Dialogue) -> bool:
    """Whether a third-party dialogue may be learned: no held-out name, nobody who claims a family or a body."""
    return all(text for _, text in dialogue) and all(
        clean(text) and not (role == "assistant" and _UNFIT.search(text)) for role, text in dialogue
    )


def lines(group: str, split: str) -> Iterator[str]:
    """JSON lines of a file, or of its .zst through the zstd program (before 3.14 Python has no module for it)."""
    path = FOLDER / f"{group}.{split}.jsonl"
    if path.exists():
        with path.open(encoding="utf-8") as file:
            yield from file
        return
    packed = path.with_name(path.name + ".zst")
    if not packed.exists():
        raise FileNotFoundError(f"{packed} is not there; set BITNET_EDGE_CORPUS to the folder of the corpus")
    out = subprocess.run(["zstd", "-dcq", str(packed)], check=True, capture_output=True).stdout
    yield from out.decode("utf-8").splitlines()
