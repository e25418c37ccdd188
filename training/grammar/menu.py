"""What things cost and contain: the price list, questions about it, and bills."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.grammar import ask_prices, tariff, values
from training.grammar.shop import GOODS_OF, Shop, item_of
from training.grammar.text import Voice, expand, listed, number, plural, sentence

TILL = "The till shows the total."
ALLERGENS = "nuts milk eggs gluten soy sesame fish mustard celery peanuts wheat almonds lactose shellfish".split()

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
ASK_SUM = [
    "[how much|what] [are|is|would be|do you want for|do i pay for] {items}[ together| in total| altogether|]?",
    "[price|cost|total] [of|for] {items}[, please|?|]", "what do {items} cost[ together|]?",
    "{items}[,|:] [how much|what does that cost|what's the total|how much together]?",
    "if [i|we] [take|buy|get] {items}, [how much|what does it cost|what do i pay|what's the price]?",
    "how [much money|many dollars] for {items}?", "what would [i|we] pay for {items}?",
    "[tell me|can you tell me] what {items} [cost|come to][, please|]", "[add|count] up {items}[ for me|][, please|]",
]  # fmt: skip
ASK_MENU = [
    "what do you [have|sell|offer|serve]?", "what's on the menu?", "what is there [to eat|to drink|to buy|]?",
    "can i [see|hear|have] the menu[, please|]?", "what can i [get|order|buy|have][ here|]?",
    "[menu|the menu][, please|]?",
    "[please|] tell me what you have.", "what are my options?", "read me the menu[, please|].",
    "what kinds of things do you sell?",
    "show me the menu[, please|].", "which things do you have?", "what do you [guys|] have today?",
    "what have you got[ here| there| today| in stock| on offer|]?", "what [all |]is [available|on sale|on offer]?",
    "[which|what] [drinks|snacks|goods|things|items] [are there|can i get|are on sale|do you offer|are left]?",
    "[list|name|tell me|read out|give me] [all|everything|every thing|all the things|all items|each item] "
    "[you have|you sell|on the menu|there is|on your list|i can buy][, please|]",
    "what [is it that you|exactly do you] [sell|serve|offer|have]?", "[menu|list|card] [please|?|for me, please]",
    "[my first time here|i don't know this place|i have no glasses on|i can't find the menu|it's too dark to read]"
    "[, |. |: ]what [do you have|is there|can i get|do you sell]?",
    "what could [i|we|one|somebody] [order|take|have|get|buy][ here| today| now|]?",
    "[go|run|walk me|take me] through [the menu|your menu|the list|your goods][ with me| once| quickly|][, please|]",
    "what's [the choice|the selection|your offer|in the shop|in stock|available|on the list|on the card|for sale]?",
    "[do you have|is there|have you got] a [menu|card|list][ here|]?",
    "what [choice|choices|options] [is there|are there|do we have]?",
    "[let me|may i|can i] [know|hear] [what you have|what there is|what is on the menu|your goods][, please|?|]",
    "[the whole|your] [menu|list], [please|from top to bottom|one by one]",
    "what do you [make|cook|bake|keep] here?",
    "[i'm|we are] [hungry|thirsty|curious|new here][. |, ]what [do you have|is there|can we get]?",
    "[before i order|first of all|to begin with][:|,] what [do you have|is there|do you sell]?",
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


def whole(shop: Shop) -> str:
    """We have rye bread $4.50, cocoa $3.00.

    Row by row as lists are mostly written: an "and" must be known before the last thing is read, and the model, which
    copies from left to right, went on for ever.
    """
    rows = [f"{item} {money}" for item, money in shop.prices.items()] or [plural(item) for item in shop.shelf]
    return f"We have {', '.join(rows)}".rstrip(".") + "."


def _menu_turn(rng: Random, voice: Voice, shop: Shop) -> tuple[str, str]:
    """What is on the menu: all of it, in its order."""
    asked = voice.says(rng.choice(ASK_MENU))
    if not shop.prices and not shop.shelf:
        return asked, "I have no menu here. Tell me what you would like."
    return asked, whole(shop)


def price_turns(rng: Random, voice: Voice, shop: Shop, split: str) -> list[tuple[str, str]]:
    """What does it cost, what is on the menu."""
    if rng.random() < 0.55 and shop.kind in GOODS_OF and shop.orders:
        return [_menu_turn(rng, voice, shop)]
    if shop.prices and rng.random() < 0.88:
        return [_price_turn(rng, voice, shop, rng.choice(list(shop.prices)))]
    item = item_of(rng, split, shop.kind if shop.kind in GOODS_OF else "snacks", 0.5)
    known = {word for label in shop.prices for word in label.lower().split()}
    if known & {form for word in item.lower().split() for form in (word, plural(word), word.rstrip("s"))}:
        return [_price_turn(rng, voice, shop, rng.choice(list(shop.prices)))]
    if rng.random() < 0.5:
        asked = _ask_price(rng, voice, rng.choice(ASK_PRICE), item)
    else:
        pattern, filled = ask_prices.ask(rng, Shop(shop.kind, prices={item: ""}), item)
        asked = voice.says(pattern, **filled)
    return [(asked, f"Sorry, I do not know the price of the {item}. Please ask the staff.")]


def _price_turn(rng: Random, voice: Voice, shop: Shop, item: str, after: bool = False) -> tuple[str, str]:
    """One thing of the list, asked for by its name or another; ``after`` another it may be short."""
    if item in shop.calls or rng.random() < 0.5:
        pattern, filled = ask_prices.ask(rng, shop, item, after)
        return voice.says(pattern, **{key: voice.form(value) for key, value in filled.items()}), ask_prices.answer(
            shop, item)
    return _ask_price(rng, voice, rng.choice(ASK_PRICE), item), ask_prices.answer(shop, item)


def bill(shop: Shop, lines: list[tuple[int, str, str]]) -> str:
    """Lines as (count, how it is read back, item): Two lattes at $3.50 each, one scone at $2.50. The till ...

    Prices are read from the list and nothing is worked out: a model this small multiplies wrongly and does not know it.
    """
    rows = [f"{text} at {shop.prices[item]}" + (" each" if n > 1 else "") for n, text, item in lines]
    return ", ".join(rows) + ". " + TILL


def _sum_turn(rng: Random, voice: Voice, shop: Shop) -> tuple[str, str]:
    """What one or two things cost together, a few of each: the price of each."""
    lines, spoken = [], []
    for item in rng.sample(list(shop.prices), min(len(shop.prices), rng.choice((1, 2, 2)))):
        n = rng.choice((1, 1, 2, 2, 3))
        noun = item if n == 1 else plural(item)
        lines.append((n, f"{number(n)} {noun}", item))
        count = rng.choice((number(n), number(n), str(n)))
        spoken.append(f"{count} {voice.form(noun)}")
    if len(lines) == 1 and lines[0][0] == 1:
        return _price_turn(rng, voice, shop, lines[0][2])
    return voice.says(rng.choice(ASK_SUM), items=listed(spoken)), sentence(bill(shop, lines))


def price_drill(rng: Random, voice: Voice, shop: Shop) -> list[tuple[str, str]]:
    """The price list looked up row by row."""
    if shop.orders and rng.random() < 0.25:
        return [_sum_turn(rng, voice, shop) for _ in range(rng.randint(2, 4))]
    found: list[tuple[str, str]] = []
    if shop.orders and shop.kind in GOODS_OF and rng.random() < 0.75:
        found.append(_menu_turn(rng, voice, shop))
    for item in rng.sample(list(shop.prices), rng.randint(2, len(shop.prices)) if len(shop.prices) > 1 else 1):
        found.append(_price_turn(rng, voice, shop, item, bool(found)))
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


# ---- as it is written ----------------------------------------------------------------------------------------------


def written(rng: Random, split: str, shop: Shop) -> str:
    """The price list: two to six goods."""
    amount = tariff.amounts(rng, shop.sign)
    n = rng.randint(2, 6)
    coined = rng.choice((0.0, 0.3, 0.6, 1.0))
    items: list[str] = []
    while len(items) < n:
        item = item_of(rng, split, shop.kind, coined)
        if not any(item in other or other in item for other in items):
            items.append(item)
    if rng.random() < 0.3:
        return _sized(rng, split, shop, items, amount)
    shop.prices.update((item, amount()) for item in items)
    style = rng.choice(("{m}", "{m}", "{m}", "costs", "is", "for", "colon"))
    rows = []
    for item, money in shop.prices.items():
        article = "an" if item[0] in "aeio" else "a"
        row = {"costs": f"{item} costs {money}", "is": f"{article} {item} is {money}", "for": f"{item} for {money}",
               "colon": f"{item}: {money}"}.get(style, f"{item} {money}")  # fmt: skip
        rows.append(row)
    head = rng.choice(("Menu: ", "Prices: ", "We sell ", "Price list: ", "On the menu: ", "We have ", "", "Menu: ",
        "Goods: ", "On sale: ", "You can buy ", "Our goods: ", "The card: ", "At the counter: ", "Our prices: ",
        "The board says ", "Fresh: ", "In the window: ", "Today: ", "Sold here: ", "People come for ", "There is ",
        "To eat and drink: ", "Our cooks make ", "The shelf holds ", "Customers may order ", "Available: "))
    if style in ("costs", "is"):
        head = rng.choice(("", "Prices: ", "Menu: "))
    return head + (listed(rows) if rng.random() < 0.5 else rng.choice((", ", "; ", ", ")).join(rows))


def shelf(rng: Random, split: str, shop: Shop) -> str:
    """What there is, without prices."""
    for _ in range(rng.randint(2, 6)):
        item = item_of(rng, split, shop.kind)
        if not any(item in other or other in item for other in shop.shelf):
            shop.shelf.append(item)
    rows = [plural(item) for item in shop.shelf]
    joined = listed(rows) if rng.random() < 0.6 else ", ".join(rows)
    return expand(rng, f"[we sell|we have|on the shelf:|in the window:|today:|you can get|fresh every day:|] {joined}")


#: sizes as a list puts them behind a thing
_SIZES = ["small|medium|large", "small|large", "small|large", "small|medium|large", "regular|large", "mini|regular",
          "single|double", "half|whole", "hot|iced", "short|tall", "small|big", "plain|filled"]  # fmt: skip


def _sized(rng: Random, split: str, shop: Shop, items: list[str], amount: Callable[[], str]) -> str:
    """Tea: small $3, large $4. Bun $2. Each size is a row of its own."""
    sizes, rows = rng.choice(_SIZES).split("|"), []
    colon, joint = rng.choice((": ", ": ", " ", " - ")), rng.choice((", ", ", ", " or ", " / "))
    for item in items[:4]:
        ours = split != "train" or all(values.split_of(f"{size} {item}") == split for size in sizes)
        if ours and rng.random() < 0.75 and not set(sizes) & set(item.split()):
            shop.sizes[item] = sizes
            shop.prices.update((f"{size} {item}", amount()) for size in sizes)
            rows.append(item + colon + joint.join(f"{size} {shop.prices[f'{size} {item}']}" for size in sizes))
        else:
            shop.prices[item] = amount()
            rows.append(f"{item} {shop.prices[item]}")
    return rng.choice(("", "Menu: ", "Prices: ")) + rng.choice((". ", "; ", ", ")).join(sentence(row) for row in rows)


def contents(rng: Random, shop: Shop) -> str:
    """Which goods contain what."""
    items = rng.sample(list(shop.prices), rng.randint(1, min(3, len(shop.prices))))
    parts = []
    for item in items:
        inside = shop.contents[item] = rng.sample(ALLERGENS, rng.choices((1, 2, 3), (5, 3, 1))[0])
        row = f"[the {item}|{item}|every {item}] [contains|has|contains|is made with] {listed(inside)}"
        parts.append(expand(rng, row))
    head = rng.choice(("", "Allergens: ", "Allergy notes: ", "Please note: "))
    return head + rng.choice((". ", ", ", "; ")).join(parts) if head else ". ".join(sentence(p) for p in parts)
