"""Questions about opening hours, by what they ask for; all about one day get the same answer."""

from __future__ import annotations

ASK_DAY = [
    "[when|what time|at what time] [are you|is it|are you guys|is this place|is the shop] open on {day}?",
    "[what are|tell me|could you tell me|do you know|can you tell me|i need] [the|your] [opening |]hours [on|for] "
    "{day}[, please|]?",
    "[how about|what about|and on|and|and how about] {day}?",
    "[when|what time] can i [come|visit|drop by|come in|stop by] on {day}?",
    "opening [hours|times] [on|for|] {day}[, please|]?",
    "[what time|when] do you open and close on {day}?",
    "[from when to when|how long|until when] are you open on {day}?",
    "{day} [opening hours|opening times|hours]?",
    "i [want to|would like to|plan to|might] come on {day}, when are you open?",
    "[is anyone|is somebody|will someone be] here on {day}, and when?",
    "[please|] tell me when you are open on {day}.",
    "[what|which] hours [do you have|do you keep|are you open] on {day}?",
]
ASK_DAY += [
    "[normal|regular|the usual] hours on {day}?", "{day} hours [pls|thx|plz]", "what are {day}'s [opening |]hours?",
    "{day} would suit us. when are you there?",
    "my [cousin|uncle|sister|friend] arrives {day}. which hours do you have?",
    "when can [the kids|we|guests|people] come on {day}?", "we'd be there on {day}. what hours?",
    "when could we [come|start|go in|visit] on {day}?",
    "[from|between] when [to|and|till|until] when [on |]{day}?",
    "[on |]{day}[,|:] from [when|what time|what hour] [to|till|until] [when|what time|what hour]?",
    "[i mean|how about|and on|then|now|on] {day}, [from when till when|from what time until what time|from when to "
    "when exactly]?",
    "[open|here|at work] from when [to|until|till] when on {day}?",
    "from when [are you there|do you work|can i come] on {day}, and until when?",
    "[i'm|we're] [coming|arriving|passing by|in town] on {day}, [when are you open|what are your hours|which hours]?",
    "[from what time to what time|between which hours|at which times] [are you open |]on {day}?",
    "how does {day} look?",
    "[tell me|give me|i need to know] the [hours|times|opening times] [on|for] {day}[, please|]",
    "{day} hours[, please|]?",
    "[opening|business|working|shop] hours [on |]{day}[?|, please]", "what are the times on {day}?", "{day}?",
    "do you know [when|how long] [this place|the shop|the counter] is open on {day}?",
    "your schedule [on|for] {day}?",
]  # fmt: skip
ASK_IF = [
    "are you [open|also open|here|open at all] on {day}?",
    "[is it|is this place|is the shop|is the store|is everything] open on {day}?",
    "do you [open|work|have open] on {day}?",
    "can i [come|visit you|drop by|stop by|come in|shop here] on {day}?",
    "[are you closed|is it closed|do you close|are you shut] on {day}?",
    "you are open on {day}, [right|aren't you|correct|yes]?",
    "[will you be|are you going to be] open on {day}?",
    "would {day} [work|be ok|be possible]?",
    "[open|anyone here|someone there] on {day}?",
    "so [are you|is it|will it be] open {day}?",
    "is {day} [any good|no good|any use|a good idea] for [a visit|a coffee|some shopping|a look|us|lunch]?",
    "will [anyone|anybody] be [serving|at work|at the counter|at your place] on {day}, i mean is it open?",
    "by any chance, [do you open|is it open] on {day}?", "{day} is my free day. [may|can] i [come|come round] then?",
    "we were thinking of {day} for [a visit|lunch|our shopping], does that work?", "do you do {day}?",
    "could i [collect|drop off|fetch|pick up] my things on {day}?", "do you open on {day} at all, and when?",
]
ASK_IF += [
    "[is {day}|would {day} be] [ok|fine|possible|a good day] for [a visit|shopping|coming by]?",
    "do you [rest|have a day off] on {day}?",
    "will i find [you|someone|anybody] here on {day}?", "[does the shop|do you guys] work on {day}?", "open {day}?",
]  # fmt: skip
ASK_OPEN = [
    "[when|what time|at what time|how early] do you open on {day}?",
    "[when|what time] does it open on {day}?",
    "[when|how early|what time] can i come in on {day} [morning|at the earliest|]?",
    "what's your opening time on {day}?",
    "[from when|since when|from what time] are you open on {day}?",
    "[when|at what time] do [the doors|you guys] open on {day}?",
    "how early [can i come|do you start|do you begin] on {day}?", "on {day}, when are the doors unlocked?",
    "[i need|we need|looking for] something on {day}, how early do you open?", "what time d'you open on {day}?",
    "i am up early. what time do you start on {day}?", "how early may i [show up|appear] [at the desk |]on {day}?",
]
ASK_OPEN += [
    "[when|what time] [do you start|does it start|do you begin|can i show up|can we show up] on {day}?",
    "[earliest time|opening time|start] on {day}?", "when is the [first|earliest] [possible |]time on {day}?",
    "how early [is somebody|are you|is anyone] [here|there] on {day}?", "from [when|what hour] on {day}?",
]  # fmt: skip
ASK_CLOSE = [
    "[when|what time|at what time|how late] do you close on {day}?",
    "[until when|how long|till when|until what time|how late] are you open on {day}?",
    "[what's|what is] your closing time on {day}?",
    "[when|what time] does it [close|shut] on {day}?",
    "[how late|how long|until when] can i [come|stay|shop|order] on {day}?",
    "when do you [shut|lock up|finish|shut down] on {day}?",
    "what is the latest i can come on {day}?",
    "[till|until|'til|til] when [exactly|then|do you go|is that] on {day}?", "what time d'you [lock|pack] up on {day}?",
    "and on {day}, when is it over?", "how long may [we|i] stay [at the table|here|inside] on {day}?",
    "we'd be late on {day}. when's the end?",
    "until [when|what time] is anyone there on {day}?", "[till|until] when [are you|is it] open {day}?",
    "i finish work late on {day}. [how late|until when] can i still come?", "when's closing on {day}?",
]
ASK_CLOSE += [
    "[when|what time] do you [end|stop|go home|call it a day] on {day}?", "[latest time|closing time|end] on {day}?",
    "when is [last order|the last call|the last entry] on {day}?", "how [late|long] can [i|we] be here on {day}?",
    "until [when|what hour] on {day}?", "how long do i have on {day}?",
]  # fmt: skip
ASK_DAY += [
    "[if|suppose|say] i come on {day}, [when is it open|which hours are there|when would that be possible|what are "
    "the times]?",
    "[my|our] [visit|trip|day off] is on {day}, [when can i come|what are the hours|when do you serve]?",
    "[i might|maybe i|perhaps i|i'd love to] [look in|pop in|come over|shop] on {day}. [when are you there|when "
    "does it work|what times are good]?",
    "[how|what] [are|is] [the|your] [opening|business|working] [hours|times|time] [on|for] {day}?",
    "on {day}, [from when to when|what times|when]?",
    "[free|available|reachable|in service] on {day}, [and when|from when to when|at what times]?",
    "{day}: [when|hours|times|from when to when]?",
    "[between what times|in which hours|at which times|when exactly] [can we shop|may i come|can i buy something|"
    "do you serve] on {day}?",
    "[talk to me about|and now|next question:|then] {day}",
    "[what's the plan|how is it|what applies|what do you have] [for|on] {day}?",
]  # fmt: skip
ASK_IF += [
    "on {day}, [is somebody there|are you open|do you work|is there service|anyone]?",
    "{day}, [open or closed|yes or no|open|closed]?",
    "[is|will] [anybody|somebody|someone] [be |][here|in|working|around] on {day}?",
    "[any service|business as usual|normal day] on {day}?",
    "[do|can] [guests|people|we] [come|get in|visit] on {day}?",
    "[is {day}|would {day} be] [a day off|a rest day|free|an open day]?",
]  # fmt: skip
ASK_OPEN += [
    "[how early|what time|when] [can we get in|does somebody arrive|is the first service|does the day begin] on "
    "{day}?",
    "[the|your] [first|earliest] [hour|time|moment] on {day}?",
    "on {day}, [when do you begin|what time do you open|how early are you there]?",
    "[from when|starting when|as of when] [can i|may i|can we] [buy|get|order] [something|things] on {day}?",
    "[opening|start] on {day} is at?",
    "[when|what time] [do the doors|does the door|does the gate] open on {day}?",
    "{day}, [the earliest|opening time|from when|when do you start]?",
    "[i get up early|early bird here], when do you [open|begin|start] on {day}?",
]  # fmt: skip
ASK_CLOSE += [
    "[how late|what time|when] [is the last order|does everybody leave|does the day end|do the lights go out] on "
    "{day}?",
    "[the|your] [last|latest] [hour|time|moment|chance] on {day}?",
    "on {day}, [when do you finish|what time do you close|how late are you there]?",
    "[up to when|up to what time|how late] [can i|may i|can we] [buy|order|come for] [something|things] on {day}?",
    "[closing|end] on {day} is at?",
    "[when|what time] [do the doors|does the door|does the gate] [close|shut] on {day}?",
    "{day}, [the latest|closing time|until when|when do you stop]?",
    "[i work late|i'm always late], [when do you close|how late is it open|until when can i come] on {day}?",
]  # fmt: skip
#: what tells that hours are meant, whatever stands around it
CUES = """
hours|opening hours|times|opening times|schedule|when open|from when to when|when are you there|from when until when|
from when till when|from what time to what time|business hours|when can i come|what times|open from to|when is service|
opening time|when do you open|earliest|start|begin|open from when|doors open when|how early|what time do you start|
first hour|in the morning from when|as of when|closing time|when do you close|latest|end|until when|how late|till when|
last hour|what time do you stop|in the evening till when|up to when|when do you leave|open or closed|anyone in|
is it open|when unlocked|when locked|door open when|free day or not
""".replace("\n", "").split("|")
#: a day, and the question beside it
FRAMES = """
{day} [early|morning|forenoon|noon|lunchtime|afternoon|late afternoon|evening|night][,|:|?|...|] {q}?
[thinking|dreaming] of {day}[,|:|.] {q}?|[it's|this is] about {day}[,|:|.] {q}?|i have time [on |]{day}[,|.|:] {q}?
[my|our|the] [plan|choice|date|appointment|day] is {day}[,|.|:] {q}?|we'd come [on |]{day}[,|:|.] {q}?
let's say {day}[,|.|:] {q}?|{day} [works|suits me|suits us|fits|is] best[,|.|:] {q}?|{q} on {day}?|{q} {day}?
{q}, on {day} i mean?|{q}[, say,|, for example,|, let's say,] on {day}?|{q} if [i|we] come [on |]{day}?
[as for|regarding|concerning|for|about] {day}[,|:] {q}?|[i|we] will be [in town|near|around] on {day}[,|.|:] {q}?
[someone|my friend|my mother|a colleague] wants to come on {day}[,|.|:] {q}?|{q} when it is {day}?
what if it's {day}[,|?|:] {q}?|[i|we] [only |]have [|the ]{day} [off|free][,|.|:] {q}?|{day} it is[,|.|:] {q}?
[can't make it before|nothing before|not until] {day}[,|.|:] {q} then?|{day} then[,|.|:] {q}?|{day} - {q}?
[i'm|we're] free [on |]{day}[,|.|:] {q}?|{q}, {day}?|{q}? {day}|{q}? on {day}[, please|]
""".strip().replace("\n", "|")
ASKED = """
when do you open|when do you close|how long are you [there|open|here|in]|when is [someone|somebody|anyone] in|
are you around|is anyone in|when can [i|we] [buy something|come by|drop by|order|get something to go]|
how early can [i|we] come|how late can [i|we] come|when does the [door|shop|place|counter] [open|close]|
what's the [first|last] hour|until what time|from what time|when is the door [unlocked|locked]|
when do the shutters go [up|down]|[is it|is this place|is the shop] [open|closed|shut]|what times do you keep|
which hours do you [have|keep|work]|when do you [begin|start|stop|end|finish]|do you work|do you open at all|
are you [open|closed|shut|off]|what's the schedule|between which hours|when is it possible|
from when [to|till|until] when [are you in|is it open|]|when will you be [in|here|open]|how soon can i come|
is there [service|a break|somebody]|when must i be there|at what time is it over|when is it too late
""".strip().replace("\n", "")
ASK_ALL = [
    "[when|what time|at what time] do you [open|close|shut]?",
    "[how late|how early|until when|from when] are you open?", "[is there|do you have] a lunch break?",
    "how early can i [turn up|come|be there]?", "till when [are you|is it] open?",
    "when do you open [again |][in the afternoon|after lunch|in the forenoon]?", "what time does it [open|close]?",
    "open when?",
    "[how far into the morning|until what time at night|till what time] are you open?",
    "when is somebody [there|here]?",
    "[what are|tell me|can you tell me|could you tell me|do you know|i'd like to know] [your|the] [opening |"
    "]hours[, please|]?",
    "when are you open[, please|]?", "[opening |]hours[, please|]?", "what are your opening times?",
    "[when|on which days|what days] are you open?", "[when|at what times] can i come?", "what hours do you keep?",
    "are you open [every day|all week|seven days a week|daily]?", "what time do you open and close?",
    "[please|] give me [your|the] opening [hours|times].", "[when|which days] are you closed?",
    "how about your [opening |]hours?", "[what|which] days are you open?", "do you have fixed [opening |]hours?",
    "can you [list|read me|show me] the [opening |]hours?",
]  # fmt: skip
ASK_WEEKEND = [
    "are you open [on|at|over] the weekend?", "what about [the weekend|weekends]?",
    "[when|what time] are you open on weekends?",
    "do you open [on|at] weekends?", "what are your weekend hours?",
    "[can i come|is it open|are you here] on the weekend?",
    "[opening |]hours [on|for] the weekend?", "and on [weekends|the weekend]?",
]  # fmt: skip
ASK_TODAY = [
    "are you [still |]open [today|now|right now|tonight|this evening|at the moment]?",
    "[when|what time] do [you|u] [shut|lock up|close up] [today|tonight]?",
    "how [long|late] are you open [today|tonight]?",
    "[until when|how late|till when] are you open [today|tonight|this evening]?", "are you open tomorrow?",
    "[when|what time] do you open [tomorrow|today]?", "what are [your|the] hours [today|tomorrow]?",
    "[may|could] i [look in|come over|drop by] [today|tomorrow|tomorrow morning|later today]?",
    "[today's|tomorrow's] hours?",
    "[how late|until when|from when] [is it|is the shop|are you] open tomorrow?", "hours [for |][today|tomorrow]?",
    "is [anyone|somebody] [there|here] tomorrow?", "what about [today|tomorrow]?", "and [today|tomorrow]?",
    "when do you [shut|close|finish] tomorrow?", "do you [open|work] [today|tomorrow]?", "closed [today|tomorrow]?",
    "i'll [come|be back] tomorrow, [when are you open|is that ok|are you there]?", "is today a day off?",
]
ASK_WEEKDAYS = [
    "[when|what time] [do you|does it|does the shop|does the office] [open up|shut|close up] on weekdays?",
    "what are [your|the] [opening |]hours [on weekdays|during the week|from monday to friday]?",
    "[are you|is it] open [on weekdays|during the week]?", "[and|what about|how about] weekdays?", "weekday hours?",
    "[how late|until when|how early|from when] are you open [on weekdays|during the week|on a weekday]?",
    "[can i|can we] come [on a weekday|during the week], and when?", "monday to friday, what hours?",
]

