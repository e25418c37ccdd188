"""Rules of a house about any thing: what is welcome, what is where, what is free, what is when; asked for, known or "
"not known."""

from __future__ import annotations

from random import Random

from training.grammar import values, words
from training.grammar.shop import Shop
from training.grammar.text import Voice, expand, plural

_BROUGHT = """
bike|umbrella|skateboard|scooter|ball|hat|backpack|suitcase|cat|parrot|rabbit|guitar|laptop|tripod|wheelchair|walker|
picnic basket|sandwich|coffee cup|balloon|drone|horse|helmet|raincoat|surfboard|sled|tent|flag|instrument|toy|camera|
shopping cart|baby carriage|large bag|roller skate|speaker|birthday cake|water bottle|garden chair
""".replace("\n", "").split("|")
_PLACED = """
ramp|cash machine|exit|cloakroom|playground|terrace|garden|help desk|phone booth|water tap|trash can|mirror|stage|bar|
microwave|reading corner|changing table|bike rack|first aid kit|charging station|bus stop|mailbox|smoking area
""".replace("\n", "").split("|")
_FREE = """
tap water|gift wrapping|sugar|ketchup|entry|the coat check|a second cup|delivery|ice|hot water|milk|
umbrella rental|the newspaper|the guided walk|ginger|the first hour|mustard|entry for children|the shuttle|bread
""".replace("\n", "").split("|")
_EVENTS = """
last order|last wash|last entry|first show|concert|story hour|quiz night|live music|puppet show|feeding|happy hour|
breakfast|lunch|supper|dance class|flea market|lunch break|fire drill|tasting|reading|magic show|workshop|cooking class|
opening ceremony|last bus|first boat|next tour|staff meeting|book club|choir practice|fireworks|mass|raffle|auction
""".replace("\n", "").split("|")
_SPOTS = """
at the north door|beside the main door|in the east hall|behind the piano|by the fountain|near the till|under the clock|
on the left side|on the right side|around the corner|at the end of the hall|across the yard|next to the kitchen|
in front of the house|on the third floor|by the window
""".replace("\n", "").split("|")

#: kind -> how it is stated and what is answered, where it is so and where it is not; {x} is the thing
_TOLD = {
    "welcome": (
        ("{x} are [allowed|welcome|fine|permitted|ok][ inside| here| with us|]|you may bring {x}|bring {x} if you like|"
         "{x} may come [in|inside|along]|we [like|love|welcome] {x}", "Yes, {x} are welcome."),
        ("{x} are [not allowed|not permitted|forbidden|not welcome][ inside| here|]|no {x}[ inside| please|]|"
         "{x} [wait outside|stay outside|must stay at the door|have to stay at home]|please leave {x} [outside|at home|"
         "at the door]|we do not [allow|want|admit] {x}", "Sorry, {x} are not allowed."),
    ),
    "where": (
        ("the {x} is {at}|{x}: {at}|you [will |]find the {x} {at}|{x} {at}|look for the {x} {at}",
         "The {x} is {at}."),
    ),
    "event": (
        ("[the |]{x} [is|starts|begins] at {time}|[the |]{x}: {time}|{time}: {x}|[the |]{x}, {time}|"
         "at {time} there is the {x}", "The {x} is at {time}."),
    ),
    "free": (
        ("{x} [is|is always|comes] free[ of charge| today| here|]|{x}: free|free: {x}|no charge for {x}|"
         "we do not charge for {x}", "Yes, {x} is free."),
        ("{x} [costs extra|is not free|is extra]|we charge for {x}|extra charge for {x}|{x}: extra",
         "No, {x} costs extra."),
    ),
}  # fmt: skip
_ASKED = {
    "welcome": (
        "[can|may|could] [i|we] [bring|take in|come in with|enter with] [my|a|our] {one}[ inside| here| along|]?|"
        "are {x} [allowed|ok|welcome|fine|permitted|a problem][ here| inside|]?|do you allow {x}[ here| inside|]?|"
        "[is it|would it be] ok to bring [a|my] {one}?|[what about|and|how about] {x}?|[i|we] have a {one} with [me|us]"
        "[, is that ok|, may it come in]?|is my {one} [allowed|welcome|ok][ here|]?|{x}, [yes or no|are they allowed]?|"
        "would anybody mind my {one}?|does my {one} [have to |]stay outside?|must my {one} [stay|wait] outside?"
    ),
    "where": (
        "where is [the|your] {x}?|where [can|do|could] [i|we] find the {x}?|[is there|do you have] a {x}[ here|]?|"
        "i'm looking for the {x}|[which way|how do i get] to the {x}?|the {x}, [where is it|please|which way]?|"
        "[can|could] you [show|tell] me [the way to the {x}|where the {x} is]?"
    ),
    "event": (
        "[when|at what time|what time] [is|does] the {x}[ start| begin|]?|when will the {x} [be|start|begin]?|"
        "[what|which] time [is|for] the {x}?|the {x}, [when is it|what time|at what time]?|[is there|do you have|are "
        "you "
        "having] a {x}[, and when| today, when|]?|how late is the {x}?|[can|could] you tell me when the {x} is?|"
        "i'd like to [see|join|catch] the {x}, when is it?"
    ),
    "free": (
        "is {x} [free|for free|free of charge|included]?|do [i|we] [have to |]pay for {x}?|[do you charge for|"
        "is there a charge for|what about] {x}?|{x}, [is it free|free or not|does it cost much]?|must i pay for {x}?"
    ),
}  # fmt: skip
_OFTEN = (50, 22, 16, 12)  # kinds in the order of _TOLD


def _thing(rng: Random, kind: str) -> str:
    """What is spoken of, in the singular; often any word."""
    if kind in ("welcome", "where") and rng.random() < 0.3:
        return rng.choice(words.THINGS)
    return rng.choice({"welcome": _BROUGHT, "where": _PLACED, "event": _EVENTS, "free": _FREE}[kind])


def rule(rng: Random, shop: Shop) -> str:
    """A sentence of the facts; the shop keeps what is answered."""
    kind = rng.choices(list(_TOLD), _OFTEN)[0]
    one = _thing(rng, kind)
    told, answer = rng.choice(_TOLD[kind])
    drawn = {"{x}": plural(one) if kind == "welcome" else one, "{at}": rng.choice(_SPOTS), "{time}": values.time(rng)}
    told = expand(rng, told)
    for key, value in drawn.items():
        told, answer = told.replace(key, value), answer.replace(key, value)
    shop.rules[one] = kind, answer
    return told


def rule_turn(rng: Random, voice: Voice, shop: Shop) -> tuple[str, str]:
    """A question about a thing: one that the facts speak of, or another."""
    if shop.rules and rng.random() < 0.72:
        one = rng.choice(list(shop.rules))
        kind, answer = shop.rules[one]
    else:
        kind = rng.choices(list(_TOLD), _OFTEN)[0]
        one = _thing(rng, kind)
        while any(one in other or other in one for other in shop.rules):
            one = _thing(rng, kind)
        shown = plural(one) if kind == "welcome" else one if kind == "free" else "the " + one
        answer = f"Sorry, I do not know about {shown}. Please ask the staff."
    shown = plural(one) if kind == "welcome" else one
    asked = expand(rng, _ASKED[kind])
    if one[0] in "aeiou":
        asked = asked.replace(" a {one}", " an {one}").replace(" a {x}", " an {x}")
    return voice.says(asked, one=one, x=shown), answer[0].upper() + answer[1:]
