"""What rounding the activations costs a trained model, in nats: python benchmarks/activations.py [MODEL] [TOKENS]

`--ways` instead: other ways of rounding, in NumPy, on the bundled model and on tiny random ones
(tests/oracles/tiny.py).

The bundled model on its own dialogues, with floats, int8 with a scale per token (how it was trained), and int8 with a
scale per 128 values over matrices with a scale per 128 weights (how Ternary-Bonsai runs).
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.needs import numpy as np  # noqa: E402
from edge.formats import open_checkpoint  # noqa: E402
from edge.layers import Attention  # noqa: E402
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


def rounded(group: int, most: int = 127, search: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    """Rounding to -most .. most with a scale for each ``group`` values (0: per token); ``search``: the scale of least
    squared error among seven near the usual one."""

    def apply(x: np.ndarray) -> np.ndarray:
        y = x.reshape(*x.shape[:-1], -1, group if group and x.shape[-1] % group == 0 else x.shape[-1])
        scale = most / np.maximum(np.abs(y).max(-1, keepdims=True), 1e-12)
        best = np.clip(np.round(y * scale), -most, most) / scale
        for part in (0.98, 0.95, 0.92, 0.88, 0.84, 1.02) if search else ():
            other = np.clip(np.round(y * scale / part), -most, most) * part / scale
            closer = ((other - y) ** 2).sum(-1, keepdims=True) < ((best - y) ** 2).sum(-1, keepdims=True)
            best = np.where(closer, other, best)
        return best.reshape(x.shape)

    return apply


WAYS = {"int8 per token": rounded(0), "int8 per 128": rounded(128), "int8 per 64": rounded(64),
        "int8 per 32": rounded(32), "int8 per 128, best scale": rounded(128, search=True),
        "9 bits per 128": rounded(128, 255), "10 bits per 128": rounded(128, 511)}


def ways() -> None:
    """Largest difference over the range of logits; same first choice, of all and where floats are decided."""
    from pyx.weights.stored_rows import StoredRows
    from pyx.weights.ternary import TernaryMatrix
    from tests.formats.test_family_oracles import folder, gguf_tensors
    from tests.oracles import family, tiny

    def show(name: str, model: Callable[[str], family.Model], pieces: list[list[int]], decided: float) -> None:
        exact = np.concatenate([model("none").logits(ids) for ids in pieces])
        two = np.sort(exact, 1)[:, -2:]
        clear = two[:, 1] - two[:, 0] >= decided
        print(f"{name}, {len(exact)} tokens, {clear.mean():.1%} of them decided by {decided:.2f} or more")
        for way in WAYS:
            got = np.concatenate([model(way).logits(ids) for ids in pieces])
            same = got.argmax(1) == exact.argmax(1)
            print(f"  {way:25} {np.abs(got - exact).max() / np.ptp(exact):6.2%} of the range, same first choice "
                  f"{same.mean():7.2%}, of the decided {same[clear].mean():7.2%}")

    family.ROUNDING.update(WAYS)
    checkpoint = open_checkpoint(next((ROOT / "edge" / "bundled").glob("*.gguf")))
    arrays = {}
    for name, tensor in checkpoint.tensors.items():
        rows, k = tensor.shape if len(tensor.shape) == 2 else (1, tensor.shape[0])
        if tensor.type == "I2_S":
            matrix = TernaryMatrix.pack(tensor.type, tensor.data, rows, k)
            arrays[name] = np.asarray(matrix.unpack(), np.float32).reshape(rows, k) * matrix.scales[0]
        else:
            stored = StoredRows(tensor.type, tensor.data, rows, k)
            arrays[name] = np.stack([np.asarray(stored.row(i)) for i in range(rows)]).reshape(tensor.shape)
    show("demo", partial(family.Model, checkpoint.config, arrays), texts(checkpoint, 2900), 0.05)
    random = np.random.default_rng(0)
    for name in ("qwen3", "qwen3_yarn", "qwen3_yarn without it", "hunyuan", "gemma3"):
        name, _, without = name.partition(" without")
        with tempfile.TemporaryDirectory() as place:
            config = open_checkpoint(folder(Path(place) / "m", name)).config
        if without:
            mixers = [each.mixer for each in config.layers if isinstance(each.mixer, Attention)]
            rotation = dataclasses.replace(mixers[0].rotation, scaling=None)
            layers = [dataclasses.replace(each, mixer=dataclasses.replace(mixer, rotation=rotation))
                      for each, mixer in zip(config.layers, mixers, strict=True)]
            config, name = dataclasses.replace(config, layers=tuple(layers)), f"{name}, its rotation not stretched"
        made = gguf_tensors(tiny.MODELS[name.partition(",")[0]])
        pieces = [random.integers(0, config.n_vocab, 100).tolist() for _ in range(4)]
        span = np.ptp(family.Model(config, made, "none").logits(pieces[0]))
        show(name, partial(family.Model, config, made), pieces, 0.02 * span)


def main() -> None:
    if sys.argv[1:] == ["--ways"]:
        return ways()
    path = sys.argv[1] if len(sys.argv) > 1 else next((ROOT / "edge" / "bundled").glob("*.gguf"))
    checkpoint = open_checkpoint(path)
    pieces = texts(checkpoint, int(sys.argv[2]) if len(sys.argv) > 2 else 20000)
    c = checkpoint.config
    nats, best = {}, {}
    for kind in KINDS:
        checkpoint.config = dataclasses.replace(c, activation_quant=kind)
        model = build(checkpoint, n_threads=1, head="f32")
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
