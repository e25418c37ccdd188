"""What guests say to desks of all kinds; {thing} is what they want, with its count or article."""

from __future__ import annotations

_PALS = "[my friends|my mates|my wife|the boys|the girls|my brother|my sister|my colleagues|my cousins|the lads]"
_WANT = [
    "[i'd like|i would like|we'd like|i want|we want|i need|we need] {thing}", "{thing}", "{thing}", "just {thing}",
    "[could|can|may] [i|we] [have|get|book|reserve|take] {thing}?", "[book|reserve|note] [me |us |]{thing}",
    "[i'd like|i want|we'd like|i need] to [book|reserve|arrange] {thing}", "[i was hoping for|i'm after|it's about] "
    "{thing}", "[any chance of|do you have|is it possible to get|have you got|would there be] {thing}?",
    "[i'm calling about|i'm here for|i come about|what about|how about] {thing}", "[i'll take|we'll take|let me have] "
    "{thing}", "[i|we]['d| would] book {thing}", "[could|can] you [put down|arrange|book|save|note|keep] {thing}?",
    "[i was wondering|i wonder] [if|whether] [i|we] could [have|get|book] {thing}",
    "[do you think|is there a way] [i|we] "
    "could [have|get|book] {thing}?", "would you be so kind and book {thing}?", "[please |]may [i|we] have {thing}?",
    "is it too late for {thing}?", "[would you|could you] [have|put me in for] {thing}?",
    "[my|our] [wish|plan] is {thing}", "[what i want is|what we need is|all i need is] {thing}",
]  # fmt: skip
#: the ways to ask, by form
LEADS = {
    "visit": [*_WANT, "[i'd like|i need|can i have|make me|could i get|i want] an appointment for {thing}",
        "[put|write|sign] me down for {thing}", "[book|fit|squeeze] me in for {thing}", "an appointment for {thing}",
        "[can|could|may] i come [in |]for {thing}?",
        "[do you have|is there] [a free slot|time|an opening] for {thing}?",
        "[i am|i'm] due for {thing}", "[it's time|time] for {thing}", "[i'd like|i want] to come [in |]for {thing}"],
    "hire": [*_WANT, "[i'd like|we'd like|i want|we want] to [hire|rent] {thing}", "[can|could] [i|we] [hire|rent|use] "
        "{thing}?", f"[can|could|may] [me and {_PALS}|{_PALS} and i|all of us] [have|get|book|use] {{thing}}?",
        "[hire|rent] {thing}", "[do you have|any] {thing} [free|left]?",
        "[is it possible|we plan] to [hire|rent|"
        "have] {thing}"],
    "course": [*_WANT, "[put|sign] [me|us] [up|down] for {thing}", "[i'd like|we want|i want] to [join|take] {thing}",
        "[can|could] [i|we] [join|still get into|enroll in] {thing}?", "[enroll|enter] me [in|for] {thing}",
        "[is there|do you have] [room|space] for {thing}?"],
    "ticket": [*_WANT, "[i'd like|we want|i want|i need] to buy {thing}", "[sell|print|give] me {thing}",
        "[are there|do you have|are there still] {thing} left?", "have you got {thing} available?",
        "[we|all of us|my family] [would like|want|need|will take] {thing}",
        "[any chance of|do you have] {thing} left?"],
    "hold": ["[i'd|i would|we'd] like to [reserve|pick up|collect|borrow|order|have] {thing}", "[could|can] [you|i] "
        "[put aside|keep|hold|reserve|collect|get|have] {thing}?", "{thing}", "[i'm here|i come|i want] for {thing}",
        "[please |][reserve|keep|hold|find] {thing}", "[i want|i need|i have] to [collect|pick up|get] {thing}",
        "[it's about|what about|i'm calling about|do you have|is there] {thing}", "put {thing} aside for me"],
    "room": [*_WANT, "[i'd like|we'd like] to stay in {thing}", "[is|do you have] {thing} [free|available|left]?"],
    "table": [*_WANT, "{thing}", "{thing}", "[we are|we're|i am] [planning|hoping for|looking at] {thing}",
        "[we|my friends and i] [plan|planned|wish for] {thing}",
        "[we'd like|we want|we plan|we hope] to have {thing}", "[is there|do you have] {thing} [free|]?",
        "[we are thinking of|we come for|keep|hold] {thing}"],
}  # fmt: skip
#: {who}: my son, our poodle
LEADS_WHO = [
    "{who} [needs|wants|would like|has to get|is due for|asked for|should get|could use] {thing}",
    "[could|can] {who} [have|get|come in for|come for] {thing}?", "[i'd like|i need|i want] {thing} for {who}",
    "{thing} for {who}", "[book|arrange|note] {thing} for {who}", "for {who}[,|] {thing}",
    "[it's for|this is for] {who}[:|,] {thing}", "[i want|i'd like] to [bring|send] {who} [in |]for {thing}",
    "[can|could] i bring {who} [in |]for {thing}?",
    "[we need|can i get|an appointment for|i'm calling about] {thing} for "
    "{who}",
]  # fmt: skip
LEADS_GROUP = [
    "{who} [needs|need|wants|want|would like|asked for] {thing}", "[could|can] {who} [have|get|use|book] {thing}?",
    "[i'd like|i need|we need|book|i want to book|can i have|could we get] {thing} for {who}", "{thing} for {who}",
    "for {who}[,|:] {thing}", "[it's for|this is for] {who}[:|,] {thing}",
]  # fmt: skip
PEOPLE = ["for {n}", "for {n}", "for {n} [people|persons]", "for the {n} of us", "for a [group|party] of {n}",
    ", {n} of us", ", we are {n}", ", {n} people", ", there are {n} of us", ", there's {n} of us", ". we're {n}",
        " with {n} people"]  # fmt: skip
