"""What guests say when they order; {items} are the goods with their counts, {name} is the guest's."""

from __future__ import annotations

BABBLED = 0.18  # share of wishes in words without meaning around the goods
#: between two things of one wish
JOINTS = """
and|and|and|and|and|and|and|plus|and also|and then|&|followed by|and on top|and besides|besides that|and finally|next|
and for my friend|and for her|and for him|for me and|for my wife and|for my neighbor and|and for the little one|
in addition|and in addition|and after it|and later|or rather and|and not to forget|moreover|alongside|combined with|
with an extra|accompanied by|, to be followed by|, next|, also|, likewise|; also|, and for us|, and for the others|
n|n|+|an|as well as|together with|
for the boys and|for the girls,|on one tray with|and at the end|also|as the second thing|, secondly|. And|. Also|. Then
""".replace("\n", "").split("|")

JOINTS += [
    "and[,|] [um|uh|erm|er|like|yes|oh][,|]", "[and |, ]let me see[,|]", ", [um|erm|oh and|hmm],",
    "and [i think|maybe|also]", "and [let's say|say|make it]",
    "and [some of that:|one more thing,|what else,|then there's|i'll take|can i get]",
]  # fmt: skip

#: a wish that depends on something; the thing itself comes after it
CONDITIONS = [
    "if [there is|there's] [one|any|some] left", "if you [still |][have|got] [it|any|one|some]", "if [possible|i may]",
    "if [it is|that is|it's] [not too late|fine|no trouble|still there|in the house]", "if nobody [took|wants] it",
    "[should there be|provided there is] [one|any][ left|]", "should you have [it|one]", "if the kitchen has it",
]  # fmt: skip
#: where a thing may be: part of what is ordered
WHERE = ("by the", "from the", "in the", "on the", "near the", "under the")

