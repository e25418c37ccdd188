"""Finds days, times, numbers of people, telephone numbers and names in a turn; the results are parts of its text."""

from __future__ import annotations

import re
from operator import mul

from edge.kiosk import vectors
from edge.kiosk.phrases import listed
from edge.kiosk.words import NUMBERS, folded, stem

_NUMBER = rf"(?:\d+|{'|'.join(NUMBERS)})"
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?s?"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_ORDINAL = (
    r"(?:\d{1,2}(?:st|nd|rd|th)|(?:twenty[ -]|thirty[ -])?(?:first|second|third|fourth|fifth|sixth|seventh"
    r"|eighth|ninth)"
    r"|tenth|eleventh|twelfth|(?:thir|four|fif|six|seven|eigh|nine)teenth|twentieth|thirtieth)"
)
_DATE = (
    rf"(?:(?:the )?{_ORDINAL}(?: of)? {_MONTH}|\d{{1,2}} {_MONTH}|{_MONTH} (?:the )?(?:{_ORDINAL}|\d{{1,2}})"
    rf"|\d{{1,2}}/\d{{1,2}}(?:/\d{{2,4}})?|\d{{1,2}}\.(?:0?[1-9]|1[0-2])(?:\.\d{{2,4}})?(?![\d:])|the {_ORDINAL})"
)
#: "Saturday 9.30" is a time, not the 30th month
_DATED = _DATE.replace(r"|\d{1,2}\.(?:0?[1-9]|1[0-2])(?:\.\d{2,4})?(?![\d:])", "")
_DAYPART = r"(?: (?:morning|afternoon|evening|night))"
DAY = re.compile(
    rf"\b(?:(?:the )?day after tomorrow|tomorrow week|(?:a|one) week (?:on {_WEEKDAY}|tomorrow|today)"
    rf"|yesterday|last (?:week|night)|(?:today|tomorrow|tmrw|tomorow){_DAYPART}?|tonight"
    rf"|(?:(?:this|next|coming|the coming|the next|the following|easter|good|whit|pentecost) )?{_WEEKDAY}"
    rf"(?:{_DAYPART}|,? {_DATED}| week| after next)?"
    rf"|{_DATE}|(?:this|next) (?:weekend|week)|(?:christmas|new year'?s) (?:eve|day)|boxing day)\b"
)
_HALF = (
    r"(?:half(?: past)?|quarter (?:past|to|after)|(?:\d{1,2}|five|ten|twenty|twenty[ -]five) (?:minutes )?(?:past|to))"
)
_PART = r"(?: ?(?:[ap]\.? ?m\b\.?|o'? ?clock)|ish\b|(?: in the (?:morning|afternoon|evening)| at night))"
_HOUR = r"(?:\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_CLOCK = rf"(?:{_HALF} {_HOUR}|{_HOUR} (?:thirty|fifteen|forty[ -]five)|\d{{1,2}}[:.h]\d{{2}}|{_HOUR})"
TIME = re.compile(
    rf"\b(?:{_HALF} {_HOUR}{_PART}?|\d{{1,2}}[:.]\d{{2}}{_PART}?|{_HOUR} (?:thirty|fifteen|forty[ -]five){_PART}?"
    rf"|{_HOUR}{_PART}|(?:(?:12|twelve) )?(?:noon|midday|midnight))(?!\w)"
)
#: an hour alone is a time only after these words
_AT = re.compile(
    rf"\b(?:at|around|about|from|by|till|until|for|@|make it|say)(?: (?:around|about))? ({_CLOCK}{_PART}?)(?![\w:])"
)
PHONE = re.compile(r"(?<![\w.])\+?\d[\d ()/-]{4,}\d(?!\w)")
_COUNT = re.compile(
    rf"\b({_NUMBER})(?: more)?(?: (?:little|small|young|other))? "
    r"(people|ppl|persons?|guests?|adults?|of us|of them|pax|nights?|child(?:ren)?|kids?|friends|seats?|boys|girls"
    r"|places?|spaces?|spots?|visitors)\b"
)
_PARTY = re.compile(
    r"\b(?:for|party of|group of|(?:party|group|number|headcount)(?: size| of (?:people|guests))? (?:to|is|will be)"
    r"|we are|we're|we(?:'ll| will) (?:only |just )?be|we would be|we'd be|we make|us"
    rf"|(?:just|only)(?= {_NUMBER}(?: please)?(?:[,.!;]|$))|there(?:'ll be| will be| are|'s|s)) ({_NUMBER})\b"
)
_PEOPLE = r"[a-z]{3,}(?:ers|ors|ists|mates)|babies|ladies|women|men|parents|students"
_GUEST = r"(?:people|persons?|guests?|adults?|child(?:ren)?|kids?|friends?|seats?|places?|boys?|girls?)"
#: what is said of some of the guests
_OF_SOME = re.compile(
    rf"\b{_NUMBER} of (?:us|them) (?:are|is|can'?t|cannot|can|have|has|need|don'?t|do not|want|eat|drink|use|would)\b"
    r"(?! (?:come|coming|be)\b)", re.IGNORECASE
)
#: "one" where it stands for a thing or a person
_ONES = re.compile(
    r"\b(?<!just )(?<!only )(?:the|this|that|which|no|some|any|every|each|another)"
    r"(?: (?:other|right|wrong|same|first|last|only))? ones?\b(?! (?:person|guest|more|hour|night|of)\b)", re.IGNORECASE
)
#: what those do who do not come
_ABSENT = (
    r"(?:(?:now )?(?:can'?t|cannot|won'?t|isn'?t|aren'?t|is not|are not)(?: be)? (?:come|coming|make|there|join)"
    r"|(?:has|have)?(?: just)? ?(?:dropped out|cancell?ed|is ill|are ill))"
)
_COMPANY = (
    r"(?:friends|mates|others|people|kids|children|colleagues|cousins|guests|sons|daughters|boys|girls|brothers"
    r"|sisters)"
)
_MORE = re.compile(
    rf"\b({_NUMBER}) (?:more|extra|additional) (?:{_GUEST}|of us)\b|\b({_NUMBER}) {_GUEST} (?:more|extra)\b"
    rf"|\badd ({_NUMBER}) {_GUEST}\b|\b(?:we(?:'re| are|'ll be| will be)) ({_NUMBER}) (?:more|extra)\b"
    rf"|\bplus ({_NUMBER})\b(?! {_COMPANY})"
    rf"|\bbringing ({_NUMBER}) more\b"
)
_FEWER = re.compile(
    rf"\b(?:drop|remove|minus|lose|cancel|take off|take away) ({_NUMBER}) {_GUEST}\b|"
    rf"\b({_NUMBER}) (?:of (?:us|them|the {_GUEST})|{_GUEST}) {_ABSENT}\b"
    rf"|\b({_NUMBER}) {_GUEST} (?:less|fewer)\b|\b({_NUMBER}) (?:less|fewer) {_GUEST}\b"
)
#: unit of a count in a booking -> what guests call it
UNITS = {
    "people": {*"people ppl person persons guest adult pax friends seat place space spot visitor".split(),
               "of us"},
    "nights": {"night"},
    "children": {"child", "kid", "boy", "girl"},
}

