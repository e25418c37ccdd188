"""Hybrid models (Qwen3.5, Bonsai 2) the slow and obvious way: NumPy in float64, token by token, no cache and no chunks.

Written from the formulas of Gated Delta Networks (arXiv 2412.06464) and transformers' models/qwen3_5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.attention import softmax, turned
from tests.oracles.family import ROUNDING, rmsnorm


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def unit(x: np.ndarray) -> np.ndarray:
    """Vectors of length 1 over the last axis."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def convolved(x: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """[token, channel]: each channel's last inputs times its taps [channel, 4], of which the last is the newest."""
    n, size = len(x), taps.shape[1]
    padded = np.concatenate([np.zeros((size - 1, x.shape[1])), x])
    return silu(sum(padded[i : i + n] * taps[:, i] for i in range(size)))


def gated_delta(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, log_g: np.ndarray, beta: np.ndarray, state: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(answers [token, dv], state [dk, dv]) of one head.  q, k [token, dk], v [token, dv], log_g and beta [token].

    S <- g S + k (beta (v - (g S)^T k))^T; o = S^T q.
    """
    state = np.zeros((k.shape[1], v.shape[1])) if state is None else state.astype(np.float64)
    answers = np.empty(v.shape)
    for t in range(len(q)):
        state = np.exp(log_g[t]) * state
        state = state + np.outer(k[t], beta[t] * (v[t] - state.T @ k[t]))
        answers[t] = state.T @ q[t]
    return answers, state


class Model:
    """``config`` and ``weights`` as a Hugging Face folder of Qwen3_5ForCausalLM has them.  ``activations``: how the
    inputs of ternary projections are rounded, a key of tests.oracles.family.ROUNDING."""

    def __init__(self, config: dict[str, Any], weights: dict[str, np.ndarray], activations: str = "none") -> None:
        self.c, self.rounded = config, ROUNDING[activations]
        self.w = {name: np.asarray(value, np.float64) for name, value in weights.items()}

    def delta(self, i: int, x: np.ndarray) -> np.ndarray:
        """A gated delta layer [token, hidden]."""
        c, n = self.c, len(x)
        n_k, n_v = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]

        def of(name: str) -> np.ndarray:
            return self.w[f"model.layers.{i}.linear_attn.{name}"]

        mixed = convolved(self.rounded(x) @ of("in_proj_qkv.weight").T, of("conv1d.weight")[:, 0])
        q, k, v = np.split(mixed, [n_k * dk, 2 * n_k * dk], 1)
        q, k = unit(q.reshape(n, n_k, dk)) / dk**0.5, unit(k.reshape(n, n_k, dk))
        v, z = v.reshape(n, n_v, dv), (self.rounded(x) @ of("in_proj_z.weight").T).reshape(n, n_v, dv)
        beta = sigmoid(x @ of("in_proj_b.weight").T)
        log_g = -np.exp(of("A_log")) * np.log1p(np.exp(x @ of("in_proj_a.weight").T + of("dt_bias")))
        heads = [gated_delta(q[:, h // (n_v // n_k)], k[:, h // (n_v // n_k)], v[:, h], log_g[:, h], beta[:, h])[0]
                 for h in range(n_v)]
        answers = rmsnorm(np.stack(heads, 1), of("norm.weight"), c["rms_norm_eps"]) * silu(z)
        return self.rounded(answers.reshape(n, -1)) @ of("out_proj.weight").T

    def attention(self, i: int, x: np.ndarray) -> np.ndarray:
        """An attention layer with an output gate [token, hidden]."""
        c, n = self.c, len(x)
        n_head, n_kv, D = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        rope = c["rope_parameters"]

        def of(name: str) -> np.ndarray:
            return self.w[f"model.layers.{i}.self_attn.{name}.weight"]

        def rotated(x: np.ndarray) -> np.ndarray:
            return turned(x, rope["rope_theta"], int(D * rope["partial_rotary_factor"]))

        q, gate = np.split((self.rounded(x) @ of("q_proj").T).reshape(n, n_head, 2 * D), 2, -1)
        k, v = ((self.rounded(x) @ of(name).T).reshape(n, n_kv, D) for name in ("k_proj", "v_proj"))
        q = rotated(rmsnorm(q, 1 + of("q_norm"), c["rms_norm_eps"]))
        k = rotated(rmsnorm(k, 1 + of("k_norm"), c["rms_norm_eps"]))
        k, v = k.repeat(n_head // n_kv, 1), v.repeat(n_head // n_kv, 1)
        score = np.einsum("thd,shd->hts", q, k) / D**0.5 + np.where(np.tril(np.ones((n, n))), 0, -np.inf)
        mixed = np.einsum("hts,shd->thd", softmax(score), v) * sigmoid(gate)
        return self.rounded(mixed.reshape(n, -1)) @ of("o_proj").T

    def run(self, ids: list[int]) -> tuple[np.ndarray, list[np.ndarray]]:
        """(logits [token, vocabulary], what the mixer of each layer adds [token, hidden])."""
        c, w, eps = self.c, self.w, self.c["rms_norm_eps"]
        h, added = w["model.embed_tokens.weight"][ids], []
        for i, kind in enumerate(c["layer_types"]):
            mixer = self.delta if kind == "linear_attention" else self.attention
            added.append(mixer(i, rmsnorm(h, 1 + w[f"model.layers.{i}.input_layernorm.weight"], eps)))
            h = h + added[-1]
            x = rmsnorm(h, 1 + w[f"model.layers.{i}.post_attention_layernorm.weight"], eps)
            gate, up, down = (w[f"model.layers.{i}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
            x = self.rounded(x)
            h = h + self.rounded(silu(x @ gate.T) * (x @ up.T)) @ down.T
        h = rmsnorm(h, 1 + w["model.norm.weight"], eps)
        return h @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T, added