WANT = [
    "[i'd|i would] like {items}[, please| please|]", "[can|could|may] i [get|have|order] {items}[, please| please|]?",
    "{items}[, please| please|]", "{items}[, please| please|]",
    "[i'll|i will] [have|take|get|try] {items}[, please| please|]",
    "i want {items}[ please|]", "[give me|get me|gimme] {items}[, please| please|]",
    "[we'd|we would] like {items}[, please|]",
    "[can|could] you [give|get|make|bring] me {items}[, please| please|]?", "i'd [love|go for] {items}[, please|]",
    "i'm going to [have|get|take] {items}", "let me [get|have|try] {items}[, please| please|]",
    "make it {items}[, please|]",
    "i need {items}[, please| please|]", "{items} for me[, please|]", "just {items}[, please| please|]",
    "[one order of|order:] {items}",
    "[could we|can we|we'll] [get|have|order] {items}[, please|]", "i [think i'll|guess i'll] [have|take] {items}",
    "[hi|hello|hey][,|] {items}[, please| please|]",
    "[hi|hello|good morning|hey there][,|] [i'd like|can i get|i want] {items}[, please| please|]",
    "put me down for {items}", "[is it possible to get|would it be possible to have] {items}?",
    "i was hoping to get {items}",
    "[i'm here for|i came for|i feel like] {items}", "how about {items}[, please|]", "my order is {items}",
    "order {items}[, please|]",
    "please [give me|bring me|make me] {items}", "[we need|we want|we take|i take] {items}[, please| please|]",
    "[do me|pour me|hand me] {items}[, please|]",
]  # fmt: skip
WANT += [
    "[could|can|may|might] [i|we] [just |] [grab|pick up|buy|take|trouble you for] {items}[, please| please|]?",
    "[i'm|we're|i am] [after|looking for|fetching|collecting|getting|here to get|going for] {items}[, please|]",
    "[need|want|fancy|would like|would love|after] {items}[, please| thanks|, mate|]", "[pls|plz|pleeease] {items}",
    "[what i want is|what we'd like is|what i'm after is|what i need is] {items}[, please|]",
    "{items} [pls|thx|ta|cheers]",
    "[gimme|lemme have|lemme get|get us|do us|cut me|weigh me|pack me|sort me out with] {items}[, please| please|]",
    "[so|so that's|thats|so that would be|right, that's|that'd be] {items}[, please|]",
    "[i|we] [fancy|feel like] {items}",
    "[i'd|we'd] [adore|be happy with|be glad to have|be after] {items}[, please|]",
    "[would|will] you [do|sell|get] me {items}[, please|]?",
    "[please may i|please can i|may i please|can i please] [have|get] {items}?",
    "[send|hand|pass|put] [me|us] {items} [over|across|on the counter|through][, please|]",
    "{items} it is[, please|]", "[my|our] order is for {items}",
    "[hiya|howdy|morning|evening|hey there][,|!|] {items}[, please| please|]",
]  # fmt: skip
WANT += [
    "[right|okay|well], [so|then] {items}[, please|]", "[i|we] [came|come|dropped in] [for|to get|to buy] {items}",
    "[i|we] [would enjoy|would appreciate|wouldn't mind|wouldn't say no to|can't resist] {items}",
    "[you could|you might|would you kindly|be so kind and] [bring|hand|fix|make] [me|us] {items}[, please|]",
    "[are there|is there|do you still have] {items}[ left| for us| for me|]?",
    "[off we go|here goes|first of all]: {items}",
    "[my order|the order|our order|our list] [would be|will be|today is|goes like this:|contains] {items}",
    "{items} [will do|would be nice|sounds good|looks tasty|should do|is what i need|is my choice][, thanks|]",
    "{items}, [if you have it|if there is any|to begin|for a start|for the road|that is what i want|nothing fancy]",
    "[my|our] [colleagues|children|guests|parents|teammates|neighbors] [want|sent me for|are waiting for|need] "
    "{items}",
    "[to start|starting] with {items}[, please|]", "[yesterday i had tea, now|like last week,|once more] {items}",
    "[i feel|i'm] [like having|in need of|dreaming of|happy with] {items}",
    "[we|i] [shall have|are having|am having] {items}",
    "[let us|let's] [get|order|take|go for|try] {items}", "[i|we] [pick|prefer|want to try|wish for|ask for] {items}",
    "[what about|how about|why not] {items} [for me|for us|today|]?",
    "[here's what i want|this is my order|listen]: {items}",
    "[tonight|this morning|at noon|after work] [i|we] [want|need|have] {items}", "[time|ready] for {items}",
    "[is|would] {items} [possible|available|okay]?", "[please|] [charge me for|ring up|reserve|prepare] {items}",
    "[i could use|i could do with|i'm in the mood for|i'm craving|we are here for] {items}[, please|]",
    "[bring|fetch|pass|sell|serve|prepare|pack|wrap up] [me|us] {items}[, please| please|]",
    "my [wife|son|boss|dad|friend|sister|neighbor] [wants|would like|needs|is having|asked for] {items}[, please|]",
    "[we decided on|we settled on|i've decided on|i've chosen|we picked|i choose|we choose] {items}",
    "[today|this time|for now|for a start|for breakfast|for dinner] [i'll take|i'd like|give me|we take] {items}",
    "[would you have|may i ask for|may we ask for|could you do|can you do|do you have] {items}?",
    "[it's|that's|it'll be|that'll be|it will be|that makes] {items}[ for us| for the table| for me|]",
    "[the order is|here is my order:|my list:|note down|write down|put down|please note] {items}",
    "[i was told to get|i have to bring home|i promised my kids|i need to buy|i'm buying] {items}",
    "[get us|send us|set aside|keep for me] {items}[, please|]",
    "[what i'd like is|all i want is|what we need is|my choice is|my pick is] {items}",
]  # fmt: skip
MORE = [
    "[and|also|plus] {items}[, please| please|]",
    "[i'd also like|i also want|can i also get|could i also have|also] {items}[, please| please|]",
    "add {items}[, please| please|]", "{items} [too|as well][, please| please|]",
    "[yes|yeah|yep][,|] {items}[, please| please|]",
    "[yes|yeah][,|] [and|also|add] {items}[, please|]", "[can|could] you add {items}[, please|]?",
    "oh and {items}[, please| please|]",
    "[i'll|i will|let me] [also|] [take|get|have] {items}[, please| please|]", "and then {items}[, please|]",
    "another thing, {items}[, please|]",
    "[can we|could we] [add|get] {items} [too|as well|]?", "throw in {items}[, please|]",
    "and [maybe|perhaps] {items}", "{items}[, please| please|]",
    "[what about|how about] {items}[, please|]?", "one more thing: {items}",
    "and to [eat|drink|finish][,|] {items}[, please|]",
]  # fmt: skip
SHARED = ["{items}[, please| please|]"]
#: before goods that another sentence follows
OPENED = [
    "{items}", "[i'd like|i'll take|we need|i want|i'll have|let me get|give me|we'd like|we'll have|also|and] {items}",
    "[can|could|may] [i|we] [have|get|order] {items}", "[please|] [add|bring me|put down|get me|make me] {items}",
    "[hi|hello|good morning][,|] {items}", "[yes|ok|so][,|] {items}", "[i fancy|i'm after|i feel like] {items}",
]  # fmt: skip
#: what is to be done with the last thing, said on its own
MAKE_IT = [
    "[,|.|, and] [could|can|would] you [make|do|have|get|serve|prepare] {it} {extra}", "[.|,|:] [make|do] {it} {extra}",
    ". {extra}[, if you can|, if possible|, please|]", ", [and |]i['d like| want| need] {it} {extra}",
    ". [could|can|may] {they} be {extra}[, please|]", ", but {extra} if [possible|you can|i may]",
]  # fmt: skip
#: who else wants something
WHO = """
i|my wife|my husband|my son|my daughter|my mum|my dad|my nan|grandpa|my boss|my sister|my brother|my friend|the kids|
my girlfriend|my colleague|our guest|the little one|my neighbor|the lady over there|my aunt|the driver|everyone|
my flatmate|the twins|the team|the others|his sister|her mother|the man behind me|i|i|i
""".replace("\n", "").split("|")
WISHES = [
    "{who} [would like|would love|will have|will take|asked for|wanted|ordered|said] {thing}",
    "[for {who}][,|:|] {thing}", "{thing} [for|goes to|is for] {who}", "{who} sent me for {thing}",
]  # fmt: skip
OWN_WISHES = ["{thing} for me", "i'll [have|take|get|go for] {thing}", "i [want|take|need|would like] {thing}",
    "for me[,|] {thing}", "i'd [like|love] {thing}", "{thing} [is mine|for myself]"]  # fmt: skip
