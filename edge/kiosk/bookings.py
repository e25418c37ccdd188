"""Bookings and names: the fields of what can be booked, out of a turn."""

from __future__ import annotations

import re

from edge.kiosk import slots
from edge.kiosk.house import Booking
from edge.kiosk.mentions import Mention
from edge.kiosk.operations import DENY, Answer, Book, Cancel, Name, Talk
from edge.kiosk.phrases import phrases
from edge.kiosk.reading import Reading, asks, clauses
from edge.kiosk.state import missing
from edge.kiosk.words import COMMON, NUMBERS, folded, number, stem, words

#: what tells of more or fewer guests
_COMING = re.compile(r"\b(?:coming|comes?|join(?:s|ing)?|bring(?:s|ing)?|dropp(?:ed|ing) out|friends?)\b")
_BETTER = re.compile(r"\bwould (?:be better|suit|work)\b|\bso \w+\W*$")
#: a turn that only takes something away
_TAKES_AWAY = re.compile(
    r"(?:(?:and|oh|no|ok|okay|please|then|sorry|actually|can you|could you|i want to|i'd like to)[, ]+)*"
    r"(?:cancel|remove|delete|drop|scratch|scrap|forget)\b(?!.*\b(?:and|but|instead|to)\b)"
)
#: "reserve parking", with one word for what is booked
_BOOKS_THING = re.compile(
    r"(?:(?:hi|hello|please|can (?:i|we|you)|could (?:i|we|you)|i'?d like to|i want to) )*(?:book|reserve) "
    r"(?!me\b|us\b|it\b|now\b|for\b|please\b|something\b|seats?\b|places?\b|spots?\b|here\b|in\b|online\b|via\b)"
    r"([a-z]{3,})(?: (?:please|spaces?|lots?))*\W*"
)
_NOT_THEN = re.compile(r"(?:no,? )?not (?:on )?[\w' ]+[.!]*")
#: before a table that is only a place: "send it to table 5", "bring it to our table"
_PLACE = re.compile(
    r"\b(?:(?:bring|send|serve|deliver|take)\b.*)?\b(?:to|at|on|from|by|for) (?:the |(?P<ours>(?:our|my) ))?$"
)
#: times and days that are told from where they stand
_SHIFTS = re.compile(r"\b(?:hours?|minutes?) (?:later|earlier)\b|\bthe day (?:after|before)\W*$")
_NOT_SO = re.compile(
    rf"\b(?:not|instead of|rather than) (?:at |for |the )?((?:\d+|{'|'.join(NUMBERS)})\b)", re.IGNORECASE
)
_NO_NUMBER = re.compile(rf"no,|no (?:\w+ )?(?:\d+|{'|'.join(NUMBERS)})\b")
#: what is not said yet: "it might be four"
_MAYBE = re.compile(
    rf"\b(?:might|may|could) (?:be|become|get) (?:\d|\w+day\b|(?:{'|'.join(NUMBERS)}|tomorrow|later|earlier)\b)"
    r"|\bnot sure (?:if|whether|yet)\b|\blet you know\b"
)
#: "half past", of the hour that is booked
_PAST = re.compile(r"\b(half|quarter) past\b(?! \w)", re.IGNORECASE)
#: a telephone number, and what it is called
_TELEPHONE = re.compile(
    r"(?:\b(?:and )?(?:my|our|the) (?:(?:tele)?phone|mobile|cell|contact)?(?: ?number)?(?:'s| is|:)? ?"
    rf"|\b(?:(?:tele)?phone|mobile|tel|number)\b[.:]?(?: is)? ?|(?=[+0])){slots.PHONE.pattern}", re.IGNORECASE
)
#: an hour told like a number of guests: "for twelve, today, two people"
_FOR_HOUR = re.compile(rf"(?:^|[,.;] ?)for ((?:\d\d?|{'|'.join(NUMBERS)}))(?=[,.;])")
#: what may stand beside the fields of a booking that is not named
_BESIDE = frozenset(
    "for at on in of we us are we're is be the a my name under please thanks hi hello good morning afternoon evening "
    "so and um er yes around about only just all together there's there there'll will party group thank you it's"
    .split()
)
#: what may stand beside them in a question whether they are noted right
_CHECKING = _BESIDE | frozenset("that this that's was still right correct ok okay you have got down it then".split())
#: a request that is put as a question
_REQUEST = re.compile(r"(?:can|could|may) (?:i|we|you)\b")
#: a name letter by letter: "N O V A K"
_SPELT = re.compile(r"(?<!\w)[^\W\d_](?:[ .-]+[^\W\d_]){2,}(?!\w)")
#: how a name is spelt, behind it: "Schmidt, with dt"
_SPELLING = re.compile(r",? (?:with|spelled|spelt|written)(?: (?:an?|with|like))* (?P<letters>(?:[^\W\d_]{1,2}\b ?)+)$")


