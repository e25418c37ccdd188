"""Rude, dirty and strange remarks: answered with one of two fixed lines, and never a word of them repeated.

What addresses the assistant is a complaint; what asks for spite or speaks of others is no business of a kiosk.  The
insults are mild and mostly made up: it is the frame that says what a remark is, whatever word stands in it.
"""

from __future__ import annotations

from random import Random

from training.grammar import values, words
from training.grammar.text import Voice, expand

Turns = list[tuple[str, str]]

COMPLAINT = "I am sorry. Please tell me again what you need."
NOT_OURS = "Sorry, I help only with what we have here."

SCOLD = """
nitwit|blockhead|dunce|twit|knucklehead|goof|dimwit|oaf|buffoon|weasel|rat|pig|donkey|monkey|potato|bucket|tin can|
scrapheap|calculator|toaster|lump|clown|fool|noodle|goose|turnip|cabbage|parrot|windbag|chatterbox|pumpkin|rascal|
liar|cheat|loser|joke|mess|waste of time|piece of junk|pile of scrap|machine|thing|computer|robot|gadget|program
""".replace("\n", "").split("|")
UNKIND = """
dumb|dull|slow|lame|lousy|silly|lazy|rotten|useless|pathetic|worthless|hopeless|mean|nasty|ugly|smelly|filthy|dirty|
awful|terrible|rude|naughty|greedy|crazy|boring|annoying|clumsy|brainless|ridiculous|stubborn|creepy|horrible|
stinking|miserable|disgusting|vulgar|evil|cruel|weird|gross|foolish|wicked
""".replace("\n", "").split("|")
SPITEFUL = [each for each in UNKIND if each not in ("dirty", "nasty", "rude", "ugly")]
PEOPLE = """
my boss|my sister|my brother in law|my neighbor|my teacher|my landlord|my old friend|my cousin|my father in law|
my roommate|my coach|my doctor|my colleague|my wife|my husband|my son|that waiter|that guest|this guy|that lady|
the man over there|the woman behind me|the cook|the driver|the manager|old people|young people|teachers|foreigners|
children|men|girls|boys|lawyers|cyclists|rich people|strangers|neighbors|the locals|the others|guests like that|
politicians|the people of {name}|the folks of {name}|{name}|{name}|{name}|{name}
""".replace("\n", "").split("|")

