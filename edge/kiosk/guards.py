"""Guards: turns that are answered by the owner's fixed text before anything is understood in them.

An emergency must never become an order, so this errs on the side of the owner's emergency text.  What only sounds like
one ("death by chocolate", "I am dying for a coffee") is listed as harmless in emergencies.txt and cut out first.
"""

from __future__ import annotations

import os
import re

from edge.kiosk.house import House

#: characters of a turn; more than a person says at once
LONGEST = 600
#: characters of a longer turn that are searched for an emergency, half of them at its end
READ = 8000


def _patterns() -> dict[str, re.Pattern[str]]:
    """emergencies.txt: section -> one pattern of all its lines."""
    sections: dict[str, list[str]] = {}
    classes: dict[str, str] = {}
    lines: list[str] = []
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "emergencies.txt"), encoding="utf-8") as file:
        for line in map(str.rstrip, file):
            if line.startswith("["):
                lines = sections.setdefault(line.strip("[]"), [])
            elif lines is sections.get("classes") and " = " in line:
                name, alternatives = line.split(" = ")
                classes[f"<{name}>"] = f"(?:{alternatives})"
            elif line and not line.startswith("#"):
                for name, alternatives in classes.items():
                    line = line.replace(name, alternatives)
                lines.append(f"(?<!\\w)(?:{line})")  # from the beginning of a word: "espressos" is not an SOS
    return {name: re.compile("|".join(lines), re.IGNORECASE) for name, lines in sections.items() if lines}


_PATTERNS = _patterns()

#: words that only another language uses, at least two of which make a turn foreign
_FOREIGN = frozenset(
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
    """(kind, the owner's text) for a turn that goes no further: "emergency" or "long"; else None."""
    if is_emergency(text if len(text) <= READ else f"{text[:READ // 2]} {text[-READ // 2:]}"):
        return "emergency", house.texts["emergency"]
    if len(text) > LONGEST:
        return "long", house.texts["long"]
    return None


def is_emergency(text: str) -> bool:
    """Whether a turn speaks of danger to life, or of harming oneself."""
    plain = " ".join(text.replace("\u2019", "'").split())
    return _PATTERNS["emergency"].search(_PATTERNS["harmless"].sub(" ", plain)) is not None


def is_foreign(text: str) -> bool:
    """Whether a turn that was not understood is in another language than English."""
    letters = [c for c in text if c.isalpha()]
    if letters and sum(ord(c) > 0x24F for c in letters) * 2 > len(letters):
        return True
    words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text.lower())
    english = _ENGLISH - {"a", "no", "me"}
    return sum(word in _FOREIGN for word in words) >= 2 and not any(word in english for word in words)