#: words that can follow "for" or "it's" and are not a name
_NOT_NAMES = listed("not names")
#: words that are a name only with a capital letter: "for mum", "one for each"
_NOT_SMALL = frozenset().union(*map(listed, ("stop", "common", "in passing", "no wish")))
_NAME_WORD = r"[^\W\d_]+(?:['’.-][^\W\d_]+)*"
# two spaces: where a day or a time was taken out, "8pm name Li"
_NAMED = re.compile(
    rf"(?:\bmy name(?:'s|s| is)|\bname (?:should be|to|into)|\bput the name"
    r"|\b(?:the|my) name (?:for|on) (?:the|this|my|that)? ?(?:order|booking)? ?(?:is|will be)"
    rf"|\bthe name(?:'s|s| is)|\bname(?:'s| is| of|:)|(?:^|[,.;!] ?|  )names?(?! (?:of|is)\b)|\bcall me"
    rf"|\bunder(?: the name(?: of)?)?|\b(?:in|on|by) the name(?: of)?|\b(?:my|the) (?:last |sur|first )name is"
    rf"|\bunder my name,?)"
    rf"\s+(?:spelled |spelt )?((?:(?:dr|mr|mrs|ms|miss)\.? )?{_NAME_WORD}(?: {_NAME_WORD}){{0,2}})",
    re.IGNORECASE,
)
#: "her name's Ingrid but put it under Bauer"
_PUT_UNDER = re.compile(
    rf"\bput (?:it|that|us|me|the (?:table|booking|order)) (?:down )?under ({_NAME_WORD}(?: {_NAME_WORD})?)",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    rf"^(?:it's |sorry,? )?({_NAME_WORD}(?: {_NAME_WORD})?)"
    r"(?: is (?:my|the) (?:last |sur|first )?name\b|,? if you (?:need|want) (?:a|my|the) name\b)",
    re.IGNORECASE,
)
#: a question: what follows "for" in it is not a name
_ASKED = re.compile(
    r"\?|^(?:and |so |but )?(?:is|are|do|does|have|what|when|where|how|who|which|why|any|anything|got|can|could)\b",
    re.IGNORECASE,
)
_SOFT = re.compile(
    r"\b(?:(?P<its>[Ii]t'?s for|[Tt]hat'?s for)|(?P<for>[Ff]or)|[Ii]t'?s|[Tt]his is|[Ii](?:'m| am|m)|[Pp]ut(?: down)?) "
    rf"(?P<name>(?:(?:[Dd]r|[Mm]rs?|[Mm]s|[Mm]iss)\.? )?{_NAME_WORD}(?: {_NAME_WORD}){{0,2}})"
)  # fmt: skip


