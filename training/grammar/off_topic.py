"""Questions that have no place at a kiosk, and what is said to them."""

from __future__ import annotations

import re
from random import Random

from training.grammar import shop, values, words
from training.grammar.errands import ERRANDS
from training.grammar.text import Voice, expand, plural

Turns = list[tuple[str, str]]

#: questions that have no place here, by topic; {name}, {word}, {n} are drawn
OFF_TOPIC: dict[str, list[str]] = {
    "I cannot see the weather from here.": [
        "[what's|how is|how's] the weather [today|tomorrow|in {name}|like|outside|this weekend|]?",
        "will it [rain|snow|be sunny|be hot|be cold|freeze] [today|tomorrow|tonight|on the weekend|later]?",
        "do i need an umbrella[ today| tomorrow|]?",
        "what's the [temperature|forecast][ outside| for tomorrow| in {name}|]?",
        "is it [cold|warm|hot|raining|snowing] [outside|in {name}]?", "weather forecast for {name}"],
    "Sorry, I do not follow sports.": [
        "who won the [game|match|race|cup|final|championship|tournament][ last night| yesterday| on sunday|]?",
        "did {name} win [yesterday|last night|the game|the race]?",
        "[what's|what was] the score[ of the game| in the match|]?",
        "who is the best [football|tennis|soccer|basketball|hockey] [player|team]?",
        "when is the next [football|soccer|baseball|tennis|rugby] [game|match]?",
        "do you like [football|soccer|basketball|hockey|tennis|golf]?",
        "what's your favorite [team|club|sport]?", "who plays for {name}?", "how many goals did {name} score?",
        "tell me about the [world cup|olympics|super bowl]"],
    "Sorry, I do not talk about politics.": [
        "who [is|was] the [president|prime minister|king|queen|chancellor|mayor|governor] of {name}?",
        "who should i vote for?",
        "what do you think [about|of] the [government|president|election|war|taxes|new law]?",
        "who won the election[ in {name}|]?", "is {name} a good [president|politician|leader]?",
        "which party is [best|right]?", "do you like the [president|government|prime minister]?",
        "what is your political opinion?"],
    "I am not a doctor. Please ask a doctor or a pharmacist.": [
        "i have [a headache|a fever|a cough|pain in my {word}|a rash], what should i [do|take]?",
        "what [medicine|pill|drug] [is good|should i take] for [a cold|fever|pain|my back|my stomach|a headache]?",
        "how much [aspirin|ibuprofen|medicine] can i take?",
        "my [head|back|tooth|knee|stomach|throat|ear] hurts[, what can i do|, help|]", "am i [sick|ill]?",
        "is it dangerous to [take|mix] {name} and {word}?", "can you give me medical advice?",
        "do i have [the flu|covid|a cold]?"],
    "Sorry, I do not know the news.": [
        "what's [new|in the news|happening in the world|going on in {name}]?",
        "[any|tell me the|what's the latest] news[ today| from {name}|]?",
        "what happened [today|yesterday|in {name}|last night]?", "have you heard [about {name}|the news]?",
        "did you read [the paper|the news] today?"],
    "Sorry, I cannot do sums like that.": [
        "what is {n} [times|plus|minus|divided by] {m}?", "[how much|what] is {n} [+|-|*|/|x] {m}?",
        "calculate {n} [times|plus|minus] {m}", "what's the square root of {n}?", "solve x plus {n} equals {m}",
        "what is {n} percent of {m}?", "can you do math?", "how many [minutes|seconds] are in {n} days?"],
    "Sorry, I cannot help with writing.": [
        "write [me |]a [poem|story|letter|song|essay|email|speech][ about [{word}|{name}|love|the sea]|]",
        "[can|could] you write [a|my] [poem|essay|letter|story|cv|homework][ for me|]?",
        "translate [this|{word}|a text] into [french|german|spanish|{name}]",
        "tell me a story[ about {word}|]", "summarize [this book|the book {name}|a text]", "fix my grammar",
        "help me with my [homework|essay|letter]", "how do you spell [necessary|rhythm|definitely]?",
        "write [code|a program|a script] [in python|for me|that prints {word}]", "compose a song"],
    "Sorry, I know only this place.": [
        "what is the capital of {name}?",
        "who [wrote|painted|invented|discovered|built] [{word}|{name}|the telephone|the piano]?",
        "how [far|big|old|high|deep|fast] is [the moon|the sun|{name}|an elephant|the sea|the earth]?",
        "when did [the war|{name}] [end|begin|start|die]?", "what is the meaning of [life|{word}]?",
        "why is the [sky|sea|grass] [blue|green]?", "who is {name}?", "who was {name}?",
        "tell me [about|something about|everything about] {name}", "where is {name}?",
        "how many people live in {name}?", "what language do they speak in {name}?", "what does {word} mean?",
        "how do [planes|magnets|computers|vaccines|rainbows] work?", "is there life on mars?",
        "explain [gravity|quantum physics|evolution|inflation|{word}]",
        "how long does it take to [fly|drive|walk] to {name}?",
        "what is the [tallest|biggest|longest|oldest|deepest] [mountain|river|country|building|animal|lake]?",
        "do aliens exist?", "is god real?", "what year is it?", "what time is it[ now| in {name}|]?",
        "what came first, the chicken or the egg?", "how do i get to {name}?",
        "what is the best [car|phone|computer|movie|book|song|city]?", "who is the richest man?",
        "how many [planets|stars|countries|continents|bones] are there?",
        "do you know [{name}|anything about {word}|a good dentist|a good school]?",
        "where can i buy [a car|a house|a dog|{word}|shoes|a phone]?",
        "can you find me [a flat|a job|a girlfriend|a taxi|a good hotel in {name}]?"],
    "Sorry, I cannot do that from here.": [
        "[call|phone|text|email] [my mother|{name}|my wife|the police|a taxi|my boss]",
        "[turn|switch] [on|off] the [light|lights|radio|tv|heating|music]", "set [an alarm|a timer] for {n} minutes",
        "play [music|the song {name}|the radio|a game]", "order me a taxi[ to {name}|]",
        "open [the door|the window|google|youtube]", "send [an email|a message] to {name}",
        "search the [web|internet] for {word}", "remind me to [call {name}|buy {word}]",
        "show me [a video|pictures of {name}|the map]", "book me a flight to {name}",
        "lend me [some money|a dollar|ten dollars]",
        "can you [drive|fly|swim|cook dinner|clean my house|walk my dog]?"],
    "Sorry, I cannot give advice on that.": [
        "should i [buy|sell] [stocks|gold|bitcoin|a house|shares of {name}]?",
        "how can i [get rich|lose weight|make money|sleep better|find love|learn {word}]?",
        "how do i [fix|repair|clean|build|paint] [my car|a roof|my computer|a {word}|the sink]?",
        "is it [legal|illegal] to [{word}|park here at night|record people]?",
        "how do i [break up with {name}|tell my boss|quit my job|ask her out]?",
        "what should i [wear|cook tonight|study|do with my life|watch tonight|give {name} for christmas]?",
        "what do you think about [{name}|love|my hair|religion|money|{word}]?",
        "can you give me [legal|tax|financial|dating|fashion] advice?", "how do i [divorce|invest|write a will]?",
        "is {name} [a good idea|better than {word}|worth it]?",
        "which [laptop|car|phone|school] should i [buy|choose]?"],
}  # fmt: skip
MORE_OFF_TOPIC: dict[str, list[str]] = {
    "Sorry, I do not follow sports.": [
        "[which|what] [club|country|athlete|swimmer|runner] [won|lost|leads|is best][ this year| in {name}| in {n}|"
        "]?",
        "[how did|how does] the [{word} team|{name} match|derby|marathon] [end|go|look]?",
        "[goals|points|medals] of {name}?",
        "who [scored|holds the record|won gold] in the [{word} race|final|{name} games]?"],
    "Sorry, I do not talk about politics.": [
        "[is|was] the [minister|senator|government|king] of {name} [any good|right|corrupt|popular]?",
        "[what|who] [runs|rules|governs] {name}?",
        "[are you|should i be] [left or right|a democrat|a republican|for the government]?",
        "[explain|what about|your view on] the [new law|elections|parliament|taxes] in {name}"],
    "I am not a doctor. Please ask a doctor or a pharmacist.": [
        "my [arm|leg|foot|eye|skin|nose|finger|neck|wrist|hip|chest] is [red|broken|burning|itchy|sore|bleeding|"
        "blue], what [helps|now|should i do]?",
        "which [ointment|drops|tablets|tea|syrup] [helps|works|is good] [for|against] [fever|sore throat|itching|"
        "burns|{word}]?",
        "i [feel|am] [dizzy|sick|weak|faint], [what now|is that bad|help me]",
        "[how many|which] [pills|drops|tablets] [a day|for children|are safe]?",
        "[my|his|her|our baby's] [ankle|elbow|toe|lip|shoulder|ear|thumb|belly|hand] [is|feels|looks] [numb|hot|stiff|"
        "infected|worse|thick|green|{like}], [which [balm|pill|gel|bandage|oil|powder|drug] [is good|should i take|"
        "works]|what can help|is that serious|who can help|can you look at it]?"],
    "Sorry, I cannot do sums like that.": [
        "[add|subtract|multiply|divide] {n} [and|by] {m}", "{n} [plus|times|minus|divided by|+|x] {m}[?|]",
        "[how much|how many] are {n} {word}s in {m} {word}s?",
        "[turn|change|convert|switch] {n} [pounds|feet|inches|gallons|degrees|ounces] [into|to] [grams|meters|"
        "liters|celsius|{word}s]",
        "[what|how much] is [half|a third|a quarter|the root] of {n}?",
        "how many [feet|grams|cents|inches] [make|are in|is] {n} [miles|pounds|meters]?"],
    "Sorry, I cannot help with writing.": [
        "[compose|invent|draft|create|make up|type] [a|some] [verse|rhyme|ballad|haiku|tale|novel|slogan|speech|"
        "letter][ about [a |the |]{word}| for {name}|]",
        "[correct|check|edit|rewrite|read over|shorten] my [report|article|application|text|homework|paper]",
        "[how do you say|what is] {word} in [spanish|polish|chinese|latin|{name}]?",
        "[say|put|turn] {word} [in|into] [german|italian|latin|greek]",
        "a [rhyme|poem|story] [about|on] {word}[, please|]",
        "[write|make|invent|compose|sing|read] [me |us |][a|some|one] [{like} |]{word} [about|on] [a|my|the] {word}",
        "[one|some|a few] [lines|verses|words|rhymes] [about|on|for] [a|my|the] {word}[, please|]",
        "[give|tell|make] me a [story|rhyme|fairy tale|poem|riddle]"],
    "Sorry, I know only this place.": [
        "[which|what] [{word}|{word} and {word}|city|country|animal|river|metal|bird] [is|has|was] the [most|best|"
        "biggest|{like}est|smallest|oldest] [{word}|of all|in {name}|]?",
        "[name|list|count|tell me] [two|three|four|five|some|all] [{word}s|cities|animals|kings|lakes|islands|"
        "painters|birds][ in {name}| of {name}|]",
        "[give|tell|find|show] me [a|the|some] [recipe|way|history|definition|rules|meaning|price] [of|for] "
        "[{word}|{word} soup|{name}|chess]",
        "how [many|much] [{word}s|people|water|energy] [does|do|did] [a {word}|the {word}|{name}|we] [have|need|"
        "use|weigh]?",
        "why [do|did|does|are|is] [the |]{word}[s|] [{verb}|so {like}|{like}|exist|fall]?",
        "how do [{word}s|people|birds|machines] {verb}?",
        "what [happens|happened] [if|when] [a|the] {word} [{verb}s|meets a {word}|breaks]?",
        "who [made|found|owns|sang|composed|directed|first built] [the |]{word}?",
        "when [was|were|did] [the |]{word}[s|] [invented|built|found|born|start]?",
        "is [a|the] {word} [{like}|{like}er than a {word}|a {word}|safe|dangerous]?",
        "how [{like}|long|heavy|tall|high|fast|old|hot] is [a|the] {word}[ exactly| really| in {name}|]?",
        "[what|which] is {like}er, [a|the] {word} or [a|the] {word}?",
        "tell me [how|why|when|where|what] [{word}s|people|stars] [{verb}|come from|are]",
        "[describe|define|explain] [a|the] {word}[ to me| in one word|]",
        "can [a|the] {word} {verb}?", "do [{word}s|cats|people] {verb}?",
        "where [do|did] [the |]{word}s [come from|live|grow|go]?",
        "[suggest|recommend|pick] [a|some] [{like} |][film|book|song|game|hobby|pet|restaurant in {name}]",
        "[whose|what] {word} is [this|that|{like}]?",
        "what [color|size|shape|sound] [is|has] [a|the] {word}?", "[guess|think of] [a|my] [number|{word}|card|age]",
        "how does [a|the] {word} [work|{verb}|feel|smell]?"],
    "Sorry, I cannot do that from here.": [
        "[drive|take|bring|fly|carry] [me|us|my {word}] [to {name}|home|to the {word}|away]",
        "[dim|lower|raise|close|clean|fix] the [lights|blinds|volume|curtains|{word}]",
        "[download|install|print|copy|delete] [the|my|a] [file|photo|app|{word}]",
        "[find|get|rent|buy] me [a|the] [car|flat|flight to {name}|taxi|train to {name} in {word}]",
        "[water|feed|wash|paint|repair|hide] my {word}[, please|]",
        "[wake|remind|follow|watch|film] me [at {m}|later|tomorrow|now]",
        "[unlock|hack|track|find] [the|my|his|her] [phone|car|password|{word}]",
        "can you [lend|send|give|borrow] me [your|a|some] [{word}|cash|car|money]?"],
    "Sorry, I cannot give advice on that.": [
        "[how|where] [do|can|should] [i|we|you] [{verb}|invest|marry|save|learn to {verb}|grow] [a {word}|my "
        "{word}|{n} dollars|money|]?",
        "should [i|we|my {word}] [{verb}|leave {name}|quit|move to {name}|marry {name}|sell the {word}]?",
        "[is it|would it be] [wise|safe|{like}|healthy|smart] to [{verb}|{verb} [a|the] {word}|live in {name}]?",
        "[help me|teach me to|how to] {verb}[ a {word}| better| like {name}|]",
        "which [{word}|bank|stock|insurance|phone] is [{like}|worth it|the safest]?"],
}  # fmt: skip
for _reply, _patterns in MORE_OFF_TOPIC.items():
    OFF_TOPIC[_reply] += _patterns
