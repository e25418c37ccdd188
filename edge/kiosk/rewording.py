"""Turns in simpler words: asides, slips of the tongue, and halves and kinds of what is ordered."""

from __future__ import annotations

import re

from edge.kiosk.house import House
from edge.kiosk.mentions import vocabulary
from edge.kiosk.phrases import phrases
from edge.kiosk.words import NUMBERS, folded, number, words

_NUMBER = rf"(?:\d\d?|{'|'.join(NUMBERS)})"
#: "6 croissants, half with butter"
_HALF = re.compile(
    rf"\b(\d\d?|{'|'.join(NUMBERS)})\b([^.?!\d]*?)\bhalf (?:of (?:them|those) )?(?=with\b|without\b)", re.IGNORECASE
)
#: "not two, three"
_NOT_BUT = re.compile(rf"\bnot {_NUMBER}(?:,| but|, but) ({_NUMBER})\b", re.IGNORECASE)
#: "two people, oh no sorry, three, I forgot one"
_SLIP = re.compile(
    rf"\b{_NUMBER}\b((?: [^\W\d]+){{0,5}}?),? (?:oh |er |um )?(?:no|wait|sorry|make that|i mean)\b"
    rf"(?:,? (?:no|wait|sorry|make (?:that|it)|i mean))*,? ({_NUMBER})(?=[,.!;]|$| (?:please|actually|then)\b)",
    re.IGNORECASE,
)
#: "no remove it"
_NO_BUT = re.compile(r"^(?:no|nope|nah)(?= (?:remove|cancel|delete|take|change|make|swap|replace)\b)", re.IGNORECASE)

#: "never mind, just a muffin then": not the muffin is taken back
_NEVER_MIND = re.compile(
    r"^(?:(?:oh|ok|okay|ah|no|actually)[, ]+)*never ?mind,? (?=(?:just|i'?ll|i'?d|only|give me|can i)\b)", re.IGNORECASE
)
#: "my little boy" is not a size
_LITTLE = re.compile(
    r"\b(my|his|her|our|their|the|a) (?:little|small|big|tiny) "
    r"(?=(?:boy|girl|sister|brother|man|lad|lady|daughter|son|kid|kids|child|nephew|niece|guy|fellow)s?\b)",
    re.IGNORECASE,
)
#: "and my husband will have the same"
_SAME = re.compile(
    r"(?:,? and |^(?:(?:and|oh|ok|so),? )*)(?:i|we|he|she|they|my \w+)(?:'?ll| will|'?d| would)? "
    r"(?:have|take|like|wants?|gets?|love) the same"
    r"(?: (?:too|please|again|as well))*(?=[.!]|$)",
    re.IGNORECASE,
)


#: "a croissant each, so two"
_SO = re.compile(
    rf"\b(an?|{_NUMBER}) ([^.!?]*?),? so (?:that'?s |that makes |it'?s )?({_NUMBER})(?: please| then)?(?=[.!,]|$)",
    re.IGNORECASE,
)


#: "for the little one" is not a size of one
_LITTLE_ONE = re.compile(r"\bfor (the|my|our) (?:little|wee|small|young|big) one(s?)\b", re.IGNORECASE)
#: "cheese on neither"
_NEITHER = re.compile(r"\b([\w' ]+?) on (?:neither|none)(?: of (?:them|those|these))?\b", re.IGNORECASE)
#: "and the same for my wife, both large"
_SAME_FOR = re.compile(r",? (and the same(?: again)? for (?:my |the |our )?\w+)(?:,\s+|$)", re.IGNORECASE)
#: "scrap the coffee, just the brownie and a tea": what follows is wanted
_JUST = re.compile(
    r"\b((?:scrap|cancel|remove|drop|forget|delete|lose|scratch)\b[^.,;!?]*), (?:and |so )?"
    rf"(?=(?:(?:i|we)(?:'?ll|'?d) )?(?:just|only) (?:have |take |keep |get )?(?:the|an?|some|my|{_NUMBER}) )"
    r"|\b(never ?mind the [^.,;!?]*), (?=(?:i|he|she|we|they|my \w+)(?:'?ll|'?d| will| would) )",
    re.IGNORECASE)  # fmt: skip