def number_of(text: str) -> str:
    """A number word as digits; digits stay."""
    value = NUMBERS.get(folded(text))
    return str(value) if value is not None else text


def day(text: str) -> str | None:
    """The day in a text, as it was said; None if there is none."""
    low = folded(text) if len(folded(text)) == len(text) else text.lower()
    return _last_meant(DAY, text, low)


#: words before or after a day or a time that is not wanted: "I can't do Friday", "not Friday"
_NOT_BEFORE = re.compile(
    r"(?:\bnot|\bcan'?t(?: do| make| come| manage)?|\bcannot(?: do| make| come)?|\bcouldn'?t(?: do| make)?|\binstead of"
    r"|\brather than|\bno longer|\b(?:is|'s|are|'re|am|'m|be) (?:away|out|busy|closed|working|not free))"
    r"(?: it)?(?: on| at| for)?(?: the)? $"
)
_NOT_BEHIND = re.compile(r" (?:doesn'?t work|won'?t work|is no good|is out|isn'?t|is not|no longer|is impossible)")
_FAREWELL = re.compile(
    r"(?:(?<!can i )(?<!can we )\bsee (?:you|ya|u|yous)(?: all| guys| both)?|(?:^|[,.!;] ?)(?:until|till))(?: then)?"
    rf"((?: (?:on|at|around|about)? ?(?:{DAY.pattern}|{TIME.pattern}|{_CLOCK}\b))+)(?!.*\b(?:instead|rather)\b)"
)
_CORRECTED = re.compile(r"\b(?:no|sorry|wait|actually|i mean|make (?:it|that)|rather)\b")
_FROM_TO = re.compile(r"\b(?:from|change|move|swap|switch|shift)\b.*\b(?:to|for)\b")


def _last_meant(pattern: re.Pattern[str], text: str, low: str) -> str | None:
    """The first match that is not negated; of "from Friday to Saturday" the last."""
    meant = [
        found for found in pattern.finditer(low)
        if not _NOT_BEFORE.search(low[: found.start()]) and not _NOT_BEHIND.match(low[found.end() :])
    ]  # fmt: skip
    if not meant:
        return None
    moved = len(meant) == 2 and _FROM_TO.search(low[: meant[-1].start()])
    corrected = len(meant) > 1 and _CORRECTED.search(low[meant[0].end() : meant[-1].start()])
    found = meant[-1] if moved or corrected else meant[0]
    return text[found.start() : found.end()].strip()


def unwanted(text: str) -> str:
    """ "day" or "time" where a text names one only as wrong, "so 7pm is no good"; else ""."""
    low = folded(text) if len(folded(text)) == len(text) else text.lower()
    found = [kind for kind, pattern in (("day", DAY), ("time", TIME)) if pattern.search(low)]
    return found[0] if len(found) == 1 and not _last_meant(DAY if found == ["day"] else TIME, text, low) else ""


def without_farewell(text: str) -> str:
    """The text without the day or the time of a farewell: "that's all, see you Saturday" tells no day."""
    low = folded(text) if len(folded(text)) == len(text) else text.lower()
    for found in reversed([*_FAREWELL.finditer(low)]):
        text = f"{text[: found.start(1)]} {text[found.end(1) :]}"
    return text


