"""``python -m training.demo``: make the demo model of the package, from the corpus to edge/bundled.

The corpus is the folder of dialogues that edge/bundled/README.md lists (``--corpus``).  The run's folder is
training/runs/demo; the same command continues it after an interruption.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from training import agree
from training.export import export
from training.run import Run
from training.train import start

ROOT = Path(__file__).resolve().parents[1]
TOKENS = 110e6  # 19 for each parameter
NAME = "demo"
EXTRA = {
    "general.license": "mit",
    "general.description": "Demonstration model of bitnet-edge, for tests: orders, tickets and small talk at a counter",
}
#: an assistant must not say these: it is no person and reads no cards
UNFIT = re.compile(r"\b(?:my (?:wife|husband|girlfriend|boyfriend|kids|son|daughter)|i'?m (?:a|only) human|turker|"
                   r"mturk|amazon turk|credit card number|social security)\b", re.IGNORECASE)


def fit(messages: list[dict[str, str]]) -> bool:
    """True of a dialogue of the corpus that may be learned."""
    return all(message["content"].strip() for message in messages) and not any(
        message["role"] == "assistant" and UNFIT.search(message["content"]) for message in messages)


def unpack(corpus: Path, split: str, target: Path) -> None:
    """The fit dialogues of all files NAME.SPLIT.jsonl.zst in one file of JSON lines."""
    import zstandard

    packed = sorted(corpus.glob(f"*.{split}.jsonl.zst"))
    if not packed:
        raise FileNotFoundError(f"{corpus} has no file *.{split}.jsonl.zst; --corpus names the folder of the corpus")
    with target.open("w", encoding="utf-8") as out:
        for path in packed:
            with zstandard.open(path, "rt", encoding="utf-8") as file:
                for line in file:
                    messages = json.loads(line)["messages"]
                    if fit(messages):
                        out.write(json.dumps({"messages": messages}) + "\n")


def describe(page: Path, model: Path, run: Run) -> None:
    """Write what edge/bundled/README.md says of the file and of its run."""
    text, state = page.read_text(), run.load()
    weights = (run.folder / "huggingface" / "model.safetensors").read_bytes()
    rows = {
        "file": f"`{model.name}`, {model.stat().st_size:,} bytes",
        "SHA-256": f"`{hashlib.sha256(model.read_bytes()).hexdigest()}`",
        "trained": f"{state['steps']:,} steps, {state['tokens'] / 1e6:.2f} M tokens",
        "made from": f"`model.safetensors` (float32) with SHA-256 `{hashlib.sha256(weights).hexdigest()}`",
    }
    for row, said in rows.items():
        text, n = re.subn(rf"(?m)^\| {row} \|.*$", f"| {row} | {said} |", text)
        if n != 1:
            raise ValueError(f"{page} has no row {row!r}")
    page.write_text(text)


def make(folder: Path, corpus: Path, target: Path, settings: dict[str, Any]) -> None:
    """Train in ``folder``, export, compare with the engine, put the file into ``target``."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"text": folder / "train.jsonl", "held_out": folder / "valid.jsonl"}
    if not Run(folder).settings:
        for split, path in zip(("train", "valid"), texts.values()):
            unpack(corpus, split, path)
    run = start(folder, {**{name: [str(path)] for name, path in texts.items()}, **settings})
    made = export(run, NAME, EXTRA)
    found = agree.compare(agree.of_trainer(run.model()), agree.of_engine(made), agree.texts_of(run))
    print(f"engine: {found}")
    if found.same < 0.99 * found.tokens or found.kl > 1e-3:
        raise ValueError(f"engine and trainer disagree; {made} is not installed")
    describe(target / "README.md", made, run)
    print(shutil.copy(made, target))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the demo model of the package.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--run", type=Path, default=ROOT / "training" / "runs" / "demo", help="folder of the run")
    parser.add_argument("--to", type=Path, default=ROOT / "edge" / "bundled", help="folder of the model and its page")
    parser.add_argument("--tokens", type=float, default=TOKENS, help="train on so many (default 110e6)")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    given = parser.parse_args()
    try:
        make(given.run, given.corpus, given.to, {"tokens": given.tokens, "device": given.device})
    except (OSError, ValueError, FloatingPointError) as error:
        parser.exit(1, f"training: {error}\n")
    except KeyboardInterrupt:
        print("\nstopped; the same command continues from the last checkpoint", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
