"""The forward pass of maple (deepgrove/maple-preview), the slow and obvious way: NumPy in float64, no cache.

Written from llama.cpp's graph of the architecture (src/models/maple.cpp), read as formulas: Qwen3's attention with a
norm per head, in layers with a sliding window a rotation of the first dimensions of each head, in the others none; then
a mixture of experts: softmax over all experts, the top k renormalised, SwiGLU with clamped gate and up.
"""

from __future__ import annotations

import numpy as np

from tests.oracles.attention import softmax, turned
from tests.oracles.family import rmsnorm
from tests.oracles.tiny import Tiny, weights


def logits(tiny: Tiny, ids: list[int]) -> np.ndarray:
    """float64 [token][vocabulary] of a tiny model, tests/oracles/tiny.py."""
    c = tiny.config
    w = {name: value.astype(np.float64) for name, value in weights(tiny).items()}
    h = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        near = c["layer_types"][i] == "sliding_attention"
        layer = {name.removeprefix(f"model.layers.{i}.").removesuffix(".weight"): value for name, value in w.items()
                 if name.startswith(f"model.layers.{i}.")}
        h = h + attention(c, layer, rmsnorm(h, layer["input_layernorm"], c["rms_norm_eps"]), near)
        h = h + experts(c, layer, rmsnorm(h, layer["post_attention_layernorm"], c["rms_norm_eps"]))
    return rmsnorm(h, w["model.norm.weight"], c["rms_norm_eps"]) @ w["lm_head.weight"].T


def attention(c: dict, w: dict[str, np.ndarray], x: np.ndarray, near: bool) -> np.ndarray:
    """The output of attention; x, result [token][hidden]."""
    n, d, n_head, n_kv = len(x), c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    q = rmsnorm((x @ w["self_attn.q_proj"].T).reshape(n, n_head, d), w["self_attn.q_norm"], c["rms_norm_eps"])
    k = rmsnorm((x @ w["self_attn.k_proj"].T).reshape(n, n_kv, d), w["self_attn.k_norm"], c["rms_norm_eps"])
    v = (x @ w["self_attn.v_proj"].T).reshape(n, n_kv, d)
    if near:
        q, k = (turned(each, c["rope_theta"], int(d * c["partial_rotary_factor"])) for each in (q, k))
    k, v = k.repeat(n_head // n_kv, 1), v.repeat(n_head // n_kv, 1)
    back = np.arange(n)[:, None] - np.arange(n)  # how far behind a token another is
    seen = (back >= 0) & (back < (c["sliding_window"] if near else n))
    score = np.einsum("thd,shd->hts", q, k) / np.sqrt(d) + np.where(seen, 0, -np.inf)
    mixed = np.einsum("hts,shd->thd", softmax(score), v).reshape(n, -1)
    return mixed @ w["self_attn.o_proj"].T


def experts(c: dict, w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The output of the mixture of experts; x, result [token][hidden]."""
    p = softmax(x @ w["mlp.gate"].T)
    out = np.zeros_like(x)
    for t in range(len(x)):
        chosen = np.argsort(-p[t], kind="stable")[: c["num_experts_per_tok"]]  # of equals the first
        total = p[t][chosen].sum() if c["norm_topk_prob"] else 1.0
        for e in sorted(chosen):
            gate = np.minimum(w[f"mlp.experts.{e}.gate_proj"] @ x[t], c["swiglu_limit"])
            up = np.clip(w[f"mlp.experts.{e}.up_proj"] @ x[t], -c["swiglu_limit"], c["swiglu_limit"])
            y = w[f"mlp.experts.{e}.down_proj"] @ (gate / (1 + np.exp(-gate)) * up)
            out[t] += p[t, e] / total * y
    return out
