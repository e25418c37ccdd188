"""Families: how the supported architectures differ, one row each; and the refused architectures, with the reason.

Readers fill a ModelConfig from this row and from the metadata of the file.  What a row cannot hold (norms next to
sub-norms, biases, multipliers, stretched rotation) is read from the tensors and keys of the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Sampled:
    """The sampling settings that the authors of a family recommend."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float = 0.0


@dataclass(frozen=True)
class Family:
    """One architecture.

    ``arch``: the value of ``general.architecture`` in GGUF. ``huggingface``: the ``architectures`` of config.json that
    it covers.  ``rope_style``: the order of the rows of Q and K in GGUF files (Hugging Face: always "half").
    ``weight_only``: models that were trained with float activations, so that we choose how to round them: int8 per 128
    values.
    """

    arch: str
    about: str
    huggingface: tuple[str, ...] = ()
    rope_style: str = "half"
    activation: str = "silu"
    qk_norm: str = ""
    weight_only: bool = False
    multipliers: bool = False  # has keys for embedding, residual and logit multipliers
    root_embedding: bool = False  # embedding rows are multiplied by the square root of their width
    post_norm: bool = False  # a norm after attention and one after feed-forward
    norms_from_one: bool = False  # Hugging Face folders keep the norms of hidden states and heads less 1
    rope_theta: float = 10000.0  # of a config.json that does not say
    window_period: int = 0  # of each N layers, all but the last have a sliding window; 0: none
    unrotated: bool = False  # layers without a sliding window have no rotation
    experts: bool = False  # layers may be mixtures of experts
    clamp: float = 0.0  # bound of the experts' activations in a file that does not say
    partial_rotary: float = 1.0  # of a config.json that does not say
    delta_period: int = 0  # of each N layers, all but the last are gated delta layers; the last has an output gate
    sampling: Sampled | None = None  # for answers
    thinking: Sampled | None = None  # for answers with thoughts in front; None: it has none


FAMILIES = {
    family.arch: family
    for family in (
        Family("bitnet", "BitNet b1.58 of 1bitLLM", ("BitnetForCausalLM",)),
        Family("bitnet-b1.58", "BitNet b1.58 2B-4T", ("BitNetForCausalLM",), activation="relu2"),
        Family("bitnet-25", "BitNet b1.58 2B-4T, first upload", activation="relu2"),
        Family("llama", "Llama with ternary weights: Falcon3, Falcon-E, Llama3-8B-1.58, TriLM, BitCPM 1B and 3B",
               ("LlamaForCausalLM",), rope_style="interleaved"),
        Family("qwen2", "Qwen2 with ternary weights", ("Qwen2ForCausalLM",), weight_only=True),
        Family("qwen3", "Qwen3 with ternary weights: Ternary-Bonsai, BitNet-embedding-0.6B",
               ("Qwen3ForCausalLM", "Qwen3Model"), qk_norm="before", weight_only=True,
               sampling=Sampled(0.7, 0.8, 20), thinking=Sampled(0.6, 0.95, 20)),
        Family("qwen35", "Qwen3.5 with ternary weights: Ternary-Bonsai 27B, Bonsai 2",
               ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"), qk_norm="before", weight_only=True,
               norms_from_one=True, rope_theta=1e7, partial_rotary=0.25, delta_period=4,
               sampling=Sampled(0.7, 0.8, 20), thinking=Sampled(0.6, 0.95, 20)),
        Family("qwen3moe", "Qwen3 with experts and ternary weights", ("Qwen3MoeForCausalLM",), qk_norm="before",
               weight_only=True, experts=True, sampling=Sampled(0.7, 0.8, 20), thinking=Sampled(0.6, 0.95, 20)),
        Family("maple", "maple-preview of DeepGrove: 20 B, of which a token uses 1 B", qk_norm="before",
               weight_only=True, window_period=4, unrotated=True, experts=True, clamp=7.0),
        Family("minicpm", "BitCPM 0.5B and 8B of OpenBMB", ("MiniCPMForCausalLM",), rope_style="interleaved",
               weight_only=True, multipliers=True),
        Family("hunyuan-dense", "Hy-MT of Tencent", ("HunYuanDenseV1ForCausalLM",), qk_norm="after", weight_only=True,
               sampling=Sampled(0.7, 0.6, 20)),
        Family("gemma3", "Gemma 3 with ternary weights: BitNet-embedding-270M",
               ("Gemma3ForCausalLM", "Gemma3TextModel"), activation="gelu", qk_norm="before", weight_only=True,
               root_embedding=True, post_norm=True, norms_from_one=True, rope_theta=1e6, window_period=6,
               sampling=Sampled(1.0, 0.95, 64)),
    )
}

