"""Wishes that sound like an order and are none: write a poem, name three kings, give me a recipe for lemon tart.

Almost all are imperatives.  What tells them from an order is not how they begin ("give me", "bring me", "I need") but
what is wanted, so a wish is put together from a way to ask and a thing that no counter holds.
"""

from __future__ import annotations

_MANY = "two|three|four|five|six|seven|ten|a dozen|some|all|a few|several|the most famous|the longest|the first|{n}"
#: what a quiz asks for
_KINDS = (
    "rivers|mountains|lakes|islands|oceans|deserts|capitals|kings|queens|poets|inventors|planets|moons|constellations|"
    "metals|prime numbers|trees|breeds of dog|composers|operas|bridges|languages|flags|saints|gods|dances|wars|"
    "treaties|emperors|volcanoes|mammals|insects|reptiles|dinosaurs|actors|painters|philosophers|novels|cities|"
    "countries|states|sports|chess openings|board games|car brands|inventions|astronauts|muscles|bones|vitamins|gases|"
    "{word}s|kinds of {word}|words for {word}|synonyms of {word}|rhymes for {word}|facts about {name}|"
    "facts about {word}s|reasons to {verb}|ways to {verb}|uses of a {word}"
)
_TEXTS = (
    "poem|sonnet|haiku|verse|ballad|ode|nursery rhyme|wedding speech|toast|birthday card|cover letter|complaint|essay|"
    "article|report|blog post|headline|slogan|diary entry|chorus|short story|fable|fairy tale|scene|dialogue|novel|"
    "chapter|summary|invitation|thank-you note|love letter|postcard text|lullaby|song|riddle|tongue twister|plot|"
    "legend|review|prayer|resume|eulogy|tweet|email|text message|motto|rap|crossword|quiz|sermon|monologue"
)
_ABOUT = (
    "[about|on|for] [a {like} {word}|the {word}|my {word}|{name}|{word} and {word}|two {word}s|love|winter|my mother|"
    "a {word} that wants to {verb}|the end of the world|my boss|the moon]"
)
_LANGUAGES = (
    "French|German|Spanish|Polish|Italian|Latin|Dutch|Greek|Turkish|Swedish|Danish|Hungarian|Arabic|Chinese|Japanese|"
    "Korean|Russian|Hindi|Welsh|Irish|Swahili|Portuguese|Esperanto|Morse code|sign language|my language"
)
_PHRASES = (
    "good morning|thank you|i love you|how are you|see you tomorrow|where is the station|happy birthday|my {word}|"
    "the {like} {word}|a {word} and a {word}|{word}|this sentence|this text|this word|the menu|my letter|"
    "i want to {verb}|we {verb} tomorrow|please {verb}"
)
_UNITS = (
    "inches|feet|yards|gallons|pints|quarts|ounces|pounds|stones|acres|degrees|hours|days|weeks|years|knots|liters|"
    "grams|kilos|meters|centimeters|hectares|euros|dollars|yen|crowns|cups|teaspoons|watts|horsepower|bytes"
)
#: what belongs to a thing but is not sold with it
_OF_GOODS = (
    "recipe|recipes|cooking time|calories|nutrition facts|history|origin|inventor|picture|photo|drawing|video|"
    "step by step guide|instructions|chemical formula|secret|correct spelling|shopping list|video recipe|best brand"
)
_GIVE = (
    "[give|send|show|find|get|hand|fetch|bring] me|[i need|i want|i'd like|we need|we'd like]|[can|could|may] i "
    "[have|get|see]|[do you have|have you got]|[let me|let us] [have|see|hear]|tell me|[write|note] down|read me"
)
_TELL = "[tell|teach|show|explain to|remind] [me|us]|[please|] [tell|teach|show] [me|us]|[i'd like|i want] to know"
_PLEASE = "[, please|, now| please||||]"

_WORLD = "Sorry, I know only this place."
_WRITING = "Sorry, I cannot help with writing."
_SUMS = "Sorry, I cannot do sums like that."
_ACTS = "Sorry, I cannot do that from here."
_ADVICE = "Sorry, I cannot give advice on that."
_GUESTS = "Sorry, I do not talk about other guests."
_FUTURE = "Sorry, I cannot tell the future."
_SOMEBODY = "[{name}|{name}|my neighbor|my wife|that man|the last guest|my boss|her friend|mrs {name}|mr {name}]"

