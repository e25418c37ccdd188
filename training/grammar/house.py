"""Rules of a house about any thing: what is welcome, what is where, what is free; asked for, known or not known."""

from __future__ import annotations

from random import Random

from training.grammar import words
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
    "free": (
        "is {x} [free|for free|free of charge|included]?|do [i|we] [have to |]pay for {x}?|[do you charge for|"
        "is there a charge for|what about] {x}?|{x}, [is it free|free or not|does it cost much]?|must i pay for {x}?"
    ),
}  # fmt: skip


def _thing(rng: Random, kind: str) -> str:
    """What is spoken of, in the singular; often any word."""
    if kind != "free" and rng.random() < 0.3:
        return rng.choice(words.THINGS)
    return rng.choice({"welcome": _BROUGHT, "where": _PLACED, "free": _FREE}[kind])


def rule(rng: Random, shop: Shop) -> str:
    """A sentence of the facts; the shop keeps what is answered."""
    kind = rng.choices(list(_TOLD), (60, 25, 15))[0]
    one = _thing(rng, kind)
    told, answer = rng.choice(_TOLD[kind])
    shown, at = plural(one) if kind == "welcome" else one, rng.choice(_SPOTS)
    shop.rules[one] = kind, answer.replace("{x}", shown).replace("{at}", at)
    return expand(rng, told.replace("{x}", shown).replace("{at}", at))


def rule_turn(rng: Random, voice: Voice, shop: Shop) -> tuple[str, str]:
    """A question about a thing: one that the facts speak of, or another."""
    if shop.rules and rng.random() < 0.72:
        one = rng.choice(list(shop.rules))
        kind, answer = shop.rules[one]
    else:
        kind = rng.choices(list(_TOLD), (60, 25, 15))[0]
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
