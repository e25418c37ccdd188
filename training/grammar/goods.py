"""Goods of two to four words by the kind of counter, and what may be done with them: sliced, no salt, with oat milk.

Each is a pattern, so that the parts meet in ever new ways; none makes the name of something in the exam.
"""

from __future__ import annotations

from random import Random

from training.grammar import values, words
from training.grammar.text import expand

_FRUIT = "[apple|pear|cherry|mango|banana|apricot|blackberry|fig|lime|orange|coconut|papaya|currant|date|kiwi]"
_NUT = "[pecan|cashew|peanut|pistachio|chestnut|macadamia]"
_COLOR = "[red|white|yellow|pink|blue|purple|orange|green|black|brown|gray|golden|silver|cream|violet]"
_HERB = "[basil|thyme|sage|chive|parsley|fennel|rosemary|nettle|dill]"
_MEAT = "[ham|chicken|beef|pork|bacon|duck|salami|lamb|sausage|meatball]"
_CHEESE = "[goat cheese|feta|mozzarella|emmental|blue cheese|ricotta|smoked cheese|gruyere|edam|parmesan]"
_GRAIN = "[wheat|oat|barley|corn|rye|millet|linseed|sunflower|malt|four grain|three seed|whole grain]"

MADE = {
    "coffee": f"[iced|frozen|spiced|weak|strong|milky|foamy] [mocha|cocoa|macchiato|americano|cortado]|{_NUT} [mocha|"
    "frappe|cortado]|[ginger|maple|coconut|lavender|pumpkin spice|salted caramel] [mocha|frappe|macchiato|cocoa]|"
    "[pot|"
    f"mug|flask|glass|cup] of [{_HERB} tea|{_FRUIT} tea|[white|oolong|jasmine|fennel|darjeeling] tea|hot milk|"
    f"barley coffee]|{_FRUIT} and {_HERB} tea|[white|dark|milk] chocolate [mocha|frappe|cookie]",
    "bakery": f"[loaf|slice|piece|bag|basket] of [{_GRAIN} bread|{_NUT} bread|{_FRUIT} cake|[potato|olive|onion|"
    f"milk|beer] bread|[marble|butter|sponge|crumb] cake|{_FRUIT} crumble|rusks|breadsticks]|{_FRUIT} [turnover|"
    f"tartlet|danish|muffin|scone|crumble bar]|{_GRAIN} [bun|bagel|roll|cracker|baguette]|{_NUT} and {_FRUIT} [bar|"
    f"cookie|tartlet|loaf]|[{_CHEESE}|{_MEAT}|{_HERB}] [and onion |and leek |and tomato |][pasty|turnover|quiche|"
    "bun]|"
    "[chocolate chip|white chocolate|custard|vanilla cream|cinnamon sugar|sugared] [donut|bun|cookie|eclair|brioche]",
    "pizza": f"[{_MEAT}|{_CHEESE}|[grilled |][zucchini|pepper|eggplant|leek|broccoli]] [and {_HERB}|and [onion|olive|"
    f"corn]|] [pizza|calzone|flatbread]|[slice|piece] of [{_MEAT}|{_CHEESE}] pizza|[thin crust|deep pan|gluten free] "
    f"[{_MEAT}|{_CHEESE}] pizza|[bowl|plate] of [tomato|olive|bean|noodle] [salad|pasta]|[family|kids'] pizza|"
    f"[bottle|can|glass] of [{_FRUIT} lemonade|sparkling water|house wine|malt beer|mineral water]",
    "burgers": f"[double|triple|grilled|smoky|crispy] [{_MEAT}|bean|fish|mushroom|{_CHEESE}] burger|[basket|bucket|"
    "portion|tray|cup] of [onion rings|curly fries|chicken strips|corn nuggets|gravy|mashed potatoes|coleslaw|"
    f"fish fingers]|[loaded|chili|cheese|curly|waffle] fries|{_FRUIT} [shake|fizz|smoothie]|[{_MEAT}|fish|bean] "
    "[and cheese|and egg|and slaw] [bun|wrap|roll|box]|[cob of|grilled] corn|[ketchup|mayo|curry sauce] sachet",
    "ice cream": f"[scoop|cup|tub|cone|glass] of [{_FRUIT}|{_NUT}|{_FRUIT} ripple|[mint|white|dark] chocolate|coffee|"
    f"salted caramel|yogurt|cookie dough] [ice cream|sorbet|]|{_FRUIT} and {_NUT} [cone|sundae|parfait|cup]|[sugar|"
    f"chocolate dipped|gluten free] cone|{_FRUIT} [popsicle|ice pop|slush|granita|float]|[knickerbocker|brownie|"
    "fudge|"
    "toffee] [glory|sundae|parfait]",
    "sandwiches": f"[{_MEAT}|{_CHEESE}|egg|hummus|tofu] and [{_HERB}|cress|tomato|pepper|apple|avocado|onion] "
    "[sandwich|"
    f"wrap|panini|bagel|pita|toastie|roll]|[toasted|grilled|open] [{_MEAT}|{_CHEESE}] [sandwich|panini|roll]|[bowl|"
    f"cup|mug] of [pea|fish|bean|corn|onion|noodle|barley] soup|[{_MEAT}|{_CHEESE}|quinoa|pasta|couscous] salad|"
    "[packet|bag|bowl] of [salt and vinegar|cheese and onion|sweet chili|paprika] crisps",
    "sushi": "[salmon|tuna|eel|shrimp|crab|tofu|mango|mackerel] [and avocado |and cucumber |][roll|sashimi|temaki|"
    "bowl|"
    "rice bowl]|[tray|plate|box|portion] of [pork|chicken|leek|shrimp|cabbage] [dumplings|gyoza|buns]|[beef|duck|"
    "tofu|"
    "shrimp|vegetable] [udon|soba|noodle soup|fried rice|curry]|[pickled|grilled|steamed|fried] [ginger|eggplant|"
    "rice|"
    "bun|radish]|[pot|cup] of [barley|roasted rice|jasmine] tea",
    "flowers": f"{_COLOR} [tulip|lily|orchid|carnation|dahlia|gerbera|iris|aster|peony|hyacinth|daffodil|freesia]|"
    "[bunch|"
    f"bouquet|pot|basket|bundle|armful] of [{_COLOR} |wild |dried |][daisies|irises|asters|lilacs|poppies|violets|"
    "hyacinths|pansies]|[pot|tray] of [basil|ivy|moss|heather|mint]|[bag|sack] of [potting soil|bark|pebbles]|"
    "[clay|hanging|glass] [pot|vase|basket]|[packet of [poppy|radish|daisy|cress|melon] seeds]",
    "souvenirs": "[wooden|brass|painted|tin|glass|felt|knitted] [lighthouse|castle|donkey|bell|whale|tower|sheep|"
    "boat] "
    f"[magnet|key ring|charm|ornament|]|[{_COLOR}|striped|woolen] [cap|scarf|tote bag|t-shirt|umbrella|mug]|[set|"
    "pack|"
    "box] of [coasters|playing cards|stickers|postcards|spoons|colored pencils]|[castle|island|harbor|tower|fish|"
    "owl] "
    "[poster|mug|tea towel|calendar|jigsaw|snow globe]|[bar|tin] of [local |][fudge|soap|toffee|nougat]",
    "snacks": "[toffee|sweet|buttered|caramel|cheese] [popcorn|pretzel|peanuts]|[bag|packet|box|tub|bucket] of "
    "[wine gums|"
    "mints|rice crackers|trail mix|jelly beans|licorice laces|roasted almonds|salted nuts|popcorn]|[can|bottle|"
    "carton] "
    f"of [{_FRUIT} juice|tonic|iced coffee|cream soda|still water|malt drink|cocoa]|[{_NUT}|{_FRUIT}] [bar|"
    "yogurt|flapjack]|[morning|evening|weekend|local] newspaper|[crossword|gardening|film|travel] magazine|[book|"
    "box] of [matches|stamps|tissues]",
    "juice": f"{_FRUIT} and [ginger|mint|celery|spinach|beet|lime|pepper] [juice|smoothie|shot|cooler]|[{_FRUIT} "
    f"{_FRUIT}] [juice|smoothie]|[carrot|celery|cucumber|cabbage|beet] [and {_FRUIT} |][juice|shot]|[glass|bottle|"
    "jug] "
    f"of [{_FRUIT} juice|{_FRUIT} nectar|{_HERB} water]|[frozen|thick|protein|oat] {_FRUIT} [smoothie|shake]|acai "
    "bowl",
    "stationery": f"[{_COLOR}|thick|fine|soft] [marker|crayon|pencil|felt tip|ribbon|envelope|folder|ink cartridge|"
    "chalk]|[lined|blank|pocket|hardback|spiral] [notebook|notepad|exercise book|journal]|[roll|pack|box|sheet|pad] "
    "of "
    "[sticky tape|brown paper|envelopes|paper clips|tracing paper|drawing pins|labels|sticky notes|index cards]|"
    "[birthday|thank you|wedding|get well] card|[pencil|glue|paper|desk] [sharpener|stick|stand|lamp|case]",
    "cheese": f"[slice|piece|wedge|block] of {_CHEESE}|[jar|tub|pot] of [{_HERB} butter|green olives|"
    f"black olives|sheep cheese|{_FRUIT} chutney|quark|pickled garlic|dried tomatoes]|[slice|pack] of [smoked|cooked|"
    f"dried|cured] {_MEAT}|{_HERB} [cream cheese|curd|butter]|wheel of {_CHEESE}",
    "groceries": "[bag|kilo|box|net|pound|crate|bunch] of [red |sweet |small |][onions|potatoes|carrots|apples|"
    "lemons|"
    "beets|radishes|plums|tomatoes|peas|grapes]|[pint|liter|carton|bottle] of [milk|cream|buttermilk|cider|oat milk|"
    f"{_FRUIT} juice]|[jar|tin|packet|pack] of [{_FRUIT} jam|[acacia|forest|clover] honey|[red|white|baked] beans|"
    "lentils|rice|noodles|flour|brown sugar|sea salt|coffee filters|oatmeal|yeast]|[free range|duck|quail|boiled] "
    "egg|"
    "[stick|pack|block] of butter|head of [lettuce|garlic|cabbage|broccoli]|[cooking|red|sweet] [apple|onion|pepper]",
    "hardware": "[box|packet|bag|tin] of [wood |brass |steel |long |short |][screws|nails|hooks|washers|hinges|"
    "tacks]|"
    f"[{_COLOR}|wood|wall|metal] [paint|varnish|spray]|[tin|pot|can] of [{_COLOR} |][paint|varnish|primer|glue]|"
    "[roll|"
    "meter|piece] of [copper wire|rope|chain|masking tape|cable|garden hose]|[claw|rubber|small] [hammer|mallet]|"
    "[flat|wide|wood] [brush|file|chisel]|[light|door|bike] [bulb|handle|lock|lamp|chain|pump]",
    "chemist": "[box|packet|tube|bottle|pack] of [cough drops|headache tablets|sun cream|eye drops|nose spray|"
    "bandages|"
    "vitamin tablets|cotton pads|foot balm|baby wipes|tooth gel]|[children's|soft|travel] [toothbrush|shampoo|soap|"
    "thermometer|cough syrup]|[lavender|olive|almond|rose] [soap|oil|shampoo|lotion]|[ankle|knee|elastic] bandage",
    "toys": f"[wooden|{_COLOR}|stuffed|tin|musical] [train|bear|duck|robot|tractor|top|rabbit|dragon|drum|boat]|"
    "[set|box|"
    "bag] of [marbles|building blocks|dominoes|toy soldiers|finger paints|balloons]|[skipping|jump] rope|[card|board|"
    "dice] game|[dinosaur|pirate|space|farm] [play mat|sticker book|mask|costume|model]",
}  # fmt: skip

