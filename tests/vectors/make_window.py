"""Logits of transformers under a window with sinks: one forward pass with a mask of its own, for test_window.py.

    python tests/vectors/make_window.py        writes oracle/MODEL/VARIANT/window.npz; wants torch and transformers

Every query sees {0 .. sinks-1} and the last `window` tokens, in all layers; positions are those of the text.  A part
of the logits is kept, at positions next to the edges of pages and windows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

ORACLE = Path(__file__).parent / "oracle"
MODELS = ("relu2_gqa_tied/packed_bitlinear_f32", "llama_untied_hd/packed_bitlinear_f32")
N = 260
EVERY = 4  # of so many logits one is kept
#: (window, sinks)
MODES = ((0, 0), (1, 0), (33, 4), (64, 0), (40, 33))
IDS = [(7 * i * i + 3 * i + 5) % 500 for i in range(N)]


def positions(window: int, sinks: int) -> list[int]:
    """Where logits are compared: edges of pages and chunks, of the window, of the trained context (128)."""
    edges = (0, 32, 64, 128, 256, N - 1, window, window + sinks, 2 * window)
    return sorted({t for edge in edges for t in (edge - 1, edge, edge + 1) if 0 <= t < N})


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    t = torch.arange(N)
    for name in MODELS:
        model = AutoModelForCausalLM.from_pretrained(ORACLE / name, attn_implementation="eager", dtype=torch.float32)
        model.eval()
        found = {}
        for window, sinks in MODES:
            seen = t[None] <= t[:, None]
            if window:
                seen &= (t[None] < sinks) | (t[None] > t[:, None] - window)
            mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
            with torch.no_grad():
                logits = model(torch.tensor([IDS]), attention_mask=mask, use_cache=False).logits[0]
            found[f"w{window}s{sinks}"] = logits[positions(window, sinks)][:, ::EVERY].numpy()
        np.savez_compressed(ORACLE / name / "window.npz", **found)


if __name__ == "__main__":
    main()
