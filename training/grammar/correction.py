"""Corrections of an order: other counts, sizes and things, for the line that is meant.

A thing that is named means the line that holds it, wherever it stands, also by its last word alone where that is clear;
a number or a size alone means the last line.
"""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from training.grammar.counter import Counter, Line
from training.grammar.text import TAIL, Voice, babble, number, plural

MAKE_THAT = [
    "[no|actually|sorry|oh|wait][,|] make [that|it] {n}[, please|]", "make [that|it] {n}[, please| please|]",
    "[actually|sorry|no][,|] i [want|need|meant|said] {n}[, please|]",
    "[can|could] you make [that|it] {n}[, please|]?",
    "[change|switch] that to {n}[, please|]", "{n} [instead|actually], [please|sorry]",
    "i'd rather have {n}[, please|]",
    "[oh|ah] [sorry|wait][,|] {n}[, please|]", "[hmm|well][,|] let's [make it|say|do] {n}",
    "on second thought, {n}[, please|]",
    "[i meant|i said|better] {n}[, please| please|]", "not {old}, {n}[, please|]", "{n}, not {old}[, please|]",
]  # fmt: skip
MAKE_THAT += [
    "[sorry|oops|excuse me][,|] [i|we] [counted wrong|forgot somebody|changed our minds|miscounted][,|:] {n}",
    "[the number|the count|the amount] [should be|is|has to be] {n}",
    "[please|] [correct|update] [it|that|the number] to {n}",
    "[we are|there are] [fewer|more|others] [of us|coming], [make it|take|so] {n}[, please|]",
    "[no no|nope|nah], {n}[, please|]", "[only|rather|maybe|in fact] {n}[, please|]",
    "{n} is [right|correct|enough|better]",
    "[would|could] [it|that] be {n}[ instead|, please|]?",
    "[i take|we take|give me|let's have] {n} [after all|then|instead]",
    "[raise|lower|set] [it|that] to {n}[, please|]", "[my friend|my sister|someone] [joined|left], so [we need|] {n}",
    "[you misheard|that's not right|wrong number][,|] {n}[, please|]", "[more like|rather|better] {n}[, please|]",
    "[it has to be|should be|must be] {n}[, sorry|]", "my [husband|friend] wants one too, so {n}",
    "{n} would be better", "[i have to change that|change of plan|one more thing][:|,] {n}",
]  # fmt: skip
RATHER = [
    "[no|actually|sorry|wait][,|] [a|one|the] {item} instead[, please|]",
    "[can|could] i [have|get] [a|the] {item} instead[ of the {old}|][, please|]?",
    "[change|switch] the {old} to [a|one|] {item}[, please|]", "not [a|the] {old}, [a|the] {item}[, please|]",
    "{item}, not {old}",
    "[i meant|i said|i want] [a|the] {item}, not [a|the] {old}",
    "[actually|on second thought|hmm][,|] i'd rather have [a|the] {item}[ than the {old}|]",
    "replace the {old} with [a|one|] {item}[, please|]", "[a|one|] {item} instead of the {old}[, please|]",
    "make the {old} [a|into a] {item}[, please|]",
    "[could|can] you [swap|change] the {old} for [a|the] {item}[, please|]?",
]  # fmt: skip
DROP = [
    "[no|actually|sorry][,|] no {item}[, please|]",
    "[take off|remove|cancel|drop|leave out|forget|skip] the {item}[, please| please|]",
    "[i don't want|i don't need|without] the {item}[ after all| anymore|]",
    "[can|could] you [remove|take off|cancel] the {item}[, please|]?",
    "[actually|on second thought|sorry][,|] [forget|skip|leave out|remove] the {item}",
    "not the {item} [after all|anymore]",
    "delete the {item}[, please|]", "please [take off|take out|remove|cancel] the {item}", "the {item} can go",
]  # fmt: skip
MAKE_THAT += [
    "[turns out|it seems|i hear|so] there [are|will be] [more|fewer|other] [people|mouths|guests][,|:|, so] {n}",
    "[we|they|the others|my friends] [want|eat|drink|take|asked for] {n} [of them|in all|altogether|]",
    "{n} of [these|them|the same], [please|i think|sorry|if i may]", "[a total of|all in all|in sum] {n}[, please|]",
    "[make|take|say|have] them {n}", "[it|that|they] [becomes|become|grows to|shrinks to|goes up to] {n}",
    "[count again|one moment|hold it|stop][,|:] {n}[ of these| of them|]", "[no|nah][,|] {n} [of these|of them|pieces]",
    "[you should|better|please] [bring|note|take|write] {n}[ of these| of the same|]", "{n} then", "{n} after all",
    "[i|we] [had|took] the wrong number[,|:] {n}", "[forget|not] {old}[,|:] {n}", "[that was|it was] to be {n}",
    "[there is|i see] [somebody|one guest|a friend] [missing|more|less][,|:] {n}[ then| of them|]",
    "[shall we say|why not|how about|could we say] {n}[?|]", "{n} [is it|it is|will do|are enough|are plenty]",
    "[i|we] [wrote|typed|thought] {old}, [but |]{n} [is right|was meant|it is]",
]  # fmt: skip
#: {n} and the thing, in singular or plural as the count wants
COUNT_OF = [
    "[no|oh|sorry|wait|actually|hmm][,|] {n} {item}[, please|]", "[only|just] {n} {item}[, please| please|, sorry|]",
    "[oh|sorry|wait|actually|no|hm][,|] [make it|make that|say|take] {n} {item}[, please|]",
    "[make it|make that] {n} {item}[, please|]", "[i meant|i said|i want|we want] [only |]{n} {item}",
    "{n} {item}, not {old}", "not {old} {items}, {n}", "[it should be|that should be|better|rather] {n} {item}",
    "[change|set|correct|turn] the {items} [to|into] {n}[, please|]",
    "the {items} [should be|are|make them] {n}[, please|]",
    "as for the {items}, [make it|we need|i want] {n}", "[of the {items}|with the {items}][,|] {n}[, please|]",
    "[my|the] [friend|uncle|grandma|sister|kid|team] [comes|is coming|left|joins], so {n} {item}[, please|]",
    "{n} {item} [are enough|will do|instead|after all|in all][, please|]",
    "[could|can] we have {n} {item} [instead|only]?",
    "[we need|give us|let it be] {n} {item} [instead|now|in all]", "how about {n} {item} instead of {old}?",
    "[raise|lower|reduce|increase] the {items} to {n}", "[wait|sorry], {n} {item} [is right|was meant]",
]  # fmt: skip
#: {who}: the reason for more, and for less
_SOMEBODY = (
    "[grandpa|grandma|my aunt|my uncle|our neighbor|one more guest|the boss|my cousin|somebody|a colleague|the driver] "
    "[is coming|comes along|joins us|wants one|is here|will eat|is hungry|gets one][ too| as well| after all|]"
)
_NOBODY = (
    "[grandpa|grandma|my aunt|our neighbor|the boss|somebody|a colleague|one of us] "
    "[is not coming|has gone home|is not hungry|had enough|left|changed his mind|wants nothing]"
)
COUNT_OF += [
    "[oh|no|ah|so|sorry][,|] {n} {item}, {who}", "{who}[,|:|, so|, make it|, that makes] {n} {item}",
    "{n} {item}, [i forgot one|i miscounted|that was too many|we are fewer|we are more|not more|that's enough]",
]  # fmt: skip
MAKE_THAT += [
    "[oh|no|ah|so|sorry][,|] {n}, {who}", "{who}[,|:|, so|, make it] {n}",
]  # fmt: skip
SIZE_OF = [
    "make the {items} {size}[, please|]", "the {items} {size}[, please|]",
    "[i want|i'd like|we want] the {items} {size}",
    "{size} for the {items}[, please|]", "[actually|sorry|no|oh][,|] the {items} [should be|in] {size}[, please|]",
    "[can|could] [the {items} be|you make the {items}|i have the {items}] {size}[, please|]?", "{size} {items}, please",
    "[change|turn] the {items} [to|into] {size}[, please|]", "[as for|about] the {items}: {size}[, please|]",
    "the {items}[,|] [make them|make it|better] {size}", "[i meant|i said] {size} {items}", "{size} {items}, not {old}",
]  # fmt: skip
MORE_OF = [
    "{k} more {item}[, please| please|]", "[and|yes|yes and|also|oh|add] {k} more {item}[, please|]",
    "[can|could] [i|we] [get|have] {k} more {item}[, please|]?", "[and |]{k} {item} [more|on top][, please|]",
    "[give me|we need|i need|i'd like|i want] {k} more {item}[, please|]", "{k} additional {item}[, please|]",
]  # fmt: skip


