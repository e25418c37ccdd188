"""The folder of a run: ``run.json`` (settings), ``tokenizer.json``, ``last.pt`` (checkpoint), ``log.csv``."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from training.model import SHAPES, Model, Shape


class Run:
    """The files that a run leaves.  They are written whole or not at all, whenever it is killed."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.tokenizer = self.folder / "tokenizer.json"
        self.checkpoint = self.folder / "last.pt"

    @property
    def settings(self) -> dict[str, Any]:
        """Empty before the run has begun."""
        path = self.folder / "run.json"
        return json.loads(path.read_text()) if path.exists() else {}

    @property
    def shape(self) -> Shape:
        return replace(SHAPES[self.settings["shape"]], scheme=self.settings["scheme"])

    def begin(self, settings: Mapping[str, Any]) -> None:
        self.write("run.json", lambda path: path.write_text(json.dumps(settings, indent=1) + "\n"))

    def save(self, state: Mapping[str, Any]) -> None:
        self.write("last.pt", lambda path: torch.save(dict(state), path))

    def load(self) -> dict[str, Any]:
        """The last checkpoint.  Raises FileNotFoundError if there is none."""
        return torch.load(self.checkpoint, map_location="cpu", weights_only=True)

    def model(self) -> Model:
        """The model of the last checkpoint."""
        model = Model(self.shape)
        model.load_state_dict(self.load()["model"])
        return model.eval()

    def log(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write log.csv anew: one row for each report of the run."""

        def table(path: Path) -> None:
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)

        self.write("log.csv", table)

    def write(self, name: str, content: Callable[[Path], object]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f".{name}.unfinished"
        content(unfinished)
        os.replace(unfinished, self.folder / name)
