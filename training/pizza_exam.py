"""``python -m training.pizza_exam FOLDER``: exact match on PIZZA's 1,357 test orders, an exam that nobody here wrote.

FOLDER is a checkout of amazon-science/pizza-semantic-parsing-dataset @ 814d6d0 (arXiv:2212.00265; CC BY-NC 4.0: it is
run and reported, nothing is learned from it and nothing of it is kept here).  Its catalogues become a house: one pizza
with sizes, styles and toppings as extras, each drink with containers and volumes.  Unordered exact match of whole
orders, as the dataset counts it; "a lot of" and "light" have no operation, so orders with them are missed by the first
figure and count without them in the second.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from edge.kiosk.house import Extra, House, Item
from edge.kiosk.state import State, apply
from edge.kiosk.understand import understand


def catalogue(folder: Path, name: str) -> dict[str, list[str]]:
    """Resolved value -> the names it has."""
    found: dict[str, list[str]] = {}
    for line in (folder / "utils" / "catalogs" / f"{name}.txt").read_text().splitlines():
        if "\t" in line:
            said, value = line.split("\t", 1)
            inner = re.search(r"\((.*)\)", value)
            found.setdefault((inner[1] if inner else value).strip(), []).append(said.strip())
    return found


def pizzeria(folder: Path) -> House:
    """The menu of the dataset as a house; extras and sizes are named by their resolved values."""
    extras: dict[str, Extra] = {}
    groups: dict[str, list[str]] = {}
    for name in ("topping", "style", "container", "drink_volume"):
        for value, said in catalogue(folder, name).items():
            key = f"{name} {value}"
            extras[key] = Extra(key, 0, tuple(said))
            groups.setdefault(name, []).append(key)
    sizes = {said[0]: 0 for said in catalogue(folder, "size").values()}
    on_pizza = (*groups["topping"], *groups["style"])
    items = [Item("PIZZA", sizes, ("pizza", "pie", "pizza pie"), on_pizza)]
    for value, said in catalogue(folder, "drinks").items():
        own = dict.fromkeys(("small", "medium", "large"), 0)
        items.append(Item(value, own, tuple(said), (*groups["container"], *groups["drink_volume"])))
    return House("Pizzeria", extras=extras, items=tuple(items))


def tree(text: str) -> list[Any]:
    """An s-expression as nested lists."""
    stack: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0][0]


def wanted(order: list[Any], quantities: bool) -> Counter[tuple[Any, ...]]:
    """What an order of the dataset holds: (item, size, extras, refused) -> how many."""
    found: Counter[tuple[Any, ...]] = Counter()
    for part in order[1:]:
        item, number, size = "PIZZA", 1, ""
        with_, without = [], []

        def slot(node: list[Any], target: list[str]) -> None:
            nonlocal item, number, size
            match node[0]:
                case "NUMBER":
                    number = int(node[1])
                case "SIZE":
                    size = node[1]
                case "DRINKTYPE":
                    item = node[1]
                case "NOT":
                    for each in node[1:]:
                        slot(each, without)  # noqa: B023
                case "COMPLEX_TOPPING":
                    for each in node[1:]:
                        if each[0] != "QUANTITY":
                            slot(each, target)
                        elif quantities:
                            target.append(f"quantity {each[1]}")
                case "TOPPING" | "STYLE":
                    target.append(f"{node[0].lower()} {node[1]}")
                case "CONTAINERTYPE":
                    target.append(f"container {node[1]}")
                case "VOLUME":
                    target.append("drink_volume " + ",".join(str(each) for each in node[1:]))

        for node in part[1:]:
            slot(node, with_)
        found[item, size, tuple(sorted(with_)), tuple(sorted(without))] += number
    return found


def understood(house: House, text: str, sizes: dict[str, str]) -> Counter[tuple[Any, ...]]:
    state = State()
    for operation in understand(house, state, text).operations:
        state = apply(house, state, operation)
    found: Counter[tuple[Any, ...]] = Counter()
    for line in state.lines:
        found[line.item, sizes.get(line.size, ""), line.extras, line.without] += line.count
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", default="test", choices=["dev", "test"])
    args = parser.parse_args()
    house = pizzeria(args.folder)
    sizes = {said[0]: value for value, said in catalogue(args.folder, "size").items()}
    right: Counter[str] = Counter()
    n = 0
    for line in (args.folder / "data" / f"PIZZA_{args.set}.json").read_text().splitlines():
        record = json.loads(line)
        order = tree(record[f"{args.set}.EXR"])
        got = understood(house, record[f"{args.set}.SRC"], sizes)
        n += 1
        right["exact"] += got == wanted(order, True)
        right["exact, quantities left out"] += got == wanted(order, False)
    for kind, count in right.items():
        print(f"{kind}: {count} of {n}, {count / n:.1%}")


if __name__ == "__main__":
    main()
