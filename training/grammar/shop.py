"""A shop: what it sells and knows, and the "facts" turn that tells the assistant so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from training.grammar import hours as opening
from training.grammar import notice, values, words
from training.grammar.text import Voice, expand, listed, plural, sentence

GOODS = {
    "coffee": """latte|cappuccino|espresso|americano|flat white|mocha|macchiato|cortado|filter coffee|black coffee|
        iced coffee|chai latte|hot chocolate|green tea|black tea|mint tea|matcha latte|lemonade|orange juice|
        iced tea|ginger tea|oat milk latte|milkshake|decaf coffee|tea|coffee""",
    "bakery": """croissant|muffin|blueberry muffin|bagel|brownie|cookie|scone|donut|cinnamon roll|pretzel|baguette|
        rye bread|white loaf|cheesecake|apple pie|carrot cake|lemon tart|cheese roll|almond croissant|banana bread|
        slice of cake|slice of apple pie|sesame bagel|cupcake|waffle|pancake|danish|loaf of bread""",
    "pizza": """margherita pizza|pepperoni pizza|mushroom pizza|vegetable pizza|hawaiian pizza|ham pizza|cheese pizza|
        four cheese pizza|spinach pizza|garlic bread|calzone|tuna pizza|onion pizza|salami pizza|caesar salad""",
    "burgers": """cheeseburger|hamburger|veggie burger|chicken burger|fish burger|double burger|hot dog|bacon burger|
        chicken wrap|onion ring|portion of fries|side salad|cola|lemonade|milkshake|vanilla shake|corn dog""",
    "ice cream": """vanilla cone|chocolate cone|strawberry cone|mango sorbet|lemon sorbet|scoop of vanilla|
        scoop of chocolate|scoop of pistachio|banana split|sundae|frozen yogurt|coconut cup|hazelnut cup|waffle cone""",
    "sandwiches": """ham sandwich|cheese sandwich|tuna sandwich|egg sandwich|club sandwich|turkey sandwich|falafel wrap|
        chicken wrap|tomato soup|pumpkin soup|greek salad|potato salad|apple juice|bottle of water|bag of chips""",
    "sushi": """salmon roll|tuna roll|cucumber roll|miso soup|ramen bowl|rice bowl|dumpling|spring roll|noodle bowl|
        green tea|seaweed salad|avocado roll|shrimp roll|poke bowl|udon soup""",
    "flowers": """rose|red rose|white rose|tulip|yellow tulip|lily|sunflower|orchid|bunch of daisies|cactus|fern|
        bouquet|flower pot|bonsai|wreath|carnation""",
    "souvenirs": """postcard|magnet|mug|key ring|t-shirt|poster|notebook|city map|stamp|pencil|cap|scarf|snow globe|
        tote bag|calendar|sticker|guide book""",
    "snacks": """popcorn|nachos|cola|bottle of water|chocolate bar|bag of chips|pretzel|ice tea|orange juice|
        pack of gum|energy drink|cereal bar|apple|banana|sandwich""",
    "juice": """orange juice|carrot juice|apple juice|mango smoothie|berry smoothie|green smoothie|ginger shot|
        banana smoothie|melon juice|pineapple juice|grape juice|tomato juice|lemonade|coconut water""",
}  # fmt: skip
GOODS_OF = {kind: [" ".join(item.split()) for item in text.split("|")] for kind, text in GOODS.items()}
#: served in sizes: the guest is asked for one
SIZED = {"coffee", "pizza", "juice"}
NOT_SIZED = {"espresso", "garlic bread", "calzone", "caesar salad", "ginger shot", "macchiato", "cortado"}
SIZES = {"coffee": ["small", "medium", "large"], "pizza": ["small", "medium", "large"], "juice": ["small", "large"]}
NAMES_OF = {
    "coffee": "coffee [shop|bar|stand|house|corner]|cafe|espresso bar", "bakery": "bakery|bread shop|pastry shop",
    "pizza": "pizzeria|pizza place|pizza counter", "burgers": "burger [bar|place|grill]|snack bar|diner",
    "ice cream": "ice cream [parlor|stand|shop]|gelato shop", "sandwiches": "sandwich [bar|shop]|deli|lunch counter",
    "sushi": "sushi bar|noodle bar|sushi place", "flowers": "flower [shop|stand]|florist",
    "souvenirs": "gift shop|souvenir [shop|stand]|museum shop", "snacks": "snack [bar|stand]|kiosk|station kiosk",
    "juice": "juice bar|smoothie bar|juice stand", "cinema": "cinema|movie theater|film house",
    "table": "restaurant|bistro|grill|trattoria", "museum": "museum|gallery|exhibition hall",
    "train": "train station|ticket office|station", "hotel": "hotel|guest house|inn|hostel",
    "bikes": "bike rental|bicycle rental|bike shop", "library": "library|town library|reading room",
    "pharmacy": "pharmacy|drugstore|pharmacy counter", "hair": "hair salon|barber shop|hairdresser",
    "pool": "swimming pool|public pool|pool", "tours": "tour desk|tourist office|visitor center",
    "boats": "boat rental|harbor office|ferry desk", "repair": "repair shop|phone repair shop|shoe repair shop",
}  # fmt: skip
TAILS = """
roll cake tea bar bowl pie soup wrap shake bun drink salad cookie box special juice toast bread slice cup plate burger
pizza latte sandwich stick book pen card bag jar set ring mix dish steak curry stew cream syrup bottle biscuit punch
""".split()
STREETS = ("Street", "Road", "Lane", "Avenue", "Square")
ALLERGENS = "nuts milk eggs gluten soy sesame fish mustard celery peanuts wheat almonds lactose shellfish".split()


@dataclass
class Shop:
    """What the assistant has been told; None or empty: it has not."""

    kind: str
    name: str = ""
    hours: opening.Hours | None = None
    today: int | None = None
    sign: str = "$"
    prices: dict[str, int] = field(default_factory=dict)  # in cents, the menu
    contents: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # topic -> answer
    facts: str = ""  # the system turn

    def money(self, cents: int) -> str:
        """$3.50, or $3 where the list writes whole amounts so."""
        return f"{self.sign}{cents // 100}.{cents % 100:02}"


def coined_item(rng: Random, split: str) -> str:
    """A product that nobody sells."""

    def draw() -> str:
        kind = rng.random()
        if kind < 0.17:
            return values.coined(rng)
        if kind < 0.45:
            return f"{values.coined(rng)} {rng.choice(TAILS)}"
        if kind < 0.55:
            return rng.choice(words.THINGS)
        if kind < 0.82:
            return f"{words.word(rng)} {rng.choice(TAILS)}"
        return f"{words.word(rng)} {rng.choice(words.THINGS)}"

    return values.pick(rng, split, draw)


def item_of(rng: Random, split: str, kind: str, coined: float = 0.4) -> str:
    """Something this kind of shop sells, or something invented."""
    if rng.random() < coined:
        return coined_item(rng, split)
    return rng.choice(GOODS_OF[kind])


# ---- notes: other facts of a house -----------------------------------------------------------------------------------


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
            return (expand(rng, f"{what} are [allowed|welcome|permitted]|you may bring {what}|yes to {what}"),
                    f"Yes, {what} are welcome.")  # fmt: skip
        return (expand(rng, f"{what} are [not allowed|not permitted|not welcome|forbidden]|no {what}[, please|]"),
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
        "do you allow [dogs|pets]?", "i have a dog with me, is that ok?"]),
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
    known = [topic for topic in NOTES if topic in shop.notes]
    topic = rng.choice(known) if known and rng.random() < 0.7 else rng.choice(list(NOTES))
    asked = voice.says(rng.choice(NOTES[topic][1]))
    return [(asked, shop.notes.get(topic, unknown(topic)))]


# ---- prices and contents ---------------------------------------------------------------------------------------------

ASK_PRICE = [
    "[i'd like to hear|do you know|say|what about] the price of [the|a|one] {item}[, please|]?",
    "[the|a|one] {item}, [how much|price|what does it cost]?",
    "[what|how much] [do you take|must i pay|is charged] for [the|a|one] {item}?",
    "[is|are] [the|a] {item} [cheap|costly|affordable], [what is it|how much]?",
    "[how much money|what money|which price] [is|for] [the|a|one] {item}?",
    "[cost|price] of [the|a|one] {item}[, please|?|]",
    "how much is [the|a|one] {item}?", "what does [the|a|one] {item} cost?", "what's the price of [the|a] {item}?",
    "[and |]how much for [the|a|one] {item}?", "how much do you [charge|want] for [the|a] {item}?",
    "price of [the|a] {item}?",
    "what do i pay for [the|a|one] {item}?", "[can|could] you tell me the price of the {item}[, please|]?",
    "is the {item} expensive?", "how expensive is [the|a] {item}?", "what would [a|one] {item} be?",
    "what is [the|a|one] {item} [here|]?", "how many [dollars|euros] is [the|a] {item}?",
]  # fmt: skip
ASK_PRICE += [
    "how much [is|would be|are we talking for] the {item} in [dollars|euros|cash|total]?",
    "{item}, [price|how much|cost|how expensive|and the price]?",
    "[what|how much] will [the|a|one] {item} cost [me|us]?",
    "[what|which] price is on the {item}?", "[i only want|tell me|give me|just] the price of [the|a] {item}[, please|]",
    "the {item}[:|,|?] how many [dollars|euros] is [it|that]?", "what does the {item} [go|sell] for?",
    "the {item} is how much?", "the {item}, what do you want for [it|that]?",
    "[what|how much] [am i|are we] looking at for [the|a|one] {item}?",
    "[before i order|first|one question]: [the price of the|how much is the|what is the] {item}?",
    "[can i afford|is it a lot for] the {item}? [how much is it|what does it cost|tell me the price]",
    "how [costly|pricey|cheap] is the {item}?", "what must i [spend|hand over|put down] for [the|a|one] {item}?",
]  # fmt: skip
_AND_PRICE = "[and|what about|how about|and what about] the {item}[?|]|and the {item}, [how much|what price][?|]"
ASK_MENU = [
    "what do you [have|sell|offer|serve]?", "what's on the menu?", "what is there [to eat|to drink|to buy|]?",
    "can i [see|hear|have] the menu[, please|]?", "what can i [get|order|buy|have][ here|]?",
    "[menu|the menu][, please|]?",
    "[please|] tell me what you have.", "what are my options?", "read me the menu[, please|].",
    "what kinds of things do you sell?",
    "show me the menu[, please|].", "which things do you have?", "what do you [guys|] have today?",
]  # fmt: skip
ASK_CONTENTS = [
    "does the {item} [have|contain] {what}?", "is there [any |]{what} in the {item}?",
    "are there {what} in the {item}?",
    "what is in the {item}?", "what allergens are in the {item}?", "what does the {item} contain?",
    "is the {item} [free of|without] {what}?",
    "can i eat the {item} if i [can't have|don't eat|am allergic to] {what}?",
    "[any|is there some] {what} in the {item}?", "i'm allergic to {what}, is the {item} ok?",
    "allergens in the {item}?",
    "i can't have {what}. can i have the {item}?",
]  # fmt: skip
ALLERGIC = [
    "i'm allergic to {what}.", "i have [a|an] {what} allergy.", "[just so you know, |]i am allergic to {what}.",
    "my [son|daughter|wife|husband|friend|child] is allergic to {what}.", "i can't [have|eat] {what}.",
    "i must not eat {what}.", "i don't tolerate {what}.", "what can i eat? i'm allergic to {what}.",
    "i need something without {what}.", "do you have something without {what}?", "which things are free of {what}?",
]  # fmt: skip


def _ask_price(rng: Random, voice: Voice, pattern: str, item: str) -> str:
    asked = expand(rng, pattern)
    if item[0].lower() in "aeio":
        asked = asked.replace("a {item}", "an {item}")
    return voice.says(asked, item=voice.form(item))


def price_turns(rng: Random, voice: Voice, shop: Shop, split: str) -> list[tuple[str, str]]:
    """What does it cost, what is on the menu."""
    if rng.random() < 0.25:
        asked = voice.says(rng.choice(ASK_MENU))
        if not shop.prices:
            return [(asked, "I have no menu here. Tell me what you would like.")]
        return [(asked, "We have " + listed(list(shop.prices)) + ".")]
    if shop.prices and rng.random() < 0.85:
        item = rng.choice(list(shop.prices))
    else:
        item = item_of(rng, split, shop.kind if shop.kind in GOODS_OF else "snacks", 0.3)
    asked = _ask_price(rng, voice, rng.choice(ASK_PRICE), item)
    if item in shop.prices:
        return [(asked, f"The {item} is {shop.money(shop.prices[item])}.")]
    if shop.prices:
        return [(asked, f"Sorry, the {item} is not on the menu. We have {listed(list(shop.prices))}.")]
    return [(asked, f"Sorry, I do not know the price of the {item}. Please ask the staff.")]


def price_drill(rng: Random, voice: Voice, shop: Shop) -> list[tuple[str, str]]:
    """The price list looked up row by row."""
    found: list[tuple[str, str]] = []
    for item in rng.sample(list(shop.prices), rng.randint(2, len(shop.prices))):
        pattern = _AND_PRICE if found and rng.random() < 0.35 else rng.choice(ASK_PRICE)
        asked = _ask_price(rng, voice, pattern, item)
        found.append((asked, f"The {item} is {shop.money(shop.prices[item])}."))
    return found


def allergy_turns(rng: Random, voice: Voice, shop: Shop, split: str) -> list[tuple[str, str]]:
    """What is in it, and guests who must not eat something."""
    what = rng.choice(ALLERGENS)
    if rng.random() < 0.35:
        asked = voice.says(rng.choice(ALLERGIC), what=what)
        found = [item for item, inside in shop.contents.items() if what in inside]
        if found:
            return [(asked, f"Thank you for telling me. {sentence(listed(['the ' + each for each in found]))} "
                            f"{'contain' if len(found) > 1 else 'contains'} {what}.")]  # fmt: skip
        return [(asked, f"Thank you for telling me. Please ask the staff what is free of {what}.")]
    if shop.contents and rng.random() < 0.75:
        item = rng.choice(list(shop.contents))
        what = rng.choice(shop.contents[item]) if rng.random() < 0.5 else what
    else:
        item = rng.choice(list(shop.prices)) if shop.prices else item_of(rng, split, "bakery", 0.3)
    asked = voice.says(rng.choice(ASK_CONTENTS), item=voice.form(item), what=what)
    if item in shop.contents:
        return [(asked, f"The {item} contains {listed(shop.contents[item])}.")]
    return [(asked, f"I do not know what is in the {item}. Please ask the staff before you eat it.")]


# ---- the facts turn --------------------------------------------------------------------------------------------------


def draw(rng: Random, split: str, kind: str, told: float = 0.62) -> Shop:
    """A shop of a kind; ``told``: the chance that the assistant is given any facts at all."""
    shop = Shop(kind)
    if rng.random() > told:
        return shop
    shop.sign = rng.choices(("$", "€", "£"), (70, 18, 12))[0]
    parts: list[str] = []
    if rng.random() < 0.62:
        shop.hours = opening.draw(rng)
        text = notice.written(rng, shop.hours)
        if rng.random() < 0.2:
            shop.today = rng.randrange(7)
            today = expand(rng, f"[today is|it is|the day is|today:] {values.DAYS[shop.today]}")
            text = f"{today}. {sentence(text)}" if rng.random() < 0.5 else f"{text}. {sentence(today)}"
        parts.append(text)
    if kind in GOODS_OF and rng.random() < 0.68:
        parts.append(_menu(rng, split, shop))
        if rng.random() < 0.4:
            parts.append(_contents(rng, shop))
    for topic in rng.sample(list(NOTES), rng.choices((0, 1, 2, 3), (35, 30, 22, 13))[0]):
        text, shop.notes[topic] = NOTES[topic][0](rng, split)
        parts.append(text)
    rng.shuffle(parts)
    named = rng.random()
    house = expand(rng, "[" + NAMES_OF[kind] + "]")
    if named < 0.55:
        shop.name = house_name(rng, split)
        intro = expand(
            rng,
            f"you are the [kiosk|assistant|order desk|helper|voice] [of|at|in] [the |]{shop.name}[, a {house}|]|"
            f"you work at {shop.name}[, a {house}|]|{shop.name}, {house}|welcome to {shop.name}|"
            f"facts about {shop.name}|this is {shop.name}[, a {house}|]|kiosk of {shop.name}|{house} {shop.name}",
        )
    elif named < 0.85:
        intro = expand(
            rng,
            f"you are the [kiosk|assistant|helper|order desk] [of|in|at] a {house}|kiosk of a {house}|"
            f"you work in a {house}|{house}|this is a {house}|facts",
        )
    else:
        intro = ""
    if intro:
        parts.insert(0, intro)
    joint = rng.choices((". ", "\n", "; "), (80, 12, 8))[0]
    if joint == "; ":
        parts = [part.replace("; ", ", ") for part in parts]
    shop.facts = joint.join(sentence(part) if joint != "; " else part for part in parts)
    if shop.facts and joint != "\n" and shop.facts[-1] not in ".?!":
        shop.facts += "."
    shop.facts = sentence(shop.facts)
    return shop


def house_name(rng: Random, split: str) -> str:
    """Blue Kettle, Zorvin, Mira's."""

    def draw() -> str:
        kind = rng.random()
        if kind < 0.45:
            return rng.choice(values.ADJECTIVES).capitalize() + " " + rng.choice(values.NOUNS).capitalize()
        if kind < 0.75:
            return values.coined(rng).capitalize()
        if kind < 0.9:
            return values.coined(rng).capitalize() + " " + rng.choice(values.NOUNS).capitalize()
        return values.coined(rng).capitalize() + "'s"

    return values.pick(rng, split, draw)


