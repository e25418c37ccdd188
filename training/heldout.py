"""First names that no training text may contain, so that what a model does with names it never met can be measured.

The corpus leaves out every dialogue in which one of them stands as a word, in any letter case.
"""

from __future__ import annotations

import re

REAL = """
Kofi Oksana Thaddeus Ngozi Bjarne Xiomara Eoghan Wilhelmina Takumi Saoirse Ikechukwu Zsofia Anneliese Rafiq Dagmar
Yevgenia Caoimhe Ezekiel Parvati Lubomir Marisol Ottoline Quentin Sigrid Tunde Ulrike Vasco Wanjiru Yusra Zoltan
Ambrose Birgitta Chidi Dervla Esperanza Fenella Gustavo Hyacinth Ingeborg Jacinta
""".split()

INVENTED = """
Brivado Celphine Dorvane Ekkari Fenthalo Gwistrel Horvindel Ijolke Jurbeth Kalmorin Luzerva Mibrand Nostrelle Ophwen
Prandigo Quorvish Resklan Sylvarro Trumelda Uxbrino Velkatra Wumbrey Xandorf Yephrim Zorblat Ardwink Bolmexa Crindle
Duvroska Elphimo
""".split()

NAMES = REAL + INVENTED

_HELD = frozenset(name.lower() for name in NAMES)
_WORDS = re.compile(r"\w+")


def clean(text: str) -> bool:
    """Whether none of the held-out names stands in a text."""
    return _HELD.isdisjoint(_WORDS.findall(text.lower()))