#: by weight and by length, where the count is one of units
MEASURED = {
    "cheese": f"gram of {_CHEESE}|gram of [smoked|cooked|dried] {_MEAT}|gram of [olives|quark|{_HERB} butter]",
    "groceries": f"gram of [rice|lentils|peas|mushrooms|raisins|{_NUT}s]|kilo of [flour|plums|onions|pears]|liter "
    "of milk",
    "hardware": "meter of [rope|chain|wire|cable|hose|tape]|gram of [nails|grout|chalk]|liter of [paint|glue|"
    "varnish]",
    "coffee": "gram of [espresso|coffee|mocha|decaf] beans|gram of [green|black|oolong] tea",
}  # fmt: skip

#: what is done with a thing, by the counter; repeated as it was said
DONE_WITH = {
    "coffee": "[with|with some] [oat|soy|almond|coconut|rice|goat|warm|cold|a little] milk|[no|without|with|"
    "extra|"
    "half the] [sugar|foam|ice|cinnamon|cream|caramel|honey]|with [two|three] sugars|extra [hot|strong|sweet]|[in|in "
    "a] [glass|paper cup|mug|tall glass]|with an extra shot|decaf|on ice|with [no|lots of] foam",
    "bakery": "sliced|toasted|not sliced|cut in [half|two|quarters]|with [salted |][butter|jam|honey|icing]|[no|"
    "without] "
    "[butter|icing|seeds|sugar|salt]|in a [box|paper bag]|warm|wrapped|well done|with cream on the side|extra crusty",
    "pizza": "[with|no|without|extra|with extra|with double|hold the] [mushrooms|onions|olives|garlic|cheese|chili|"
    "corn|"
    "ham|basil]|[thin|thick|no] crust|cut in [slices|half|eight]|extra crispy|spicy|not spicy|mild|well done",
    "burgers": "[with|no|without|extra|with extra|hold the|easy on the] [onions|pickles|bacon|ketchup|mayo|tomato|"
    "relish|"
    "salt|cheese|mustard]|well done|spicy|extra crispy|in a [basket|box]|cut in half|with [everything|the sauce "
    "aside]",
    "ice cream": "in a [cone|cup|tub|waffle|sugar cone|glass]|[with|no|without|extra] [sprinkles|nuts|cream|"
    "chocolate "
    "sauce|cherries|wafers]|with two spoons|with a wafer|without a spoon|dipped in chocolate",
    "sandwiches": "on [toast|rye|white bread|brown bread|a bagel|a baguette]|[with|no|without|extra|with extra|hold "
    "the] "
    "[mustard|mayo|tomatoes|lettuce|pickles|cucumber|butter|onions]|toasted|not toasted|cut in half|without crusts|"
    "warm",
    "sushi": "[with|no|without|extra|with extra] [ginger|wasabi|soy sauce|sesame|chili|spring onions|egg]|spicy|"
    "very spicy|"
    "mild|not too spicy|with chopsticks|with a fork|on rice|without sesame",
    "flowers": "wrapped|gift wrapped|in a vase|with a [card|bow|ribbon]|without thorns|with long stems|in [white|"
    "brown|"
    "silver] paper|as a gift|cut short|with some green|in a basket|tied together",
    "juice": "[with|no|without|extra|with extra|with less] [ice|ginger|honey|mint|sugar|pulp|lemon]|cold|in a "
    "[bottle|glass|jar]|without a straw|with a straw|with two straws",
    "cheese": "[in|as] [one piece|thin slices|cubes|two pieces]|sliced|thinly sliced|grated|without rind|in paper|"
    "wrapped|"
    "not too [old|thick|salty]|mild|in small pieces",
    "groceries": "in a [bag|box|net]|without a bag|washed|ripe|not too ripe|unsalted|organic|peeled|cut in half|"
    "with leaves",
}  # fmt: skip
_DONE_ANYWHERE = (
    "gift wrapped|in a [bag|box]|without a [bag|box|lid|label|receipt]|with a [lid|label|ribbon|handle|card]|as a "
    "gift|"
    f"in {_COLOR}|cut in half|engraved|unwrapped|wrapped up|in one bag|in two bags|with a receipt|size [two|six|"
    "nine|L|M]"
)
#: a way and a thing that nobody thought of
_STRANGE = (
    "[with|with|with|no|no|without|extra|with extra|on|in|with a|in a|without the|filled with|topped with|hold the|"
    "cut for|with lots of|with less|dipped in|with two|on a bed of|wrapped in|made with|with no|ground for|cooked "
    "in|"
    "ready for|with two|less|more] {thing}"
)

