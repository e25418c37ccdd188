"""Where the golden data is, and its arrays: NAME.npz has those of several models, each with the key MODEL/KEY."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

VECTORS = Path(__file__).resolve().parent
TINY = sorted((VECTORS / "tiny_gguf").glob("*.gguf"))


def layout_of(path: Path) -> str:
    """The layout of I2_S in a file, by its name."""
    return "64" if "i2s64" in path.name else "128"


def tiny(index: int) -> Any:
    """The checkpoint of one of TINY."""
    from edge.formats import open_checkpoint

    return open_checkpoint(TINY[index], i2s_layout=layout_of(TINY[index]))


def read(archive: str, model: str) -> dict[str, np.ndarray]:
    """The arrays of a model in an archive, by their names."""
    with np.load(VECTORS / f"{archive}.npz") as stored:
        return {key.removeprefix(f"{model}/"): stored[key] for key in stored.files if key.startswith(f"{model}/")}


def write(archive: str, model: str, arrays: dict[str, np.ndarray]) -> None:
    """Add the arrays of a model to an archive, in place of those of the same names."""
    path = VECTORS / f"{archive}.npz"
    with np.load(path) as stored:
        kept = {key: stored[key] for key in stored.files}
    np.savez_compressed(path, **kept | {f"{model}/{key}": each for key, each in arrays.items()})


@cache
def oracle() -> Path:
    """The folders MODEL/VARIANT of oracle.json, as transformers writes them; deleted when this process ends."""
    root, parent = Path(tempfile.mkdtemp(prefix="bitnet-edge-oracle-")), os.getpid()

    @atexit.register
    def delete() -> None:
        if os.getpid() == parent:  # not in a fork
            shutil.rmtree(root, ignore_errors=True)

    for name, config in json.loads((VECTORS / "oracle.json").read_text())["configs"].items():
        folder = root / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").symlink_to(VECTORS / "oracle" / f"{name.replace('/', '.')}.safetensors")
    return root
