"""Booking: tables, tickets, rooms, bikes, appointments; every reply repeats all that is known and asks for the next."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.grammar import talk, values
from training.grammar.shop import Shop
from training.grammar.text import Voice, babble, number, plural, sentence

Turns = list[tuple[str, str]]


@dataclass(frozen=True)
class Kind:
    """One thing to be booked: its slots in the order in which they are asked for, and how it is spoken of."""

    slots: dict[str, str]  # slot -> question
    opens: list[str]  # "{...}": what the guest may say first; {what} is filled by ``what``
    thing: Callable[[dict[str, str]], str]  # what is booked, with all that is known


def _counted(n: str, singular: str) -> str:
    return f"{n} {singular if n == 'one' else plural(singular)}"


def _table(s: dict[str, str]) -> str:
    return "a table" + (f" for {s['n']}" if "n" in s else "")


def _tour(s: dict[str, str]) -> str:
    return "the " + (s["title"] + " " if "title" in s else "") + "tour" + (f" for {s['n']}" if "n" in s else "")


def _thing(singular: str, joint: str = " for ") -> Callable[[dict[str, str]], str]:
    def thing(s: dict[str, str]) -> str:
        counted = _counted(s["n"], singular) if "n" in s else plural(singular)
        return counted + (joint + s["title"] if "title" in s else "")

    return thing


def _one(text: str, joint: str = " to ") -> Callable[[dict[str, str]], str]:
    return lambda s: text + (joint + s["title"] if "title" in s else "")


DAY, TIME, NAME = "For which day?", "At what time?", "Under which name?"
KINDS = {
    "table": Kind({"n": "For how many people?", "day": DAY, "time": TIME, "name": NAME},
                  ["[book|reserve|get|have] a table", "make a [reservation|booking]", "book a table for dinner"],
                  _table),
    "cinema": Kind({"title": "For which film?", "n": "How many tickets?", "day": DAY, "time": TIME},
                   ["[buy|get|book|order|reserve] [cinema |movie |film |]tickets", "see a [film|movie]",
                       "go to the movies"], _thing("ticket")),
    "museum": Kind({"n": "How many tickets?", "day": DAY, "name": NAME},
                   ["[buy|get|book] [some |]museum tickets", "visit the [museum|exhibition]"], _thing(
                       "museum ticket")),
    "train": Kind({"title": "Where to?", "n": "How many tickets?", "day": DAY, "time": TIME},
                  ["[buy|get|book] [a |][train ticket|train tickets]", "take a train", "go by train"], _thing(
                      "ticket", " to ")),
    "hotel": Kind({"n": "For how many nights?", "day": "From which day?", "name": NAME},
                  ["[book|get|reserve|have] a room", "stay [here|at the hotel]",
                      "book a [room|double room|single room]"],
                  lambda s: "a room" + (f" for {_counted(s['n'], 'night')}" if "n" in s else "")),
    "bikes": Kind({"n": "How many bikes?", "day": DAY, "time": TIME, "name": NAME},
                  ["[rent|hire|get|book] [bikes|a bike|bicycles]", "rent some bikes"], _thing("bike")),
    "boats": Kind({"n": "For how many people?", "day": DAY, "time": TIME, "name": NAME},
                  ["[rent|hire|book] a boat", "go on the [boat|lake]", "book a boat trip"],
                  lambda s: "a boat" + (f" for {s['n']}" if "n" in s else "")),
    "library": Kind({"title": "Which book?", "name": NAME},
                    ["[borrow|reserve|get|order] a book", "put a book on hold", "reserve a [book|title]"],
                    lambda s: "the book" + (f" {s['title']}" if "title" in s else "")),
    "pharmacy": Kind({"name": NAME, "title": "Which order number?"},
                     ["pick up [my|a] [prescription|order|medicine]", "collect my [prescription|medicine|order]"],
                     lambda s: "order" + (f" number {s['title']}" if "title" in s else "")),
    "hair": Kind({"day": DAY, "time": TIME, "name": NAME},
                 ["[book|make|get] [an appointment|a haircut]", "get my hair cut", "come in for a haircut"],
                 lambda s: "a haircut"),
    "pool": Kind({"n": "How many tickets?", "day": DAY}, ["[buy|get] [pool|swimming] tickets", "go swimming"], _thing(
    "pool ticket")),
    "tours": Kind({"title": "Which tour?", "n": "For how many people?", "day": DAY, "time": TIME, "name": NAME},
                  ["[book|take|join] a tour", "book a guided tour", "see the town"],
                  _tour),
    "repair": Kind({"title": "What should we repair?", "day": DAY, "name": NAME},
                   ["[get|have] something repaired", "bring something in for repair", "have something fixed"],
                   lambda s: "a repair" + (f" of the {s['title']}" if "title" in s else "")),
}  # fmt: skip
TOURS = "city|harbor|river|castle|night|food|old town|museum|wine|bus|walking|garden|ghost".split("|")
THINGS = """
phone|laptop|watch|left shoe|camera|radio|toaster|lamp|guitar|bicycle|suitcase|umbrella|tablet|clock|coffee machine|
chair|heater|jacket|zipper|violin|screen|printer|headset|speaker|drill|sewing machine|boots|handbag
""".replace("\n", "").split("|")

OPENING = [
    "[i'd|i would] like to {what}[, please| please|]", "[can|could|may] i {what}[, please| please|]?",
    "i want to {what}[ please|]",
    "[we'd|we would] like to {what}[, please|]", "i [need|have] to {what}",
    "[is it possible|would it be possible] to {what}?",
    "[can|could] we {what}[, please|]?", "[i'm|we are] here to {what}",
    "[hi|hello|hey|good evening][,|] [i'd like|i want|we'd like] to {what}[, please|]",
    "i was hoping to {what}", "help me {what}[, please|]", "how [can|do] i {what}?",
    "[can|could] you help me {what}[, please|]?", "let's {what}",
    "{what}[, please| please|]",
]  # fmt: skip
#: one or more slots that a guest adds to what he wants, or answers with
FRAGMENT = {
    "n": {
        "table": ["for {n}[ people| persons|]", "for {n}"], "boats": ["for {n}[ people|]"],
        "tours": ["for {n}[ people|]"], "hotel": ["for {n} nights", "{n} nights"],
        "cinema": ["{n} tickets", "with {n} tickets"], "museum": ["{n} tickets"], "train": ["{n} tickets",
        "{n} seats"],
        "pool": ["{n} tickets"], "bikes": ["{n} bikes"],
    },
    "title": {
        "cinema": ["for {title}", "to see {title}", "to watch {title}"], "train": ["to {title}"],
        "tours": ["for the {title} tour"], "library": ["called {title}"], "repair": ["for my {title}"],
        "pharmacy": ["number {title}", "with the number {title}"],
    },
    "day": ["{on}", "{on}", "for {day}"],
    "time": ["at {time}", "at {time}", "for {time}", "around {time}"],
    "name": ["under the name {name}", "for {name}", "under {name}", "my name is {name}", "in the name of {name}",
             "the name is {name}", "name {name}", "reserved for {name}", "i am {name}", "booked by {name}",
             "[the|our|my] name [would be|reads|goes] {name}", "[called|known as|named] {name}",
             "on behalf of {name}",
             "[please |][put|note|use|take] {name}[ as the name|]",
             "[that's|this is|it is] {name}[ speaking of it|]"],
}  # fmt: skip
ANSWER = {
    "n": ["{n}", "{n}", "{n}[, please| please|]", "{n} [in total|all together]", "[make it|let's say|i think] {n}",
          "[i need|we need|i want|i'd like|we want|just] {n}[, please|]", "[it's|it will be|that's] {n}"],
    "day": ["{day}", "{on}", "{on}[, please| please|]", "{day}[, please| please|]",
    "[for|maybe|let's say|how about|make it] {day}[, please|]", "[i'd like|we want|we'd prefer] {day}",
            "{day} [works|would be good|is good|is best][ for us| for me|]",
            "[it's for|it should be|we come|i come] {on}"],
    "time": ["{time}", "at {time}", "at {time}[, please| please|]", "{time}[, please| please|]",
    "[around|about|maybe|let's say|how about|make it] {time}[, please|]",
             "{time} [works|would be good|is good|is perfect|is fine]", "[i'd like|we want|we'd prefer] {time}",
             "[the one at|the] {time}[ show| one|]"],
    "name": ["{name}", "{name}", "{name}[, please| please]",
    "[my name is|it's|i'm|i am|the name is|under|for|this is|name is] {name}", "[put|write] {name}[, please|]",
             "[please use|you can use|use|take] {name}", "{name} is [my|the] name",
             "[that's|that would be|it is] {name}", "on {name}[, please|]"],
    "title": ["{title}", "{title}", "{title}[, please| please]",
    "[i'd like|we want|i want|it's|i think|maybe|let's take] {title}", "[for|to see] {title}[, please|]",
              "the one called {title}", "{title}, if [possible|you have it]"],
}  # fmt: skip
ANSWER_PEOPLE = ["[for|we are|we're|there are|there will be|it's] {n}[ people| of us|]", "{n} of us", "{n} people",
    "a party of {n}", "for {n}[, please|]",
                 "we [will be|come with] {n}", "{n} [guests|persons]"]  # fmt: skip
ANSWER_TITLE = {
    "train": ["{title}", "to {title}", "to {title}[, please| please|]", "{title}[, please| please]",
    "[i'm going|we're going|i need to go|i want to go|i have to get|going] to {title}",
              "[i'd like|i want] [a ticket |]to {title}", "{title} [station|]"],
    "repair": ["[my|the] {title}[, please| please|]", "[it's|it is] [my|the] {title}", "{title}",
    "my {title} [is broken|doesn't work|broke]", "a {title}", "[i have|i brought] a [broken |]{title}"],
    "pharmacy": ["{title}", "number {title}[, please|]", "[it's|it is|the number is|order|mine is] {title}",
    "{title}[, please| please]", "it says {title}"],
    "tours": ["the {title} [tour|one][, please|]", "{title}[, please| please|]",
    "[i'd like|we want|we'd like|let's take] the {title} tour", "the {title} tour"],
}  # fmt: skip
ANSWER["name"] += [
    "[the|our|my] [booking|reservation|table|ticket|order|room|place] [is for|goes to|is on|should say|runs under] "
    "{name}",
    "[please |][note|write|enter|put|use|register|file it under|save it for|reserve it for] {name}[, please|]",
    "[the name|our name|the family name|the contact] [is|would be] {name}",
    "{name}[, that's me|, as always|, if you like| will do]",
    "[we|i] [go by|booked as|come as|use] {name}", "[the table|the booking|the reservation|it] is for {name}",
    "[mine|my own|the usual one]: {name}", "[take|say|let's say] {name}", "in {name}'s name",
    "[you can |]find us under {name}",
]  # fmt: skip
#: everything in one sentence; the slots are those of TERSE
WHOLE = {
    "table": [
        "[is there|do you have|have you got] [a table|room|space|seats|anything free] for {n}[ people| persons|] "
        "{on} [at|around] {time}?",
        "[we'd like|i'd like|we want] to [eat|have dinner|have lunch|dine|sit] [here |]{on} at {time}[, we are|, "
        "with|, there are] {n}[ people| of us|]",
        "[reserve|book|hold|save|arrange] [us |me |][something|seats|a table|places] for {n} [at {time} {on}|{on} "
        "at {time}|{on}, {time}][, please|]",
        "[can|may|could] [we|i] [come|have a table|eat|get seats] {on} at {time} [with|for] {n}[ people| guests|]?",
        "[we are|there will be|we come with|a group of|party of] {n}[ people|], {on} at {time}[, please|]",
        "{n} [people|persons|guests|of us] [are coming|want to eat|would like a table|for lunch|for supper|for "
        "breakfast][ here|] {on} at {time}",
        "{on} at {time}[, is there|, do you have|, we need|:] a table for {n}[, please|]",
        "[supper|lunch|a birthday dinner|a family lunch|brunch] for {n}[ people|] [at {time} {on}|{on} at "
        "{time}][, please|]",
        "[my parents|my friends|my team|our group] [would like|need|want] a table {on} at {time}[, we are|, they "
        "are| for] {n}",
        "[an early|a late|a family|a birthday|a farewell|a team|a wedding] [dinner|lunch|breakfast|meal] for {n}[ "
        "people|][,|] [{on}|{day}][,|] [at |]{time}",
        "{meal} for {n}[ people| persons| of us|][,|] [{on}|{day}][,|] [at |around |]{time}[, please|]",
        "{meal}, {n} people, {day}, {time}", "[{on}|{day}][,|] [at |]{time}[,|] {meal} for {n}[, please|]",
        "{n} for {meal}[,|] [{on}|{day}][,|] [at |]{time}",
        "[may|can|is it fine if|is there room if|do you mind if|would it work if|shall] {n} [of us|friends|colleagues|"
        "hungry people|grown-ups|ladies] [dine|have lunch|sit down|eat a bite|come for dinner|celebrate|have a meal|"
        "get fed|come by to eat|take seats|have supper] [with you |at yours |there |]{on} [at|around] {time}?",
        "[we are|we're] [thinking of|hoping for|looking at|after] {meal} for {n}[,| on] {day}[,| at] {time}",
        "[keep|set aside|prepare|lay] a table for {n}[,|] {on}[,|] {time}[, please|]",
        "{n} of us [will |want to |would like to |]eat [with you |at your place |here together |]{on} at {time}",
        "{babble} {n} {babble} [table|eat|{meal}] {babble} {on} {babble} {time}",
        "{time} {on}, table for {n}[, please|]", "[a|one] table, {n} [people|persons], {on} [at |]{time}",
        "[i hope|i wonder if|please tell me] [you have|there is] a table for {n} {on} at {time}",
    ],
    "cinema": [
        "[is|are] there [still |][seats|places|tickets|{n} seats] for {title} {on} at {time}[, we are {n}| for {n}|"
        ", {n} tickets]?",
        "[we'd like|i'd like|we plan|let us go] to [see|catch] {title} {on} at {time}[, {n} of us|, {n} tickets|, "
        "{n} people]",
        "[give me|book|reserve|i'll take|let me have|print] {n} [seats|tickets|places] [to see|for|in] {title} [at "
        "{time} {on}|{on} at {time}|{on}, {time}]",
        "{on} at {time} [we want|i want|we need|let's book|there should be] {n} [tickets|seats] for {title}",
        "{title} {on} at {time} [for|with] {n}[ people| persons|][, please|]",
        "{title} at {time} {on}, {n} [seats|tickets][, please|]",
        "[my sister|my son|our class|the kids|a friend] [wants|want|asked for|needs] {n} [seats|tickets] for "
        "{title} {on} at {time}",
        "[for|about] {title}: {n} [tickets|seats], {on}, {time}", "{n} for {title}, {on} at {time}[, please|]",
        "[are we lucky|is it sold out|any luck]? {n} tickets, {title}, {on} at {time}",
        "[at {time} {on}|{on} at {time}] {n} [of us|people|friends] [go to|come to|will see|are going to see] "
        "{title}",
        "{title}[,|:| -] {n} [seats|people|places][,|] [{day}|{on}][,|] [at |]{time}",
        "[does|is] {title} [still |][run|running|on|shown] {on} at {time}? [we are {n}|{n} tickets|i need {n} seats]",
        "{n} [tickets|seats] for {title} [for|,] {day}[,| at] {time}",
        "{day}, {time}, {title}[,|:] {n} [tickets|seats]",
        "[the kids|we|my friends] [chose|picked|voted for|talk only about] {title}[,|:|, so] {n} [tickets|seats] {on} "
        "at {time}", "[i want|we want|let's go] to {title} {on} at {time}[, we are {n}|, {n} of us| with {n} people]",
    ],
    "train": [
        "[we go|we're off|i'm going|we need to go|i go] to {title} {on} at {time}[, {n} tickets|, {n} people| with "
        "{n} people|, there are {n} of us]",
        "[give me|sell me|print|i need|i'll buy|could i buy] {n} [tickets|seats|fares] to {title} [at {time} {on}|"
        "{on} at {time}|for {on} at {time}]",
        "[is there|do you have] a train to {title} {on} at {time}? [we are {n}|{n} tickets|i need {n} seats]",
        "{on} at {time} [i must|we must|we want to|we'd like to] [get to|reach|ride to|leave for] {title}[, {n} "
        "tickets|, {n} of us|, {n} seats]",
        "{n} [seats|tickets|persons|people] [for|on] the [{time} train|train at {time}] to {title} {on}",
        "to {title}, {n} [tickets|people], {on} at {time}",
        "{title}: {n} [tickets|seats] [for {on} at {time}|at {time} {on}]",
        "[my|our] [trip|train|ride|journey] [goes|is] to {title} {on} at {time}[, {n} tickets|, {n} of us]",
        "[the destination is|our goal is] {title}, {on} at {time}, {n} tickets",
        "[i must reach|we need to get to|they expect me in|my aunt lives in|our hotel is in|there is a wedding in|"
        "we are due in] {title}[:|,|.| so|, so] {n} [tickets|seats] [for|on] {day}[,| at] {time}[, please|]",
        "{n} [tickets|seats] for {day}[,| at] {time}, to {title}", "{day}, {time}, {n} [tickets|seats], to {title}",
        "{title}, {n} [tickets|seats] for {day}, {time}", "[on|for] {day}, {time}: {n} to {title}",
        "[a train|the train] to {title} for {n}[ people|], {day}, {time}",
    ],
    "tours": [
        "[we'd like|i'd like] to [join|take|do] the {title} tour {on} at {time}[, {n} people|, we are {n}|, {n} of "
        "us]",
        "{n} [people|places|seats|spots] [on|for] the {title} tour {on} at {time}[, please|]",
        "[is there|any] room [on|in] the {title} tour {on} at {time} for {n}?",
    ],
    "bikes": ["{n} bikes {on} at {time}[, please|]",
    "[we need|we want|can we have|are there] {n} [bikes|bicycles] {on} at {time}[?|, please|]",
              "{on} at {time} we [need|will pick up|want to ride] {n} bikes"],
    "museum": ["[we visit|we come|we'll come] {on}, {n} tickets", "{n} [museum |]tickets {on}[, please|]"],
    "pool": ["{n} [swim|pool|] tickets {on}[, please|]", "[we swim|we come] {on}[, so|:] {n} tickets"],
    "hotel": ["[a|one] room {on} for {n} nights[, please|]",
    "[we arrive|i arrive|we come|starting] {on} [for|and stay] {n} nights"],
}  # fmt: skip
MEALS = """
breakfast|brunch|lunch|supper|a meal|a big meal|a quick bite|a long lunch|a birthday party|drinks|coffee and cake|
a romantic evening|a family reunion|a team evening|fondue|sushi|a christmas dinner|an anniversary dinner|
dinner with friends|a celebration|tapas|a quiet supper|the wedding meal|a business lunch
""".replace("\n", "").split("|")
#: kinds of booking that are asked for most
COMMON = ("table", "cinema", "train")
YES = ["yes", "yes[,|] please", "[yes|yeah|yep|sure|right|correct|exactly|perfect]",
    "[yes|yeah|yep][,|] [that's right|that is correct|perfect|exactly|please do|it is|great|thanks|thank you]",
       "[that's|that is] [right|correct|fine|perfect|it|good]", "[sounds|looks] [good|right|great|perfect]",
       "[ok|okay|all right][,|] [good|great|go ahead|do it|book it|]",
       "[please |]go ahead[, please|]", "[absolutely|definitely|of course|indeed]", "all [good|correct|right]",
       "[book it|confirm|please confirm|do it]", "fine[ with me|]", "yup[, all good|]"]  # fmt: skip
CHANGE = ["[no|sorry|actually|wait][,|] {new}[, please| please|]",
    "[no|sorry|actually|wait|oh][,|] [make it|make that|i said|i meant|it should be|change it to] {new}[, please|]",
          "[can|could] [you|we] [make it|make that|change it to] {new}[, please|]?",
          "[change|correct] that to {new}[, please|]", "not {old}, {new}[, please|]", "{new}, not {old}[, please|]",
          "no[,|] not {old}[,|] {new}", "[i'd rather have|better|rather] {new}[, please|]",
          "[that's wrong|not quite][,|] [it's|i said] {new}", "{new} instead[, please|]"]  # fmt: skip


ASK_BOOKING = [
    "what did i [book|reserve|ask for][ again|]?",
    "[can|could] you [repeat|read back] my [booking|reservation][, please|]?",
    "[which|what] booking do i have?", "what [do i have|have i got|have i booked][ now| so far|]?",
    "[repeat|tell me|say|read me] my [booking|reservation][ again|][, please|]", "[and |]what was it all again?",
    "what is [booked|reserved][ for me| in my name|]?", "[sorry|wait][,|] what did [i|we] [book|reserve]?",
    "[let me hear|go over] [it|the booking] [again|once more][, please|]", "what have you [noted|written down]?",
]
ASK_WHEN = [
    "when [is|was] [it|that|my booking|my appointment][ again|]?", "[for |]when did [i|we] [book|reserve]?",
    "when [do|should|must] [i|we] [come|be here|be there]?", "[i forgot|tell me|sorry], when is it?",
    "[what|which] day and [what |]time [was it|is it|did i say]?", "and when was that[ again|]?",
]
ASK_WHICH_DAY = [
    "[what|which] day [is|was] [it|that|my booking][ again|]?", "[on |]which day did [i|we] [say|book|choose]?",
    "what day [did i say|do we come|was that]?", "[is it|which day], [i forgot|remind me]?", "[and |]the day was?",
]
ASK_WHICH_TIME = [
    "[at |]what time [is|was] [it|that|my booking][ again|]?", "[at |]what time did [i|we] [say|book|choose]?",
    "what time [do we come|should we be there|was that]?", "which hour did i say?", "[and |]the time was?",
]
_HEADS = [
    "for how many [people |persons |of us |]did [i|we] [book|reserve]?", "how many [people|of us|guests] did i say?",
    "how many [are we|people is it for|will we be]?", "[and |]for how many was it?",
]
_PIECES = ["how many [{noun} |]did [i|we] [book|order|take]?", "how many {noun} [is it|was it|do i have|do we get]?"]
#: what is counted where everything is said in a row
TERSE = {
    "cinema": "tickets", "train": "tickets", "museum": "museum tickets", "pool": "pool tickets", "bikes": "bikes",
    "table": "people", "tours": "people", "hotel": "nights",
}  # fmt: skip
ASK_COUNT = {
    kind: _HEADS if kind in ("table", "tours", "boats") else [each.replace("{noun}", noun) for each in _PIECES]
    for kind, noun in [*TERSE.items(), ("boats", "people")]
}


def _amount(kind: str, n: str) -> str:
    """for four people; four tickets"""
    if kind in ("table", "tours", "boats"):
        return f"for {n} {'person' if n == 'one' else 'people'}"
    return f"{n} {_single(TERSE[kind]) if n == 'one' else TERSE[kind]}"


def _single(text: str) -> str:
    """{n} tickets -> {n} ticket, for a count of one."""
    return re.sub(r"\b(person|night|ticket|seat|bike)s\b", r"\1", text.replace("people", "person"))


class Desk:
    """One guest booking; collects turns."""

    def __init__(self, rng: Random, voice: Voice, shop: Shop, split: str) -> None:
        self.rng, self.voice, self.shop, self.split = rng, voice, shop, split
        self.kind = KINDS[shop.kind]
        self.known: dict[str, str] = {}
        self.turns: Turns = []

    def draw(self, slot: str) -> tuple[dict[str, str], str]:
        """A value for a slot: the ways the guest says it, and how the assistant repeats it."""
        rng, voice = self.rng, self.voice
        if slot == "n":
            n = rng.choices((rng.randint(1, 6), rng.randint(7, 12), rng.randint(13, 60)), (80, 15, 5))[0]
            return {"n": number(n) if rng.random() < 0.6 else str(n)}, number(n)
        if slot == "day":
            day, _ = values.day(rng)
            return {"day": voice.small(day), "on": voice.small(values.on(day))}, day
        if slot == "time":
            time = values.time(rng)
            return {"time": time}, time
        if slot == "name":
            name = voice.form(values.full_name(rng, self.split))
            return {"name": name}, name
        kind = self.shop.kind
        if kind == "repair":
            known = rng.random() < 0.75
            thing = rng.choice(THINGS) if known else values.pick(rng, self.split, lambda: values.coined(rng))
            return {"title": thing}, thing
        if kind == "pharmacy":
            code = values.pick(rng, self.split, lambda: values.code(rng))
            return {"title": code}, code
        if kind == "train":
            place = voice.form(values.place(rng, self.split))
            return {"title": place}, place
        if kind == "tours":
            tour = rng.choice(TOURS) if rng.random() < 0.6 else values.place(rng, self.split)
            return {"title": tour}, tour
        title = voice.form(values.title(rng, self.split))
        return {"title": title}, title

    def text(self) -> str:
        """All that is known, in one fixed order."""
        s = self.known
        parts = [self.kind.thing(s)]
        if "day" in s:
            parts.append("from " + s["day"] if self.shop.kind == "hotel" else values.on(s["day"]))
        if "time" in s:
            parts.append("at " + s["time"])
        if "name" in s:
            parts.append("under the name " + s["name"])
        return " ".join(parts)

    def reply(self) -> str:
        """Repeat, and ask for the next slot or for consent."""
        missing = next((slot for slot in self.kind.slots if slot not in self.known), None)
        if not self.known:
            return self.kind.slots[missing] if missing else ""
        return sentence(self.text()) + (f". {self.kind.slots[missing]}" if missing else ". Is that right?")

    def open(self) -> None:
        """The first wish, with some of the slots."""
        rng, kind = self.rng, self.kind
        what = rng.choice(kind.opens)
        free = [slot for slot in kind.slots if slot not in self.known]
        given = [slot for slot in free if rng.random() < rng.choice((0.1, 0.45, 0.8))]
        if "name" not in free and "name" not in self.known and rng.random() < 0.2:
            given.append("name")  # not asked for, but told
        rng.shuffle(given)
        if given and given[0] == "name" and len(given) > 1:
            given.append(given.pop(0))
        shown: dict[str, str] = {}
        direct = self._direct(shown)
        if direct:
            what = direct
            given = [slot for slot in given if slot not in self.known]
        for slot in given:
            ways, self.known[slot] = self.draw(slot)
            shown |= ways
            fragments = FRAGMENT[slot]
            if isinstance(fragments, dict):
                fragments = fragments.get(self.shop.kind, [])
            if not fragments:
                del self.known[slot]
                continue
            if slot == "n" and self.known["n"] == "one":
                fragments = [_single(each) for each in fragments]
            what += (", " if slot == "name" and rng.random() < 0.3 else " ") + rng.choice(fragments)
        pattern = rng.choice(OPENING if not direct else ["{what}[, please| please|]",
            "[i'd like|i want|can i get|could i have|we'd like|i need|may i have|give me|we need] {what}[, please| "
            "please|]"])
        if (direct or given) and rng.random() < 0.15:
            tail = "" if what.endswith(("{title}", "{name}")) else babble(rng, 3)  # where does a title end?
            pattern = f"{babble(rng, 5)} {{what}} {tail}"
        asked = self.voice.says(pattern.replace("{what}", what), **shown)
        self.turns.append((asked, self._led(asked)))

    def terse(self) -> bool:
        """Everything in a row, in any order: The Last Fox, Friday, two tickets, 7 pm."""
        rng, kind = self.rng, self.shop.kind
        if kind not in TERSE:
            return False
        shown: dict[str, str] = {}
        parts = []
        for slot in self.kind.slots:
            if slot in self.known or slot == "name":
                continue
            ways, self.known[slot] = self.draw(slot)
            shown |= ways
            noun = _single(TERSE[kind]) if self.known.get("n") == "one" else TERSE[kind]
            title = {"tours": "{title} tour", "train": "to {title}"}.get(kind, "{title}")
            said = {"n": "{n} " + noun, "title": title, "day": "[{day}|{on}]", "time": "[at |]{time}"}
            parts.append(said[slot])
        rng.shuffle(parts)
        if kind in ("table", "hotel", "tours"):
            parts.insert(0, {"table": "a table", "hotel": "a room", "tours": "a tour"}[kind])
        if rng.random() < 0.8 and self.known.get("n") != "one":
            pattern = rng.choice(WHOLE[kind])
            while "{babble}" in pattern:
                pattern = pattern.replace("{babble}", babble(rng, 2), 1)
            pattern = pattern.replace("{meal}", rng.choice(MEALS))
        else:
            pattern = rng.choice((", ", ", ", " ", " and ")).join(parts) + "[, please| please||]"
        if "name" not in self.known and rng.random() < 0.2:
            ways, self.known["name"] = self.draw("name")
            shown |= ways
            pattern = pattern.rstrip("?") + ", " + rng.choice(FRAGMENT["name"])  # type: ignore[arg-type]
        asked = self.voice.says(pattern, **shown)
        self.turns.append((asked, self._led(asked)))
        return True

    def _direct(self, shown: dict[str, str]) -> str:
        """two tickets for The Frozen Lighthouse; a table for four: the thing itself, counted."""
        rng, kind = self.rng, self.shop.kind
        if kind not in ("cinema", "museum", "train", "bikes", "pool", "table") or rng.random() < 0.4:
            return ""
        if kind == "table":
            ways, self.known["n"] = self.draw("n")
            shown |= ways
            return "a table for {n}"
        ways, n = self.draw("n")
        shown |= ways
        self.known["n"] = n
        noun = _single(TERSE[kind])
        if kind in ("train", "pool"):
            noun = {"train": "[train |]ticket", "pool": "[pool|swimming] ticket"}[kind]
        noun += "" if n == "one" else "s"
        text = "{n} " + noun
        if "title" in self.kind.slots and rng.random() < 0.8:
            ways, self.known["title"] = self.draw("title")
            shown |= ways
            text += " to {title}" if kind == "train" else " [for|for|to] {title}"
        return text

    def _led(self, asked: str) -> str:
        return ("Certainly. " if "please" in asked.lower() else "") + self.reply()

    def fill(self) -> None:
        """Answer until nothing is missing; sometimes with more than was asked."""
        rng = self.rng
        while missing := [slot for slot in self.kind.slots if slot not in self.known]:
            slot = missing[0]
            ways, self.known[slot] = self.draw(slot)
            patterns = ANSWER_TITLE.get(self.shop.kind, ANSWER["title"]) if slot == "title" else ANSWER[slot]
            people = slot == "n" and self.shop.kind in ("table", "boats", "tours") and self.known["n"] != "one"
            pattern = rng.choice(ANSWER_PEOPLE if people and rng.random() < 0.5 else patterns)
            if len(missing) > 1 and missing[1] in ("day", "time", "name") and rng.random() < 0.18:
                extra, self.known[missing[1]] = self.draw(missing[1])
                ways |= extra
                pattern = "{" + {"n": "n", "day": "on", "time": "time", "title": "title", "name": "name"}[slot] + "}"
                pattern += " " + rng.choice(FRAGMENT[missing[1]])  # type: ignore[call-overload]
            asked = self.voice.says(pattern, **ways)
            self.turns.append((asked, self._led(asked)))

    def correct(self) -> None:
        """Change one slot that was repeated."""
        rng = self.rng
        slot = rng.choice(list(self.known))
        old = self.known[slot]
        ways, new = self.draw(slot)
        if new == old:
            return
        self.known[slot] = new
        shown = next(iter(ways.values()))
        asked = self.voice.says(rng.choice(CHANGE), new=shown, old=self.voice.small(old) if slot == "day" else old)
        self.turns.append((asked, self._led(asked)))

    def recall(self, done: bool) -> None:
        """What was it again, when was it, for how many?"""
        s, rng = self.known, self.rng
        patterns, reply = ASK_BOOKING, f"You have {self.text()}."
        kind = rng.random()
        on, at = values.on(s.get("day", "")) if "day" in s else "", f"at {s['time']}" if "time" in s else ""
        if kind < 0.5 and (on or at) and self.shop.kind != "hotel":
            patterns, reply = ASK_WHEN, f"It is {on} {at}".rstrip().replace("  ", " ") + "."
            if on and kind < 0.2:
                patterns, reply = ASK_WHICH_DAY, f"It is {on}."
            elif at and kind < 0.35:
                patterns, reply = ASK_WHICH_TIME, f"It is {at}."
        elif kind < 0.65 and "n" in s:
            patterns, reply = ASK_COUNT[self.shop.kind], f"It is {_amount(self.shop.kind, s['n'])}."
        asked = self.voice.says(rng.choice(patterns))
        self.turns.append((asked, reply + ("" if done else " Is that right?")))

    def close(self) -> None:
        """Yes: it is booked."""
        asked = self.voice.says(self.rng.choice(YES))
        self.turns.append((asked, f"Done: {self.text()}. See you then!"))


def turns(
    rng: Random, voice: Voice, shop: Shop, split: str, aside: Callable[[], Turns], guest: str = "", whole: bool = False
) -> Turns:
    """One booking from the wish to the confirmation; arguments as in :func:`training.grammar.order.turns`."""
    desk = Desk(rng, voice, shop, split)
    if not whole and rng.random() < 0.02:
        desk.turns.append((voice.says(rng.choice(ASK_BOOKING)), "You have not booked anything yet."))
    if guest and "name" in desk.kind.slots:
        desk.known["name"] = guest
    if rng.random() > 0.42 or not desk.terse():
        desk.open()
    if desk.known and rng.random() < 0.12:
        desk.correct()
    if rng.random() < 0.10:
        desk.turns += aside()
    desk.fill()
    for _ in range(rng.choices((0, 1, 2), (65, 27, 8))[0]):
        desk.correct()
    if rng.random() < 0.06:
        desk.recall(done=False)
    if whole or rng.random() < 0.8:
        desk.close()
        kind = rng.random()
        if kind < 0.06:
            desk.turns += talk.recall(rng, voice, desk.known.get("name", guest))
        elif kind < 0.11:
            desk.turns += talk.who(rng, voice, desk.known.get("name", guest))
        elif kind < 0.20:
            desk.recall(done=True)
    return desk.turns