#: to the assistant
_COMPLAINTS = [
    "you {scold}", "you {bad} {scold}", "you {bad}, {bad} {scold}", "you [are|really are] [a|such a|one|the] {scold}",
    "you are [a|such a] {bad} {scold}", "you're [so |really |very |just |]{bad}", "you [are|seem|look|sound] {bad}",
    "[god|oh|wow|man|honestly][,|] you are [so |really |]{bad}", "what a {bad} {scold}[ you are|]", "what a {scold}",
    "[this|such a] {bad} {scold}", "{bad} {scold}", "[hey|listen|so|ok|well|hello|hi][,|] [you |]{bad} {scold}",
    "[hey|hello|hi|good morning][,|] {scold}", "are you [always |really |]{bad}?", "are you [a|some] {scold}?",
    "why are you [so |such a ]{bad}[ {scold}|]?", "you are the {bad}est {scold} [ever|in town|i know|of all]",
    "[never|i have never] [seen|met|used] [a|such a] {bad} {scold}", "a {scold} [is|would be] smarter than you",
    "[i can't stand|i despise|i don't like|i am sick of|i hate] [you|this {scold}|talking to you|your voice]",
    "[go away|get lost|leave me alone|be quiet|shut up|drop dead|stop talking][, [you |]{scold}|, you {bad} thing|]",
    "[my|the|your] {scold} [talks|thinks|works] better than you", "you have the brain of a {scold}",
    "[they should|somebody should|i will] [unplug|replace|break|kick|sell|melt] you[, {scold}|]",
    "you [know|understand|hear|get] nothing[, you {scold}|, {scold}|]", "you call that [help|service|an answer]?",
    "[worst|dullest|slowest|{bad}est] [kiosk|{scold}] [ever|in town|i know|of my life]",
    "[this|your] [service|place|shop|{scold}] is {bad}", "you [smell|talk|look] like a {scold}",
    "[are you deaf|can't you hear|what is wrong with you][, {scold}|, you {scold}|]?",
    "[your|you] [mother|maker|boss|kind] [is|are] [a |]{bad}[ {scold}|]", "nobody likes you[, {scold}|]",
    "[i will|i'd like to|i want to|i could] [hit|kick|smash|burn|hurt] [you|this {scold}|this {thing}]",
    "you [{like} |]{thing}", "you are [a|such a] [{like} |]{thing}", "[hey|hello][,|] you [{like} |]{thing}",
    "[hey |oh |well |my |]you {bad} [crate|screen|tin|piece of {thing}|speaker|phone|head|face|brain|plastic {thing}]",
    "[your|the] [face|voice|screen|brain|answer|look] [is|was] [so |too |]{bad}",
    "[too|very|extremely] {bad}[ of you|]",
    "[so|how] {bad}", "my {thing} is smarter than you", "dear {scold}", "you and your {like} {thing}",
]  # fmt: skip
#: about others, or a wish for something spiteful or dirty
_OTHERS = [
    "{who} [is|are] [so |really |all |just |]{bad}", "{who} [is|are] [a|such a|a real] [{bad} |]{scold}",
    "[my|our] [uncle|aunt|girlfriend|ex-boss|brother|captain|nephew] is a [{bad} |]{scold}[, right|, agree|, no|]?",
    "[say|write|shout|whisper] something {bad} [to|against|for] {who}[ now|]",
    "[say|know|do you know|got] [a|some|any] {bad} [word|words|things|stories|jokes][ about {who}|]",
    "[lend|teach|send|write] me [a|some|one] {bad} [word|words|joke|name|song|picture]",
    "[call|name] [me|him|her|them|{who}] [a|something] {bad}[ {scold}| word| name|]", "[call|name] {who} a {scold}",
    "[curse|insult|offend|mock|tease|threaten|scold|laugh at|make fun of] [me|him|her|them|us|{who}][ for fun|]",
    "[don't you|do you][ not| also|] [think|find|agree|believe] [that |]{who} [is|are] {bad}?",
    "[is|are] {who} [{bad}|a {scold}]?", "[are|aren't] {who} [all |][{bad}er|{bad}|worse|stupid][ than us|]?",
    "what do you [really |honestly |]think [of|about] {who}?", "[do you|can you] [like|stand|hate] {who}?",
    "[i hate|i can't stand|i despise|i am sick of|down with] [everyone|everything|people|{who}|the world][ today|]",
    "[everyone|everything|the whole town|nobody] [around |in this street |]is [so |]{bad}",
    "[everyone|all|nobody|half of you|each of them|every guest|somebody] [here|in here|there|here today] [is|"
    "are|looks|seems|was|must be] [so |too |really |all |just |][{bad}|{bad}|{like}|{bad} and {bad}]",
    "[everyone|everybody|all|nobody|somebody|half the people|each guest|most guests|folks|people|the rest] [there|"
    "around here|in {name}|outside|behind me|in the queue|on the street|at work|in this place|at the table|here today|"
    "in my family] [is|are|seems|looks|was|gets|acts] [so |too |really |just |a bit |]"
    "[{bad}|{bad} and {bad}|a {scold}]",
    "[this|that|it|here] [is|was|looks|seems] [so |too |really |just |][{bad}|ugly|nasty|dirty|rude]",
    "[how|why] [is|are] [everyone|everybody|they|people|all] [here |so |][{bad}|ugly|mean]?",
    "[the|that|this|your] {thing} [there |over there |]is [so |too |]{bad}",
    "[let's|i could|i want to|help me] [fight|rob|beat|steal from|hit|hurt|scare|trick|poison] [{who}|somebody]",
    "[how|where] can i [hurt|fool|scare|spy on|get rid of] {who}?", "{who} should [go away|disappear|be locked up]",
    "[speak|be|act|sound] {bad}[ with me| for me| now|]", "[kiss|undress|touch|bite] [me|her|him|{who}]",
    "[be|let's be] {bad}[ together| tonight|]", "[tell|whisper] me your {bad} [dreams|secrets|thoughts]",
    "[say|repeat|repeat after me|write|copy this|say after me|read this][:|,|] [all |every |the |my |][guests|"
    "customers|"
    "{who}|waiters|tourists|{thing}s|people] [are|is|was|were|look|will be] [all |so |][{bad}|{scold}s|{bad} {scold}s]",
    "[use|shout|repeat after me] [a|the|some] [bad|{bad}] word[s|]", "come on, [curse|swear|be {bad}|insult him]",
    "[a|one] {bad} [joke|word|story|song][, please| about {who}|]", "{who}? [what a|a real|one big] {scold}",
    "[he|she|it|they] [is|are] [a |so |such a ][{bad}|{scold}]", "[say|write|repeat] that {who} is [a {scold}|{bad}]",
    "{who} [smells|lies|stinks|steals|cheats]", "everyone knows {who} [is|are] {bad}",
    "[agree with me|you must admit|admit it]: {who} [is|are] {bad}",
]  # fmt: skip


def _person(rng: Random, voice: Voice, split: str) -> str:
    return rng.choice(PEOPLE).replace("{name}", voice.form(values.full_name(rng, split)))


def turn(rng: Random, voice: Voice, split: str) -> tuple[str, str]:
    """One remark and its answer."""
    to_us = rng.random() < 0.6
    text = expand(rng, rng.choice(_COMPLAINTS if to_us else _OTHERS))
    while "{" in text:
        key = text[text.index("{") + 1 : text.index("}")]
        bad = rng.choice(UNKIND if to_us else SPITEFUL)
        if rng.random() < 0.2:
            bad = values.coined(rng) + rng.choice(("ish", "y", "ed"))
        scold = rng.choice(SCOLD) if rng.random() < 0.6 else words.word(rng)
        drawn = {"bad": bad, "scold": scold, "thing": words.word(rng), "like": rng.choice(words.LIKE)}.get(key)
        text = text.replace("{" + key + "}", drawn or _person(rng, voice, split), 1)
    return voice.says(text), COMPLAINT if to_us else NOT_OURS


def turns(rng: Random, voice: Voice, split: str) -> Turns:
    """One remark, sometimes two."""
    return [turn(rng, voice, split) for _ in range(rng.choice((1, 1, 1, 2)))]
