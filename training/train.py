"""``python -m training.train RUN``: train a model, or go on where the run was interrupted.

One process per core with one thread each (gloo), or one process on a GPU.  The run ends after ``--tokens``, or paced
so that it ends at ``--deadline``: then progress, and with it learning rate and phases, follows the clock.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import torch
import torch.distributed as dist

from training.checkpoint import Run, shape
from training.data import SHARDS, Position, Shard, load_tokenizer
from training.model import SHAPES, Model
from training.optimizer import Optimizer
from training.schedule import EVERYTHING, HALF_WAY, Phase, learning_rate, weight_decay

CLIP = 1.0
SAVE_SECONDS = 300
REPORT_STEPS = 20
EVALUATE_STEPS = 150

#: what the small evaluations in between look at: assistant turns of our own kind, everything of the corpus
_ANSWERS = {"assistant": 1.0, "user": 0.0, "system": 0.0}
HELD_OUT = {
    "kiosk": Phase(1, 384, {"kiosk": 1}, _ANSWERS),
    "faq": Phase(1, 384, {"faq": 1}, _ANSWERS),
    "task": Phase(1, 384, {"task": 1}, EVERYTHING),
    "free": Phase(1, 384, {"free": 1}, EVERYTHING),
}


class Trainer:
    """One process of a run."""

    def __init__(self, run: Run, rank: int, world: int) -> None:
        self.run, self.rank = run, rank
        self.settings = run.settings
        self.device = self.settings["device"]
        self.model = Model(shape(self.settings), self.settings["seed"]).to(self.device)
        self.optimizer = Optimizer(self.model)
        self.step, self.tokens, self.progress = 0, 0, 0.0
        tokenizer = load_tokenizer(run.tokenizer)
        mine = range(rank, SHARDS, world)
        self.shards = {number: Shard(tokenizer, self.settings["seed"], number) for number in mine}
        self.held_out = {
            name: [Shard(tokenizer, 0, number, "valid", lambda _, phase=phase: phase) for number in mine]
            for name, phase in HELD_OUT.items()
        }
        # Gradients lie in one array, behind them what else the processes tell one another: one exchange per step.
        sizes = [parameter.numel() for parameter in self.optimizer.parameters]
        self.flat = torch.zeros(sum(sizes) + 5, device=self.device)
        self.gradient, self.told = self.flat[:-5], self.flat[-5:]
        for parameter, part in zip(self.optimizer.parameters, self.gradient.split(sizes)):
            parameter.grad = part.view_as(parameter)
        compiled = torch.compile(self.model.loss, dynamic=False) if self.settings["compile"] else self.model.loss
        self.loss = lambda batch: compiled(*(part.to(self.device) for part in batch), torch.bfloat16)
        self.stop = False

    # ---- one step ----

    def train_step(self, seconds: float) -> tuple[float, float, bool, bool]:
        """-> loss (nats per weighted token), gradient norm, whether to save, whether to stop.

        ``seconds``: length of the step before, on which the pace depends.
        """
        self.flat.zero_()
        loss = weight = tokens = 0.0
        for shard in self.shards.values():
            batch = shard.batch(self.step, self.settings["batch"], self.progress)
            nats = self.loss(batch)
            nats.backward()
            loss += nats.item()
            weight += batch[2].sum().item()
            tokens += batch[0].numel()
        save, advance = (self.due(), self.pace(seconds)) if self.rank == 0 else (False, 0.0)
        self.told.copy_(torch.tensor([weight, loss, tokens, float(self.stop) + 16 * save, advance]))
        if dist.is_initialized():
            dist.all_reduce(self.flat)
        weight, loss, tokens, flags, advance = self.told.double().tolist()
        self.gradient.div_(weight)
        norm = self.gradient.norm().item()
        if not math.isfinite(norm):
            raise FloatingPointError(f"gradient is {norm} at step {self.step}")
        if norm > CLIP:
            self.gradient.mul_(CLIP / norm)
        self.optimizer.step(learning_rate(self.progress, self.settings["peak"]), weight_decay(self.progress))
        self.step += 1
        self.tokens += int(tokens)
        before = self.progress
        total = self.settings["tokens"]
        self.progress = min(1.0, self.tokens / total if total else before + advance)
        if before < HALF_WAY <= self.progress:
            self.save("stable.pt")
        return loss / weight, norm, flags >= 16, flags % 16 > 0

    def pace(self, seconds: float) -> float:
        """How much progress a step is worth: what is left of it, shared out over the time that is left."""
        if self.settings["tokens"]:
            return 0.0
        left = self.settings["deadline"] - time.time()
        # Out of what was left before that step: one that took long (compiling, a pause) does not end the run.
        return 1.0 if left <= 0 else (1 - self.progress) * seconds / (left + seconds)

    def due(self) -> bool:
        return time.monotonic() - self.saved > SAVE_SECONDS

    # ---- the run ----

    def train(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_to_stop)
        self.saved = time.monotonic()
        bar = Bar(self.settings)
        seconds, stop = 1.0, self.progress >= 1
        while self.progress < 1 and not stop:
            begun = time.perf_counter()
            tokens, progress = self.tokens, self.progress
            loss, norm, save, stop = self.train_step(seconds)
            seconds = time.perf_counter() - begun
            if self.rank == 0:
                lr = learning_rate(progress, self.settings["peak"])
                speed = (self.tokens - tokens) / seconds
                self.run.log("log.csv", {
                    "step": self.step, "tokens": self.tokens, "progress": f"{progress:.6f}", "lr": f"{lr:.6g}",
                    "loss": f"{loss:.5f}", "norm": f"{norm:.4f}",
                    "tokens_per_s": f"{speed:.0f}", "time": f"{time.time():.0f}",
                })  # fmt: skip
                bar.show(self.step, self.tokens, self.progress, loss)
            if self.step % EVALUATE_STEPS == 0:
                self.evaluate()
            if save:
                self.save("last.pt")
        self.save("last.pt")
        self.evaluate()
        if self.rank == 0:
            bar.end("stopped" if self.progress < 1 else "done")

    def evaluate(self) -> None:
        """Nats per token on a few held-out rows, the same ones each time."""
        for name, shards in self.held_out.items():
            told = torch.zeros(2)
            for shard in shards:
                shard.begin(Position(0))
                batch = shard.batch(0, self.settings["batch"], 0.0)
                told += torch.tensor([self.loss(batch).item(), batch[2].sum().item()])
            if dist.is_initialized():
                dist.all_reduce(told)
            if self.rank == 0:
                nats = f"{told[0] / told[1]:.4f}"
                self.run.log("held_out.csv", {"step": self.step, "tokens": self.tokens, "source": name, "nats": nats})

    # ---- checkpoints ----

    def save(self, name: str) -> None:
        positions: list[Any] = [{number: asdict(shard.start) for number, shard in self.shards.items()}]
        if dist.is_initialized():
            positions = [None] * dist.get_world_size()
            dist.all_gather_object(positions, {number: asdict(shard.start) for number, shard in self.shards.items()})
        if self.rank == 0:
            self.run.save(name, {
                "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "step": self.step, "tokens": self.tokens, "progress": self.progress,
                "positions": {number: position for part in positions for number, position in part.items()},
            })  # fmt: skip
        self.saved = time.monotonic()

    def resume(self, name: str = "last.pt") -> None:
        state = self.run.load(name)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.tokens, self.progress = state["step"], state["tokens"], state["progress"]
        if self.settings["tokens"]:  # perhaps more of them than before
            self.progress = min(1.0, self.tokens / self.settings["tokens"])
        elif self.settings["progress"] is not None:
            self.progress = self.settings["progress"]
        for number, shard in self.shards.items():
            shard.begin(Position(**state["positions"][number]))

    def _ask_to_stop(self, *_: object) -> None:
        self.stop = True


class Bar:
    """A line of progress: overwritten on a terminal, now and then a new one elsewhere."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.last: tuple[float, int] | None = None

    def show(self, step: int, tokens: int, progress: float, loss: float) -> None:
        if step % REPORT_STEPS:
            return
        now = time.time()
        speed = f"{(tokens - self.last[1]) / (now - self.last[0]):6.0f} tokens/s" if self.last else ""
        self.last = (now, tokens)
        done = "=" * int(30 * progress)
        clock = datetime.now(timezone.utc).strftime("%H:%M:%S")
        line = f"{clock} [{done:30}] {100 * progress:5.1f} %  step {step}  {tokens / 1e6:.2f} M  loss {loss:.3f}"
        print(f"{line}  {speed}", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)

    def end(self, word: str) -> None:
        print(f"\n{word}", file=sys.stderr, flush=True)