def _called(rng: Random, voice: Voice, lines: list[Line], at: int, n: int) -> str:
    """How a guest calls the goods of a line: in full, or by the last word where no other line has it."""
    item = lines[at].item
    short = re.split(TAIL, item.split(" of ")[-1])[0].split()[-1]
    alone = all(short not in line.item for line in lines[:at] + lines[at + 1 :])
    called = short if " " in item and alone and rng.random() < 0.4 else item
    return voice.form(called if n == 1 else plural(called))


def _recount(counter: Counter) -> None:
    """Another count, of the last line or of the one that is named."""
    rng, voice, lines = counter.rng, counter.voice, counter.order.lines
    named = rng.random() < 0.5
    at = rng.randrange(len(lines)) if named else len(lines) - 1
    old = lines[at]
    n = rng.choice([m for m in (1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) if m != old.n])
    lines[at] = replace(old, n=n)
    shown = number(n) if rng.random() < 0.7 else str(n)
    pattern = rng.choice(COUNT_OF if named else MAKE_THAT)
    pattern = pattern.replace("{who}", f"[{_SOMEBODY if n > old.n else _NOBODY}]")
    if not named:
        if rng.random() < 0.12:
            pattern = f"{babble(rng, 5)} {{n}} {babble(rng, 3)}"
        counter.change([pattern], n=shown, old=number(old.n))
        return
    one = n == 1 and rng.random() < 0.3
    item = _called(rng, voice, lines, at, n)
    counter.change([pattern], n="a single" if one else shown, item=item, items=_called(rng, voice, lines, at, old.n),
                   old=number(old.n))  # fmt: skip