NIGHTS = ["for {n}", "for {n}", ", {n}", "[and stay|staying] {n}"]
CLOSING = ["[would|will] suit[ me| us|]", "[would be|is] [best|good|great|ideal]", "if that works",
    "if [possible|you can]",
    "[works|is fine] for [me|us]", "please", "please", "would you", "if it's free"]  # fmt: skip
#: why, and what else people tell; nothing of it is repeated
_WHO = "[my son|my daughter|my wife|my husband|mum|dad|grandpa|my aunt|our boss|my sister|my friend|my neighbor]"
FRONT = [
    "i'm [a teacher|a nurse|a student|a driver|new in town|on holiday|a regular|a member|the team captain]",
    f"it's {_WHO}'s [birthday|party|big day|first time]",
    f"{_WHO} [told me to call|sent me|recommended you|has a day off]",
    "[hello|hi|hiya|hey|good morning|morning|good evening]",
    "[we have|there is] a [wedding|party|match|meeting|birthday]",
    "my [back|knee|head|neck] [hurts|is stiff|is killing me]", "i [finally|only] have time [now|this week]",
    "[it's been|it has been] [years|months|ages|a while]", "i got your [number|name|card] from a friend",
    "we [were here|came] last [year|summer|week]", "it looks [awful|terrible|wild|dirty] by now",
    "[the old one|mine|ours] [broke|is gone|fell apart]", f"i promised {_WHO}",
    "we want to [try something new|celebrate]",
    "[sorry|excuse me|one moment|so|well|right|listen|ok]", "[can you help me|i have a request|i hope i'm right here]",
    f"{_WHO} would [love it|be so happy|kill for it]", "[the weather|the forecast] [looks|is] [good|fine|bad]",
]  # fmt: skip
BEHIND = [
    f"it's {_WHO}'s [birthday|party|treat|idea|present]",
    "[before|after] [work|school|the rush|the game|the crowds come]",
    "[i'm|we're] [a bit|so] [late|nervous|excited|early]", "it [won't take long|is a surprise|is quite urgent|hurts]",
    f"{_WHO} [insists|pays|can't wait|will come along|is coming too]", "[we|i] [come|drive] [by bus|from far|by train]",
    "[that's|this is] [my day off|our only day|the last chance|a present]",
    "i [can't|cannot] [come later|wait any longer]",
    "[we|i] loved it last time", "[nothing|no] [fancy|special|rush|big deal]", "[they say|i hear] you are the best",
    "[cheers|thanks|thank you|many thanks|ta|bye]", "[i hope|hopefully] that's [free|fine|okay|possible]",
    "[my|our] train [leaves|goes] [late|after that|at once]", "we will [be on time|bring our own|need a while]",
]  # fmt: skip
#: without saying what
VAGUE = ["[i'd like|i need|i want] [to make|to book|to get|] an appointment",
    "[can|could] i [make|book|get] an appointment?",
    "[i'd like|i want] to [book|reserve] something", "an appointment[, please|]", "[i need|we need] a booking",
    "[can|could] [i|we] [book|reserve] [something|here]?", "[one|a] booking[, please|]"]  # fmt: skip
