"""Other facts of a house: Wi-Fi, restrooms, dogs, the manager."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.grammar import values
from training.grammar.house import rule_turn
from training.grammar.shop import GOODS_OF, Shop, item_of
from training.grammar.text import Voice, expand

STREETS = ("Street", "Road", "Lane", "Avenue", "Square")


def _wifi(rng: Random, split: str) -> tuple[str, str]:
    word = values.code(rng)
    return (expand(rng, f"[the |]Wi-Fi [password|code][ is|:] {word}|password for the Wi-Fi: {word}|Wi-Fi: {word}"),
            f"The Wi-Fi password is {word}.")  # fmt: skip


_PLACES = """
on the first floor|on the second floor|in the basement|next to the entrance|behind the counter|at the back|to the left|
to the right|upstairs|downstairs|beside the stairs|near the exit|across the hall|in the corner|behind the stairs|
at the end of the corridor|next to the elevator|opposite the bar|outside|in the yard
""".replace("\n", "").split("|")


def _where(what: str, topic: str) -> Callable[[Random, str], tuple[str, str]]:
    def note(rng: Random, split: str) -> tuple[str, str]:
        where = rng.choice(_PLACES) if rng.random() < 0.8 else "in room " + str(rng.randint(1, 60))
        be = "are" if what.endswith("s") else "is"
        text = expand(rng, f"[the |]{what} [{be}|{be} located|can be found] {where}|{what}: {where}|"
                           f"you [will |]find the {what} {where}")  # fmt: skip
        return text, f"The {what} {be} {where}."

    return note


def _pay(rng: Random, split: str) -> tuple[str, str]:
    how = rng.choice(("cash only", "cards only", "cards and cash", "cash and phone payments", "all cards",
        "cash, cards "
                      "and phones", "credit cards and cash", "debit cards only"))  # fmt: skip
    return (expand(rng, f"payment: {how}|we [accept|take] {how}|payment by {how}|[you can |]pay with {how}"),
            f"We take {how}.")  # fmt: skip


def _allowed(what: str) -> Callable[[Random, str], tuple[str, str]]:
    def note(rng: Random, split: str) -> tuple[str, str]:
        if rng.random() < 0.5:
            return (expand(rng, f"{what} are [allowed|welcome|permitted|fine]|you may bring {what}|yes to {what}|"
                                f"we [like|welcome|love] {what}|{what}: [yes|allowed|welcome]"),
                    f"Yes, {what} are welcome.")  # fmt: skip
        away = "" if what == "photos" else f"|{what} [wait outside|must stay outside|stay at home]"
        return (expand(rng, f"{what} are [not allowed|not permitted|not welcome|forbidden]|no {what}[, please|]|"
                            f"{what}: [no|not allowed]{away}"),
                f"Sorry, {what} are not allowed.")  # fmt: skip

    return note


def _phone(rng: Random, split: str) -> tuple[str, str]:
    number = f"555-{rng.randint(100, 9999):04}"
    text = expand(rng, f"[phone|telephone|tel.|our phone number is|call us at][:|] {number}")
    return text, f"Our number is {number}."


def _address(rng: Random, split: str) -> tuple[str, str]:
    street = f"{rng.randint(1, 199)} {values.place(rng, split)} {rng.choice(STREETS)}"
    text = expand(rng, f"[address|we are at|you find us at|our address is|located at|find us at][:|] {street}")
    return text, f"Our address is {street}."


def _manager(rng: Random, split: str) -> tuple[str, str]:
    name = values.full_name(rng, split)
    told = "[the manager is|manager:|the boss is|the manager's name is|our manager is called]"
    return expand(rng, f"{told} {name}"), f"The manager is {name}."


def _wait(rng: Random, split: str) -> tuple[str, str]:
    n = rng.choice((5, 8, 10, 12, 15, 20, 25, 30, 35, 40, 45, 50))
    text = f"[the wait|waiting time|the waiting time] is [about |]{n} minutes|orders take [about |]{n} minutes"
    return expand(rng, text), f"It takes about {n} minutes."


def _special(rng: Random, split: str) -> tuple[str, str]:
    item = item_of(rng, split, rng.choice(list(GOODS_OF)), 0.5)
    told = "[today's special is|special of the day:|the special today is|daily special:]"
    return expand(rng, f"{told} the {item}"), f"Today's special is the {item}."


#: topic -> (maker of the fact and its answer, questions, what is said where it is not known)
NOTES: dict[str, tuple[Callable[[Random, str], tuple[str, str]], list[str]]] = {
    "the Wi-Fi": (_wifi, [
        "[what's|what is|tell me|do you have|can i have|may i have|could i get] the wi-fi [password|code][, please|"
        "]?",
        "[is there|do you have|have you got] [free |][wi-fi|wifi|internet][ here|]?",
        "how do i get [online|on the wifi|on the internet]?",
        "wifi [password|code][, please|]?",
        "[can|could] you give me the [password|code] for the [wifi|wi-fi|internet]?",
        "i need the wifi [password|code].", "what password does the [wi-fi|wifi] have?"]),
    "the restrooms": (_where("restrooms", "the restrooms"), [
        "where [is the|are the|can i find the|do i find the|'s the] [toilet|restroom|bathroom|toilets|restrooms|"
        "washroom]?",
        "[excuse me, |]i'm looking for the [toilet|restroom|bathroom].",
        "[is there|do you have] a [toilet|restroom|bathroom][ here|]?",
        "i need [the bathroom|to use the restroom|the toilet].", "which way to the [toilets|restrooms|bathroom]?"]),
    "the parking": (_where("parking", "the parking"), [
        "where can i [park|leave my car|park my car]?",
        "[is there|do you have] [parking|a parking lot|a car park][ here|]?",
        "where is the [parking|parking lot|car park]?", "can i park [here|nearby|somewhere]?", "any parking around?"]),
    "the elevator": (_where("elevator", "the elevator"), [
        "where is the [elevator|lift]?", "[is there|do you have] [an elevator|a lift]?",
        "how do i find the [lift|elevator]?",
        "i'm looking for the [elevator|lift].", "i can't take the stairs, is there a lift?"]),
    "the lockers": (_where("lockers", "the lockers"), [
        "where are the lockers?", "where can i [leave|put|store] my [bag|coat|luggage|backpack]?",
        "do you have lockers?",
        "[is there|have you got] a place for my [bag|luggage|coat]?", "can i lock [up |]my [bag|things] somewhere?"]),
    "paying": (_pay, [
        "[can|may|could] i pay [by|with] [card|credit card|cash|my phone]?",
        "[do you|do you guys] [take|accept] [cards|credit cards|cash|card]?",
        "how can i pay?", "what [payment methods|cards|kinds of payment] do you [take|accept]?", "is it cash only?",
        "how do i pay[ here|]?", "is [card|cash] ok?", "can i use my [debit card|credit card|phone] to pay?"]),
    "dogs": (_allowed("dogs"), [
        "[can|may|could] i bring my dog[ in|]?", "are dogs [allowed|ok|welcome][ here|]?",
        "is my dog [allowed|welcome]?",
        "do you allow [dogs|pets]?", "i have a dog with me, is that ok?",
        "[can|could|does] [my|the|our] [dog|puppy|dogs] [come along|come inside|come too|stay outside|wait in here]?",
        "[may|can] [he|she|the little one], [my|our] dog, [come in|stay with me]?",
        "[what about|and] [my|our] dog[s|]?",
        "[do|would] [you|they] mind [my|a] [dog|puppy]?", "is a [small |big |]dog [ok|welcome|allowed|a problem]?",
        "[we|i] [brought|have|came with] [our|a|my] [dog|puppy], [may|can] [it|he|she] [come in|enter|stay]?"]),
    "photos": (_allowed("photos"), [
        "[can|may] i take [photos|pictures|a photo]?", "are [photos|pictures] [allowed|ok][ here|]?",
        "is photography allowed?",
        "am i allowed to take pictures?", "is it ok to take [a picture|photos]?"]),
    "strollers": (_allowed("strollers"), [
        "[can|may] i bring [a|my|the] [stroller|pram|buggy]?", "are strollers [allowed|ok][ inside|]?",
        "we have a stroller, is that [ok|a problem]?", "is there room for a stroller?"]),
    "the phone number": (_phone, [
        "what is your [phone|telephone] number?", "[can|could] i have your [phone |]number?", "how can i call you?",
        "what number can i call?", "do you have a phone number?", "your phone number[, please|]?"]),
    "the address": (_address, [
        "what is [your|the] address?", "where are you[ located| exactly|]?",
        "where [is the shop|can i find you|is this place]?",
        "what street are you on?", "[can|could] you [give|tell] me [your|the] address?", "your address[, please|]?"]),
    "the manager": (_manager, [
        "who is [the|your] [manager|boss]?", "what is the manager's name?",
        "[can|may] i speak to the manager? what's the name?",
        "who runs this place?", "who is in charge[ here|]?", "what's the name of [the|your] [manager|boss]?"]),
    "the waiting time": (_wait, [
        "how long [will it|does it|is it going to] take?", "how long is the wait?", "how long do i have to wait?",
        "what's the waiting time?", "how many minutes [will it take|until it is ready]?", "is it quick?",
        "when will [it|my order] be ready?"]),
    "the special": (_special, [
        "what's [the|today's] special[ today|]?", "do you have [a special|any specials]?",
        "what is the special of the day?",
        "any specials [today|]?", "is there a daily special?", "what is special today?"]),
}  # fmt: skip


def unknown(topic: str) -> str:
    """What the assistant says where a fact was not given."""
    return f"Sorry, I do not know about {topic}. Please ask the staff."


def note_turns(rng: Random, voice: Voice, shop: Shop) -> list[tuple[str, str]]:
    """A question about the house: one that the facts answer, or one that they do not."""
    if rng.random() < (0.55 if shop.rules else 0.2):
        return [rule_turn(rng, voice, shop)]
    known = [topic for topic in NOTES if topic in shop.notes]
    topic = rng.choice(known) if known and rng.random() < 0.7 else rng.choice(list(NOTES))
    asked = voice.says(rng.choice(NOTES[topic][1]))
    return [(asked, shop.notes.get(topic, unknown(topic)))]
