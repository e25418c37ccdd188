"""Dialogues to train on: the third-party corpus, our own grammar, copy exercises.

A dialogue is a list of (role, text), role being system, user or assistant.  The grammar is endless and fresh for every
seed.  The corpus lies beside the project (``../shared/data/corpus``, see training/REPORT.md for sources and licences)
or where ``BITNET_EDGE_CORPUS`` says; its files carry their split, made by hash (96/2/2).

Every third-party dialogue begins with a system turn that names its style, so that what strangers wrote about films and
football is kept apart from how the kiosk talks, which has no such turn.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

from training import grammar
from training.grammar import Dialogue
from training.heldout import clean

FOLDER = Path(os.environ.get("BITNET_EDGE_CORPUS") or Path(__file__).resolve().parents[2] / "shared/data/corpus")

GROUPS = ("permissive", "topical-cdla", "kiosk-own")
#: source tag of the files -> (our source, style line)
STYLES = {
    "tm4-coffee": ("task", "Style: coffee bar talk."),
    "tm3-movies": ("task", "Style: cinema talk."),
    "star": ("task", "Style: service desk talk."),
    "camrest676": ("task", "Style: restaurant guide talk."),
    "multiwoz": ("task", "Style: town guide talk."),
    "dstc9-faq": ("task", "Style: hotel questions."),
    "personality-chat": ("small", "Style: small talk."),
    "chatterbot": ("small", "Style: small talk."),
    "self-dialogue": ("free", "Style: free talk."),
    "topical-chat": ("free", "Style: free talk."),
    "kiosk": ("pilot", "Style: first kiosk."),  # kiosk-coffee, kiosk-pizza, ...: the grammar of the pilots
}
#: not learned: the assistant of the pilots tells opening hours that nobody gave it
INVENTED = {"kiosk-hours"}
#: what the kiosk answers to guests who talk as in the free talk of strangers: the first that fits
REFUSALS = [
    (re.compile(r"\b(?:weather|rain|rainy|snow|sunny|forecast)\b", re.IGNORECASE),
     "I cannot see the weather from here."),
    (re.compile(r"\b(?:president|election|politic\w*|government|vote|congress|senate)\b", re.IGNORECASE),
     "Sorry, I do not talk about politics."),
    (re.compile(r"\b(?:sports?|teams?|football|soccer|basketball|baseball|hockey|tennis|golf|nfl|nba|mlb|players?|"
                r"games?|super bowl|quarterback|league|playoffs)\b", re.IGNORECASE), "Sorry, I do not follow sports."),
    (re.compile(r"\?|^(?:who|what|when|where|why|how|which|do you|did you|are you|have you|can you|is|are|was)\b",
                re.IGNORECASE), "Sorry, I know only this place."),
    (re.compile(""), "I see. What can I do for you?"),
]  # fmt: skip
PRINTED = ("kiosk", "echo", "day")  # by the grammar, without end; day: many guests in one dialogue
SOURCES = (*PRINTED, "refuse", "task", "small", "free", "pilot")

#: an assistant must not say these: it is no person and reads no cards
_UNFIT = re.compile(r"\b(?:my (?:wife|husband|girlfriend|boyfriend|kids|son|daughter)|i'?m (?:a|only) human|turker|"
                    r"mturk|amazon turk|credit card number|social security)\b", re.IGNORECASE)  # fmt: skip


def dialogues(source: str, split: str = "train", seed: int = 0) -> Iterator[Dialogue]:
    """The dialogues of a source: those of ``PRINTED`` without end, the others once, in an order given by the seed.

    Raises FileNotFoundError where the corpus is not there.
    """
    if source == "kiosk":
        return grammar.dialogues(seed, split)
    if source == "echo":
        return grammar.echoes(seed, split)
    if source == "day":
        return grammar.dialogues(seed, split, visits=12)
    if source not in SOURCES:
        raise ValueError(f"no source {source!r}; known are {', '.join(SOURCES)}")
    found = _refused(split, seed) if source == "refuse" else _read(source, split)
    Random(f"{source} {split} {seed}").shuffle(found)
    return iter(found)


def available() -> bool:
    """Whether the third-party corpus is on this machine."""
    return any(FOLDER.glob("*.jsonl*"))


def _read(source: str, split: str) -> list[Dialogue]:
    groups = {"pilot": ("kiosk-own",), "free": ("permissive", "topical-cdla")}.get(source, ("permissive",))
    found = []
    for group in groups:
        for line in lines(group, split):
            record = json.loads(line)
            tag = record["source"]
            ours, style = STYLES.get(tag) or STYLES[tag.partition("-")[0]]
            if ours != source or (tag in INVENTED and split == "train"):
                continue
            dialogue = [("system", style)]
            dialogue += [(turn["role"], " ".join(turn["content"].split())) for turn in record["messages"]]
            if fit(dialogue):
                found.append(dialogue)
    return found


def _refused(split: str, seed: int) -> list[Dialogue]:
    """What strangers said about films, sport and the world, said at the kiosk.

    A question is declined.  A remark mostly stands before what a guest of the grammar wants and changes nothing, so
    that natural words alone are no reason to decline.
    """
    rng = Random(f"refuse {split} {seed}")
    guests = grammar.dialogues(seed, split, visits=1)
    found: list[Dialogue] = []
    for dialogue in _read("free", split):
        text = rng.choice(dialogue[1:])[1]
        asked = re.split(r"(?<=[.!?]) ", text)
        text = rng.choice(asked)
        reply = next(reply for pattern, reply in REFUSALS if pattern.search(text))
        remark = reply == REFUSALS[-1][1]
        if not 3 <= len(text.split()) <= 18 or (remark and rng.random() < 0.5):
            continue
        if rng.random() < 0.25:
            text = text.lower()
        if rng.random() < 0.25:
            text = text.rstrip(".!")
        guest = next(guests)
        at = guest[0][0] == "system"
        if remark and rng.random() < 0.93 and "please" not in text.lower():
            asked = text + (". " if text[-1].isalnum() else " ") + guest[at][1]
            found.append([*guest[:at], ("user", asked), *guest[at + 1 :]])
        else:
            found.append([*guest[:at], ("user", text), ("assistant", reply)])
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