#: reply -> patterns, as in training.grammar.off_topic; {item} is something a shop might sell
ERRANDS: dict[str, list[str]] = {
    _WORLD: [
        f"[please |][name|list|recite|enumerate|count|mention|quote] [me |us |][{_MANY}] [{_KINDS}]"
        f"[ in {{name}}| of {{name}}| from {{name}}| of the world| by heart||]{_PLEASE}",
        f"[{_GIVE}] [{_MANY}] [{_KINDS}][ of {{name}}| in {{name}}|]{_PLEASE}",
        f"[{_GIVE}] [the|a|your|some|your best] [{_OF_GOODS}] [for|of] [a |the |]{{item}}{_PLEASE}",
        f"[{_GIVE}] [the|a] [{_OF_GOODS}] [for|of] {{item}} [and|or] {{item}}{_PLEASE}",
        f"[{_TELL}] [what|when|where|why|how] [the |a |][{{like}} |]{{word}} "
        "[was|is|wrote|made|found|won|built|did|came from|ended|began|means|weighs|said]",
        f"[{_TELL}] [who|who first|what king|which people] [invented|painted|wrote|discovered|sang|founded|built|"
        "destroyed|ruled] "
        "[{name}|the {word}|the {like} {word}|the telephone|it]",
        f"[{_TELL}] [about|something about|all about|the truth about|the story of|the meaning of|the plot of|the end "
        "of|the life of] [{name}|the {like} {word}|{word}s|{word} and {word}|the war|the film {name}]",
        "[explain|describe|define|summarize|analyze|discuss|compare] [to me |to us |][what a {word} is|the {like} "
        "{word}|{name}|{word} and {word}|why {word}s {verb}|how {word}s {verb}|the {word} theory|the rules of {word}]"
        "[ to a child| in simple words| in two sentences| briefly|]" + _PLEASE,
        "[plan|organize|arrange|map out|design|prepare] [me |us |for me |][a|my|our|the] [{m}-day |{like} |two-week |]"
        "[trip|diet|workout|wedding|holiday|tour|career|budget|garden|house|party|route|journey] [to {name}|round "
        "{name}|"
        "through {name}|day by day|for my {word}|with {n} {word}s|]" + _PLEASE,
        f"[{_TELL}] how [you would|you'd|one would|my mother would|they] [cook|bake|make|roast|grill|serve|fry] [a |"
        f"an |the "
        "|][{item}|{word} soup|{like} {word}|{item} and {item}][ at home| step by step| in {name}|]",
        "how [do|can|should] i [cook|bake|make|prepare|roast|freeze|store] [a |an |the |]{item}[ at home| for {n} "
        "people|]?",
        "[recommend|suggest|pick|propose|find|choose] [me |us |][a|a|some|one|the best] [{like} |][novel|book|film|"
        "series|album|hotel|beach|school|hobby|name for my {word}|museum in {name}|restaurant in {name}|bank|gym|"
        "present|wine bar|career][ for {name}| for my {word}| in {name}| to read| to watch|]" + _PLEASE,
        "[guess|find out|look up|check|google|search|figure out] [who|what|where|when|how old|how tall] "
        "[{name} is|the {word} is|i am|we are|she lives|the {like} {word} was]",
        "[is there|where is|how far is|do you know] [a|the nearest|another|a good|the next] [bank|dentist|hospital|"
        "gym|beach|"
        "school|petrol station|church|embassy|supermarket|airport|police station|{word} museum|park|town hall] [near "
        "here|"
        "around here|in this street|in town|from here|nearby|in {name}]?",
        "how [do|can|would] [i|we] get to [the [station|airport|beach|harbor|old town|bank|hospital|{word} museum]|"
        "{name}]"
        "[ from here| on foot| by bus|]?",
        "what [rhymes with|is the opposite of|is another word for|is the plural of|does one call] [a |][{word}|{like}|"
        "{verb}]?",
        "[who|what] is [better|{like}er|stronger|smarter|more famous|worth more], [a {word} or a {word}|{name} or "
        "{name}|"
        "the {word} or the {word}]?",
        "do you [believe in|care about|know about|understand|follow|dream of|think about] [{word}s|{name}|{word}|magic|"
        "love|aliens|the stock market]?",
        "what [is|was|are] [your|the] [favorite {word}|opinion on {name}|opinion on {word}s|best {word} ever|dream|"
        "take on {word}|secret]?",
        "[if|suppose|say] [a {word} {verb}s|i {verb} {n} {word}s|two {word}s {verb}], [what happens|how many are left|"
        "how "
        "long does it take|who wins]?",
        "[what|which] [day|date|year|month|century] [is|was|comes after] [it|{name}|my birthday|the war|easter]?",
        "[ask me|give me|make|let's have] a [quiz|trivia|history|{word}] question",
        "[who|what|which|whose] [{word}|person|king|team|side|one] [would|will|did|could|might] [win|lose|come first|"
        "be faster|survive|rule][, a {word} or a {word}| in {name}| in the end|]?",
    ],
    _WRITING: [
        f"[please |][write|compose|draft|make up|invent|type|pen|come up with|create|improvise|dictate|recite|produce|"
        f"think of|start|finish|continue|edit] [me |us |for me |][a|a|one|some|my|the|another] [{{like}} |][{_TEXTS}]"
        f"[ {_ABOUT}| {_ABOUT}| {_ABOUT}|]{_PLEASE}",
        f"[{_GIVE}] [a|a|one|another|the] [{{like}} |short |long |funny |][{_TEXTS}] {_ABOUT}{_PLEASE}",
        f"[can|could|would|will] you [please |][write|compose|draft|make up|proofread|correct|check|shorten|rewrite|"
        f"finish] [me |][a|my|this|our] [{{like}} |][{_TEXTS}][ {_ABOUT}|]?",
        f"[please |][translate|interpret|render|put|turn|transcribe] [{_PHRASES}] [into|to|in] [{_LANGUAGES}]{_PLEASE}",
        f"[say|pronounce|spell out|read|sing|repeat] [{_PHRASES}] in [{_LANGUAGES}]{_PLEASE}",
        f"[what is|what's|how do you say|how would you say|how do i write] [{_PHRASES}] in [{_LANGUAGES}]?",
        f"[{_GIVE}] the [{_LANGUAGES}] [word|words|name|expression] for [{{word}}|{{item}}|{_PHRASES}]{_PLEASE}",
        "[proofread|correct|improve|shorten|rewrite|grade|summarize|format|polish] [my|this|our|the] [thesis|essay|"
        "{word} essay|homework|letter|paper|text|cv|speech|{word} report|novel]" + _PLEASE,
    ],
    _SUMS: [
        f"[please |][convert|recalculate|change|turn|transform|express|switch] {{n}} [{_UNITS}] [to|into|in] [{_UNITS}]"
        f"{_PLEASE}",
        f"[{_GIVE}] {{n}} [{_UNITS}] in [{_UNITS}]{_PLEASE}",
        f"how [many|much] [{_UNITS}] [are|is|make|equal] {{n}} [{_UNITS}]?",
        "[please |][add|subtract|multiply|divide|work out|compute|figure out|solve|square|double|halve] [{n}|{n} and "
        "{m}|{n} by {m}|{n} plus {m}|{n} times {m}|the root of {n}|{m} percent of {n}|x plus {m}]" + _PLEASE,
        "[{n} times {m}|{n} multiplied by {m}|{n} divided by {m}|{n} minus {m}], [what is it|what's that|how much|"
        "quick|please]?",
        "[what is|what's|how much is] {n} [multiplied by|divided by|times|minus|plus|to the power of] {m}?",
    ],
    _ACTS: [
        "[please |][book|get|find|buy|reserve|order|rent] [me|us] [a|the next|a cheap] [flight|cruise|rental car|taxi|"
        "plane|helicopter|flat|concert hall|ferry ticket] [to|in|from] {name}" + _PLEASE,
        "[please |][drive|take|fly|carry|bring|walk|escort] [me|us|my {word}] [home|to {name}|to the {word}|to the "
        "airport gate|to work|across the street]" + _PLEASE,
        "[please |][switch|turn] [on|off|up|down] the [{word}|lights|radio|fan|tv|alarm|heater|lamp in my {word}]"
        + _PLEASE,
        "[please |][dim|lower|raise|lock|unlock|open|close|start|stop|clean|repair|paint|wash|move|hide] [my|the] "
        "[{word}|{like} {word}|kitchen lights|garage door|car|computer|bedroom window]" + _PLEASE,
        "[please |][call|phone|text|email|message|write to] [{name}|my {word}|my mother|the police|a doctor|my bank]"
        "[ and say {word}| for me| at once|]" + _PLEASE,
        "[please |][play|record|download|install|print|stream|pause|skip] [{name}|some {word}|the song {name}|a film|"
        "my {word}|the {like} {word}]" + _PLEASE,
        "[please |][set|start|stop] [a timer|an alarm|a countdown|the clock] [for|to|at] {m}[ minutes| hours|]"
        + _PLEASE,
        "[remind|wake|warn] me [to {verb}|at {m}|to call {name}|about the {word}|tomorrow]" + _PLEASE,
        "[i need|i'm looking for|i want|find me|get me|we need|give me] a [loan|lawyer|plumber|taxi|job|doctor|"
        "credit|"
        "mortgage|visa|passport|driving license|girlfriend|flat|nurse|painter|babysitter|helicopter] [of {n} dollars|"
        "in "
        "{name}|by tomorrow|today|for my {word}|at once|]" + _PLEASE,
        "[can|could|would|will] you [lend|give|loan|borrow] me [{n} dollars|{n} euros|some cash|money|your {word}]"
        "[ until [tomorrow|next week|monday|payday]|]?",
        "[lend|loan|send|wire|transfer|pay|give] [me|{name}] [{n} dollars|{n} euros|some money|a loan|cash]" + _PLEASE,
    ],
    _GUESTS: [
        f"[which|what] [room|table|seat|{{word}}|book|number|name|ticket] [has|does|did|is|was] {_SOMEBODY} [taken|"
        f"have|"
        "in|at|bought|reserved|borrowed|sitting at|staying in|given][ lately| here| today| last week|]?",
        f"[what|when|where|how much|with whom] did {_SOMEBODY} [order|eat|buy|drink|sit|book|pay|borrow|stay|leave|go]"
        "[ yesterday| last night| here| with you|]?",
        f"[was|has|is] {_SOMEBODY} [here|in|been here|staying with you|a guest of yours|coming today|with somebody]"
        "[ today| yesterday| last week|]?",
        f"[{_GIVE}] the [address|phone number|room number|order|bill|booking|name|birthday] of {_SOMEBODY}" + _PLEASE,
        f"where does {_SOMEBODY} [live|work|sit|sleep|park]?",
        f"who [else |]is [{_SOMEBODY} with|in room {{m}}|at table {{m}}|on the list|staying here|next to {_SOMEBODY}]?",
    ],
    _FUTURE: [
        "[is|what is|how is|read me] my horoscope [good |bad |for |][today|tomorrow|this week|this year]?[ i'm a "
        "{word}|]",
        "[what are|tell me|give me|guess|do you know] [the|tonight's|tomorrow's|my|this week's] [lottery|winning|"
        "lucky] "
        "numbers[, please|]",
        "[will|shall|am i going to|are we going to] [i |we |my {word} ][win|{verb}|be rich|be famous|find a {word}|"
        "pass|"
        "marry|live long|be happy|have luck][ this year| tomorrow| in {n} years|]?",
        "[read|tell|predict|foresee] [my|our|his|the] [fortune|future|palm|tea leaves|cards|fate|luck|stars]" + _PLEASE,
        "what [will|is going to] happen [to me|to {name}|tomorrow|in {n} days|next year|when i {verb}]?",
        "[who|which {word}] [will|is going to] [win|rule|lose|be the next {word}|come first] [tomorrow|next year|in "
        "{n} "
        "years|on sunday]?",
        "[when|how] will [the world end|i die|i meet my {word}|my {word} come back|it be over|{name} fall]?",
    ],
    _ADVICE: [
        f"[{_TELL}] how [to|i can|i could|we should|one can] [{{verb}}|fix|install|repair|build|clean|tie|draw|grow|"
        "sell|raise|train|change] [a {word}|my {word}|the {like} {word}|a {like} {word}|my computer|it]" + _PLEASE,
        "how [do|can|should|would|could] [i|we|you|one] [fix|install|repair|change|build|clean|raise|train|remove|set "
        "up|paint|sell|unlock|replace|invest in] [a {word}|my {word}|the {like} {word}|a flat {word}|{n} {word}s]"
        "[ on my {word}| in {name}| at home|]?",
        "how [do|can|could] i [get|become|grow|stay|feel] [{like}|{like}er|taller|rich|famous|a {word}|a job|fit|"
        "younger|"
        "thin|a driving license][ fast| in a week| without {word}| at home| by {m}|]?",
        "[my|our|the] [wifi at home|password|email|internet|account|video|app|printer at work] [does not work|is gone|"
        "is "
        "slow|was stolen|is full|is locked][,|.|:] [what now|help me|how do i fix it|can you fix it]?",
        "[am i|is my {word}|are we|is he] [too {like}|{like}|pregnant|in love|good enough|being watched|right|normal]?",
        "[help|assist|advise] [me|us] [with my {word}|to {verb}|with the {word} exam|choose a {word}|with {name}|"
        "to fix the {word}|pass the {word} test|find a job]" + _PLEASE,
        "[should|shall|must] [i|we] [{verb} or {verb}|leave {name}|forgive {name}|break up with {name}|change my job|"
        "sell the {word}|get a {word}|trust {name}]?",
        "[is it|would it be] [safe|dangerous|wise|healthy|legal|allowed] to [mix|{verb}|eat|heat|carry|keep] [{word} "
        "and {word}|a {word}|{word} with {word}]?",
    ],
}  # fmt: skip
