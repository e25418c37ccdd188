"""``python -m training.train RUN --text FILE --tokens N``: train a model in the folder RUN.

The same command, or ``python -m training.train RUN``, continues a run that was killed from its last checkpoint, and
ends with the same weights, to the bit, as a run that was not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training import data, tokenizer
from training.data import Rows
from training.model import SHAPES, Model
from training.quantise import SCHEMES
from training.run import Run

CLIP = 1.0  # largest norm of the gradient
HELD_OUT_ROWS = 8

DEFAULTS: dict[str, Any] = {
    "text": [], "held_out": [], "tokens": None, "shape": "xs", "scheme": "b1.58", "batch": 4096, "peak": 8e-3,
    "seed": 0, "report": 100, "device": "cpu", "compile": True,
}


# These change during a run: learning rate, weight decay, length of the rows, each a function of the share of the run's
# tokens that have been trained on, in [0, 1].  Rate and decay follow the two stages of "The Era of 1-bit LLMs: Training
# Tips, Code and FAQ" (microsoft/unilm, bitnet): a high rate with decay; from half-way a lower one, falling to 0.
WARM_UP = 0.03
SECOND_STAGE = 0.5
SECOND_RATE = 0.4  # of the first stage's
DECAY = 0.1
LONG_ROWS = 0.85  # rows have the length of the context from here on
SHORT_ROW = 512


def learning_rate(progress: float, peak: float) -> float:
    """Linear to ``peak`` during the warm-up, constant to half-way, then from 0.4 of it linearly to 0."""
    if progress < SECOND_STAGE:
        return peak * min(1.0, progress / WARM_UP)
    return peak * SECOND_RATE * (1 - progress) / (1 - SECOND_STAGE)


def weight_decay(progress: float) -> float:
    return DECAY if progress < SECOND_STAGE else 0.0


def row_length(progress: float, n_ctx: int) -> int:
    """Tokens of a row: short ones cost less, and the last share of the run teaches the whole context."""
    return min(SHORT_ROW, n_ctx) if progress < LONG_ROWS else n_ctx


class Optimizer:
    """Muon for the projections, AdamW for embedding and norms, under one learning rate and one weight decay.

    Muon (Keller Jordan, https://kellerjordan.github.io/posts/muon) makes the momentum of a matrix orthogonal, so that
    every direction moves equally far.  The length of its steps is matched to AdamW's (arXiv:2502.16982, section 2.2).
    """

    def __init__(self, model: Model) -> None:
        matrices = [parameter for parameter in model.layers.parameters() if parameter.ndim == 2]
        norms = [parameter for parameter in model.parameters() if parameter.ndim == 1]
        self.muon = torch.optim.Muon(matrices, lr=0.0, momentum=0.95, adjust_lr_fn="match_rms_adamw")
        groups = [{"params": [model.embed_tokens.weight]}, {"params": norms, "decays": False}]
        self.adamw = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95))

    def step(self, lr: float, weight_decay: float) -> None:
        for optimizer in (self.muon, self.adamw):
            for group in optimizer.param_groups:
                group["lr"], group["weight_decay"] = lr, weight_decay if group.get("decays", True) else 0.0
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self.muon.state_dict(), "adamw": self.adamw.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.muon.load_state_dict(state["muon"])
        self.adamw.load_state_dict(state["adamw"])


class Trainer:
    """A run in memory: at its beginning, or where its last checkpoint was written."""

    def __init__(self, run: Run) -> None:
        self.run, self.settings = run, run.settings
        seed, self.device = self.settings["seed"], self.settings["device"]
        self.model = Model(run.shape, seed).to(self.device)
        self.optimizer = Optimizer(self.model)
        vocabulary = tokenizer.load(run.tokenizer)
        self.rows = Rows(vocabulary, _read(self.settings["text"]), seed)
        self.held_out = Rows(vocabulary, _read(self.settings["held_out"]), 0) if self.settings["held_out"] else None
        self.loss = torch.compile(self.model.loss, dynamic=False) if self.settings["compile"] else self.model.loss
        self.steps, self.tokens = 0, 0
        self.reports: list[dict[str, Any]] = []  # the rows of log.csv
        if run.checkpoint.exists():
            self.resume()

    @property
    def progress(self) -> float:
        return min(1.0, self.tokens / self.settings["tokens"])

    def forward(self, rows: Rows, n_token: int, length: int) -> torch.Tensor:
        """The loss of the next rows, about ``n_token`` together; matrices are multiplied in bfloat16."""
        batch = (part.to(self.device) for part in rows.batch(max(1, n_token // length), length))
        with torch.autocast(torch.device(self.device).type, torch.bfloat16):
            return self.loss(*batch)

    def step(self) -> float:
        """One step of the optimizer -> the loss before it, in nats per token."""
        length = row_length(self.progress, self.model.shape.n_ctx)
        loss = self.forward(self.rows, self.settings["batch"], length)
        self.model.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        if not math.isfinite(norm):
            raise FloatingPointError(f"the gradient is {norm} at step {self.steps}: try a lower --peak")
        self.optimizer.step(learning_rate(self.progress, self.settings["peak"]), weight_decay(self.progress))
        self.steps += 1
        self.tokens += max(1, self.settings["batch"] // length) * length
        return loss.item()

    def train(self) -> None:
        """To the end, with a checkpoint and a report every so many steps."""
        while self.progress < 1:
            begun, before = time.monotonic(), self.tokens
            losses: list[float] = []
            while self.progress < 1 and (not losses or self.steps % self.settings["report"]):
                losses.append(self.step())
            speed = (self.tokens - before) / (time.monotonic() - begun)
            self.reports.append({"step": self.steps, "tokens": self.tokens, "loss": sum(losses) / len(losses),
                                 "held_out": self.evaluate(), "tokens_per_s": round(speed)})
            self.save()
            print(self.line(speed), flush=True)

    @torch.no_grad()
    def evaluate(self) -> float | None:
        """The loss on the same few rows of the held-out text each time."""
        if self.held_out is None:
            return None
        length = min(512, self.model.shape.n_ctx)
        self.held_out.drawn = 0
        return self.forward(self.held_out, HELD_OUT_ROWS * length, length).item()

    def line(self, speed: float) -> str:
        """The last report, for people."""
        last, total = self.reports[-1], self.settings["tokens"]
        held_out = "" if last["held_out"] is None else f"  held out {last['held_out']:.3f}"
        left = max(0, total - self.tokens) / speed / 60
        return (f"step {self.steps}  {self.tokens / 1e6:.2f} of {total / 1e6:.2f} M tokens  loss {last['loss']:.3f}"
                f"{held_out}  {speed:.0f} tokens/s  {left:.0f} min left")

    def save(self) -> None:
        self.run.save({
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "steps": self.steps,
            "tokens": self.tokens, "drawn": self.rows.drawn, "text": len(self.rows.ids), "reports": self.reports,
        })
        self.run.log(self.reports)

    def resume(self) -> None:
        state = self.run.load()
        if state["text"] != len(self.rows.ids):
            raise ValueError(f"the text has {len(self.rows.ids)} tokens, but {state['text']} when the run began")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps, self.tokens, self.rows.drawn = state["steps"], state["tokens"], state["drawn"]
        self.reports = state["reports"]


def _read(paths: list[str]) -> Iterator[data.Dialogue]:
    return data.read(map(Path, paths))


def start(folder: str | os.PathLike[str], given: dict[str, Any]) -> Run:
    """Train in ``folder`` to the end; ``given`` are settings of DEFAULTS that are not as there.

    Raises ValueError if a run has begun there with others, or cannot begin with these; OSError for text it cannot read.
    """
    run = Run(folder)
    given = given | {name: [str(Path(path).resolve()) for path in given[name]] for name in ("text", "held_out")
                     if name in given}
    if not run.settings:
        settings = DEFAULTS | given
        if not settings["text"] or not settings["tokens"]:
            raise ValueError("a new run needs --text and --tokens")
        vocabulary = tokenizer.train(_read(settings["text"]), SHAPES[settings["shape"]].n_vocab)
        run.write("tokenizer.json", lambda path: vocabulary.save(str(path)))
        run.begin(settings)
    for name, value in given.items():
        if run.settings[name] != value:
            raise ValueError(f"{folder} was begun with {name} {json.dumps(run.settings[name])}; for another, "
                             "begin in a new folder")
    Trainer(run).train()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a ternary model, or continue a run.",
                                     argument_default=argparse.SUPPRESS)
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("--text", nargs="+", metavar="FILE", help="dialogues in JSON lines (training/data.py)")
    parser.add_argument("--held-out", nargs="+", metavar="FILE", help="dialogues that are scored at each report")
    parser.add_argument("--tokens", type=float, help="train on so many tokens, such as 20e6")
    parser.add_argument("--shape", choices=SHAPES, help="dimensions of the model (default xs, 5.8 M parameters)")
    parser.add_argument("--scheme", choices=SCHEMES, help="rounding (training/quantise.py; default b1.58)")
    parser.add_argument("--batch", type=int, help="tokens of a step (default 4096)")
    parser.add_argument("--peak", type=float, help="highest learning rate (default 0.008)")
    parser.add_argument("--seed", type=int, help="of weights and order (default 0)")
    parser.add_argument("--report", type=int, metavar="STEPS", help="steps between checkpoints (default 100)")
    parser.add_argument("--device", help="cpu (default) or cuda")
    parser.add_argument("--no-compile", dest="compile", action="store_false",
                        help="do without torch.compile, which needs a C++ compiler and a minute at the beginning")
    given = vars(parser.parse_args())
    try:
        start(given.pop("run"), given)
    except (OSError, ValueError, FloatingPointError) as error:
        parser.exit(1, f"training: {error}\n")
    except KeyboardInterrupt:
        print("\nstopped; the same command continues from the last checkpoint", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