#: "do the same again but large"
_DO_SAME = re.compile(r"\bdo (?=the same\b)", re.IGNORECASE)
#: "an avocado bagel without the avocado ... joking."
_JOKE = re.compile(
    r"^.*?\b(?:(?:just|only|i'?m|i am) )*(?:joking|kidding)\b(?! (?:aside|apart))(?: of course)?[.,!: )]*",
    re.IGNORECASE,
)
_LEAVE_IT = re.compile(r"\bforget (?:it|that),? (?:just )?(?:leave|keep) (?:it|that)\b", re.IGNORECASE)


def reworded(house: House, text: str) -> str:
    """A turn as it is read: one line, without asides and jokes, of two numbers only the one that corrects the other."""
    text = _SAME_FOR.sub(r". \1. ", _JOKE.sub("", text))
    text = _DO_SAME.sub("", _JUST.sub(r"\1\2. ", text))
    text = _LITTLE_ONE.sub(r"for \1 kid\2", _NEITHER.sub(r"no \1 on both", _LEAVE_IT.sub("never mind", text)))
    text = _SAME.sub(" and the same for me", _LITTLE.sub(r"\1 ", _NEVER_MIND.sub("", _NO_BUT.sub(r"\g<0>,", text))))
    plain = " ".join(phrases("aside").sub(" ", " ".join(text.split())).split())
    plain = _told_after(house, plain)
    plain = _SO.sub(lambda found: _so_many(house, found), plain)
    return _kinds(house, _SLIP.sub(r"\2\1", _HALF.sub(_halved, _NOT_BUT.sub(r"\1", plain))))


def _so_many(house: House, found: re.Match[str]) -> str:
    """What is counted before "so two", with that count; what orders nothing as it was."""
    thing = words(found[2])
    items = [mention for mention in vocabulary(house).mentions(thing) if mention.kind == "item"]
    if len({mention.values for mention in items}) != 1 or any(word.fold in ("less", "fewer") for word in thing):
        return found[0]
    return f"{found[3]} {found[2][: thing[items[0].last - 1].end]}"


def _halved(found: re.Match[str]) -> str:
    count = number(folded(found[1])) or 0
    return f"{found[1]}{found[2]}{count // 2} " if count and count % 2 == 0 else found[0]


def _told_after(house: House, text: str) -> str:
    """ "A tea? Green." with the name of that tea; other turns as they are."""
    turn = words(text)
    for item in vocabulary(house).mentions(turn):
        behind = turn[item.last : item.last + 3]
        if item.kind != "item" or len(item.values) < 2 or len(behind) < 2 or behind[0].fold not in (".", "?", "!", ","):
            continue
        if behind[2:] and behind[2].fold.isalnum():
            continue
        stems = {value: {word.stem for word in words(value)} for value in item.values}
        kinds = [v for v in stems if behind[1].stem in stems[v] - set().union(*(stems[o] for o in stems if o != v))]
        if len(kinds) == 1:
            return f"{text[: turn[item.first].start]}{kinds[0]}{text[behind[1].end :]}"
    return text


def _kinds(house: House, text: str) -> str:
    """ "Four teas, two green, two black" with the name of each; other turns as they are."""
    turn = words(text)
    names = vocabulary(house).mentions(turn)
    for counted, item in zip(names, names[1:]):
        if counted.kind != "number" or item.kind != "item" or len(item.values) < 2 or counted.last != item.first:
            continue
        stems = {value: {word.stem for word in words(value)} for value in item.values}
        own = {value: stems[value] - set().union(*(stems[v] for v in stems if v != value)) for value in stems}
        found = []
        for at in range(item.last, len(turn)):
            value = next((value for value in own if turn[at].stem in own[value]), None)
            if value is not None:
                found.append((number(turn[at - 1].fold) or 1, value, at))
        if len(found) > 1 and sum(count for count, _, _ in found) == int(counted.value):
            ends = [*(turn[at - (number(turn[at - 1].fold) is not None)].start for _, _, at in found[1:]), len(text)]
            named = [f"{count} {value}{text[turn[at].end : end]}" for (count, value, at), end in zip(found, ends)]
            return text[: turn[counted.first].start] + "".join(named)
    return text