#: a slip of the tongue before a thing
SLIP = "[um|uh|erm|er|hmm|let me see|what was it|how do you say|let me look at my list|i think|like|oh yes],"
#: in front of a wish: why, for whom, how the day is; nothing of it is ordered
WHY = [
    "[we're|i'm|we are] [having a picnic|having guests|on a trip|very hungry|starving|so thirsty|late|on a diet|"
    "on holiday|new in town|moving house|decorating|cooking tonight|baking today|playing outside|back again|in a "
    "hurry]",
    "[it's|today is] [my birthday|our anniversary|so hot|freezing|raining|my day off|market day|her party|a long "
    "day]",
    "[my|our] [mum|dad|boss|nan|teacher|wife|husband|aunt|coach|neighbor] [sent me|is waiting in the car|is too "
    "tired to come|says hello|is ill|loves this place|wrote me a list|told me to come here|is outside|gave me the "
    "money]",
    "[mummy|daddy|grandma|dad|mum] [says|said] [it's ok|i may|i can choose|it's my turn|yes|i have to say please]",
    "[the|my|our] [dog|cat|car|baby|garden|kitchen|class|office|team|band|train] [is waiting|needs it|is hungry|"
    "is outside|ran out of everything|leaves soon|is full of people]", "[i|we] [walked|drove|ran|cycled] all the way",
    "[i|we] [promised|lost a bet|won today|got paid|have no list|have thought about it|couldn't decide|saw your "
    "sign|smelled it from outside]",
    "[everyone|everybody|the whole family|half the office] [is hungry|loves your things|sends me|is here|wants "
    "something]", "[good|great|what a] [day|morning|smell|queue|shop]",
    "[don't laugh|you won't believe it|as always|same as ever|first things first]",
]  # fmt: skip
#: after a wish
AFTERWARDS = [
    "[that's|thats|that is|that'd be|and that's] [us|all|it|everything|the lot|me done|the order|all for now]",
    "[it's|they're|this is|that's] for [me and my [sister|brother|mum]|my [mum|son|team|boss|teacher]|the [party|"
    "picnic|trip|office|weekend|road|kids|dog]|the whole family|tonight|later|a friend]",
    "[mummy|dad|mum|grandma|my teacher] [said|says] [i may|it's my turn|it's fine|so|i can]",
    "before [the show begins|my train leaves|it rains|you close|the kids wake up|i change my mind]",
    "if [there is one|you have any|you don't mind|that's alright|it's no bother|there's any left]",
    "[my|our] [bus|train|friends|kids|taxi] [is|are] [coming|waiting|leaving]",
    "to [wash it down|share|start with|keep me going]",
    "[i'm|we're] [starving|so hungry|in a rush|not in a hurry|parked outside|paying cash]",
    "[you're|you are] [a star|the best|so kind]", "[mate|love|dear|boss|chef|my good man|madam|sir|buddy|darling]",
    "[would|could|will] you", "[right away|quick|when you can]",
    "[because|as|since] [we|i] [have guests|ran out|am hungry|love them|like it here|spill|share everything]",
    "[don't|do not] [tell my wife|forget me|worry]",
    "[cheers|ta|thx|much obliged|bless you|many thanks|hope that's ok]",
]  # fmt: skip
MORE += [
    "[i forgot|we forgot|almost forgot], {items}[, please|]",
    "[i'm still hungry|still thirsty|one more wish][,|:] {items}",
    "[put|note|write] {items} [on it|on top|on the list][ too|][, please|]",
    "[next|second|then|furthermore][,|:] {items}",
    "[the others|the kids|my mother|everyone] [also |][want|wants|get|gets] {items}",
    "[i'll|we'll] [complete|finish] it with {items}",
    "[on top of that|in addition|additionally|besides that] {items}[, please|]",
    "[don't forget|not to forget] {items}",
    "[my friend|my son|she|he] [also |][takes|wants|would like] {items}[, please|]", "[ah|wait], [and|also] {items}",
    "[we also need|i also need|i'd add|let's add] {items}[, please|]",
    "[and for her|and for him|for my friend] {items}",
]  # fmt: skip
DONE = [
    "[that's|that is|that'll be|that will be] [all|it|everything|all for now|it for today][, thanks| thank you| "
    "please|]", "no[,|] that's [all|it|everything][, thanks|]",
    "no[,|] thank you", "no[,|] thanks", "nothing else[, thanks| thank you|]",
    "[i'm|we're|i am] [done|good|all set|fine][, thanks|]",
    "no", "nope", "nope[,|] [that's it|that's all]", "[just that|only that|that would be all][, thanks|]",
    "that's all [i need|for me|we need|for us]",
    "no more[, thanks|]", "[it's fine|that's enough|enough][, thanks|]", "nothing more[, thank you|]",
    "no[,|] i'm [good|fine|okay]",
    "that completes my order", "finished", "done", "[we are|i am] ready to pay", "[ok|okay][,|] that's [it|all]",
    "i think that's [all|it|everything]",
]  # fmt: skip
TELL_NAME = [
    "{name}", "{name}", "{name}[, please| please]", "[my name is|my name's|the name is|it's|i'm|i am|this is] {name}",
    "for {name}[, please|]", "{name} is my name",
    "[put it under|under|it's for|make it out to|write] {name}[, please|]",
    "[you can|just|please] [call me|write|put] {name}", "my name is {name}[, thanks| thank you|]",
    "[the name's|name's|name is|name:] {name}",
    "[it is|that's|that is] {name}", "[they|people|friends] call me {name}", "[on|to] {name}[, please|]",
    "{name} [here|speaking]",
]  # fmt: skip
TELL_NAME += [
    "[please |][note|mark|print|put|stick|type|add|sign] {name} on [the|my|our|its|every] {thing}[, please|]",
    "[the|my|our] {thing} [is for|says|belongs to|goes to|should say|should be on|runs on] {name}",
    "[you may|just|simply|please|] [note|print|mark|scribble|type] {name} [on it|on the lid|on the box|down|there|"
    "on the receipt]",
    "[make|file|book|keep|store] it [under|for|as] {name}[, please|]", "[let's|we] [use|say|take] {name}",
    "{name} [is fine|will do|it is]",
    "[ask|call|shout|look] for {name}", "{name} [picks it up|is waiting|is paying|ordered]",
    "[order|box|bill] [for|of|to] {name}[, please|]",
    "[the order|it|this one] [belongs to|is for|goes to|is from] {name}", "[i'd say|i guess|then] {name}",
    "[it should say|that would be|i go by|i am called|my first name is|they named me] {name}", "{name}, that's me",
    "{name}'s the name", "[everyone|everybody|my family] [knows me as|calls me] {name}",
    "[sure|gladly|of course][,|] {name}",
    "[note|type|enter|make it|use] {name}[, please|]", "[well|ok|hmm][,|] {name}",
]  # fmt: skip
WITH_NAME = [
    "[,|,|.| and] [please |][note|mark|print|put|stick|type|add|sign|write] {name} on [the|my|our|its|every] "
    "{thing}[, please|]",
    "[,|,|.| and] [the|my|our] {thing} [is for|says|belongs to|goes to|should say] {name}",
    ", [my|our|the] name [is|would be|reads] {name}", ", [call me|they call me|i am called|known as|named] {name}",
    " for {name}", " for {name}", ", my name is {name}", " under the name {name}", ", name {name}",
    ", it's for {name}",
    ", the name is {name}", ", {name} is my name", ", i'm {name}", ", put {name} on it", ". write {name} on the box",
    ", the name on the [lid|box|receipt] is {name}", ". please [note|mark|print] {name} on the [lid|parcel|tray]",
    ", and [label|mark] it {name}", ". {name} [will get it|picks it up|is the name|pays]", ", to {name}",
    ", from {name}",
    ", [call|shout] {name} when it's ready", ", on behalf of {name}", ", {name} [sent me|is asking]",
    " in the name of {name}",
    ", and put {name} down [for it|as the name|]", ", [i am|this is] {name} [by the way|as you know|]",
    ". name's {name}",
    ", to be picked up by {name}", " and my name is {name}", " for {name}[, thanks|, please|, cheers|]",
    " for {name}, [he|she|that] [will come|is waiting|is me]", ", all for {name}", ", {name} [takes it|is it for]",
    "[,|,|.| and] [please |kindly |could you |][write|put|print|note] {name} on [it|the lid|the paper|them]",
]  # fmt: skip
TO_GO = ["to go", "to go", "for here", "to take away"]
ASK_TOTAL = [
    "how much is [that|it|everything|my order]?", "what's the total?", "[what|how much] do i owe you?",
    "how much does [that|it] [make|come to|cost]?",
    "[what|how much] is [that|it] [all together|in total|altogether]?",
    "[can|could] [i|you] [have|tell me] the total[, please|]?", "the [bill|check][, please|]",
    "what does [that|it all|everything] cost?", "[total|the total][, please|]?",
    "how much is it [all together|in all|so far]?", "so how much?",
    "what's the price [altogether|of all that]?", "and how much do i pay?", "what will that be?",
    "how much money is that?",
]  # fmt: skip
#: all of an order is taken back
CLEAR = [
    "[cancel|forget|delete|scrap|scratch|drop|remove|take back] [everything|all of it|the whole order|my whole "
    "order|it all|the lot][, please| please|]",
    "[let's|let me|can i|can we|could we] start [again|over|anew|from the beginning][, please|]",
    "[sorry|oh no|no no|wait][,|] [cancel|forget] [everything|all that|the whole thing]",
    "i [want|need] none of [that|it|this]",
    "[everything|all of that] was wrong, [start again|once more|from the beginning]",
    "cancel [my|the] order[, please|]", "i [don't|do not] want [any of that|anything of that|all this][ after all|]",
    "[please|] clear my order[, please|]",
]  # fmt: skip
READ_BACK = [
    "[can|could] you [repeat|read back|read me|tell me] my order[, please|]?",
    "what [do i have|did i order|have i ordered|is my order][ so far|]?",
    "[please |]repeat my order[, please|]", "what's [in|on] my order?", "list my order[, please|]",
    "[what was|what's] my order again?",
    "did you get [all that|everything|that]?", "[let me hear|say] my order [again|back]",
    "[sorry|wait][,|] what [did i order|do i have]?",
    "my order[, please|]?", "can we go over my order?", "[read|say] it back to me[, please|]", "is my order right?",
]  # fmt: skip

#: {items}: in plural, without a count, which makes it a question and not a wish
ASK_STOCK = [
    "do you [have|sell|make|offer|serve|keep] [any |some |]{items}[ here| today| too|]?",
    "[are there|got] any {items}[ left|]?",
    "have you [got |]any {items}?", "any {items}[ left| today| here|]?", "is it possible to get {items} here?",
    "do you still have {items}?", "[and |]what about {items}, do you have [them|any|those]?",
    "are {items} on the menu?",
    "you don't [have|sell] {items}, do you?", "[i see no|i can't see any] {items}, do you have [any|some]?",
    "[can|could] one [get|buy] {items} here?", "are you selling {items}[ too|]?",
]  # fmt: skip
