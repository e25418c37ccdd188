"""Writes tests/vectors/families/*.npz: what transformers makes of the tiny models of tests/oracles/tiny.py, or NumPy of
those of which it has no class.

    python -m tests.vectors.make_families [NAME ...]      (needs torch and transformers 5)

transformers computes in float32 with eager attention, NumPy in float64.  Each file: logits [token][vocabulary] of IDS,
and greedy, the ids of IDS with 12 more, each the likeliest.

Files of HYBRIDS are over LONG instead: logits of the tokens at [place], greedy with 200 more, and delta and attention
[place][hidden], what the first layer with a recurrent state and the first with attention add to the residual stream.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]

from tests.oracles import maple, tiny  # noqa: E402

#: tokens of LONG whose numbers are kept: the first ones, and around the ends of chunks of 32
PLACES = [0, 1, 2, 3, 17, 30, 31, 32, 33, 62, 63, 64, 65, 69]


def stacked(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Experts as transformers 5 has them in memory: all of a layer in one tensor, up below gate."""
    found = {name: value for name, value in state.items() if ".experts." not in name}
    for name in [name for name in state if ".experts.0.gate_proj." in name]:
        prefix, n = name.partition("0.gate_proj.")[0], sum(name.partition("0.gate")[0] in each and "gate_proj" in each
                                                           for each in state)

        def of(kind: str, prefix: str = prefix, n: int = n) -> list[np.ndarray]:
            return [state[f"{prefix}{e}.{kind}_proj.weight"] for e in range(n)]

        found[f"{prefix}gate_up_proj"] = np.concatenate([np.stack(of("gate")), np.stack(of("up"))], 1)
        found[f"{prefix}down_proj"] = np.stack(of("down"))
    return found


def network(model: tiny.Tiny) -> Any:
    """The model as transformers has it."""
    import torch
    import transformers

    cls = getattr(transformers, model.architecture)
    config = cls.config_class(**{key: value for key, value in model.config.items() if key != "model_type"})
    config._attn_implementation = "eager"
    net = cls(config).to(torch.float32).eval()
    state = {key: torch.from_numpy(value) for key, value in stacked(tiny.weights(model)).items()}
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    net.tie_weights()
    return net


def of_transformers(model: tiny.Tiny) -> Callable[[list[int]], np.ndarray]:
    """Tokens -> logits [token][vocabulary]."""
    import torch

    net = network(model)

    def logits(ids: list[int]) -> np.ndarray:
        with torch.no_grad():
            return net(torch.tensor([ids])).logits[0].numpy()

    return logits


def main(wanted: list[str]) -> None:
    out = Path(__file__).parent / "families"
    out.mkdir(exist_ok=True)
    for name in wanted or {**tiny.ALL, **tiny.HYBRIDS}:
        if name in tiny.HYBRIDS:
            of_hybrid(name, out)
            continue
        model = tiny.ALL[name]
        logits_of = of_transformers(model) if name in tiny.MODELS else partial(maple.logits, model)
        logits, ids = logits_of(tiny.IDS), list(tiny.IDS)
        for _ in range(12):
            ids.append(int(logits_of(ids)[-1].argmax()))
        np.savez_compressed(out / f"{name}.npz", logits=logits.astype(np.float32), greedy=np.array(ids, np.int32))
        print(f"{name}: range {np.ptp(logits):.2f}, {ids[len(tiny.IDS):]}")


def of_hybrid(name: str, out: Path) -> None:
    """Writes the file of a hybrid model."""
    import torch

    model = tiny.HYBRIDS[name]
    net, heard = network(model), {}
    for key, module in (("delta", net.model.layers[0].linear_attn), ("attention", net.model.layers[3].self_attn)):
        module.register_forward_hook(listener(heard, key))
    with torch.no_grad():
        logits = net(torch.tensor([tiny.LONG])).logits[0].numpy()
        found, ids, least = dict(heard), list(tiny.LONG), np.inf
        for _ in range(200):
            row = net(torch.tensor([ids])).logits[0, -1].numpy()
            two = np.sort(row)[-2:]
            least = min(least, (two[1] - two[0]) / np.ptp(row))
            ids.append(int(row.argmax()))
    place = np.array(PLACES)
    found = {key: values[place] for key, values in {**found, "logits": logits.astype(np.float32)}.items()}
    np.savez_compressed(out / f"{name}.npz", place=place, greedy=np.array(ids, np.int32), **found)
    print(f"{name}: range {np.ptp(logits):.2f}, closest choice {least:.1e} of it, {ids[len(tiny.LONG):][:12]}")


def listener(heard: dict[str, np.ndarray], key: str) -> Any:
    """A hook that keeps the output [token][hidden] of a module."""

    def listen(module: Any, given: Any, output: Any) -> None:
        output = output[0] if isinstance(output, tuple) else output
        heard[key] = output[0].numpy().astype(np.float32)

    return listen


if __name__ == "__main__":
    main(sys.argv[1:])