#: words before a thing, each list of one kind, so that one can stand for another
BEFORE = [
    "small medium large big mini regular huge tiny giant".split(),
    "red white yellow pink blue purple orange green black brown gray golden silver violet beige".split(),
    "hot iced cold warm frozen lukewarm".split(),
    "single double triple".split(),
    "plain salted sweet spicy mild sour bitter smoked spiced unsalted".split(),
    "vanilla chocolate strawberry mango lemon cherry coconut hazelnut banana mint peach apple ginger caramel".split(),
    "fresh dried grilled toasted steamed baked fried roasted raw boiled".split(),
    "vegan decaf organic homemade lactose-free gluten-free sugar-free local".split(),
    "wooden paper glass metal leather cotton felt plastic woolen silk".split(),
    "long short round square thick thin wide narrow soft hard still sparkling dark light".split(),
]


def made(rng: Random, split: str, kind: str) -> str:
    """Something of two words and more that such a counter may sell."""
    return values.pick(rng, split, lambda: expand(rng, MADE[kind]))


def done_with(rng: Random, kind: str, strange: float = 0.35) -> str:
    """What is to be done with a thing."""
    if rng.random() < strange:
        thing = words.word(rng) if rng.random() < 0.7 else f"{rng.choice(words.LIKE)} {rng.choice(words.THINGS)}"
        return expand(rng, _STRANGE).replace("{thing}", values.coined(rng) if rng.random() < 0.12 else thing)
    text = expand(rng, DONE_WITH.get(kind, _DONE_ANYWHERE))
    if rng.random() < 0.14:
        more = expand(rng, DONE_WITH.get(kind, _DONE_ANYWHERE))
        if more not in text and text not in more:
            text += rng.choice((" and ", " but ")) + more
    return text


def before(rng: Random) -> str:
    """A word before a thing."""
    return rng.choice(words.LIKE) if rng.random() < 0.25 else rng.choice(rng.choice(BEFORE))


def like(rng: Random, word: str) -> str:
    """Another word of the same kind."""
    pool = next((pool for pool in BEFORE if word in pool), words.LIKE)
    return rng.choice([other for other in pool if other != word])
