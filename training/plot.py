"""``python -m training.plot RUN [RUN ...]``: loss and held-out curves over tokens, as curves.svg of the first."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def smooth(values: list[float], share: float = 0.02) -> list[float]:
    """Exponential mean, without bias at the beginning."""
    mean, weight, out = 0.0, 0.0, []
    for value in values:
        mean += share * (value - mean)
        weight += share * (1 - weight)
        out.append(mean / weight)
    return out


def draw(folders: list[Path], target: Path) -> None:
    """The loss on the left, held-out nats per token by source on the right; a line style per run."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for folder, style in zip(folders, ("-", "--", ":", "-.")):
        steps = _read(folder / "log.csv")
        tokens = [int(row["tokens"]) / 1e6 for row in steps]
        left.plot(tokens, smooth([float(row["loss"]) for row in steps]), "k" + style, label=folder.name, linewidth=1)
        curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in _read(folder / "held_out.csv"):
            curves[row["source"]].append((int(row["tokens"]) / 1e6, float(row["nats"])))
        for colour, (source, points) in enumerate(curves.items()):
            right.plot(*zip(*points), f"C{colour}{style}", label=f"{folder.name}: {source}", linewidth=1)
    for axis, title in ((left, "training loss (weighted by role)"), (right, "held-out rows of 384 tokens")):
        axis.set(title=title, xlabel="million tokens", ylabel="nats per token", yscale="log")
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=7)
    figure.savefig(target, metadata={"Date": None})


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]]
    draw(folders, folders[0] / "curves.svg")


if __name__ == "__main__":
    main()