def _process(rank: int, world: int, folder: str, port: int) -> None:
    torch.set_num_threads(1 if world > 1 else torch.get_num_threads())
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(hours=2))
    run = Run(folder)
    trainer = Trainer(run, rank, world)
    if (run.folder / "last.pt").exists():
        trainer.resume()
    trainer.train()
    if world > 1:
        dist.destroy_process_group()


def start(folder: str, settings: dict[str, Any]) -> None:
    """Train in ``folder``, where ``tokenizer.json`` lies, as ``settings`` say; old settings give way."""
    run = Run(folder)
    run.describe({**run.settings, **settings})
    world = run.settings["processes"]
    if world == 1:
        return _process(0, 1, folder, 0)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(_process, (world, folder, port), nprocs=world, start_method="spawn")


def _clock(text: str) -> float:
    """HH:MM in UTC, the next one, as seconds since 1970."""
    now = datetime.now(timezone.utc)
    hour, minute = map(int, text.split(":"))
    then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (then if then > now else then + timedelta(days=1)).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="folder of the run; it holds tokenizer.json (training.tokenizer)")
    parser.add_argument("--shape", default="xs", choices=SHAPES)
    parser.add_argument("--scheme", default="b1.58", help="quantisation (training.quantise)")
    parser.add_argument("--tokens", type=float, help="train on so many tokens, such as 20e6")
    parser.add_argument("--deadline", type=_clock, metavar="HH:MM", help="or end at this time (UTC)")
    parser.add_argument("--progress", type=float, help="with a deadline: count so much of the run (0 to 1) as done")
    parser.add_argument("--batch", type=int, default=2048, help="tokens per shard and step; there are 2 shards")
    parser.add_argument("--peak", type=float, default=8e-3, help="learning rate of the first stage")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    given = vars(parser.parse_args())
    folder, shape_name, scheme = given.pop("run"), given.pop("shape"), given.pop("scheme")
    old = Run(folder).settings
    if (given["tokens"] is None) == (given["deadline"] is None):
        parser.error("say either --tokens or --deadline")
    given["shape"] = old.get("shape") or asdict(replace(SHAPES[shape_name], scheme=scheme))
    start(folder, given)


if __name__ == "__main__":
    main()
