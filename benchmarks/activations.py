"""What rounding the activations costs a trained model, in nats: python benchmarks/activations.py [MODEL] [TOKENS]

The bundled model on its own dialogues, with floats, int8 with a scale per token (how it was trained), and int8 with a
scale per 128 values over matrices with a scale per 128 weights (how Ternary-Bonsai runs).
"""

from __future__ import annotations

import dataclasses
import json
import sys
from array import array
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from edge.formats import open_checkpoint  # noqa: E402
from edge.model.weights import build  # noqa: E402
from edge.prompt.template import Template  # noqa: E402
from edge.prompt.tokenizer import Tokenizer  # noqa: E402
from pyx.kv.cache import KVCache  # noqa: E402
from pyx.step.transformer import Segment  # noqa: E402

KINDS = ("none", "int8", "int8-128")


def texts(checkpoint, most: int) -> list[list[int]]:
    """Dialogues as token ids, as long as the context at most."""
    tokenizer, template = Tokenizer.build(checkpoint.tokenizer), Template.for_model(checkpoint)
    found, n = [], 0
    for line in (ROOT / "edge" / "bundled" / "dialogues.jsonl").read_text().splitlines():
        entry = json.loads(line)
        messages = entry["messages"] if isinstance(entry, dict) else entry
        ids = template.encode(tokenizer, messages, add_generation_prompt=False)[: checkpoint.config.n_ctx_train]
        found.append(ids)
        n += len(ids)
        if n >= most:
            break
    return found


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else next((ROOT / "edge" / "bundled").glob("*.gguf"))
    checkpoint = open_checkpoint(path)
    pieces = texts(checkpoint, int(sys.argv[2]) if len(sys.argv) > 2 else 20000)
    c = checkpoint.config
    nats, best = {}, {}
    for kind in KINDS:
        checkpoint.config = dataclasses.replace(c, activation_quant=kind)
        model = build(checkpoint, n_threads=1, head="native")
        cache = KVCache(*c.kv_shape, c.n_ctx_train, "f32", windows=c.windows)
        losses, choices = [], []
        for ids in pieces:
            cache.reset()
            for start in range(0, len(ids) - 1, 128):
                part = ids[start : min(start + 128, len(ids) - 1)]
                logits = np.zeros((len(part), c.n_vocab), np.float32)
                model.step([Segment(cache, array("i", part), logits.reshape(-1), all_logits=True)])
                top = logits.max(1)
                total = top + np.log(np.exp(logits - top[:, None]).sum(1))
                losses.append(total - logits[np.arange(len(part)), ids[start + 1 : start + 1 + len(part)]])
                choices.append(logits.argmax(1))
        nats[kind], best[kind] = np.concatenate(losses), np.concatenate(choices)
    for kind in KINDS:
        difference = nats[kind] - nats["none"]
        print(f"{kind:9} {nats[kind].mean():.4f} nats a token, {difference.mean():+.4f} "
              f"(+- {difference.std() / len(difference) ** 0.5:.4f}), the same first choice for "
              f"{np.mean(best[kind] == best['none']):.2%} of {len(difference)} tokens")


if __name__ == "__main__":
    main()
