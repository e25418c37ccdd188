"""``python -m training.average RUN OTHER FOLDER [--share S]``: a run whose weights are the mean of two ends of one run.

Two ends of a run, a short second stage apart, err in different places; their mean is often better than either
("Model soups", Wortsman et al. 2022, arXiv:2203.05482).  It is taken of the float weights, before they are rounded.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from training.checkpoint import Run


def average(first: Run, second: Run, folder: Path, share: float = 0.5) -> Run:
    """``share`` of the first and the rest of the second; everything else (logs, positions, optimiser) is the second's.

    Raises ValueError for runs of different shapes or vocabularies, or a share outside [0, 1].
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share is from 0 to 1, not {share}")
    ours, state = first.load("last.pt")["model"], second.load("last.pt")
    if {name: each.shape for name, each in ours.items()} != {name: each.shape for name, each in state["model"].items()}:
        raise ValueError("the runs have models of different shapes")
    if Path(first.tokenizer).read_bytes() != Path(second.tokenizer).read_bytes():
        raise ValueError("the runs have different vocabularies")
    for name, weight in state["model"].items():
        if weight.is_floating_point():
            weight.mul_(1 - share).add_(ours[name], alpha=share)
    made = Run(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in second.folder.glob("*.[cj]s*"):  # logs, run.json, tokenizer.json
        shutil.copy(path, folder)
    made.save("last.pt", state)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.average", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("folder", type=Path, help="the run to be made")
    parser.add_argument("--share", type=float, default=0.5, help="of RUN (default 0.5)")
    given = parser.parse_args()
    average(Run(given.run), Run(given.other), given.folder, given.share)


if __name__ == "__main__":
    main()