#: for a month or a season
ASK_MONTH = [
    "[when|what time] do you [open up|shut|close up|lock up] in {month}?", "are you open in {month}?",
    "what are your hours in {month}?",
    "we'll be in town in {month}. [from what time|until when|when] is it open?", "[opening |]hours in {month}?",
    "[we'd|i'd|we'll] [come|look in|visit|be there] in {month}. are you open?", "how late are you open in {month}?",
    "is the [shop|place|kiosk] open in {month}?", "[when|what time] can we come in {month}?",
    "when could we [come|visit|go|start] on a {day} in {month}?", "a {day} in {month} would suit us, is it open?",
    "{month}, [are you open|what hours|open or closed|from when to when]?", "do you [open|close|work] in {month}?",
    "our [trip|holiday|visit] is in {month}. [when are you open|are you there|which hours apply]?",
    "[how early|until when|from when|till when] [in|during] {month}?", "what happens in {month}, is anybody there?",
    "i come in {month}. [closed|open] then?", "on a {day} in {month}, [when are you open|what are the hours]?",
    "[are you|is it] open on [a {day}|{day}s] in {month}?", "{day}s in {month}[?|, open?|, what hours?]",
    "[can|could] we come on a {day} in {month}?",
    "[is anyone|will someone be] [there|here] in {month}?", "can [we|i] come [by |]in {month}?",
    "[tell me|i need] the hours [for|in] {month}[, please|]", "when [are you there|is it open] in {month}?",
]
#: for one of several things under a roof: lunch, the bar
ASK_SITTING = [
    "[when|what time] is {x} on {day}?", "from when till when [do you do|do you have|is] {x} on {day}?",
    "how late is [the |]{x} on {day}?", "[when|what time] does [the |]{x} [open|close|start|end] on {day}?",
    "is [the |]{x} open on {day}?", "{x} on {day}, [when|what hours|from when till when|what times]?",
    "do you have {x} on {day}?", "{x} [hours|times] on {day}?", "{x} on {day} [goes|runs] from when to when?",
    "[can we|can i|could we] [come for|go to|use|visit] [the |]{x} on {day}, and when?", "on {day}, when's {x}?",
    "what are the hours of [the |]{x} on {day}?", "until when is [there |the |]{x} on {day}?",
    "[we'd like|i want|we want] {x} on {day}. [when is that|when|until when|from what time]?",
]
ASK_SITTINGS = [
    "when is [the |]{x}[ open|]?", "what are the [opening |]hours of [the |]{x}?", "[the |]{x}, [when|what hours]?",
    "from when to when is [the |]{x}?", "until when is [the |]{x}?", "{x} [hours|times]?", "when's [the |]{x} open?",
    "how late is [the |]{x} open?", "[when|what time] does [the |]{x} [open|start|close]?", "at what time is {x}?",
]
#: for a single time of day
ASK_LAST = [
    "[when|what time] is [the |]{x}?", "what time have you got for [the |]{x}?",
    "{x}, [when|what time|at what time] is that?",
    "when's [the |]{x}?", "[the |]{x}[?| please| is at what time?]", "[tell me|i need] the time of [the |]{x}.",
    "[do you know|can you tell me|could you say] when [the |]{x} is?", "at what time is [the |]{x}?",
    "when do we have to be there for [the |]{x}?", "have we missed [the |]{x}? when is it?", "time of [the |]{x}?",
]

