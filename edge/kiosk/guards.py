"""Turns that get the owner's fixed text before they are interpreted: emergencies, and turns that are too long."""

from __future__ import annotations

import re

from edge.kiosk.emergencies import is_emergency
from edge.kiosk.house import House
from edge.kiosk.phrases import phrases
from edge.kiosk.words import folded

#: most characters of a turn; people say less at once
LONGEST = 600
#: characters of a longer turn that are searched for an emergency, half of them at its end
READ = 8000

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
    read = text if len(text) <= READ else f"{text[:READ // 2]} {text[-READ // 2:]}"
    if is_emergency(read) and not phrases("who comes").match(folded(text)):
        return "emergency", house.texts["emergency"]
    if len(text) > LONGEST:
        return "long", house.texts["long"]
    return None


def is_foreign(text: str) -> bool:
    """Whether a turn that was not understood is in another language than English."""
    letters = [c for c in text if c.isalpha()]
    if letters and sum(ord(c) > 0x24F for c in letters) * 2 > len(letters):
        return True
    words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text.lower())
    english = _ENGLISH - {"a", "no", "me"}
    return sum(word in _FOREIGN for word in words) >= 2 and not any(word in english for word in words)