def time(text: str, bare: bool = False) -> str | None:
    """The time in a text, as it was said; None if there is none.  ``bare``: accept an hour alone, such as "seven"."""
    low = text.lower()
    if len(low) != len(text):
        return None
    if meant := _last_meant(TIME, text, low):
        return meant
    if found := re.search(r"(?:^|[,.;]|\bat) ?((?:[01]\d|2[0-3])(?:00|15|30|45)(?: ?h(?:ou)?rs)?)(?=[,.;!?]|$| )", low):
        return text[found.start(1) : found.end(1)]  # "wed, 1930"
    for match in _AT.finditer(low):
        unit = low[match.end() : match.end() + 10].strip().split(" ")[0]
        before = low[match.start() : match.start(1)].split()
        if stem(unit) not in {"person", "night", "child", "guest", "adult", "of", "seat", "friend"} and (
            before[0] not in ("for", "make", "say", "about", "by", "from") or bare
        ):
            return text[match.start(1) : match.end(1)].strip()
    # "cancel the Tuesday one" and "one is enough" are not times
    if bare and (found := re.search(rf"(?<!\bthe )(?<!\bthe  )\b{_CLOCK}\b(?! (?:is|are) (?:enough|plenty))", low)):
        return text[found.start() : found.end()]
    return None


def now(text: str) -> str | None:
    """The words that say "at once", where a time was asked for; None if there are none."""
    found = re.search(r"\b(?:right )?now\b|\b(?:right|straight) away\b|\bas soon as possible\b", text, re.IGNORECASE)
    return found[0] if found else None


def without(text: str, value: str | None) -> str:
    """The text without a value that was found in it, where it is the value: of "for 2 at 2" the time is the second."""
    if not value:
        return text
    whole = rf"(?<![\w:]){re.escape(value)}(?![\w:])"
    found = re.search(rf"(?<=\bat ){whole}", text, re.IGNORECASE) or re.search(whole, text)
    return f"{text[: found.start()]} {text[found.end() :]}" if found else text.replace(value, " ", 1)


_DAYS = {"jan": 31, "feb": 29, "mar": 31, "apr": 30, "may": 31, "jun": 30, "jul": 31, "aug": 31, "sep": 30, "oct": 31,
         "nov": 30, "dec": 31}  # fmt: skip


def impossible(kind: str, value: str) -> bool:
    """Whether such a day, time or number of people cannot exist ("31 February", "25:00", "0")."""
    low = folded(value)
    numbers = [int(digits) for digits in re.findall(r"\d+", low)]
    if kind == "count":
        return number_of(low) in ("0", "-0") or low.startswith("-")
    if kind == "time" and numbers:
        hour, minute = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if 100 <= hour <= 2400 and len(numbers) == 1:  # "1930"
            hour, minute = divmod(hour, 100)
        if re.search(r"\b(?:past|to|after)\b", low):  # "10 past 9"
            hour, minute = numbers[-1], 0
        return hour > 24 or (hour == 0 and low.endswith("m")) or minute > 59 or (hour == 24 and minute > 0)
    if kind == "day" and re.match(r"(?:yesterday|last )", low):
        return True
    if kind == "day" and numbers:
        month = re.search(_MONTH, low)
        if month:
            return not 1 <= numbers[0] <= _DAYS[month[0][:3]]
        if re.search(r"\d[/.]\d", low):  # day and month, in either order
            first, second = numbers[:2]
            pairs = ((first, second), (second, first)) if "/" in low else ((first, second),)
            months = list(_DAYS.values())
            return not any(1 <= m <= 12 and 1 <= d <= months[m - 1] for d, m in pairs)
        return not 1 <= numbers[0] <= 31
    return False