def _menu(rng: Random, split: str, shop: Shop) -> str:
    """The price list: two to six goods at whole units or halves."""
    step = rng.choice((50, 100))
    n = rng.randint(2, 6)
    coined = rng.choice((0.0, 0.3, 0.6, 1.0))
    while len(shop.prices) < n:
        item = item_of(rng, split, shop.kind, coined)
        if not any(item in other or other in item for other in shop.prices):
            shop.prices[item] = step * rng.randint(100 // step, 900 // step)
    style = rng.choice(("{m}", "{m}", "{m}", "costs", "is", "for", "colon"))
    rows = []
    for item, cents in shop.prices.items():
        money, article = shop.money(cents), "an" if item[0] in "aeio" else "a"
        row = {"costs": f"{item} costs {money}", "is": f"{article} {item} is {money}", "for": f"{item} for {money}",
               "colon": f"{item}: {money}"}.get(style, f"{item} {money}")  # fmt: skip
        rows.append(row)
    head = rng.choice(("Menu: ", "Prices: ", "We sell ", "Price list: ", "On the menu: ", "We have ", "", "Menu: ",
        "Goods: ", "On sale: ", "You can buy ", "Our goods: ", "The card: ", "At the counter: ", "Our prices: "))
    if style in ("costs", "is"):
        head = rng.choice(("", "Prices: ", "Menu: "))
    return head + (listed(rows) if rng.random() < 0.5 else rng.choice((", ", "; ", ", ")).join(rows))


def _contents(rng: Random, shop: Shop) -> str:
    """Which goods contain what."""
    items = rng.sample(list(shop.prices), rng.randint(1, min(3, len(shop.prices))))
    parts = []
    for item in items:
        inside = shop.contents[item] = rng.sample(ALLERGENS, rng.choices((1, 2, 3), (5, 3, 1))[0])
        row = f"[the {item}|{item}|every {item}] [contains|has|contains|is made with] {listed(inside)}"
        parts.append(expand(rng, row))
    head = rng.choice(("", "Allergens: ", "Allergy notes: ", "Please note: "))
    return head + rng.choice((". ", ", ", "; ")).join(parts) if head else ". ".join(sentence(p) for p in parts)


__all__ = ["GOODS_OF", "NAMES_OF", "Shop", "draw", "plural"]
