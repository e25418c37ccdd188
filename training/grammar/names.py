"""Names of guests: how they introduce themselves, who they are and who the assistant is."""

from __future__ import annotations

from random import Random

from training.grammar import values, words
from training.grammar.talk import ASIDES, say
from training.grammar.text import Voice, babble, expand

Turns = list[tuple[str, str]]

NAMING = (
    "my parents named me|i answer to|i present myself as|write me down as|my card says|my name is|name is|i am "
    "called|"
    "call me|i'm|i am|named|called|they call me|known as|the name"
).split("|")
HELLO = (
    "hi|hello|hey|good morning|good evening|good afternoon|hi there|nice to meet you|good day|good day everybody|"
    "hello everyone|a lovely morning|a fine day|greetings|hello again|morning all|a good evening to all of you|"
    "hey you|happy to be here|welcome me|ah hello|well good day"
)
INTRODUCE = (
    "my name is {name}|i'm {name}|i am {name}|this is {name}|{name} here|[you can |just |]call me {name}|"
    "[people|my friends|they|most people] call me {name}|the name is {name}|{name} is my name|i go by {name}|"
    "[i'm|i am] {name}[,|] [and i'm new here|from next door|from the office|by the way|your neighbor|nice to meet "
    "you]|"
    "{name}, [hello|hi|pleased to meet you|that's me]|it's [me, |]{name}[ again|]|my first name is {name}|"
    "[it's|this is|here is] {name} [on the line|again|from upstairs|the painter|your guest|with a question]|"
    "[everybody|most folks|my mother|my colleagues] [says|say|knows me as|know me as|named me] {name}|{name}, [and "
    "you|good day|at your service]|"
    "[my|the] [full |first |nick|]name [would be|happens to be|is just|reads] {name}|[here comes|here stands|meet] "
    "{name}|"
    "[allow me|to introduce myself|a word about me]: [i'm |]{name}|{name} is [who i am|how i'm called|the name|here]|"
    "[i was|i've been] [named|called|christened] {name}|[you're|you are] [talking to|speaking with|dealing with] "
    "{name}|"
    "[we|i] [have|did] not [met|meet] yet, {name}|[please |][say|address me as|use the name|just say] {name}[ to "
    "me|]|"
    "{name} [speaking|calling|here|on the phone|at the counter|is talking|at your service]|"
    "i'm called {name}|may i introduce myself, [i'm|my name is|i am] {name}|{name}'s the name|it is {name}"
)
#: what guests add about themselves; it changes nothing
AND_I = (
    "[and|and also|;|,] [i|we] [{verb}|work|live|shop|stay|eat|sit|study|pass by|drop in] [next door|nearby|here|a lot|"
    "every {word}|around the corner|in the {word}|once a {word}|on weekends|with my {word}|too much]|"
    "[and|,] [i'm|i am|we are] [hungry|late|lost|new in town|a bit early|so glad to be here|thirsty|back again|"
    "in a hurry|from {place}|tired|curious|a fan of this place|on holiday]|"
    "[and|but|,] [this is|it's|today is] my [first|second|last] [time|visit|day][ here| in {place}|]|"
    "[and|so|,] [i have|we have] [a question|two questions|been here before|a little time|heard of you|a {word} with "
    "me]|and my {word} [is outside|is waiting|broke|sent me|is hungry]|and {babble}"
)
ASK_NAME = (
    "what's my name?|what is my name?|do you [know|remember] my name?|who am i?|what did i say my name was?|can you "
    "[say|repeat] my name?|my name was what again|what was my name[ again|]?|say my name|tell me my name|what name "
    "did i [give|tell] you|under which name did i [book|order]|"
    "[do|can] you [recall|guess|tell me] [my name|who i am|what my name is]?|which name do you have[ for me|]?|"
    "what do you call me?|do you [still |][have|hold] my name?|[and |]who [did i say i was|am i again|are you "
    "talking to]?|"
    "[which|what] [is|was] the name [i said|i used|i told you|from before|of mine]?|"
    "[quick question|one question|tell me|a little test|let me see][:|,] [my name|who am i|the name i told you|"
    "what am i called]?|"
    "[which|what] name [was it|is mine|did i tell you|is on it]?|[remind me|test]: my name?|have you [noted|kept|"
    "forgotten] my name?|"
    "[tell|show] me that you know my name|[i forgot|what's] my own name[, what is it|]?|how am i called?|did you "
    "get my name?|what name did you [note|write down]?|my name?"
)