def counts(text: str) -> dict[str, str]:
    """Numbers in a text: unit ("people", "nights", "children", or "" if none was said) -> number."""
    low = text.lower()
    found: dict[str, str] = {}
    part = ""  # "two of them are scared" tells how many there are only where nothing else does
    if whole := re.search(rf"\b({_NUMBER}) (?:in total|altogether|in all)\b", low):
        found["people"] = number_of(whole[1])
    if re.search(r"\bfor (?:a|the) couple\b(?! of\b| more\b)", low):
        found["people"] = "2"
    for match in _COUNT.finditer(low):
        unit = match[2] if match[2].startswith("of ") else stem(match[2])
        for kind, names in UNITS.items():
            if unit == "of them" or unit == "of us" and match[1] in ("1", "one"):
                part = part or number_of(match[1]) * (unit == "of them")
            elif unit in {stem(name) for name in names} | names:
                below = "-" * bool(re.search(r"(?:^|\s)[-−–]$", low[: match.start()]))
                found.setdefault(kind, below + number_of(match[1]))
    small = r"\b(?:and|with|plus) (?:an?|one|our|my|her|his|their) (?:\w+ )?(?:baby|toddler|infant|child|kid)\b"
    if re.search(small, low) and "children" not in found:
        found["children"] = "1"
    if others := re.search(rf"\b(?:me|myself|i),? (?:and|plus|with) (?:my )?({_NUMBER}) (?:other )?{_COMPANY}\b", low):
        found.setdefault("people", str(int(number_of(others[1])) + 1))
    if re.search(r"\b(?:just|only) (?:me|myself|one of us)\b|\bon my own\b|\bby myself\b", low):
        found.setdefault("people", "1")
    two = r"\b(?:(?:me|myself) and (?:my|a|one) \w+|my \w+ and (?:me|i|myself)|(?:the )?two of us|both of us)\b"
    if re.search(r"\bmy \w+(?:,| and) (?:my )?\w+,? and (?:me|i|myself)\b|\b(?:me|i),? my \w+,? and my \w+\b", low):
        found.setdefault("people", "3")
    if re.search(two, low):
        found.setdefault("people", "2")
    if "people" not in found:
        rest = re.sub(rf"{DAY.pattern}|{TIME.pattern}", lambda m: "_" * len(m[0]), low)
        party = _PARTY.search(rest)
        if party and not re.match(r"\s*(?:[:.]\d|night|o'?clock|[ap]m|hour|minute|_)", rest[party.end() :]):
            found[""] = number_of(party[1])
        elif part:
            found["people"] = part
    return found


def without_ones(text: str) -> str:
    """The text without each "one" that is no number: "he's the one paying"."""
    return _ONES.sub(" ", text)


def without_some(text: str) -> str:
    """The text without numbers of some of the guests, of whom something is told: "two of us are vegetarian"."""
    return _OF_SOME.sub(" ", text)


def more(text: str) -> int:
    """How many guests more ("one more person", "plus one") or, negative, fewer ("one of us can't come"); 0 if none."""
    low = re.sub(rf"\b(?:another|an (?:extra|additional)) (?={_GUEST}\b)", "one more ", folded(text))
    if added := _MORE.search(low):
        return int(number_of(added[added.lastindex or 0]))
    gone = _FEWER.search(low)
    return -int(number_of(gone[gone.lastindex or 0])) if gone else 0


def more_nights(text: str) -> int:
    """How many nights more: "one night longer"; 0 if none."""
    found = re.search(rf"\b({_NUMBER}) (?:(?:more|extra) nights?|nights? (?:more|longer|extra))\b", folded(text))
    return int(number_of(found[1])) if found else 0


def group(text: str, known: frozenset[str]) -> str | None:
    """The number of a group whose noun no list has: "five climbers".  ``known``: stems of names of the house."""
    for found in re.finditer(rf"\b({_NUMBER}) ({_PEOPLE})\b", text.lower()):
        if stem(found[2]) not in known:
            return number_of(found[1])
    return None


def amount(value: str) -> float:
    """A count, or the hour of a time, as a number: "half past ten" -> 10.5; infinite where there is none."""
    low = folded(value)
    numbers = [float(number_of(each)) for each in re.findall(rf"\b{_NUMBER}\b", low)]
    if not numbers:
        return {"noon": 12.0, "midday": 12.0, "midnight": 12.0}.get(low, float("inf"))
    if re.search(r"\b(?:past|to)\b", low):
        return numbers[-1] + (0.5 if "half" in low else 0.0)
    return numbers[0]


def without_counts(text: str, party: bool = True) -> str:
    """The text without its numbers of people and nights; ``party``: also of those after "for" and "we are"."""
    for pattern in (_COUNT, _PARTY)[: 1 + party]:
        text = re.sub(pattern.pattern, lambda match: " " * len(match[0]), text, flags=re.IGNORECASE)
    return text


