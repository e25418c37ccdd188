"""``python -m training.agree FOLDER``: do trainer, transformers and our engine say the same?

FOLDER is what training.export wrote.  They are compared by arg-max and by KL divergence, not by the largest difference
of logits: a sum's last bit can turn one int8 rounding, which moves a logit by 0.1 and no more than that.
"""

from __future__ import annotations

import argparse
import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from training.data import BOS, encode, load_tokenizer
from training.evaluate import held_out
from training.export import read_master

Logits = Callable[[Sequence[int]], Tensor]  # ids -> [token, n_vocab]


def of_trainer(master: Path, dtype: torch.dtype = torch.float32) -> Logits:
    model = read_master(master)
    return torch.no_grad()(lambda ids: model(torch.tensor([ids]), dtype)[0].float())


def of_transformers(master: Path) -> Logits:
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # its first call would compile
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(master, dtype=torch.float32).eval()
    return torch.no_grad()(lambda ids: model(torch.tensor([ids])).logits[0].float())


def of_engine(gguf: Path) -> Logits:
    import edge
    from pyx.transformer import Segment

    engine = edge.load(str(gguf), ctx=2048, kv="f32")

    def logits(ids: Sequence[int]) -> Tensor:
        kv, n_vocab, chunk = engine.space.new_cache(), engine.config.n_vocab, engine.model.transformer.chunk
        found = []
        for at in range(0, len(ids), chunk):
            part = array("i", ids[at : at + chunk])
            row = memoryview(array("f", bytes(4 * len(part) * n_vocab)))
            engine.model.transformer.step([Segment(kv, part, row, all_logits=True)])
            found.append(torch.frombuffer(row, dtype=torch.float32).view(len(part), n_vocab).clone())
        return torch.cat(found)

    return logits


def compare(a: Tensor, b: Tensor) -> tuple[int, Tensor, float]:
    """-> positions with the same arg-max, KL(a || b) in nats per position, largest difference of logits."""
    p, q = a.double().log_softmax(-1), b.double().log_softmax(-1)
    return int((a.argmax(-1) == b.argmax(-1)).sum()), (p.exp() * (p - q)).sum(-1), (a - b).abs().max().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dialogues", type=int, default=20)
    given = parser.parse_args()
    master = given.folder / "master"
    tokenizer = load_tokenizer(str(master / "tokenizer.json"))
    weights = {"system": 1.0, "user": 1.0, "assistant": 1.0}
    prompts = [[BOS, *encode(tokenizer, one, weights).ids] for one in held_out("kiosk", given.dialogues)]
    others = {
        "trainer in bfloat16": of_trainer(master, torch.bfloat16),
        "transformers": of_transformers(master),
        "engine": of_engine(next(given.folder.glob("*.gguf"))),
    }
    trainer = of_trainer(master)
    print("| against the trainer in float32 | same arg-max | mean KL | largest KL | largest difference |")
    print("|---|---|---|---|---|")
    for name, other in others.items():
        same, total, kl, most = 0, 0, [], 0.0
        for ids in prompts:
            equal, divergence, difference = compare(trainer(ids), other(ids))
            same, total, most = same + equal, total + len(ids), max(most, difference)
            kl.append(divergence)
        every = torch.cat(kl)
        print(f"| {name} | {same} of {total} | {every.mean():.1e} | {every.max():.1e} | {most:.3f} |")


if __name__ == "__main__":
    main()
