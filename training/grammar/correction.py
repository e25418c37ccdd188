"""Corrections of an order: other counts, sizes, words and things, for the line that is meant.

A thing that is named means the line that holds it, wherever it stands, also by a part of its name where that is clear;
a number or a size alone means the last line.  What is said to stay, stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from training.grammar import correction_words as said
from training.grammar import goods
from training.grammar.counter import Counter
from training.grammar.line import Line, article
from training.grammar.text import TAIL, Voice, babble, expand, listed, number, plural, spelled

#: share of corrections that name what stays, and of those with words around them
KEPT, AROUND = 0.2, 0.3

#: what is said, with its slots; None where nothing can be changed so
Change = tuple[str, dict[str, str]] | None


def _part(rng: Random, lines: list[Line], at: int) -> str:
    """The name of the goods of a line: in full, or the last word or all after "of" where no other line has it."""
    item = lines[at].item
    last = re.split(TAIL, item.split(" of ")[-1])[0].split()[-1]
    parts = [part for part in (last, last, item.split(" of ")[-1])
             if part != item and all(part not in line.item for line in lines[:at] + lines[at + 1 :])]  # fmt: skip
    return rng.choice(parts) if parts and rng.random() < 0.45 else item


def _called(rng: Random, voice: Voice, lines: list[Line], at: int, n: int) -> str:
    """How a guest calls the goods of a line, ``n`` of them."""
    part = _part(rng, lines, at)
    held = part != lines[at].item and lines[at].item.endswith(f" of {part}")
    return voice.form(part if n == 1 or held else plural(part))


def _shown(rng: Random, n: int) -> str:
    """A count in words or digits."""
    return number(n) if n <= 12 and rng.random() < 0.7 else spelled(n) if rng.random() < 0.4 else str(n)


def _recount(counter: Counter) -> Change:
    """Another count, of the last line or of the one that is named."""
    rng, voice, lines = counter.rng, counter.voice, counter.order.lines
    named = rng.random() < 0.5
    at = rng.randrange(len(lines)) if named else len(lines) - 1
    old = lines[at]
    most = [*range(1, 13), 1] if old.n < 40 else [50 * k for k in range(1, 19)]
    n = rng.choice([m for m in most if m != old.n])
    lines[at] = replace(old, n=n, extra="" if old.extra.startswith(",") else old.extra)
    slots = {"n": _shown(rng, n), "old": number(old.n) if rng.random() < 0.8 else str(old.n)}
    pattern = rng.choice(said.COUNT_OF if named else said.MAKE_THAT)
    if not named and rng.random() < 0.12:
        pattern = rng.choice(said.TOO_MANY if n < old.n else said.TOO_FEW)
    elif not named and rng.random() < 0.12:
        pattern = f"{babble(rng, 5)} {{n}} {babble(rng, 3)}"
    pattern = pattern.replace("{who}", f"[{said.SOMEBODY if n > old.n else said.NOBODY}]")
    if named:
        if n == 1 and rng.random() < 0.3:
            slots["n"] = "a single"
        slots["item"], slots["items"] = _called(rng, voice, lines, at, n), _called(rng, voice, lines, at, old.n)
    return pattern, slots


def _more(counter: Counter) -> Change:
    """Two more of what is there already: added to its line; or one less."""
    rng, voice, lines = counter.rng, counter.voice, counter.order.lines
    at, k = rng.randrange(len(lines)), rng.choice((1, 1, 1, 2, 2, 3, 4))
    n = lines[at].n
    if lines[at].extra.startswith(","):  # two plain and four filled: which there is one more of is not said
        return None
    if 1 < n <= 12 and rng.random() < 0.25:
        lines[at] = replace(lines[at], n=n - 1)
        item, items = _called(rng, voice, lines, at, 1), _called(rng, voice, lines, at, n)
        return rng.choice(said.FEWER), {"item": item, "items": items}
    if n + k > 12:  # sums beyond the words for them are nobody's order
        return None
    lines[at] = replace(lines[at], n=n + k)
    item = _called(rng, voice, lines, at, k)
    if k == 1 and rng.random() < 0.5:
        return "[and |yes, |oh, |]another {item}[, please| please|]", {"item": item}
    return rng.choice(said.MORE_OF), {"k": number(k) if rng.random() < 0.6 else str(k), "item": item}


def _resize(counter: Counter) -> Change:
    """Another size, or another word before the thing, of the last line or of the one that is named."""
    rng, lines = counter.rng, counter.order.lines
    at = rng.randrange(len(lines))
    old = lines[at]
    others = [goods.like(rng, old.size) for _ in range(3)] if old.size else ["small", "medium", "large"]
    listed_so = old.item in counter.shop.sizes
    if listed_so:
        others = [size for size in counter.sizes(old) if size != old.size]
    size = counter.combined([other for other in others if other not in old.item], old.item)
    row = f"{size} {old.item}" if listed_so else old.row
    if not size or listed_so and any(line.row == row for line in lines):
        return None
    lines[at] = replace(old, size=size, row=row)
    if old.extra and old.extra[0] != "," and rng.random() < 0.3:
        same = f"[still|again|as before,|same as before:|, also|but] {old.extra}|same {old.extra.split()[-1]}"
        return f"{rng.choice(said.SIZED_SAME)}, [{same}]", {
            "size": size, "item": _called(rng, counter.voice, lines, at, 1), "old": old.size or "that"}  # fmt: skip
    if old.n == 1 and rng.random() < 0.3:
        called = _called(rng, counter.voice, lines, at, 1)
        return rng.choice(said.SIZED_ONE), {"size": f"{article(size)} {size}", "item": called}
    if old.size and at == len(lines) - 1 and rng.random() < 0.4:
        last = [*said.MAKE_THAT[:13], f"[actually|no][,|] {article(size)} {{n}} one[, please|]",
                "{n} [instead|rather|after all]", "{n}[, please|], not {old}",
                "[could|can] it be {n}[ instead|][, please|]?"]  # fmt: skip
        return rng.choice(last), {"n": size, "old": old.size}
    if old.size and rng.random() < 0.6:
        return rng.choice(said.WORD), {"n": size, "old": old.size}
    patterns = said.SIZE_OF if old.size else said.SIZE_OF[:-1]
    return rng.choice(patterns), {
        "size": size, "items": _called(rng, counter.voice, lines, at, old.n), "old": old.size}  # fmt: skip


def _word(counter: Counter) -> Change:
    """One word of a thing for another: the peach tea becomes a lemon tea."""
    rng, lines = counter.rng, counter.order.lines
    fit = [i for i, line in enumerate(lines) if " " in line.item and line.item.replace(" ", "").isalpha()]
    if not fit or counter.shop.prices:
        return None
    at = rng.choice(fit)
    words = lines[at].item.split()
    where = words.index("of") + 1 if "of" in words and words.index("of") < 2 else 0
    old = words[where]
    new = goods.like(rng, old) if where + 1 < len(words) and rng.random() < 0.7 else counter.word()
    item = counter.voice.form(" ".join([*words[:where], new, *words[where + 1 :]]))
    if any(old in line.item.split() or line.item == item for line in lines[:at] + lines[at + 1 :]) or new in words:
        return None
    lines[at] = replace(lines[at], item=item, loose=False)
    return rng.choice(said.WORD), {"n": new, "old": old}


def _swap(counter: Counter) -> Change:
    """Something else instead, as many or another count."""
    rng, voice, lines = counter.rng, counter.voice, counter.order.lines
    new = counter.line()
    if not new or new.loose and new.row:
        return None
    last = rng.random() < 0.3
    at = len(lines) - 1 if last else rng.randrange(len(lines))
    old, item = lines[at], voice.form(new.item)
    if " of " in item and item.split()[0] in ("gram", "kilo", "liter", "meter"):
        return None
    item = " ".join(part for part in (new.size if new.item in counter.shop.sizes else "", item) if part)
    n = old.n if old.n <= 12 and rng.random() < 0.6 else rng.randint(1, 6)
    if n == old.n and rng.random() < 0.45:  # the count is not said again
        shown = item if n == 1 else plural(item)
    elif n == 1:
        shown = f"{rng.choice((article(item), article(item), 'one', '1'))} {item}"
    else:
        shown = f"{_shown(rng, n)} {plural(item)}"
    called = _called(rng, voice, lines, at, old.n)
    lines[at] = replace(new, n=n, size=new.size if new.item in counter.shop.sizes else "", extra="", loose=False)
    return rng.choice(said.SWAP_LAST if last else said.SWAP), {"new": shown, "old": called}


def _drop(counter: Counter) -> Change:
    """One line less."""
    rng, voice, lines = counter.rng, counter.voice, counter.order.lines
    if len(lines) < 2:
        return None
    at = rng.randrange(len(lines))
    called = _called(rng, voice, lines, at, lines[at].n)
    kept = _staying(counter, [i for i in range(len(lines)) if i != at])
    del lines[at]
    if rng.random() < 0.2:
        return rng.choice(said.ONLY), {"item": called, "kept": kept}
    return rng.choice(said.DROP), {"item": called}


def _wish(counter: Counter) -> Change:
    """What is to be done with a thing: something, something else, nothing."""
    rng, lines = counter.rng, counter.order.lines
    at = rng.randrange(len(lines))
    old = lines[at].extra
    if old.startswith("with ") and " but " not in old and rng.random() < 0.3:
        lines[at] = replace(lines[at], extra="")
        return rng.choice(said.DROP), {"item": old.removeprefix("with ")}
    extra = counter.combined([goods.done_with(rng, counter.shop.kind) for _ in range(4)], lines[at].item)
    if not extra or old.startswith(",") or extra in old or old and old in extra:
        return None
    lines[at] = replace(lines[at], extra=extra)
    if old and rng.random() < 0.7:
        return rng.choice(said.WISH_INSTEAD), {"extra": extra, "old": old}
    return rng.choice(said.WISH), {"extra": extra, "items": _called(rng, counter.voice, lines, at, lines[at].n)}


def _staying(counter: Counter, at: list[int]) -> str:
    """Lines by name: the lemon and the teas."""
    lines = counter.order.lines
    the = counter.rng.choice(("the ", "the ", ""))
    return listed([the + _called(counter.rng, counter.voice, lines, i, lines[i].n) for i in at])


KINDS: list[tuple[Callable[[Counter], Change], int]] = [
    (_recount, 36), (_more, 8), (_resize, 12), (_word, 8), (_swap, 14), (_drop, 13), (_wish, 9)]  # fmt: skip


def say(counter: Counter, *kinds: Callable[[Counter], Change]) -> None:
    """A turn with a correction of each kind that can be made; the whole order is repeated."""
    rng, before = counter.rng, list(counter.order.lines)
    slots: dict[str, str] = {}
    patterns = []
    for at, kind in enumerate(kinds):
        change = kind(counter)
        if change:
            pattern = re.sub(r"\{(\w+)\}", rf"{{\g<1>{'_' * at}}}", change[0])
            slots.update((key + "_" * at, value) for key, value in change[1].items())
            patterns.append(expand(rng, pattern))
    if not patterns:
        return
    pattern = rng.choice((" and ", ", and ", ", ", ". ", " and also ", ". oh, and ")).join(
        part.rstrip("?.") if part is not patterns[-1] else part for part in patterns)
    same = [i for i, line in enumerate(counter.order.lines) if line in before]
    if same and rng.random() < KEPT and "kept" not in slots:
        slots["kept"] = _staying(counter, same[:1])
        end = "" if pattern[-1] in "?!." else rng.choice((",", ".", "."))
        pattern = f"{pattern}{end} {expand(rng, rng.choice(said.KEEP))}"
    if rng.random() < AROUND:
        pattern = expand(rng, rng.choice(said.LEAD)) + rng.choice((", ", " ", ", ", ": ")) + pattern
    if rng.random() < AROUND / 3 and pattern[-1] not in "?!.":
        pattern += f", {expand(rng, rng.choice(said.BECAUSE))}"
    counter.change([pattern], **{key: value for key, value in slots.items() if f"{{{key}}}" in pattern})


def turn(counter: Counter) -> None:
    """One correction, where anything is ordered."""
    if counter.order.lines:
        kinds, shares = zip(*KINDS)
        say(counter, *counter.rng.choices(kinds, shares, k=2 if counter.rng.random() < 0.1 else 1))