COUNTRIES = """
France Spain Peru Japan Canada Norway Kenya Brazil India Italy Egypt Greece Chile Poland Turkey Mexico China
Ireland Iceland Portugal Sweden Finland Denmark Cuba Nepal Ghana Vietnam Thailand Mongolia Paris London Berlin Rome
Tokyo Madrid Vienna Boston Chicago Lisbon Dublin Oslo Cairo Sydney Moscow Prague""".split()
WORDS = """
love money time water fire music gravity history chess gold rice sugar bread paper plastic steel poetry yoga
philosophy algebra photosynthesis democracy electricity whales spiders volcanoes dinosaurs football opera jazz ballet
gardening astronomy blood bones dreams luck honesty courage patience justice freedom tulips penguins
elephants""".split()


def turns(rng: Random, voice: Voice, split: str) -> Turns:
    """A question for somebody else, or a wish that is no order: refused."""
    if rng.random() < 0.45:
        return [errand(rng, voice, split)]
    reply = rng.choice(list(OFF_TOPIC))
    if rng.random() < 0.3:
        reply = "Sorry, I know only this place."
    return [(_filled(rng, voice, split, rng.choice(OFF_TOPIC[reply])), reply)]


def errand(rng: Random, voice: Voice, split: str, item: str = "") -> tuple[str, str]:
    """A wish that sounds like an order; with ``item`` one that speaks of that thing."""
    if item:
        reply, patterns = rng.choice(_OF_GOODS)
    else:
        reply = rng.choices(list(ERRANDS), (36, 22, 9, 13, 6, 5, 9))[0]
        patterns = ERRANDS[reply]
    return _filled(rng, voice, split, rng.choice(patterns), item), reply


