"""What guests say when they book; slots in braces are filled by the booking."""

from __future__ import annotations

from training.grammar.desks import TERSE

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
        "cinema": ["{n} tickets", "with {n} tickets"], "museum": ["{n} tickets"], "train": ["{n} tickets"],
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
        "[my parents|my friends|my team|our group] [would like|need|want] a table {on} at {time}[, we are|, they "
        "are| for] {n}",
        "[may|can|is it fine if|is there room if|do you mind if|would it work if|shall] {n} [of us|friends|colleagues|"
        "hungry people|grown-ups|ladies] [dine|have lunch|sit down|eat a bite|come for dinner|celebrate|have a meal|"
        "get fed|come by to eat|take seats|have supper] [with you |at yours |there |]{on} [at|around] {time}?",
        "[would|might|will] {n} [of us|people|friends|hungry students] [be able to |][get a table|eat|find seats|dine|"
        "have a meal|sit down] [with you|here|there|at your place] {on} [at|around] {time}?",
        "[could|may|can] [a group of|a party of|my family of|a team of|some] {n} [people |][eat|have dinner|dine|sit|"
        "celebrate] [here |with you |there |]{on} at {time}?",
        "{n} [of us|people] [here |]{on} at {time}, [could we eat|is that possible|would that work|is there a table]?",
        "[keep|set aside|prepare|lay] a table for {n}[,|] {on}[,|] {time}[, please|]",
        "{n} of us [will |want to |would like to |]eat [with you |at your place |here together |]{on} at {time}",
        "{babble} {n} {babble} [table|eat] {babble} {on} {babble} {time}",
        "{time} {on}, table for {n}[, please|]", "[a|one] table, {n} [people|persons], {on} [at |]{time}",
        "[i hope|i wonder if|please tell me] [you have|there is] a table for {n} {on} at {time}",
    ],
    "cinema": [
        "[is|are] there [still |][tickets|{n} tickets] for {title} {on} at {time}[, we are {n}| for {n}|"
        ", {n} tickets]?",
        "[we'd like|i'd like|we plan|let us go] to [see|catch] {title} {on} at {time}[, {n} of us|, {n} tickets|, "
        "{n} people]",
        "[give me|book|reserve|i'll take|let me have|print] {n} tickets [to see|for|in] {title} [at "
        "{time} {on}|{on} at {time}|{on}, {time}]",
        "{on} at {time} [we want|i want|we need|let's book|there should be] {n} tickets for {title}",
        "{title} {on} at {time} [for|with] {n}[ people| persons|][, please|]",
        "{title} at {time} {on}, {n} tickets[, please|]",
        "[my sister|my son|our class|the kids|a friend] [wants|want|asked for|needs] {n} tickets for "
        "{title} {on} at {time}",
        "[for|about] {title}: {n} tickets, {on}, {time}", "{n} for {title}, {on} at {time}[, please|]",
        "[are we lucky|is it sold out|any luck]? {n} tickets, {title}, {on} at {time}",
        "[at {time} {on}|{on} at {time}] {n} [of us|people|friends] [go to|come to|will see|are going to see] "
        "{title}",
        "{title}[,|:| -] {n} tickets[,|] [{day}|{on}][,|] [at |]{time}",
        "[does|is] {title} [still |][run|running|on|shown] {on} at {time}? [we are {n}|{n} tickets|i need {n}]",
        "{n} tickets for {title} [for|,] {day}[,| at] {time}",
        "{day}, {time}, {title}[,|:] {n} tickets",
        "{title}[,|.|;] {n} [tickets|of us][,|.|;] [on |]{day}[,|.|;] [at |]{time}[, please|]",
        "[i|we|all of us|my class] [plan to|hope to|are going to|must|long to] [see|watch|catch] {title} {on} at {time}"
        "[,|:] {n} [tickets|of us]",
        "[the kids|we|my friends] [chose|picked|voted for|talk only about] {title}[,|:|, so] {n} tickets {on} "
        "at {time}",
        "[i'd love to see|let's see|show us] {title} {on} at {time}[, we are {n}|, {n} of us| with {n} people]",
    ],
    "train": [
        "[we go|we're off|i'm going|we need to go|i go] to {title} {on} at {time}[, {n} tickets|, {n} people| with "
        "{n} people|, there are {n} of us]",
        "[give me|sell me|print|i need|i'll buy|could i buy] {n} tickets to {title} [at {time} {on}|"
        "{on} at {time}|for {on} at {time}]",
        "[is there|do you have] a train to {title} {on} at {time}? [we are {n}|{n} tickets|i need {n}]",
        "{on} at {time} [i must|we must|we want to|we'd like to] [get to|reach|ride to|leave for] {title}[, {n} "
        "tickets|, {n} of us|, {n} in all]",
        "{n} tickets [for|on] the [{time} train|train at {time}] to {title} {on}",
        "to {title}, {n} [tickets|people], {on} at {time}",
        "{title}: {n} tickets [for {on} at {time}|at {time} {on}]",
        "[my|our] [trip|train|ride|journey] [goes|is] to {title} {on} at {time}[, {n} tickets|, {n} of us]",
        "[the destination is|our goal is] {title}, {on} at {time}, {n} tickets",
        "[i must reach|we need to get to|they expect me in|my aunt lives in|our hotel is in|there is a wedding in|"
        "we are due in] {title}[:|,|.| so|, so] {n} tickets [for|on] {day}[,| at] {time}[, please|]",
        "[i|we|the kids|my sister and i] [should|must|need to|want to|ought to|had better] be in {title}[:|,|.|"
        " -] {n} tickets[ please|] [for|on] {day}[,| at] {time}",
        "[i am|we are|she is] [needed|expected|wanted|at home|invited|awaited|moving] in {title}[:|,|.] {n} tickets"
        "[,| for] {day}[,| at] {time}",
        "{n} tickets for {day}[,| at] {time}, to {title}", "{day}, {time}, {n} tickets, to {title}",
        "{title}, {n} tickets for {day}, {time}", "[on|for] {day}, {time}: {n} to {title}",
        "[a train|the train] to {title} for {n}[ people|], {day}, {time}",
    ],
    "tours": [
        "[we'd like|i'd like] to [join|take|do] the {title} tour {on} at {time}[, {n} people|, we are {n}|, {n} of "
        "us]",
        "{n} [people|places|seats|spots] [on|for] the {title} tour {on} at {time}[, please|]",
        "[is there|any] room [on|in] the {title} tour {on} at {time} for {n}?",
    ],
    "bikes": ["{n} bikes {on} at {time}[, please|]",
    "[we need|we want|can we have|are there] {n} bikes {on} at {time}[?|, please|]",
              "{on} at {time} we [need|will pick up|want to ride] {n} bikes"],
    "museum": ["[we visit the museum|we come to the exhibition|a visit to the museum] {on}, {n} tickets",
               "{n} museum tickets {on}[, please|]"],
    "pool": ["{n} [swim|pool] tickets {on}[, please|]", "[we swim|we come to swim] {on}[, so|:] {n} tickets"],
    "hotel": ["[a|one] room {on} for {n} nights[, please|]",
    "[we arrive|i arrive|we come|starting] {on} [for|and stay] {n} nights"],
}  # fmt: skip
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
CHANGE += [
    "[that's|it's|you have it] [not right|all wrong|nearly right][,|:] {new}[, please|]", "[rather|better|maybe] {new}",
    "[oh|ah|hm|well][,|] [let's make it|let it be|we need|i need|take|say] {new}[, please|]",
    "[could|would] it [also |]be {new}[, please|]?", "[i got it wrong|my error|i mixed that up][,|:] {new}",
    "[we talked again|my wife says|the others say|they tell me][,|:] {new}", "[forget|scratch] {old}, {new}",
    "{new} [would suit us better|is better|it is|then|after all|, sorry]", "[and|but] make it {new}",
    "[move|switch|turn|correct] it to {new}[, please|]", "no no, {new}", "[i see you noted|not] {old}[, but|:] {new}",
]  # fmt: skip
#: what was repeated is not right, without saying what
NO = [
    "[no|nope|nah]", "[no,|] that's [wrong|not right|not it|not correct]", "[not quite|not really|wrong]",
    "[there is|i see] [a mistake|an error|something wrong]", "no[,|] [i want to change|please change] something",
    "[that is|it's] not what i [said|meant|want]", "[almost|nearly], but no", "[you|we] got that wrong",
]  # fmt: skip

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
ASK_COUNT = {
    kind: _HEADS if kind in ("table", "tours", "boats") else [each.replace("{noun}", noun) for each in _PIECES]
    for kind, noun in [*TERSE.items(), ("boats", "people")]
}