def _more(counter: Counter) -> None:
    """Two more of what is there already: added to its line."""
    rng, lines = counter.rng, counter.order.lines
    at, k = rng.randrange(len(lines)), rng.choice((1, 1, 1, 2, 2, 3, 4))
    if lines[at].n + k > 12:  # sums beyond the words for them are nobody's order
        return
    lines[at] = replace(lines[at], n=lines[at].n + k)
    item = _called(rng, counter.voice, lines, at, k)
    if k == 1 and rng.random() < 0.5:
        counter.change(["[and |yes, |oh, |]another {item}[, please| please|]"], item=item)
    else:
        counter.change(MORE_OF, k=number(k) if rng.random() < 0.6 else str(k), item=item)


def _resize(counter: Counter) -> None:
    """Another size, of the last line or of the one that is named."""
    rng, lines = counter.rng, counter.order.lines
    at = rng.randrange(len(lines))
    old = lines[at]
    size = counter.combined([size for size in ("small", "medium", "large") if size != old.size], old.item)
    if not size:
        return
    lines[at] = replace(old, size=size)
    if old.size and at == len(lines) - 1 and rng.random() < 0.5:
        counter.change([*MAKE_THAT[:13], "[actually|no][,|] a {n} one[, please|]", "{n}[, please|], not {old}"],
                       n=size, old=old.size)  # fmt: skip
    else:
        patterns = SIZE_OF if old.size else SIZE_OF[:-1]
        counter.change(patterns, size=size, items=_called(rng, counter.voice, lines, at, old.n), old=old.size)


def _swap(counter: Counter) -> None:
    """Something else instead."""
    rng, voice, lines = counter.rng, counter.voice, counter.order.lines
    at, new = rng.randrange(len(lines)), counter.line()
    if not new:
        return
    old = lines[at].item
    lines[at] = replace(new, n=lines[at].n, size="", extra="", loose=False)
    counter.change(RATHER, item=voice.form(new.item), old=voice.form(old))


def _drop(counter: Counter) -> None:
    """One line less."""
    rng, lines = counter.rng, counter.order.lines
    if len(lines) > 1:
        at = rng.randrange(len(lines))
        called = _called(rng, counter.voice, lines, at, lines[at].n)
        del lines[at]
        counter.change(DROP, item=called)


def turn(counter: Counter) -> None:
    """One correction, where anything is ordered."""
    rng = counter.rng
    if counter.order.lines:
        rng.choices((_recount, _more, _resize, _swap, _drop), (46, 8, 14, 16, 16))[0](counter)
