"""Writes tests/vectors/families/*.npz: what transformers makes of the tiny models of tests/oracles/tiny.py, or NumPy of
those of which it has no class.

    python -m tests.vectors.make_families [NAME ...]      (needs torch and transformers 5)

transformers computes in float32 with eager attention, NumPy in float64.  Each file: logits [token][vocabulary] of IDS,
and greedy, the ids of IDS with 12 more, each the likeliest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]

from tests.oracles import maple, tiny  # noqa: E402


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


def of_transformers(model: tiny.Tiny) -> Callable[[list[int]], np.ndarray]:
    """Tokens -> logits [token][vocabulary]."""
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

    def logits(ids: list[int]) -> np.ndarray:
        with torch.no_grad():
            return net(torch.tensor([ids])).logits[0].numpy()

    return logits


def main(wanted: list[str]) -> None:
    out = Path(__file__).parent / "families"
    out.mkdir(exist_ok=True)
    for name in wanted or tiny.ALL:
        model = tiny.ALL[name]
        logits_of = of_transformers(model) if name in tiny.MODELS else partial(maple.logits, model)
        logits, ids = logits_of(tiny.IDS), list(tiny.IDS)
        for _ in range(12):
            ids.append(int(logits_of(ids)[-1].argmax()))
        np.savez_compressed(out / f"{name}.npz", logits=logits.astype(np.float32), greedy=np.array(ids, np.int32))
        print(f"{name}: range {np.ptp(logits):.2f}, {ids[len(tiny.IDS):]}")


if __name__ == "__main__":
    main(sys.argv[1:])
