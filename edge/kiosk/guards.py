"""Turns that get the owner's fixed text before they are interpreted: emergencies, and turns that are too long.

An emergency must never become an order, so in doubt the owner's emergency text is given.  Phrases that only sound like
one ("death by chocolate", "I am dying for a coffee") are listed as harmless in emergencies.txt and removed first; that
file explains its sections.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

from edge.kiosk import vectors
from edge.kiosk.house import House
from edge.kiosk.words import distance

#: most characters of a turn; people say less at once
LONGEST = 600
#: characters of a longer turn that are searched for an emergency, half of them at its end
READ = 8000


def _sections() -> dict[str, list[str]]:
    """The lines of each section of emergencies.txt, with the classes of words filled in."""
    sections: dict[str, list[str]] = {}
    classes: dict[str, str] = {}
    lines: list[str] = []
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "emergencies.txt"), encoding="utf-8") as file:
        for line in map(str.rstrip, file):
            if line.startswith("["):
                lines = sections.setdefault(line.strip("[]"), [])
            elif line and not line.startswith("#"):
                for name, alternatives in classes.items():
                    line = line.replace(name, alternatives)
                if lines is sections.get("classes"):
                    name, alternatives = line.split(" = ")
                    classes[f"<{name}>"] = f"(?:{alternatives})"
                else:
                    lines.append(line)
    return sections


def _any(lines: list[str], end: str = "") -> re.Pattern[str]:
    """One pattern for all lines, each from the beginning of a word: "espressos" is not an SOS."""
    return re.compile("|".join(f"(?<!\\w)(?:{line}){end}" for line in lines), re.IGNORECASE)


_SECTIONS = _sections()
_EMERGENCY, _HARMLESS, _ASIDE = (_any(_SECTIONS[name]) for name in ("emergency", "harmless", "aside"))
_TOGETHER = [[_any([part], r"\b") for part in line.split(" + ")] for line in _SECTIONS["together"]]
_SPELLING = " ".join(_SECTIONS["spelling"]).split()
_CLAUSE = re.compile(r"(?<=[,;.!?]) ")
_SENTENCE = re.compile(r"(?<=[.!?]) ")
_CONTRACTED = [
    (re.compile(r"\b(ca|wo|do|is|are|does|did|has|have|had|could|was|would)nt\b", re.IGNORECASE), r"\1n't"),
    (re.compile(r"\b(he|she|there|that|what|who|where)s\b", re.IGNORECASE), r"\1's"),
    (re.compile(r"\b(i)(m|ve)\b", re.IGNORECASE), r"\1'\2"),
]

#: words that only another language uses; a turn with at least two of them is foreign
_FOREIGN = frozenset(
    "sprechen sie deutsch parlez français habla español parla italiano "
    "ich und der das ist nicht möchte bitte haben wir ein eine einen mit für gibt auf wo wie "
    "je vous une des est avez pour avec s'il plaît voudrais bonjour merci où combien les "
    "quiero por favor una unas tiene tienen dónde cuánto hola gracias con para los las está usted "
    "vorrei un' per favore avete dove quanto ciao grazie buongiorno sono gli della "
    "graag heb een het wij voor goedendag dank alstublieft proszę dzień dobry dziękuję chcę jest "
    "gostaria obrigado obrigada quero você tem onde bom dia lütfen istiyorum merhaba teşekkürler var mı".split()
)
_ENGLISH = frozenset(
    "the a an i you we is are do does can could would like want have please and or of to for my your with without me "
    "it what when where how much many that this no yes not one two three hi hello thanks".split()
)


def guard(house: House, text: str) -> tuple[str, str] | None:
    """(kind, the owner's text) for a turn that is answered by it: kind "emergency" or "long"; else None."""
    if is_emergency(text if len(text) <= READ else f"{text[:READ // 2]} {text[-READ // 2:]}"):
        return "emergency", house.texts["emergency"]
    if len(text) > LONGEST:
        return "long", house.texts["long"]
    return None


def is_emergency(text: str) -> bool:
    """Whether a turn speaks of danger to life, or of self-harm."""
    plain = " ".join(text.replace("\u2019", "'").split())
    for pattern, full in _CONTRACTED:
        plain = pattern.sub(full, plain)
    plain = re.sub(r"[^\W\d_]{5,}", lambda word: _spelled(word[0].lower()) or word[0], plain)
    plain = " ".join(clause for clause in _CLAUSE.split(plain) if not _ASIDE.search(clause))
    plain = _HARMLESS.sub(" ", plain)
    if _EMERGENCY.search(plain):
        return True
    return any(
        all(part.search(sentence) for part in parts) for sentence in _SENTENCE.split(plain) for parts in _TOGETHER
    )


@lru_cache(4096)
def _spelled(word: str) -> str:
    """The word of emergencies.txt from which an unknown word differs by one typing error, or ""."""
    if word in vectors.table()[0]:
        return ""
    return next((key for key in _SPELLING if key[0] == word[0] and distance(word, key, 1) == 1), "")


def is_foreign(text: str) -> bool:
    """Whether a turn that was not understood is in another language than English."""
    letters = [c for c in text if c.isalpha()]
    if letters and sum(ord(c) > 0x24F for c in letters) * 2 > len(letters):
        return True
    words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text.lower())
    english = _ENGLISH - {"a", "no", "me"}
    return sum(word in _FOREIGN for word in words) >= 2 and not any(word in english for word in words)
