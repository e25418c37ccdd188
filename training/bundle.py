"""``python -m training.bundle FOLDER --run RUN``: make an export the model that ships.

Copies FOLDER/NAME.gguf to edge/bundled and writes what edge/bundled/README.md says of the file and of the run.
After it:
``python tests/vectors/make_golden.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path

from training.checkpoint import Run

MODELS = Path(__file__).resolve().parents[1] / "edge" / "bundled"


def rows(model: bytes, master: bytes, run: Run) -> dict[str, str]:
    """Row of the page's tables -> what it says."""
    state = run.load("last.pt")
    return {
        "file": f"`kiosk-5m.gguf`, {len(model):,} bytes",
        "SHA-256": f"`{hashlib.sha256(model).hexdigest()}`",
        "trained": f"{state['step']:,} steps, {state['tokens'] / 1e6:.2f} M tokens",
        "made from": f"`model.safetensors` (float32) with SHA-256 `{hashlib.sha256(master).hexdigest()}`",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", required=True)
    given = parser.parse_args()
    model = (given.folder / "kiosk-5m.gguf").read_bytes()
    page = MODELS / "README.md"
    text = page.read_text()
    for row, said in rows(model, (given.folder / "master" / "model.safetensors").read_bytes(), Run(given.run)).items():
        text, n = re.subn(rf"(?m)^\| {row} \|.*$", f"| {row} | {said} |", text)
        assert n == 1, f"{page} has no row {row!r}"
    (MODELS / "kiosk-5m.gguf").write_bytes(model)
    page.write_text(text)
    print(f"edge/bundled/kiosk-5m.gguf: {len(model):,} bytes; now python tests/vectors/make_golden.py")


if __name__ == "__main__":
    main()