#: "architectures" of a config.json -> family
BY_HUGGINGFACE = {name: family for family in FAMILIES.values() for name in family.huggingface}

_OTHER_KIND = "a kind of model that is not supported; use bitnet-2b-4t or bonsai-1.7b instead"
_MOE = "a mixture of experts of a kind that is not implemented (qwen3moe and maple are); use bonsai-8b"

#: models that are known but not supported, by a part of the architecture's name in small letters -> what they are, and
#: models to use instead, by the names of `bitnet-edge pull`
REFUSED = {
    "qwen3next": f"Qwen3-Next: {_MOE}",
    "qwen3_next": f"Qwen3-Next: {_MOE}",
    "mapleforcausallm": "maple as a Hugging Face folder, which is not supported; use a GGUF file of it (bitnet-edge "
                        "pull maple)",
    "moe": _MOE,
    "bitmamba": f"BitMamba, a state-space model: {_OTHER_KIND}",
    "mamba": f"a state-space model (Mamba): {_OTHER_KIND}",
    "hgrn": f"MMfreeLM, a recurrent model: {_OTHER_KIND}",
    "mmfree": f"MMfreeLM, a recurrent model: {_OTHER_KIND}",
    "bitvla": "BitVLA, a vision and robotics model, which is not supported; use bitnet-2b-4t",
    "gemma_embedding": "EmbeddingGemma, which reads texts in both directions, which is not implemented; use "
                       "bitnet-embedding-0.6b",
    "gemma3forconditionalgeneration": "Gemma 3 with its vision part, which is not supported; use the text model "
                                      "(Gemma3ForCausalLM) or a GGUF file of it",
    "gemma3n": "Gemma 3n, whose nested layers are not implemented; use a Gemma 3 text model",
    "gemma4": "Gemma 4, which is not implemented; use a Gemma 3 text model",
    "gemma": "Gemma 1 or 2, whose soft caps are not implemented; use a Gemma 3 text model",
    "vibevoice": "VibeVoice, a speech model, which is not supported; use another program",
    "olmo": "OLMo-Bitnet, published as pickled weights only; use bitnet-2b-4t",
}

#: size of the vocabulary of MiniCPM4, and of BitCPM, which was trained from it
MINICPM4_VOCAB = 73448


def minicpm4_factors() -> list[float]:
    """The divisors of MiniCPM4's rotation of 128 dimensions [64]: a curve that is within 1e-13 of the ``short_factor``
    of openbmb/MiniCPM4-8B and openbmb/VoxCPM2.

    BitCPM of 1B and 3B is a Llama with this rotation.  llama.cpp's conversion of a Llama writes that the rotation is
    longrope and leaves the divisors out; that engine then runs them without, which costs them most of their arithmetic.
    """
    return [16.01086139962087 + 15.095087932573186 * math.tanh(0.09373828271466003 * (i - 31.5)) for i in range(64)]


def refusal(name: str) -> str | None:
    """The message for an architecture that is known but not supported; None for an unknown one."""
    plain = name.lower().replace("-", "_")
    return next((why for part, why in REFUSED.items() if part in plain or part in plain.replace("_", "")), None)