def _personal(word: str) -> bool:
    """Whether a word can be a first or last name: it is not in the table of words, or it is like names there."""
    if word not in vectors.table()[0]:
        return True
    unit = vectors.token(word).unit
    likeness = (sum(map(mul, unit, vectors.token(name).unit)) for name in ("john", "sarah", "peter", "anna", "smith"))
    return sum(likeness) > 0.9


def listed_name(text: str, known: frozenset[str]) -> str | None:
    """A name that stands alone between commas: "table for two, Ruiz, 7 pm".  ``known``: stems that are not names."""
    for part in re.split(r"[,.;:](?!\d)", text)[1:]:
        part = part.strip(" .!")
        parts = {folded(word) for word in part.split()}
        if re.fullmatch(r"[A-Z][^\W\d_]+(?: [A-Z][^\W\d_]+)?", part) and not DAY.search(part.lower()) and not (
            parts & _NOT_NAMES or {stem(word) for word in parts} & known or not all(map(_personal, parts))
        ):  # fmt: skip
            return part
    return None


def phone(text: str) -> str | None:
    """The telephone number in a text, as it was written; None if there is none."""
    found = PHONE.search(text)
    return found[0] if found and sum(c.isdigit() for c in found[0]) >= 6 else None


def name(text: str, known: frozenset[str] = frozenset(), asked: bool = False) -> str | None:
    """The guest's name, as it was written; None if there is none.  ``known``: stems that are not names.

    ``asked``: the kiosk has asked for the name, so a name alone is accepted.
    """
    if (found := _PUT_UNDER.search(text)) and (value := _cut(text, found.start(1), found.end(1), known, strict=False)):
        return value
    if (found := _BEFORE.search(text)) and (value := _cut(text, found.start(1), found.end(1), known, strict=True)):
        return value
    if (found := _NAMED.search(text)) and (value := _cut(text, found.start(1), found.end(1), known, strict=False)):
        return value
    for found in _SOFT.finditer(text):
        start, end = found.span("name")
        rest = re.split(r"[,.!?]", text[start:])[0] if found["its"] else text[start:]  # "it's for leo. that's all"
        proper = text[start].isupper() and not text.isupper()
        last = (found["its"] or found["for"]) and end - start >= len(rest.rstrip(" .!?,"))
        if proper or last:
            value = _cut(text, start, end, known, strict=True)
            whole = last and value == rest.strip(" .!?,") and not (_ASKED.search(text) or _small(folded(value or "")))
            if value and (proper and value[0].isupper() or whole):
                return value
    if asked:
        plain = re.sub(
            r"^(?:it's|its|it is|that's|that would be|yes,?|sure,?|ok,?|okay,?|um,?|uh,?|oh,?|names?\?)\s+",
            "",
            text.strip(),
            flags=re.I,
        )
        if (both := re.fullmatch(rf"({_NAME_WORD}), ({_NAME_WORD})", plain)) and not (
            {folded(both[1]), folded(both[2])} & _NOT_NAMES or {stem(folded(both[1])), stem(folded(both[2]))} & known
        ):
            return plain  # "Smith, John"
        if two := re.fullmatch(rf"([A-Z]{_NAME_WORD} and [A-Z]{_NAME_WORD}(?: {_NAME_WORD})?)[.!]?", plain):
            return two[1]
        match = re.fullmatch(
            rf"({_NAME_WORD}(?: {_NAME_WORD}){{0,2}})[.!]?(?:\s*,?\s*(?:please|thanks|thank you)[.!]?)?", plain
        )
        if match:
            return _cut(plain, match.start(1), match.end(1), known, strict=True)
    return None


def _small(text: str) -> bool:
    """Whether words in small letters are no name: "sharing", "my mum"."""
    return any(word in _NOT_SMALL or len(word) > 5 and word.endswith("ing") for word in text.split())


def _cut(text: str, start: int, end: int, known: frozenset[str], strict: bool) -> str | None:
    """The words from ``start`` that can be a name, up to the first that cannot."""
    kept = start
    for found in re.finditer(_NAME_WORD, text[start:end]):
        fold = folded(found[0])
        if fold in _NOT_NAMES or (stem(fold) in known and not (kept == start and not strict)):
            break
        if kept > start and found[0][0].islower() and text[start].isupper():
            break  # "Anna thanks": the name ended
        kept = start + found.end()
    return text[start:kept].strip() or None