ANSWER_THING = ["{thing}", "{thing}[, please| please|]", "[it's for|for|i'd like|i need|i want|that would be] {thing}",
    "[maybe|just|i think] {thing}", "[i come for|it's about] {thing}",
    "{thing}[, if you can|, if possible|]"]  # fmt: skip
#: another value: {new}; {old} is what was said before
CHANGE = [
    "[no|sorry|actually|wait|oh][,|] [make it|make that|i said|i meant|it should be|change it to|take] {new}",
    "[sorry|oh|no|oops|ah][,|] i said {old} but i [need|meant|want] {new}", "{new}[,|] not {old}",
    "not {old}[,|] {new}",
    "[can|could] [you|we] [make it|change it to|make that|switch to] {new}?", "{new} instead[ of {old}|]",
    "[i'd|we'd] rather [have|take] {new}", "[change|turn|switch] {old} [to|into] {new}",
    "[no |]hang on, {new}[, not {old}|"
    " not {old}|]", "[forget|scratch] {old}, {new}", "[it has to be|better|rather|make it] {new}",
    "{reason}[, so|:|, so make it|,] {new}", "{reason}, {new} please", "[my mistake|my fault|wrong one][,|:] {new}",
    "[yes|right|good|fine], but [make it |]{new}",
    "[hmm|well|ah][,|] {new} [would be better|is better|after all|then]", "could it be {new}[ instead of {old}|]?",
    "[on second thought|i changed my mind][,|] {new}", "i [don't want|mean not] {old}, [but|i want] {new}",
    "{new}, everything else [stays|as before|the same]", "[instead of|rather than] {old}[,|] {new}",
]  # fmt: skip
REASON = [
    f"{_WHO} [is coming too|wants to come|changed her mind|says so|has no time|can't make it|prefers it|asked me]",
    "[we|i] [talked it over|looked again|got it wrong|mixed it up|checked my calendar|misread that|thought again]",
    "[something|a meeting|work] came up", "the [bus|train|doctor|school] [is late|called|changed it]",
]  # fmt: skip
FEWER = ["[one|two|three|some|a few|a couple] [dropped out|have dropped out|can't come|fell ill|cancelled|are ill]",
    f"{_WHO} [is ill|can't come|stays at home|is not coming|dropped out]",
    "we [lost|miss] [somebody|a few]"]  # fmt: skip
MORE = ["[one|two|three|some|a few] [more are coming|joined us|others want to come|friends are coming]",
    f"{_WHO} [is coming too|joins us|wants to come|comes along]",
    "i forgot [one|somebody|my sister|the driver]"]  # fmt: skip
COUNT = ["{reason}[, so|:|,] [we're|we are|there are|it's|make it|that makes] {n}[ now| then|]",
    "{reason}, so {n} [now|then|please|in all]", "{reason}[, so|,] {n}", "we're {n} now",
    "[now|only|just] {n}[ of us| of them|]",
    "[make it|sorry,|no,|actually|better] {n}[ instead|]", "{n}, [{reason}|not {old}]",
    "{n} [now|after all|in all|instead]",
    "[it's|we are|there will be] {n}[ now|][,| because| as] {reason}", "not {old}, {n}",
    "[change it|the number] to {n}",
    "[i said {old}, but|we said {old}, now] it's {n}"]  # fmt: skip
EXTRA = ["{wish}[, please| please|]", "[and|oh and|also] {wish}[, please| please|]",
    "[can|could] [i|we] have it {wish}?",
    "[i forgot|one more thing|if you can|i'd like it|make it|we'd like that][:|,|] {wish}",
    "{wish}[,|] if [possible|you can]",
    "{wish} would be [nice|great|good]"]  # fmt: skip
WISH = ["{wish}", "{wish}", ", {wish}", ", {wish}", ", {wish},",
    "[and |]{wish} if [that's possible|possible|you have it]",
    ", preferably {wish}", "{wish} please", ", {wish} [if you can|would be nice]", ", best {wish}"]  # fmt: skip