class Bookings(Reading):
    """What a turn books, and under which name; what is left of the turn is read on."""

    def naming(self, text: str) -> str:
        """Take the guest's name out of the turn."""
        asked = bool(self.asked and self.kind_of(*self.asked[0]) == "name")
        if not any(c.isalpha() for c in text):
            return text
        if asked or self.state.name:
            text = self.spelt(text)
        own = re.escape(self.state.name)
        denied = rf"(?i)\b(?:my|the) name(?: is not|'?s not| isn'?t| was not| wasn'?t) {own}\b"
        if self.state.name and (wrong := re.search(denied, text)):
            left = f"{text[: wrong.start()]} {text[wrong.end() :]}".strip(" ,.!")
            if not slots.name(left, self.known):
                self.unname()
                return left  # "my name isn't Ed"
        if self.state.name and (wrong := re.search(rf"(?i)\bnot {own}\b", text)):
            other = slots.name(f"{text[: wrong.start()]} {text[wrong.end() :]}".strip(" ,.!"), self.known, True)
            if other:  # "not Ed, Bob"
                self.named(other)
                return ""
        if asked and phrases("remove").search(folded(text)):
            return text  # "cancel it" is not a name
        value = slots.name(text, self.known, asked)
        if value and not asked and self.for_another(text, value):
            return text
        if value and not (asked and value == text and phrases("yes").match(folded(text))):
            self.named(value)
            return re.sub(
                rf"(?:\b(?:and )?(?:my|the)? ?(?:name(?:'s| is|:)?|under(?: the name(?: of)?)?|in the name of|call me"
                rf"|(?:in|on|by) the name(?: of)?|it'?s for|it'?s|this is"
                rf"|i'm|i am|that's for|for)[ ,]+)?{re.escape(value)}",
                " ",
                text,
                count=1,
                flags=re.I,
            )
        return text

    def for_another(self, text: str, value: str) -> bool:
        """Whether a name is that of whom something is for: "with cream for Emma", "and for Tom a tea"."""
        before = re.split(r"[.;!?]", folded(text[: text.find(value)]))[-1].strip(" ,")
        if not re.search(r"\w for$", before) or re.search(r"(?:^|, )(?:it|that|this)'?s for$", before):
            return False
        ordered = any(mention.kind in ("item", "booking") for mention in self.names.mentions(words(text)))
        return before == "and for" or not (ordered or "name" in before)

    def named(self, value: str) -> None:
        """Keep the guest's name: in the booking that lacks one, else in that which has the name of before."""
        open_ = [each for each in missing(self.house, self.state) if self.kind_of(*each) == "name"]
        open_ = open_ or [(booking, key) for booking, fields in self.state.bookings.items() for key in fields
                          if self.kind_of(booking, key) == "name"]  # fmt: skip
        for booking, key in open_[:1]:
            self.emit(Book(booking, key, value))
        if not open_:
            self.emit(Name(value))

    def unname(self) -> None:
        """Take the guest's name away, also from bookings, which need another."""
        name = self.state.name
        for booking, fields in self.state.bookings.items():
            kept = {key: value for key, value in fields.items()
                    if value != name or self.kind_of(booking, key) != "name"}  # fmt: skip
            if kept != fields:
                self.rebook(booking, kept)
        self.emit(Name(""))

    def rebook(self, booking: str, fields: dict[str, str]) -> None:
        """Book with these fields only."""
        self.emit(Cancel(booking))
        for key, value in (("", ""), *fields.items()):
            self.emit(Book(booking, key, value))

    def spelt(self, text: str) -> str:
        """A text that gives a name, with the name in one word; letters that it does not have are not noted."""
        if found := _SPELT.search(text):
            name = "".join(c for c in found[0] if c.isalpha()).capitalize()
            before = text[: found.start()].strip(" ,.!")
            if before and folded(before).endswith(folded(name)):
                return before
            return f"{before or 'My name is'} {name}{text[found.end() :]}"
        found = _SPELLING.search(text.rstrip(" .!"))
        letters = {each for each in folded(found["letters"]).split() if len(each) > 1} if found else set()
        if found and 0 < len(words(text[: found.start()])) < 4 and not letters & COMMON:
            name = text[: found.start()]
            if found["letters"].replace(" ", "").casefold() not in name.casefold():
                self.found.unnoted.append(found[0].strip(" ,"))
            return name
        return text

    def apart_by_booking(self, text: str) -> list[str]:
        """The parts of a turn that speaks of several bookings, each with one of them."""
        turn = words(text)
        named = [mention for mention in self.names.mentions(turn) if mention.kind == "booking"]
        parts, start = [], 0
        for one, two in zip(named, named[1:]):
            joints = [word for word in turn[one.last : two.first] if word.fold in ("and", "plus", "also", ",", ".")]
            if one.value != two.value and joints:
                parts.append(text[start : joints[-1].start])
                start = joints[-1].end
        return [*parts, text[start:]]

    def booking(self, text: str) -> str:
        """Read bookings; what is left of the turn comes back."""
        if not self.house.bookings:
            return text
        text = self.one_each(re.sub(r"(?i)^name\? ", "", text))
        if self.state.bookings and not self.asked:
            text = slots.without_farewell(text)
        low = folded(text)
        turn = words(text)
        mentions = self.names.mentions(turn)
        named = [mention for mention in mentions if mention.kind == "booking"]
        if named and (found := _PLACE.search(low[: turn[named[0].first].start])):
            behind = low[turn[named[0].last - 1].end :]
            if re.match(r" (?:number )?\d+(?=\W*$|,| please)", behind) or found["ours"] and not behind.strip(" .,!"):
                self.found.unnoted.append(text[found.start() :].strip(" .,!?"))  # "send it to table 5"
                return text[: found.start()]
        choices = [mention for mention in mentions if mention.kind == "choice"]
        verb = phrases("booking").search(low)
        open_ = [name for name in self.state.bookings if any(m[0] == name for m in missing(self.house, self.state))]
        target: Booking | None = None
        gone = phrases("remove").search(low)
        for mention in named:
            target = self.house.booking(mention.value)
            if gone and gone.start() < turn[mention.first].start:
                break  # "we don't need the tour, just the table"
        values = {"day": slots.day(text), "time": None, "phone": slots.phone(text)}
        dated = values["day"] and re.compile(rf"({re.escape(values['day'])},?) about\b", re.IGNORECASE)
        told = dated.sub(r"\1 around", text) if dated else text  # "tomorrow about eleven"
        bare = slots.without(slots.without(told, values["day"]), values["phone"])
        values["time"] = slots.time(bare)
        counts = slots.counts(slots.without(bare, values["time"]))
        slotted = bool(values["day"] or values["time"] or counts)
        if slotted and self.house.item(self.offered) is None:
            verb = verb or re.search(r"\bmake one\b(?! of\b)", low)
        thing = re.search(r"\b(?:book|reserve) (?:a|an|my|the|some) ([a-z]+)", low)
        bare_thing = _BOOKS_THING.fullmatch(low)
        if bare_thing and not (named or choices or slotted) and stem(bare_thing[1]) not in self.known:
            verb = None  # "reserve parking"
        if target is None and verb and thing:
            if thing[1] not in ("place", "spot", "slot", "seat", "space", "time", "visit", "reservation"):
                verb = None  # something that cannot be booked here
        if target is None and verb:
            fitting = [b for b in self.house.bookings if any(self._chosen(b, c) for c in choices)]
            fitting = fitting or [b for b in self.house.bookings if b.name in open_ or b.name == self.offered]
            fitting = fitting or [b for b in self.house.bookings if set(counts) & set(b.fields)]
            if len(self.house.bookings) > 1 and not fitting and not slotted:
                return text
            target = (fitting or self.house.bookings)[0]
        if target is None and choices and (slotted or open_ or phrases("ordering").search(low)):
            fitting = [b for b in self.house.bookings if any(self._chosen(b, c) for c in choices)]
            target = next((b for b in fitting if b.name in open_), fitting[0] if slotted or not asks(low) else None)
        if target is None and not self.state.lines and self.only_fields(bare, values, counts, mentions):
            target = self.house.bookings[0]
        fresh = bool(target and target.name not in self.state.bookings)
        if self.state.bookings and not self.state.lines and re.fullmatch(r"(?:please )?cancel(?: please)?\W*", low):
            return "" if self.emit(Cancel([*self.state.bookings][-1])) else text
        gone_by = phrases("no booking").match(low)
        if gone_by and (named or gone_by["thing"] in ("booking", "reservation", "appointment")):
            booked = named[0].value if named else ["", *self.state.bookings][-1]
            self.emit(Cancel(booked) if booked in self.state.bookings else DENY)
            return text[gone_by.end() :] if any(mention.kind == "item" for mention in mentions) else ""
        if fresh and not self.state.bookings and phrases("has booked").search(low) and (verb or named):
            self.emit(Answer(0))  # only the house knows what was booked before
            return ""
        if target is not None and fresh:
            wants = bool(verb or slotted or choices or phrases("ordering").search(low) or not asks(low))
            if asks(low) and not (
                slotted
                or (verb and (choices or re.search(r"\b(?:can|could|would|will) you\b", low)))
                or (phrases("ordering").search(low) and not phrases("wh").search(low))
            ):
                wants = False
            if not (verb or slotted) and re.search(r"\b(?:has|have|had|got) (?:a|an|my|his|her)\b", low) and not (
                re.search(r"\b(?:can|could|may|might|to|let'?s|i'?ll|we'?ll) (?:i |we )?have\b", low)
            ):
                wants = False  # "I have a pixie cut" tells of the guest
            plain = re.sub(r"\b(?:what|how) about\b", " ", low)  # "what about Friday, can I book for 2 at three"
            if asks(low) and phrases("about booking").search(plain):
                wants = False
            of = {word.fold for m in named[:1] for word in turn[max(0, m.first - 2) : m.first]}
            if asks(low) and not (verb or slotted) and of & {"for", "to", "at", "during", "of", "with"}:
                wants = False  # "can we bring a cake for the party"
            if re.search(r"\b(?:don'?t|do not|didn'?t|haven'?t|without)\b", low):
                wants = False
            if phrases("remove").search(low) and not (slotted or choices):
                wants = False  # "cancel the table" where none is booked
            alone = rf"(?:an?|one) {re.escape(folded(target.name))}"  # "a table and a latte"
            beside = re.search(rf"(?:^|\band |, ){alone}(?=,| and|\W*$)", low)
            if any(m.kind == "item" for m in mentions) and not (verb or slotted or beside):
                wants = False
            if not wants:
                return text
        if target is None and self.state.bookings:
            name = (open_ or list(self.state.bookings))[-1]
            target = self.house.booking(name)
            meant = target is not None and set(counts) & set(target.fields) and (
                not self.state.lines or "people" in counts)
            if any(m.kind == "item" for m in mentions) and not (values["day"] or values["time"] or meant):
                return text
        if target is None:
            at = values["time"] or ""
            if re.search(r"[a-z]|:", at.lower()) and any(m.kind == "item" for m in mentions) and not asks(low):
                self.found.unnoted.append(at)  # "a soup at 5 pm"
            return text
        wishes = [] if phrases("remove").search(low) else [w[0] for w in phrases("booking wish").finditer(text)]
        chosen = [folded(value) for mention in choices for value in mention.values]  # "on the terrace" is noted there
        wishes = [wish for wish in wishes if not any(value in folded(wish) for value in chosen)]
        requested = bool(wishes) and (fresh or not asks(low) or bool(_REQUEST.match(low)))
        self.found.unnoted += wishes * requested
        for wish in wishes * requested:
            text, bare = text.replace(wish, " "), bare.replace(wish, " ")
        if not fresh and _MAYBE.search(low) and not asks(low):
            self.found.unnoted.append(text.strip(" .,!"))
            return ""
        rest = slots.without_counts(slots.without(bare, values["time"]))
        if not fresh and slotted and asks(low) and phrases("checks booking").search(low) and _little(rest, _CHECKING):
            self.emit(Talk("order"))  # "so that's Friday at seven, right?"
            return ""
        self.unwanted = slots.unwanted(text) or self.unwanted
        corrects = bool(phrases("correct").search(low) or re.search(r"\bnot\b", low))
        if asks(low) and not (fresh or requested or phrases("ordering").search(low) or corrects and slotted):
            return text
        other = [v for v in (values["day"], values["time"]) if v and not counts]
        of_order = any(mention.kind == "item" for mention in mentions)  # "cancel the soup, it's too hot today"
        if of_order and not (verb or named) and _TAKES_AWAY.match(low):
            return text
        if not fresh and other and _TAKES_AWAY.match(low) and not phrases("correct").search(low):
            have = self.state.bookings[target.name].values()
            if {folded(each) for each in have} & {folded(each) for each in other}:
                self.emit(Cancel(target.name))
            else:  # "cancel the Tuesday one" where it is on Monday
                self.found.absent.append(f"{target.name} for {other[0]}")
            return ""
        if (verb or named) and not fresh and phrases("remove").search(low) and not slotted and not choices:
            self.emit(Cancel(target.name))
            return ""
        before = len(self.found.operations)
        left = self.fields(target, text, bare, values, counts, choices, fresh, mentions)
        return "" if requested and len(self.found.operations) == before else left

    def telephone(self, text: str) -> str:
        """The text without the guest's telephone number, where nothing that is booked has a place for it."""
        found = _TELEPHONE.search(text)
        number = slots.phone(slots.without(found[0], slots.day(found[0]))) if found else None
        kept = [booking.fields.values() for booking in self.house.bookings if booking.name in self.state.bookings]
        if not (found and number) or any("phone" in kinds for kinds in kept):
            return text
        self.found.unnoted.append(number)
        return f"{text[: found.start()]} {text[found.end() :]}"

    def only_fields(
        self, bare: str, values: dict[str, str | None], counts: dict[str, str], mentions: list[Mention]
    ) -> bool:
        """Whether a turn tells only fields of the one thing to book, two or more: "4 people, tonight at 6".

        An hour as in "for twelve" is kept in ``values``, where another number is that of the guests.
        """
        if len(self.house.bookings) != 1 or self.state.bookings or any(m.kind != "number" for m in mentions):
            return False
        if set(counts) - {""} and not values["time"] and (hour := _FOR_HOUR.search(folded(bare))):
            values["time"] = hour[1]
        rest = slots.without_counts(slots.without(bare, values["time"]))
        name = slots.name(rest, self.known) or slots.listed_name(f", {rest}", self.known)
        when = [*filter(None, (values["day"], values["time"]))]
        told = len(when) + len(counts) + bool(name) > 1 and bool(when or counts)
        return told and bool(counts or not asks(folded(bare))) and _little(slots.without(rest, name), _BESIDE)

    def one_each(self, text: str) -> str:
        """The text without a second booking of what is booked, which is refused: "and another table on Tuesday"."""
        held, kept = set(self.state.bookings), ""
        for part in re.split(r"(?=\b(?:and|plus)\b)|(?<=[.,;!?]) ", text):
            mentions = self.names.mentions(words(part))
            named = [m.value for m in mentions if m.kind == "booking"]
            other = named[:1] or [*held][-1:] * (not any(m.kind == "item" for m in mentions))
            slotted = slots.day(part) or slots.time(part) or slots.counts(part).keys() - {"children"}
            day, low = slots.day(part), folded(part)
            second = phrases("second booking").match(low) or day and named and not (
                missing(self.house, self.state) or phrases("correct").search(low) or not re.match(r"an? ", low)
                or folded(day) in map(folded, self.state.bookings.get(named[0], {}).values())
            )  # fmt: skip
            if set(other) <= held and other and second and (named or slotted):
                self.found.second.append(other[0])
            else:
                kept += part + " " * (not part.endswith(" "))
                held |= set(named)
        return kept.strip() if self.found.second else text

    def _chosen(self, booking: Booking, mention: Mention) -> str:
        """The field of a booking that a choice belongs to."""
        for key, kind in booking.fields.items():
            if isinstance(kind, tuple) and set(mention.values) & set(kind):
                return key
        return ""

    def fields(
        self,
        booking: Booking,
        text: str,
        bare: str,
        values: dict[str, str | None],
        counts: dict[str, str],
        choices: list[Mention],
        fresh: bool,
        mentions: list[Mention],
    ) -> str:
        """Fill the fields of a booking from a turn."""
        have = self.state.bookings.get(booking.name, {})
        asked = self.asked[0][1] if self.asked and self.asked[0][0] == booking.name else ""
        got: dict[str, str] = {}
        rest = text
        for mention in choices:
            before = [word.fold for word in words(text)[: mention.first]][-2:]
            unwanted = before == ["instead", "of"] or before[-1:] in (["than"], ["not"], ["no"])
            if len(choices) > 1 and (unwanted or re.match(r"(?:do|does|did)n'?t ", " ".join(before))):
                continue  # "fish, half of them don't eat meat"
            if key := self._chosen(booking, mention):
                kind = booking.fields[key]
                got[key] = next(value for value in mention.values if value in kind)
        plain = {key: kind for key, kind in booking.fields.items() if isinstance(kind, str)}
        if have and _SHIFTS.search(folded(text)):
            self.found.unnoted.append(text.strip(" .,!"))
            return ""
        half = re.fullmatch(r"(?:at |in the )*(?:[ap]\.? ?m\.?|morning|afternoon|evening)", folded(text).strip(" ,!"))
        for key in (key for key, each in plain.items() if each == "time" and half and not values["time"]):
            if key in have and key != asked:
                got[key] = f"{have[key]} {text.strip(' ,!')}"  # "7" and then "pm"
        clock = [key for key, each in plain.items() if each == "time" and key in have]
        if clock and (past := _PAST.search(text)) and (hour := re.fullmatch(r"(?:half past )?(\w+)", have[clock[0]])):
            got[clock[0]] = f"{past[0]} {hour[1]}"
            values["time"] = None
        if asked and plain.get(asked) == "time" and not values["time"]:
            party = bool(re.search(r"\b(?:party|group|headcount)\b", folded(text)))
            values["time"] = slots.time(slots.without_counts(bare, party), bare=True)
        if asked and plain.get(asked) in ("day", "time") and not values["time"] and len(words(text)) < 5:
            values["time"] = slots.now(text)
        for kind in ("day", "time", "phone"):
            value = values[kind]
            keys = [key for key, each in plain.items() if each == kind]
            if value and keys:
                key = next((key for key in keys if key not in have), keys[0])
                if kind != "day" or not folded(have.get(key, "")).startswith(f"{folded(value)} "):
                    got[key] = value  # not the "Thursday" of "Thursday afternoon"
                rest = slots.without(rest, value)
        count_keys = [key for key, kind in plain.items() if kind == "count"]
        guests = [key for key in count_keys if key in have and key != "nights"]
        if guests and (others := slots.without_some(bare)) != bare:
            counts = slots.counts(slots.without(others, values["time"]))
        if len(guests) == 1 and have[guests[0]].isdecimal() and (change := slots.more(text)):
            counts = {guests[0]: str(max(int(have[guests[0]]) + change, 0))}
        if "nights" in have and (change := slots.more_nights(text)) and have["nights"].isdecimal():
            counts = {**counts, "nights": str(int(have["nights"]) + change)}
        if "children" not in plain and "children" in counts and re.search(r"\badults?\b", folded(text)):
            counts = {**counts, "people": str(int(counts["people"]) + int(counts["children"]))}  # "2 adults, 2 kids"
        for unit, value in counts.items():
            keys = [key for key in count_keys if key == unit] if unit else [k for k in count_keys if k != "nights"]
            if not keys and unit == "people":
                keys = [key for key in count_keys if key not in slots.UNITS]
            if not keys and unit == "children":
                keys = [key for key in count_keys if key == "people"]
            keys = keys or (count_keys if len(count_keys) == 1 and unit != "nights" else [])
            if keys:
                got.setdefault(keys[0], value)
        coming = bool(_COMING.search(folded(text)))  # "make it 25, accounts are coming"
        if not got and not fresh and (coming or not self.state.lines) and (
            phrases("correct").search(folded(text)) or _NO_NUMBER.match(folded(text)) or _BETTER.search(folded(text))
        ):
            wrong = _NOT_SO.search(rest)
            right = slots.without_ones(_NOT_SO.sub(" ", rest))
            numbers = [mention.value for mention in self.names.mentions(words(right)) if mention.kind == "number"]
            changed = [key for key, kind in plain.items() if key in have and kind in ("count", "time")]
            if re.search(rf"\bdo (?:at )?(?:\d+|{'|'.join(NUMBERS)})\b(?! (?:people|of|more))", folded(text)):
                changed = [key for key in changed if plain[key] == "time"] or changed  # "could we do eleven instead"
            if _COMING.search(folded(text)):
                changed = [key for key in changed if plain[key] == "count"]
            earlier = self.state.earlier.bookings.get(booking.name, {}) if self.state.earlier else {}
            late = [key for key in changed if have[key] != earlier.get(key)]
            changed = late if len(late) == 1 and len(changed) > 1 else changed  # what was said last is corrected first
            called = [key for key in changed if {key, plain[key]} & {word.fold for word in words(right)}]
            if called or self.unwanted == "time":  # "change the time to 2", "7 pm is no good, make it 5"
                changed = called or [key for key in changed if plain[key] == "time"]
            if asked and plain.get(asked) == "count":
                changed = []  # "three, actually" answers the question
            if numbers and changed and len({plain[key] for key in changed}) == len(changed) and not (
                values["day"] or values["time"]
            ):  # "make that 3": of number and time the one that is nearer to it, or to the 2 of "3, not 2"
                near = slots.amount(wrong[1]) if wrong else float(numbers[0])
                far = sorted((abs(slots.amount(have[key]) - near), key) for key in changed)
                if len(far) == 1 or far[0][0] != far[1][0]:  # else it may be either
                    key = far[0][1]
                    got[key] = numbers[0] if plain[key] == "count" else slots.time(right, bare=True) or numbers[0]
                else:
                    said = [part for part, _ in clauses(text)]
                    either = [part for part in said if any(number(word.fold) for word in words(part))]
                    self.found.unnoted += either
                    return ". ".join(part for part in said if part not in either)
        if not counts and not got.keys() & set(count_keys) and (group := slots.group(rest, self.known)):
            open_counts = [key for key in count_keys if key not in have and key != "nights"]
            if len(open_counts) == 1:
                got[open_counts[0]] = group  # "five climbers"
        if asked and plain.get(asked) == "count" and asked not in got:
            left = words(slots.without_ones(slots.without_counts(rest)))
            numbers = [mention.value for mention in self.names.mentions(left) if mention.kind == "number"]
            if numbers and not any(m.kind == "item" for m in mentions):
                below = re.match(r"\W*[-−–]\d+", rest)
                got[asked] = below[0].strip() if below else numbers[0]
        name_keys = [key for key, kind in plain.items() if kind == "name"]
        if asked in name_keys and phrases("nameless").match(folded(text)):
            self.found.impossible.append(text.strip(" .,!"))
            return ""
        if name_keys:
            bare_name = asked in name_keys and not phrases("remove").search(folded(text))
            name = slots.name(rest, self.known, bare_name)
            if not name and (fresh or re.search(r"\bname\b", rest)):
                name = slots.listed_name(rest, self.known)
            if not name and asked not in name_keys and name_keys[0] not in have:
                name = slots.listed_name(f", {rest}", self.known)  # "Peter", where the number of people is asked
            if name and not (asked in name_keys and phrases("yes").match(folded(name))):
                got[name_keys[0]] = name
            elif self.state.name and name_keys[0] not in have and (got or fresh):
                got[name_keys[0]] = self.state.name
        elif (name := slots.name(rest, self.known)) and (got or fresh):
            self.emit(Name(name))
        if asked and plain.get(asked) == "text" and not got and not asks(folded(text)):
            got[asked] = text
        refused = {key: value for key, value in got.items() if slots.impossible(self.kind_of(booking.name, key), value)}
        for key, value in refused.items():  # asked again
            self.found.impossible.append(value)
            del got[key]
            rest = rest.replace(value, " ")
        if not (got or fresh or refused) and _NOT_THEN.fullmatch(folded(text)):
            if no_day := slots.DAY.search(folded(text)):  # "not today"
                kept = {key: value for key, value in have.items() if folded(value) != no_day[0]}
                if kept == have:
                    self.emit(DENY)
                else:
                    self.rebook(booking.name, kept)
                return ""
        if not got and not fresh:
            return "" if refused else text
        if fresh:
            self.emit(Book(booking.name))
            many = re.search(rf"\b(?:{'|'.join(NUMBERS)}|\d+) (?=\w)", folded(text))
            named = next((m for m in mentions if m.kind == "booking"), None)
            if many and named and folded(text)[many.end() :].startswith(words(text)[named.first].fold):
                if number(many[0].strip()) != 1:  # "two tables": one is booked
                    self.found.unnoted.append(text[many.start() : words(text)[named.last - 1].end])
        for key, value in got.items():
            self.emit(Book(booking.name, key, value.strip(" ,.")))
        if counts and set(count_keys) & set(got):  # "12 kids" are guests of the party, not tickets
            rest = slots.without_counts(rest)
        items = any(mention.kind == "item" for mention in self.names.mentions(words(rest)))
        parts = [  # questions beside a booking
            (part, ends) for part, ends in clauses(text)
            if (ends or asks(folded(part)) and not (slots.day(part) or slots.time(part) or slots.counts(part)))
            and not any(value.lower() in part.lower() for value in got.values())
        ]  # fmt: skip
        if items:
            return rest
        if fresh and parts:
            parts = [p for p in parts if not any(m.kind == "booking" for m in self.names.mentions(words(p[0])))]
        left_over = [f"{part}?" for part, _ in parts]
        if not missing(self.house, self.state):  # "make it 2, that's all"
            left_over += [part for part, ends in clauses(text) if not ends and phrases("done").match(folded(part))
                          and not any(value.lower() in part.lower() for value in got.values())]  # fmt: skip
        return " ".join(left_over)


def _little(text: str, small: frozenset[str]) -> bool:
    """Whether all words of a text are among ``small``."""
    return all(word.fold in small for word in words(text) if word.fold[0].isalnum())
