"""``python -m training.agree RUN FILE.gguf``: do trainer, engine and transformers compute the same?

They are compared by first choice and by KL divergence, not by the largest difference of logits: the last bit of a sum
can turn the rounding of one activation, which moves a logit by 0.1.  transformers computes v1 and a4.8 otherwise and is
asked for b1.58 only.
"""

from __future__ import annotations

import argparse
import itertools
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from training import data, tokenizer
from training.model import Model
from training.run import Run

Logits = Callable[[Sequence[int]], Tensor]  # ids -> [token, n_vocab] float32


def of_trainer(model: Model) -> Logits:
    return torch.no_grad()(lambda ids: model(torch.tensor([ids]))[0])


def of_transformers(folder: Path) -> Logits:
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # its first call would compile
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return torch.no_grad()(lambda ids: model(torch.tensor([ids])).logits[0])


def of_engine(gguf: Path) -> Logits:
    import edge
    from pyx.step import Segment

    engine = edge.load(str(gguf), kv="f32")

    def logits(ids: Sequence[int]) -> Tensor:
        kv, n_vocab, chunk = engine.space.new_cache(), engine.config.n_vocab, engine.model.transformer.chunk
        found = []
        for at in range(0, len(ids), chunk):
            part = array("i", ids[at : at + chunk])
            rows = memoryview(array("f", bytes(4 * len(part) * n_vocab)))
            engine.model.transformer.step([Segment(kv, part, rows, all_logits=True)])
            found.append(torch.frombuffer(rows, dtype=torch.float32).view(len(part), n_vocab).clone())
        return torch.cat(found)

    return logits


@dataclass
class Agreement:
    """Of two models over all positions of some texts."""

    tokens: int
    same: int  # positions with the same first choice
    kl: float  # mean KL divergence, in nats
    largest_kl: float

    def __str__(self) -> str:
        return (f"the same first choice at {self.same} of {self.tokens} positions, "
                f"KL {self.kl:.1e} (largest {self.largest_kl:.1e})")


def compare(a: Logits, b: Logits, texts: Iterable[Sequence[int]]) -> Agreement:
    """``texts`` are ids, with BOS."""
    same, kl = [], []
    for ids in texts:
        p, q = (logits(ids).double().log_softmax(-1) for logits in (a, b))
        same.append(p.argmax(-1) == q.argmax(-1))
        kl.append((p.exp() * (p - q)).sum(-1))
    every, equal = torch.cat(kl), torch.cat(same)
    return Agreement(len(every), int(equal.sum()), every.mean().item(), every.max().item())


def texts_of(run: Run, n: int = 20) -> list[list[int]]:
    """Tokens of the first held-out dialogues of a run, or of its text if nothing is held out."""
    vocabulary, n_ctx = tokenizer.load(run.tokenizer), run.shape.n_ctx
    paths = [Path(path) for path in run.settings["held_out"] or run.settings["text"]]
    chosen = itertools.islice(data.read(paths), n)
    return [[data.BOS, *data.encode(vocabulary, dialogue)[0]][:n_ctx] for dialogue in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare trainer, engine and transformers on held-out dialogues.")
    parser.add_argument("run", type=Path)
    parser.add_argument("gguf", type=Path, help="what training.export made of it")
    given = parser.parse_args()
    run = Run(given.run)
    trainer, texts = of_trainer(run.model()), texts_of(run)
    print(f"engine: {compare(trainer, of_engine(given.gguf), texts)}")
    if run.shape.scheme == "b1.58":
        print(f"transformers: {compare(trainer, of_transformers(run.folder / 'huggingface'), texts)}")


if __name__ == "__main__":
    main()