OWN = (
    "[i'm|i am|my name is|this is|it's|they call me|i go by|the name is] {name}|[i'm|i am|my name is] {name}|"
    "{name} [here|speaking|is my name|is the name]"
)
_KIND = "[first|last|family|second|middle|given|full|stage|pen|pet|nick|proper|real|short|old|new|official|birth]"
#: names of any kind, and names for a thing
KINDS = (
    "{name} is [what|how] [my mother|people|they|all|the {word}s|my {word}] [call|calls|named|christened] "
    "me|{name}, [so|that's what|as] [people|they|my friends|my {word}s] [say|call me|named me]|"
    f"[my|the] [{_KIND} name|surname|maiden name|nickname|call name] [is|would be|happens to be|was always|is just|"
    f"reads|goes] {{name}}|{{name}} is [my|the] [{_KIND} name|surname|nickname]|{{name}} [as|for] [a |my |][{_KIND} "
    "name|surname|nickname]|[the |]name [for|on|of] [the|this|my|our] [{word}|order|parcel|booking|bag|list|card] "
    "[is|should be|will be|reads] {name}|[the|my|our] [{word}|order|parcel|booking|bag|list|card] [is|runs|was left|"
    "should be|is kept|goes] [for|under|to] {name}|[you'll|you will|you may|we] need [the full one|my name|a name|the "
    "whole name|it for the {word}][:|,|.] {name}|[write|note|take|put] [it |this |][down |]as {name}|[i|we] [sign|"
    "register|am listed|travel|write|live here|play] as {name}|[they|people|folks|friends|my {word}s|all] [say|shout|"
    "write|spell it|know me as|call me|knew me as] {name}|{name}, [that is me|that would be me|how do you do|if you "
    "need a name|to be exact|at your command]|[who am i? |who is talking? |who is it? ][i'm |it's |]{name}|"
    "[you|they|we] [all |may |can |must ][call|name] me {name}"
)
#: what is said of a name after it
OF_NAME = (
    "believe it or not|like my grandmother|with a [{letter}|small {letter}|double {letter}|hat on the {letter}|"
    "{letter} at the end|hyphen]|as in the [song|{word}|film|old book]|if you [must know|like|please|need it]|nothing "
    "more|no joke|by the way|as always|as you may know|strange, isn't it|not {other}|just like the {word}|but nobody "
    "[knows me|can say it|spells it right|minds]|[my|the] {word} is [my|the] game|i believe you [know|have something "
    "for|keep a {word} for] me|spelled as it [sounds|is]|it [means|comes from] {word}|nice to [see|meet] you|a {word} "
    "is my trade|from the {word} [club|street|office]"
)


def _and_more(rng: Random, split: str, pattern: str) -> str:
    """A name, and in the same breath something else about oneself."""
    if rng.random() < 0.45:
        more = expand(rng, f"[,|,|,|.|!| -] [{OF_NAME}]")
        more = more.replace("{letter}", rng.choice("abcdefghijklmnoprstuvwyz")).replace("{other}", values.coined(rng))
    else:
        more = expand(rng, f"[{AND_I}]").replace("{babble}", babble(rng, 5) or "so on")
    more = more.replace("{verb}", rng.choice(words.DO)).replace("{place}", values.place(rng, split))
    return expand(rng, pattern) + " " + more


def introduction(rng: Random, voice: Voice, split: str) -> Turns:
    """My name is Kofi. ... What is my name?"""
    name = voice.form(values.full_name(rng, split))
    hello = rng.choice(("", "", f"[{HELLO}][,|!|.|] "))
    pattern = f"{hello}[{INTRODUCE if rng.random() < 0.7 else KINDS}]"
    if not voice.small_names and rng.random() < 0.25:
        pattern = _and_more(rng, split, f"{hello}[{OWN}]")
    if rng.random() < 0.15:
        tail = "" if voice.small_names else babble(rng, 3)  # where does a name end?
        pattern = f"{babble(rng, 3)} {rng.choice(NAMING)} {{name}} {tail}"
    pattern = expand(rng, pattern)
    while "{word}" in pattern:
        pattern = pattern.replace("{word}", words.word(rng), 1)
    return [(voice.says(pattern, name=name), f"Hello, {name}! What can I do for you?")]


def who(rng: Random, voice: Voice, name: str) -> Turns:
    """Who are you, who am I: the one and the other, in any order."""
    found = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.6:
            pattern, reply = rng.choice(ASIDES[:9])
            found.append((say(rng, voice, pattern), reply))
        else:
            found += recall(rng, voice, name)
    return found


def recall(rng: Random, voice: Voice, name: str) -> Turns:
    """What is my name? ``name`` is empty where the guest has not said it."""
    reply = f"Your name is {name}." if name else "I do not know your name yet."
    return [(say(rng, voice, ASK_NAME), reply)]
