"""Writes tests/vectors/families/*.npz: what transformers makes of the tiny models of tests/oracles/tiny.py.

    python -m tests.vectors.make_families [NAME ...]      (needs torch and transformers 5; float32, eager attention)

Each file: logits [token][vocabulary] of IDS, and greedy, the ids of IDS with 12 more, each the likeliest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]

from tests.oracles import tiny  # noqa: E402


def main(wanted: list[str]) -> None:
    import torch
    import transformers

    out = Path(__file__).parent / "families"
    out.mkdir(exist_ok=True)
    for name in wanted or tiny.MODELS:
        model = tiny.MODELS[name]
        cls = getattr(transformers, model.architecture)
        config = cls.config_class(**{key: value for key, value in model.config.items() if key != "model_type"})
        config._attn_implementation = "eager"
        net = cls(config).to(torch.float32).eval()
        state = {key: torch.from_numpy(value) for key, value in tiny.weights(model).items()}
        missing, unexpected = net.load_state_dict(state, strict=False)
        assert not unexpected, unexpected
        assert set(missing) <= {"lm_head.weight"}, missing
        net.tie_weights()
        with torch.no_grad():
            logits = net(torch.tensor([tiny.IDS])).logits[0].numpy()
            ids = list(tiny.IDS)
            for _ in range(12):
                ids.append(int(net(torch.tensor([ids])).logits[0, -1].argmax()))
        np.savez_compressed(out / f"{name}.npz", logits=logits.astype(np.float32), greedy=np.array(ids, np.int32))
        print(f"{name}: range {np.ptp(logits):.2f}, {ids[len(tiny.IDS):]}")


if __name__ == "__main__":
    main(sys.argv[1:])
