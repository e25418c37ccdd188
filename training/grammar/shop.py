"""A shop: what it sells, what it knows, what it is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from training.grammar import goods, offers, plans, values, words
from training.grammar import hours as opening

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
    "stationery": """pencil|eraser|ruler|notepad|envelope|ballpoint|stapler|scissors|marker|folder|greeting card|
        calendar|ink bottle|school bag|crayon|pencil case""",
    "cheese": """slice of gouda|camembert|cheddar|jar of olives|cream cheese|goat cheese|wedge of brie|mozzarella|
        parmesan|cheese board|feta|box of crackers""",
    "groceries": """egg|apple|lemon|bag of rice|carton of milk|loaf of bread|cucumber|onion|bag of potatoes|banana|
        jar of honey|lettuce|pepper|bunch of grapes|packet of butter|tomato soup""",
    "hardware": """hammer|screwdriver|box of nails|paint brush|tape measure|light bulb|padlock|bucket|saw|ladder|
        extension cord|tin of paint|battery|hinge|door mat""",
    "chemist": """toothbrush|shampoo|pack of tissues|soap|comb|hairbrush|cough syrup|plaster|thermometer|sunscreen|
        mouthwash|bandage|razor|box of cotton pads""",
    "toys": """ball|doll|kite|teddy bear|toy car|yo-yo|train set|jigsaw|board game|card game|bucket and spade|
        skipping rope|balloon|spinning top""",
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
    "juice": "juice bar|smoothie bar|juice stand", "stationery": "stationery shop|paper shop|school shop",
    "cheese": "cheese counter|cheese shop|delicatessen", "groceries": "grocery|corner shop|farm shop|market stall",
    "hardware": "hardware store|tool shop|garden center", "chemist": "chemist|beauty shop|chemist's counter",
    "toys": "toy shop|game store|toy stall", "museum": "museum|gallery|exhibition hall",
    "library": "library|town library|reading room",
    "pharmacy": "pharmacy|drugstore|pharmacy counter",
    "pool": "swimming pool|public pool|pool", "repair": "repair shop|phone repair shop|shoe repair shop",
} | {kind: trade.house for kind, trade in offers.TRADES.items()}  # fmt: skip
TAILS = """
roll cake tea bar bowl pie soup wrap shake bun drink salad cookie box special juice toast bread slice cup plate burger
pizza latte sandwich stick book pen card bag jar set ring mix dish steak curry stew cream syrup bottle biscuit punch
""".split()
HOLDERS = "glass cup pot bowl mug slice piece bag bottle plate jar box basket portion scoop tray tin pair".split()
#: of these holders, those that hold many of a thing
HOLDS_MANY = {"bag", "jar", "box", "basket", "tray", "portion", "bowl"}


@dataclass
class Shop:
    """What the assistant has been told; None or empty: it has not."""

    kind: str
    name: str = ""
    hours: plans.Plan | opening.Hours | None = None
    today: int | None = None
    sign: str = "$"
    prices: dict[str, str] = field(default_factory=dict)  # as the list writes them
    calls: dict[str, list[str]] = field(default_factory=dict)  # what else guests may call a thing of the list
    orders: bool = True  # whether what is on the list can be ordered by the name it has there
    sizes: dict[str, list[str]] = field(default_factory=dict)  # of goods whose rows are "small tea", "large tea"
    shelf: list[str] = field(default_factory=list)  # what there is, where no prices are told
    contents: dict[str, list[str]] = field(default_factory=dict)
    offers: list[tuple[str, str]] = field(default_factory=list)  # of a desk: ("mountain", "bike")
    notes: dict[str, str] = field(default_factory=dict)  # topic -> answer
    rules: dict[str, tuple[str, str]] = field(default_factory=dict)  # thing -> kind (training.grammar.house), answer
    facts: str = ""  # the system turn


def coined_item(rng: Random, split: str) -> str:
    """A product that nobody sells."""

    def strange() -> str:
        """Any word but the common ones after which goods are called: brew, floof, parmentier."""
        kind = rng.random()
        return values.coined(rng) if kind < 0.35 else words.pieced(rng) if kind < 0.5 else words.word(rng)

    def held() -> str:
        inner = values.coined(rng) if rng.random() < 0.4 else words.word(rng)
        return f"{inner} {rng.choice(TAILS)}" if rng.random() < 0.5 else inner

    def draw() -> str:
        kind = rng.random()
        if kind < 0.08:
            return f"{rng.choice(HOLDERS)} of {values.pick(rng, split, held)}"
        if kind < 0.18:
            return values.coined(rng)
        if kind < 0.34:
            return f"{values.coined(rng)} {rng.choice(TAILS)}"
        if kind < 0.42:
            return rng.choice(words.THINGS)
        if kind < 0.58:
            return f"{words.word(rng)} {rng.choice(TAILS)}"
        if kind < 0.70:
            return f"{words.word(rng)} {rng.choice(words.THINGS)}"
        if kind < 0.84:  # each word as rare as the other: neither tells the next
            return f"{rng.choice(words.LIKE) if rng.random() < 0.4 else strange()} {strange()}"
        if kind < 0.90:
            return f"{strange()}-{strange()}" + (f" {rng.choice(TAILS)}" if rng.random() < 0.5 else "")
        if kind < 0.95:
            return f"{words.word(rng)} {strange()} {rng.choice(TAILS)}"
        if kind < 0.98:
            return f"{values.coined(rng)}'s {rng.choice(TAILS)}"
        return f"{rng.choice(TAILS)} {rng.choice('ABCDEFGHKLMNPRTXZ')}{rng.randint(1, 40)}"

    return values.pick(rng, split, draw)


def item_of(rng: Random, split: str, kind: str, coined: float = 0.5) -> str:
    """Something this kind of shop sells, or something invented."""
    if rng.random() < coined:
        return coined_item(rng, split)
    return rng.choice(GOODS_OF[kind]) if rng.random() < 0.4 else goods.made(rng, split, kind)


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