#: for one kind of change: another day, another time, another goal
CHANGE_OF = {
    "day": [
        "[could|can] [that|it] be {new} instead?", "[can|could] [we|you] [move|put|shift] [it|that] to {new}?",
        "{new} [suits me better|is better for us|would be easier|works better]",
        "[make it|let's do|rather] {new} instead",
        "i [can't make it|am away|have to work] on {old}, [so |]{new} then", "[another|a different] day: {new}",
        "[i can|we can] only [come|make it] {new}", "[wrong day|not that day][,|:] {new}", "{new}[,|:|.] same time",
        "could that be {new}? [same time|same hour|the time stays]",
        "{new}, [at the same time|the time stays|rest as is]",
        "i said {old} but [it must be|i meant|it's] {new}", "[the day|the date] [is|should be] {new}, not {old}",
        "[i|we] [got|had] the day wrong[,|:] {new}",
    ],
    "time": [
        "[could|can] [that|it] be {new} instead?", "[a bit|a little|rather] [later|earlier], {new}",
        "{new}[,|.] same day",
        "[we'd|i'd] rather [take|have|see|come for] the [later|earlier] one, {new}",
        "[the later|the earlier] one[,|:] {new}",
        "[can|could] we [do|say|make] {new} [instead|then]?", "[push|move|shift] it to {bare}", "i'm late, so {new}",
        "[too early|too late|i can't be there so soon][,|:] {new}", "{new} [would be|is] [easier|better|safer] for us",
        "{new} on the same day", "[not|no,] {old}, {new}", "[the time|the hour] should be {bare}", "{new} instead?",
        "could that be {new}? [same day|the day stays|rest as before]",
    ],
    "to": [
        "[no|sorry|oh][,|] [i meant|i need|we need|we want] {new}, not {old}",
        "[wrong one|wrong place|wrong][,|:] {new}",
        "we [changed our minds|talked again|voted again][,|:] {new} instead", "{new} instead of {old}",
        "it's {new}, sorry",
        "[sorry|oh][,|] i said {old} but [i need|i want|we meant] {new}", "[i mixed up|i confused] the names, {new}",
        "i'd rather [take|have] {new}", "[could|can] [it|that] be {new} instead?", "make {old} {new}",
    ],
}
#: before what is wanted: what is to be seen, where to, how many they are
TITLE_AHEAD = [
    f"{_WHO} [wants to see|would love to see|is crazy about|can't wait for|asked for] {{to}}[, so|:|.|,]",
    "[we want to|we'd like to|we plan to|let's|i have to|we're going to] [see|watch|catch] {to}[, so|:|.|,]",
    "{to}[,|:|.]",
    "[it's about|for|about] {to}[,|:]", "[the show|the film|the play|the musical|the movie|the evening show] "
    "{to}[,|:|.]", "[is {to} still on|do you still show {to}|are you showing {to}]?",
    "{to} [sounds good|it is][, so|:|.]",
]
PLACE_AHEAD = [
    "[i must|we must|i have to|we need to|we want to|i'd like to] [go to|get to|be in|travel to|reach] {to}[, so|:|.]",
    "to {to}[,|:]", "{to}[,|:|.]", f"{_WHO} [lives in|waits in|wants to go to] {{to}}[, so|:|.|,]",
    "[a trip|the coach|the boat|the train|the ferry] to {to}[,|:]",
    "[is there|do you have] a [bus|train|boat] to {to}?",
]  # fmt: skip
PEOPLE_AHEAD = ["{n} of us, so", "we are {n}[, so|:|.|,]", "[there are|there's] {n} of us[, so|:|.|,]", "for {n}[:|,]",
    "we come with {n}[, so|:]", "[hello,|hi,|so] we're {n}[,|:|.]", "there will be {n} of us[, so|:|,]"]  # fmt: skip
#: what is wanted, after that
SO = ["{thing}", "{thing}", "i'd like {thing}", "we need {thing}", "we'd like {thing}", "i need {thing}",
    "could we have "
    "{thing}?", "can i get {thing}?", "give us {thing}", "please book {thing}", "we'll take {thing}"]  # fmt: skip
#: {moment}: the day, the time or both
MIDDLE = [
    "[is|would] {moment} [be |][free|possible|okay|fine|good] for {thing}?", "[can|could|may] [i|we] come {moment} for "
    "{thing}?", "do you have [anything|something|time|room] {moment} for {thing}?", "[would|does] {moment} work for "
    "{thing}?", "[what|how] about {moment} for {thing}?", "[i'd like|we want|we plan] to come {moment} for {thing}",
    "[i|we] can [come|be there] {moment} for {thing}", "[book|note|put] [me|us] [down |in |]{moment} for {thing}",
    "are you free {moment} for {thing}?", "[i need|we need] {moment} {thing}", "keep {moment} [free |]for {thing}",
]  # fmt: skip
PICKUP = ["[and|i will|i'll|we'll] [pick it up|collect it|come for it|fetch it]",
    "[to pick up|pick up|pickup|to collect]"]