_OF_GOODS = [(reply, found) for reply, patterns in ERRANDS.items()
             if (found := [each for each in patterns if "{item}" in each])]  # fmt: skip


def _filled(rng: Random, voice: Voice, split: str, pattern: str, item: str = "") -> str:
    """One reading of a pattern with names, words, goods and numbers drawn."""
    name = rng.choice(COUNTRIES) if rng.random() < 0.5 else values.full_name(rng, split)
    text = expand(rng, pattern)
    while item and "{item}" in pattern and "{item}" not in text:
        text = expand(rng, pattern)
    while "{word}" in text:
        kind = rng.random()
        one = rng.choice(WORDS) if kind < 0.35 else words.word(rng) if kind < 0.85 else values.coined(rng)
        many = text.startswith("{word}s", text.index("{word}"))
        text = text.replace("{word}s", plural(one), 1) if many else text.replace("{word}", one, 1)
    while "{item}" in text:
        text = text.replace("{item}", item or shop.item_of(rng, split, rng.choice(list(shop.GOODS_OF)), 0.4), 1)
    text = text.replace("{like}", rng.choice(words.LIKE)).replace("{verb}", rng.choice(words.DO))
    text = re.sub(r"\ba (?=[aeio])", "an ", text)
    return voice.says(text, name=voice.form(name), n=str(rng.randint(2, 999)), m=str(rng.randint(2, 99)))
