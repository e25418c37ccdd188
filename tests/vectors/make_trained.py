"""Writes tests/vectors/trained.npz: tiny models that were trained with ternary weights in transformers, and what it
makes of a text that they have not seen.

    python -m tests.vectors.make_trained TRAIN TEST [NAME ...]      (needs torch and transformers 5; a few minutes each)

TRAIN and TEST: dialogues in JSON lines (training/data.py).  Those here are of a small grammar of orders, the project's
own.  Random weights leave the two best choices close; what rounding costs can only be seen on weights that have
learned something.  A token is a byte.

Weights are ternary in groups of 128 along K, in training as in the file: scale mean |w|, codes round(w / scale), the
gradient passes unchanged.  transformers computes in float32 with eager attention.

Of each model: for each matrix NAME its codes (NAME|codes: five to a byte, the first the lowest digit in base 3) and
scales (NAME|scales, float16), other tensors as they are; ids [piece][n] of the text; choice [piece][n], the likeliest
token after each, and logits [n / 16][vocabulary] of some of the first piece.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from tests.oracles import trained
from tests.vectors.stored import write

STEPS, BATCH = 700, 16
RATE = 4e-3


def text_of(path: str, most: int) -> np.ndarray:
    """The dialogues of a file as bytes, at most so many."""
    out = bytearray()
    with open(path, encoding="utf-8") as file:
        for line in file:
            for message in json.loads(line)["messages"]:
                out += f"{message['role'].capitalize()}: {message['content'].strip()}\n".encode("ascii", "ignore")
            out += b"\n"
            if len(out) >= most:
                break
    return np.frombuffer(bytes(out[:most]), np.uint8).copy()


def ternary_in_groups(w: Any) -> tuple[Any, Any]:
    """(codes, scales as float16) of weights [.., k]."""
    import torch

    groups = w.unflatten(-1, (-1, trained.GROUP))
    scale = groups.abs().mean(-1, keepdim=True).clamp(min=1e-4).to(torch.float16).to(w.dtype)
    return (groups / scale).round().clamp(-1, 1), scale


def network(model: trained.Trained) -> Any:
    """The model, whose matrices are ternary whenever they are used."""
    import torch
    import transformers
    from torch.nn.utils import parametrize

    class Ternary(torch.nn.Module):
        def forward(self, w: Any) -> Any:
            codes, scale = ternary_in_groups(w)
            return w + ((codes * scale).flatten(-2) - w).detach()

    torch.manual_seed(39)
    cls = getattr(transformers, model.architecture)
    config = cls.config_class(**{key: value for key, value in model.config.items() if key != "model_type"})
    net = cls(config).to(torch.float32)
    net.set_attn_implementation("eager")
    net.set_experts_implementation("eager")
    for module in list(net.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            if trained.is_ternary(name, parameter.shape):
                parametrize.register_parametrization(module, name, Ternary())
    return net


def train(net: Any, text: np.ndarray) -> None:
    import torch

    random = np.random.RandomState(39)
    data = torch.from_numpy(text.astype(np.int64))
    optimiser = torch.optim.AdamW(net.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, STEPS, pct_start=0.1)
    net.train()
    for step in range(STEPS):
        starts = random.randint(0, len(data) - trained.LENGTH, BATCH)
        ids = torch.stack([data[start : start + trained.LENGTH] for start in starts])
        loss = net(input_ids=ids, labels=ids, use_cache=False).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(step, round(float(loss.detach()), 3), flush=True)


def stored(net: Any) -> dict[str, np.ndarray]:
    """The trained tensors as the file has them, under the names of Hugging Face folders."""
    found: dict[str, np.ndarray] = {}
    for name, parameter in net.named_parameters():
        name = name.replace(".parametrizations.", ".").replace(".original", "")
        value = parameter.detach()
        if not trained.is_ternary(name.rpartition(".")[2], value.shape):
            found[name] = value.numpy()
            continue
        for key, part in trained.apart(name, value):
            codes, scales = ternary_in_groups(part)
            found[f"{key}|codes"] = trained.pack(codes.flatten(-2).to(int).numpy())
            found[f"{key}|scales"] = scales[..., 0].numpy().astype(np.float16)
    return found


def main(train_path: str, test_path: str, wanted: list[str]) -> None:
    import torch

    text, ids = text_of(train_path, 2_000_000), text_of(test_path, trained.PIECES * trained.LENGTH)
    ids = ids.reshape(trained.PIECES, trained.LENGTH)
    given = torch.from_numpy(ids.astype(np.int64))
    for name in wanted or trained.MODELS:
        net = network(trained.MODELS[name])
        train(net, text)
        net.eval()
        with torch.no_grad():
            logits = net(given).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), given[:, 1:].flatten())
        print(name, "nats", round(float(loss), 3))
        found = logits.numpy()
        write("trained", name, {"ids": ids, "choice": found.argmax(-1).astype(np.uint8), "logits": found[0, ::16],
                                **stored(net)})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
