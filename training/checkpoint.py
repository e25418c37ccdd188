"""What a run leaves behind: its folder with checkpoints and logs."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from training.model import SHAPES, Model, Shape


class Run:
    """A folder: ``run.json`` (shape and settings), ``tokenizer.json``, ``last.pt``, ``stable.pt``, two CSV files.

    ``stable.pt`` is the last checkpoint before the learning rate fell: go on from it to train longer.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.tokenizer = str(self.folder / "tokenizer.json")

    @property
    def settings(self) -> dict[str, Any]:
        path = self.folder / "run.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def describe(self, settings: Mapping[str, Any]) -> None:
        _replace(self.folder / "run.json", lambda path: path.write_text(json.dumps(settings, indent=1)))

    def model(self, checkpoint: str = "last.pt") -> Model:
        """The trained model."""
        model = Model(shape(self.settings))
        model.load_state_dict(self.load(checkpoint)["model"])
        return model

    def load(self, name: str) -> dict[str, Any]:
        return torch.load(self.folder / name, map_location="cpu", weights_only=True)

    def save(self, name: str, state: Mapping[str, Any]) -> None:
        """All or nothing: a checkpoint that was interrupted never stands under its name."""
        _replace(self.folder / name, lambda path: torch.save(dict(state), path))

    def log(self, name: str, row: Mapping[str, Any]) -> None:
        """Append a line to a CSV file."""
        path = self.folder / name
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)


def shape(settings: Mapping[str, Any]) -> Shape:
    """The dimensions that a run was started with."""
    return Shape(**settings["shape"]) if isinstance(settings["shape"], dict) else SHAPES[settings["shape"]]


def _replace(path: Path, write: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    write(unfinished)
    os.replace(unfinished, path)