#: for a holiday
ASK_ON = [
    "[are you|is it|will you be|is the shop] [open|closed|there] on {day}[ too| as well|]?", "{day}?", "and on {day}?",
    "[what|how] about {day}?", "{day}, [open or not|are you closed then|what are the hours]?",
    "what happens on {day}?", "[opening |]hours on {day}[, please|]?",
]  # fmt: skip

ASK_HOLIDAY = [
    "what hours do you keep when it's a {day}?", "what if it's a {day}?", "are you open on a {day}?",
    "when do you [open|close] on a {day}?", "we come on a {day}. [are you there|what are the hours|when are you open]?",
    "[and|what about] a {day}?", "a {day}, are you closed then?", "hours on a {day}?", "tomorrow is a {day}. open?",
]

ASK_AT = [
    "is it [still |]possible to come {day} [evening|afternoon|morning] at {time}?",
    "are we too late at {time} on {day}?",
    "my shift ends at {time} on {day}. will you still be there?", "still open at {time} on a {day}?",
    "on {day}, {time}, is [it|the place|the desk] open then?",
    "would {day}, {time} be [alright|all right|too late|before you open]?",

    "[are you|is it|will you be|is the place] open [on |]{day} [morning|evening|night|noon][,| at] {time}?",
    "on {day} at {time}, [are you there|is it open|can i come|is anybody in]?",
    "is {time} [ok|fine|possible|within your hours] on {day}?", "{day}, {time}, [open|ok|possible|too late|too early]?",
    "[could|would] i [still |]get something at {time} on {day}?", "if i [come|arrive] {day} at {time}, are you open?",
    "are you [still |already |]open at {time} on {day}?", "can i [come|visit|drop by] [on |]{day} at {time}?",
    "[is it|is the shop|is this place|will you be] open [on |]{day} at {time}?",
    "i want to come on {day} at {time}, [ok|possible]?",
    "would {time} on {day} [be ok|work|be too late|be too early]?", "is anyone [here|there] at {time} on {day}?",
    "do you [open|close] at {time} on {day}?", "you close at {time} on {day}, right?",
    "is {day} at {time} too [late|early]?",
]  # fmt: skip
