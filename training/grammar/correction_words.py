"""What guests say to correct an order.

{n} is the new count, {old} what was there before, {item} and {items} the goods, {new} what comes instead of them.
"""

from __future__ import annotations

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
#: {new}: another thing, with or without a count; {old}: the one that goes
SWAP = [
    "[swap|change|exchange|switch|trade|replace|substitute] the {old} [for|with|to] {new}[, please| please|]",
    "{new} instead of the {old}[, please|]", "{new}, not the {old}", "{new} rather than the {old}[, please|]",
    "[not|no] the {old}, [but |]{new}",
    "[i meant|i said|i wanted|we need|she wants|he meant] {new}, not [the |]{old}",
    "[instead of|in place of|rather than] the {old}[,|] {new}[, please|]", "{new} in place of the {old}[, please|]",
    "the {old} [should be|should have been|becomes|was meant to be] {new}", "turn the {old} into {new}[, please|]",
    "[could|can|may] [i|we] [have|get|take] {new} instead of the {old}[, please|]?",
    "[take|put] the {old} [away|back|off] and [give me|add|bring] {new}[ instead|][, please|]",
    "[forget|cancel|skip|leave] the {old}[, give me|, i'll have| and make it|: rather] {new}[ instead|][, please|]",
    "[actually|on second thought|hmm][,|] i'd rather have {new} than the {old}",
    "no {old} [after all|anymore|then], {new} instead[, please|]",
    "[i don't like|we don't need] the {old}, rather {new}",
    "[could|can|would] you [swap|change] the {old} [for|to] {new}[, please|]?", "make the {old} {new}[, please|]",
]  # fmt: skip
#: instead of the last thing
SWAP_LAST = [
    "[no|sorry|wait|actually|hmm][,|] {new} instead[, please|]", "[make it|make that|give me] {new} instead[, please|]",
    "[can|could] i have {new} instead[, please|]?", "{new} instead[, please|]", "i'd rather have {new}[, please|]",
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
SOMEBODY = (
    "[[two|three|some|a few] more [people|friends|kids|guests] are coming|"
    "[two|a couple] of us [came late|are hungry too]|"
    "[grandpa|grandma|my aunt|my uncle|our neighbor|one more guest|the boss|my cousin|somebody|a colleague|the driver] "
    "[is coming|comes along|joins us|wants one|is here|will eat|is hungry|gets one|has turned up now|has arrived]"
    "[ too| as well| after all|]]"
)
NOBODY = (
    "[[two|three|some] [of us|people|friends|kids] [are not coming|left|dropped out|can't come|had lunch already]|"
    "[grandpa|grandma|my aunt|our neighbor|the boss|somebody|a colleague|one of us] "
    "[is not coming|has gone home|is not hungry|had enough|left|changed his mind|wants nothing]]"
)
COUNT_OF += [
    "[oh|no|ah|so|sorry][,|] {n} {item}, {who}", "{who}[,|:|, so|, so make it|, that makes] {n} {item}",
    "{who}[,|, so] we need {n} {item}[, please|]",
    "{n} {item}, [i forgot one|i miscounted|that was too many|we are fewer|we are more|not more|that's enough]",
]  # fmt: skip
MAKE_THAT += [
    "[oh|no|ah|so|sorry][,|] {n}, {who}", "{who}[,|:|, so|, so make it|, make it] {n}[, please|]",
    "[make it|make that] {n}[, please|], [because |]{who}",
    "{who}[,|, so] [we're|we are|that's|it's] {n} [now|then|in all]",
]  # fmt: skip
SIZE_OF = [
    "make the {items} {size}[, please|]", "the {items} {size}[, please|]",
    "[i want|i'd like|we want] the {items} {size}",
    "{size} for the {items}[, please|]", "[actually|sorry|no|oh][,|] the {items} [should be|in] {size}[, please|]",
    "[can|could] [the {items} be|you make the {items}|i have the {items}] {size}[, please|]?", "{size} {items}, please",
    "[change|turn] the {items} [to|into] {size}[, please|]", "[as for|about] the {items}: {size}[, please|]",
    "the {items}[,|] [make them|make it|better] {size}", "[i meant|i said] {size} {items}", "{size} {items}, not {old}",
]  # fmt: skip
#: {size} with its article
SIZED_ONE = [
    "{size} {item} [will do|instead|then|is enough|is better|after all|would be nice][, actually|, please|]",
    "[make it|make that|i'd rather have|i meant|give me] {size} {item}[ instead|][, please|]",
    "rather {size} {item}[, please|]",
]  # fmt: skip
#: another size, and something stays
SIZED_SAME = [
    "{size} instead", "{size}, not {old}", "make the {item} {size}", "{size} for the {item}", "the {item} in {size}",
]  # fmt: skip
MORE_OF = [
    "{k} more {item}[, please| please|]", "[and|yes|yes and|also|oh|add] {k} more {item}[, please|]",
    "[can|could] [i|we] [get|have] {k} more {item}[, please|]?", "[and |]{k} {item} [more|on top][, please|]",
    "[give me|we need|i need|i'd like|i want] {k} more {item}[, please|]", "{k} additional {item}[, please|]",
]  # fmt: skip
DROP += [
    "[cancel|scratch|scrap|strike|lose|ditch|leave off|leave out|take back] the {item}[, please| please| then|]",
    "[we|i] [don't need|won't take|can't afford|won't have] the {item} [after all|now|today|then]",
    "[minus|without|except|not] the {item}[, please|]",
    "the {item} [is off|has to go|is too much|can stay here|is not for us]",
    "[i've|we've|i have] changed [my|our] mind about the {item}", "[keep|you can keep] the {item}, i don't need it",
    "[there's|there is] {item} at home, so [not that|leave it out|take it off]",
    "[maybe|then|better] without the {item}", "[could|can|would] you leave [off|out] the {item}[, please|]?",
    "[the|that] {item}: [cancel it|no thanks|not today]",
]  # fmt: skip
#: {kept}: all that stays
ONLY = [
    "[only|just] {kept} then[, please|]",
    "[cancel|leave out|drop|forget|skip] the {item}, [just|only] {kept}[ then|][, please|]",
    "no {item}, [just|only] {kept}[, please|]", "[i'll|we'll] [only|just] [take|have] {kept}[ then| after all|]",
]  # fmt: skip
#: what is not touched stays
KEEP = [
    "{kept} [stays|stay|as before|as it was|is fine|is right]", "[keep|leave] {kept}[ as before|, please|]",
    "the rest [stays|is fine|as before|is right]", "[and |]{kept} [too|as i said|like before|of course]",
    "{kept} i still want", "[everything else|all else] [stays|as before|is fine]", "but [keep|leave] {kept}",
    "don't touch {kept}",
]  # fmt: skip
#: a word of a thing for another one of its kind: {n} for {old}
WORD = [
    "{n}, not {old}[, please| please|]", "not {old}, [sorry, |no, |but |]{n}[, please|]", "{n} [ones|one], not {old}",
    "not {old}[, sorry|], [i|we] [meant|want|said|wanted] {n}",
    "[i|we|they|she|he] [want|meant|said|asked for] {n}, not {old}", "{n} instead of {old}[, please|]",
    "{n} rather than {old}[, please|]", "the {n} [kind|one|ones|sort], not the {old}[ one|]",
    "[make|have] the {old} [one|ones] {n}[, please|]", "[change|switch|turn] {old} to {n}[, please|]",
    "the {old} [one|ones] should be {n}", "[better|rather] {n} than {old}",
    "did i say {old}? [i mean|make it] {n}[, please|]", "{old} was wrong, {n} is [right|it|what i want]",
    "[my mistake|wrong word|slip of the tongue][,|:] {n}, not {old}",
    "[she|he|my friend] [doesn't like|hates] {old}, so {n}[, please|]",
]  # fmt: skip
#: what is done with a thing: {extra}, {old} before it, {items} the thing
WISH = [
    "the {items} {extra}[, please| please|]", "make the {items} {extra}[, please|]",
    "{extra} for the {items}[, please|]", "[can|could|may] [i|we] have the {items} {extra}[, please|]?",
    "[i'd like|i want|we want] the {items} {extra}[, please|]",
    "[and|oh|also|actually][,|] the {items} {extra}[, please|]", "as for the {items}: {extra}[, please|]",
]  # fmt: skip
WISH_INSTEAD = [
    "{extra}, not {old}[, please|]", "{extra} instead of {old}[, please|]", "not {old}[,|, but] {extra}[, please|]",
    "[i meant|i said|sorry,|make it|better] {extra}, not {old}",
    "[actually|no|oh][,|] {extra} rather than {old}[, please|]",
]  # fmt: skip
FEWER = [
    "[one|a] {item} [less|fewer|too many][, please|]", "one {item} [less|fewer][, please|]",
    "[take|leave] off one {item}[, please|]", "[remove|drop|cancel] one [of the {items}|{item}][, please|]",
    "[one|1] less of the {items}[, please|]",
]  # fmt: skip
#: before a correction
LEAD = [
    "[sorry|oh|hmm|no|wait|actually|oops|ah|um|erm|well|excuse me|hold on|oh no|oh dear|my bad|no no|stop|silly me]",
    "[one change|a correction|something else|i was wrong|change of plan|on second thought|let me change that]",
    "[my|our] [[nephew|son|husband|boss|friend] [|has |just ]changed his|[wife|mum|niece|sister] [|has |just ]changed "
    "her] mind",
    "[my|our] [daughter|son|wife|husband|boss|friend|mum|nan|sister] [says|said|tells me|just called]",
    "[we|i] [changed our minds|thought again|looked again|made a mistake|misread the list|miscounted|got it wrong]",
]  # fmt: skip
#: after it
BECAUSE = [
    "[because|as|since] [i'm allergic|it's hot|we are in a hurry|i spill|he hates it|she likes that|i'm on a diet|"
    "it's late]", "[i've|i have] [found my diet plan|no more money|had enough|seen the price]",
    "if [that's ok|it's not too late|you don't mind]",
    "[sorry about that|that's all|that's better|thanks|cheers|thank you|my mistake|i'm so sorry]",
]  # fmt: skip
#: the count that was too many or too few
TOO_MANY = ["{old} is [too many|too much|a lot], [i'd say|make it|let's say|rather|we take] {n}",
    "[we|they] can't [eat|carry|use|pay for] {old}, [so |make it |rather ]{n}"]  # fmt: skip
TOO_FEW = ["{old} [is not enough|won't do|is too few|won't be enough], [i'd say|make it|let's say|rather|better] {n}"]
MAKE_THAT += [
    "[can|could|might] [that|it|they] be {n}[, please|]?",
    "[up|bump|push|take] [it|that|them] [up |]to {n}[, please|]",
    "[cut|bring] [it|that|them] [down |]to {n}[, please|]",
    "{n} [would do|will be enough|would be plenty|in the end]", "did i say {old}? [i mean|i meant|it's] {n}",
    "[i'd say|let's do|say] {n}[, please|]", "{n}, please, not {old}",
]  # fmt: skip
COUNT_OF += [
    "[could|can|might] it be {n} {item}[, please|]?", "{items}: {n}[, please|]", "{n} of the {items}[, please|]",
    "did i say {old} {items}? [i mean|make it|it's] {n}", "[on|for] the {items}[,|:] {n}[, please|]",
    "just {n} {item}[, please|]", "{old} {items} [was wrong|is not right|is a mistake], {n} [is right|please|i need]",
    "[let it be|do|we'll have] {n} {item}", "with the {items} make it {n}[, please|]",
    "{n} {item} [would do|is all we need|are plenty][, please|]",
]  # fmt: skip
