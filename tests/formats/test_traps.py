"""The ten traps of ternary model files, each with its own test.

What other runtimes got wrong, what two repositories mean differently, what no file says about itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edge.errors import InvalidFile
from edge.formats import open_checkpoint
from edge.formats.checkpoint import Tensor
from edge.prompt.template import Template
from pyx.weights import TernaryMatrix
from tests import handmade
from tests.configs import activation, rope_style
from tests.handmade import ARR, F32, STR, U32, hf_config, hf_directory, hf_tensors, model_file, value
from tests.services import in_python
from tests.vectors import stored as golden
from tests.vectors.stored import VECTORS, oracle

TINY = VECTORS / "tiny_gguf"
ORACLE = oracle()


def pack(tensor: Tensor, **options: object) -> TernaryMatrix:
    return TernaryMatrix.pack(tensor.type, tensor.data, *tensor.shape, scale=tensor.scale, layout=tensor.layout,
                              **options)


def unpacked(matrix: TernaryMatrix) -> np.ndarray:
    return np.array(matrix.unpack(), np.int8).reshape(matrix.n_row, matrix.k)


def test_trap_01_squared_relu_not_silu() -> None:
    """microsoft/BitNet (2026) runs 2B-4T with SiLU: perplexity 99.8 instead of 17.1.  So it is no oracle; squared ReLU
    is what transformers computes for hidden_act relu2, and the two are far apart."""
    reference = golden.read("oracle", "relu2_gqa_tied/packed_auto_f32")
    gate = reference["model__layers__0__mlp__gate_proj"]
    assert np.allclose(reference["model__layers__0__mlp__act_fn"], np.maximum(gate, 0) ** 2, rtol=1e-5)
    assert activation(open_checkpoint(ORACLE / "relu2_gqa_tied" / "packed_auto_f32").config) == "relu2"
    assert activation(open_checkpoint(TINY / "relu2_gqa_tied.bitnet-b1.58.i2s128.f16.gguf").config) == "relu2"


def test_trap_02_three_layouts_under_one_type(tmp_path: Path) -> None:
    """I2_S is written in three arrangements with the same id 36.  128 by default, on every machine; the
    wrong one is silently another matrix."""
    vectors = json.loads((VECTORS / "pack_vectors.json").read_text())
    weights = np.array(vectors["ternary_row_major"], np.int8)
    raw = {layout: bytes.fromhex(vectors["vectors"][key]["hex"])
           for layout, key in {"128": "I2_S_128", "64": "I2_S_64_arm", "1x4": "I2_S_1x4"}.items()}
    for stored, data in raw.items():
        for read in raw:
            same = (unpacked(TernaryMatrix.pack("I2_S", data, 8, 256, layout=read)) == weights).all()
            assert same == (stored == read)
    path = TINY / "relu2_gqa_tied.bitnet-25.i2s64.q8.gguf"
    other = open_checkpoint(TINY / "relu2_gqa_tied.bitnet-b1.58.i2s128.f16.gguf").tensors["blk.0.attn_q.weight"]
    right = open_checkpoint(path, i2s_layout="64").tensors["blk.0.attn_q.weight"]
    wrong = open_checkpoint(path).tensors["blk.0.attn_q.weight"]
    assert (other.layout, right.layout, wrong.layout) == ("128", "64", "128")
    assert (unpacked(pack(right)) == unpacked(pack(other))).all()
    assert not (unpacked(pack(wrong)) == unpacked(pack(other))).all()


@pytest.mark.parametrize("name", ["blk.0.attn_q.weight", "blk.1.ffn_down.weight"])
@pytest.mark.parametrize("model", ["relu2_gqa_tied", "llama_untied_hd"])
def test_trap_03_weight_scale_multiplies_or_divides(model: str, name: str) -> None:
    """autobitlinear stores mean|w|, bitlinear (also when nothing is said) 1/mean|w|; only config.json tells.  Behind a
    norm the wrong direction is fluent nonsense rather than a crash, so q and down are looked at."""
    auto = open_checkpoint(ORACLE / model / "packed_auto_f32").tensors[name]
    divides = open_checkpoint(ORACLE / model / "packed_bitlinear_f32").tensors[name]
    latent = pack(open_checkpoint(ORACLE / model / "online_bf16").tensors[name])
    assert auto.scale == pytest.approx(divides.scale, rel=1e-6) == pytest.approx(latent.scales[0], rel=1e-6)
    assert 1e-3 < auto.scale < 1
    assert (unpacked(pack(auto)) == unpacked(latent)).all()


def test_trap_03_default_is_bitlinear(tmp_path: Path) -> None:
    for changes, scale in [({"linear_class": "autobitlinear"}, 0.25), ({"linear_class": "bitlinear"}, 4.0), ({}, 4.0)]:
        config = hf_config(quantization_config={"quant_method": "bitnet", **changes})
        assert open_checkpoint(hf_directory(tmp_path / "m", config)).tensors["blk.0.attn_q.weight"].scale == scale


@pytest.mark.parametrize("file_type", [0, 7, 38, 39, 40, 41])
def test_trap_04_file_type_is_only_a_label(tmp_path: Path, file_type: int) -> None:
    """40 is I2_S for Microsoft and Q1_0 for llama.cpp; the tensors say what they are."""
    data = handmade.model(keys={"general.file_type": value(U32, file_type)})
    assert open_checkpoint(model_file(tmp_path, data)).tensors["blk.0.attn_q.weight"].type == "I2_S"


def test_trap_04_type_ids_mean_different_things(tmp_path: Path) -> None:
    """36, 38 to 42 differ between forks: distinguished by architecture and bytes, or refused by name."""
    k, rows = 1536, 1536
    tl2 = -(-((k - 256) * rows // 3 * 5 // 8 + 256 * rows // 2 * 4 // 8) // 32) * 32 + 32
    n = k * rows
    for type_id, size, what in [
        (36, n // 32 * 18, "IQ4_NL_4_4"),
        (38, n // 4 + 32, "TL1"),
        (39, tl2, "TL2"),
        (39, n // 32 * 17, "MXFP4"),
        (40, n // 16 * 9, "NVFP4"),
        (40, n // 32 * 6, "shape .1536, 1536., the model needs"),  # an early Q1_0, which opens
        (41, n // 128 * 18, "shape .1536, 1536., the model needs"),  # Q1_0, which opens
        (42, tl2, "TL2"),
        (40, n // 512 * 130, "Q2_0C: two bits for the levels -1.5, .* not ternary"),
        (42, n // 512 * 130, "Q2_0C"),
        (42, n // 8 * 3, "42 and .* bytes for .* not a known layout"),
    ]:
        tensors = {"blk.0.ffn_up.weight": ((k, rows), type_id, bytes(size))}
        with pytest.raises(InvalidFile, match=what):
            open_checkpoint(model_file(tmp_path, handmade.model(tensors=tensors)))


OFFICIAL_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}{{ 'BITNETAssistant: ' }}"


def official(n_tokens: int = 128256, pre: str | None = None) -> bytes:
    """The habits of the official 2B-4T file: no tokenizer.ggml.pre, a chat template that is out of date."""
    rng = np.random.default_rng(0)
    tokens = [f"t{i}" for i in range(n_tokens)]
    if n_tokens == 128256:
        tokens[128000:128010] = ["<|begin_of_text|>", "<|end_of_text|>", *map(str, range(4)), "<|start_header_id|>",
                                 "<|end_header_id|>", "4", "<|eot_id|>"]
    return handmade.model(
        keys={
            "tokenizer.ggml.pre": None if pre is None else value(STR, pre),
            "tokenizer.ggml.tokens": value(ARR, (STR, tokens)),
            "tokenizer.ggml.token_type": None,
            "tokenizer.ggml.bos_token_id": value(U32, n_tokens - 256),
            "tokenizer.chat_template": value(STR, OFFICIAL_TEMPLATE),
            "bitnet-b1.58.rope.freq_base": value(F32, 5e5),
        },
        tensors={"token_embd.weight": ((128, n_tokens), 1, rng.bytes(n_tokens * 2) * 128)},
    )


def test_trap_05_missing_pre_tokenizer(tmp_path: Path) -> None:
    """128256 tokens and no pre, or a wrong one: Llama 3's split, not the GPT-2 one that llama.cpp falls back to; and it
    is said."""
    for pre, said in (("gpt-2", "is gpt-2"), ("default", "is default"), (None, "is missing")):
        c = open_checkpoint(model_file(tmp_path, official(pre=pre)))
        assert c.tokenizer.pre == "llama-bpe" and c.tokenizer.add_bos
        assert any(f"tokenizer.ggml.pre {said}; taken as llama-bpe" in note for note in c.notes)
    # The reader hands the stored chat template on; the one the model was trained with is used instead.
    assert c.chat_template == OFFICIAL_TEMPLATE and Template.for_model(c).name == "bitnet"
    assert open_checkpoint(model_file(tmp_path, official(1000))).tokenizer.pre == ""
    assert open_checkpoint(model_file(tmp_path, official(1000, "gpt-2"))).tokenizer.pre == "gpt-2"


@pytest.mark.parametrize(
    ("arch", "keys", "kv_heads", "override", "expected", "noted"),
    [
        ("bitnet", {}, 2, None, "silu", False),
        # 2B-4T converted under the label of 1bitLLM's models, which have as many kv heads as heads and rope base 10000
        ("bitnet", {}, 1, None, "relu2", True),
        ("bitnet", {"bitnet.rope.freq_base": value(F32, 5e5)}, 2, None, "relu2", True),
        ("llama", {}, 2, None, "silu", False),
        ("bitnet-b1.58", {}, 1, None, "relu2", False),
        ("bitnet-25", {}, 1, None, "relu2", False),
        # bitnet_b1_58-large converted by today's Microsoft script: labelled b1.58, needs SiLU
        ("bitnet-b1.58", {"tokenizer.ggml.model": value(STR, "llama")}, 1, None, "silu", True),
        ("bitnet-b1.58", {}, 2, None, "silu", True),  # as many kv heads as heads, and rope base 10000
        ("bitnet-b1.58", {"bitnet-b1.58.rope.freq_base": value(F32, 5e5)}, 2, None, "relu2", False),
        ("bitnet-b1.58", {"bitnet-b1.58.hidden_activation": value(STR, "relu2")}, 2, None, "relu2", False),
        ("bitnet", {"bitnet.hidden_activation": value(STR, "relu_squared")}, 1, None, "relu2", False),
        ("bitnet-b1.58", {}, 2, "relu2", "relu2", False),
        ("bitnet", {}, 1, "relu2", "relu2", False),
        ("bitnet", {"bitnet.hidden_activation": value(STR, "silu")}, 1, "relu2", "relu2", True),
    ],
)
def test_trap_06_activation_by_architecture_and_its_exceptions(
    tmp_path: Path, arch: str, keys: dict[str, bytes], kv_heads: int, override: str | None, expected: str, noted: bool
) -> None:
    c = open_checkpoint(model_file(tmp_path, handmade.model(arch, keys=keys, kv_heads=kv_heads)), activation=override)
    assert activation(c.config) == expected and any("activation" in note for note in c.notes) is noted


def test_trap_07_interleaved_rope_and_permuted_rows() -> None:
    """arch llama: Q and K rows reordered for pairs (2j, 2j+1); bitnet files: as in Hugging Face, pairs (j, j + d/2)."""
    hf = open_checkpoint(ORACLE / "llama_untied_hd" / "packed_auto_f32")
    g = open_checkpoint(TINY / "llama_untied_hd.llama.i2s128.f16.gguf")
    assert (rope_style(hf.config), rope_style(g.config)) == ("half", "interleaved")
    assert rope_style(open_checkpoint(TINY / "silu_mha_tied.bitnet.i2s128.f16.gguf").config) == "half"
    d = hf.config.head_dim
    for name, heads in {"attn_q": hf.config.n_head, "attn_k": hf.config.n_kv_head}.items():
        ours, theirs = (unpacked(pack(c.tensors[f"blk.0.{name}.weight"])) for c in (hf, g))
        reordered = ours.reshape(heads, 2, d // 2, -1).swapaxes(1, 2).reshape(ours.shape)
        assert (reordered == theirs).all() and not (ours == theirs).all()
    for name in ("attn_v", "attn_output"):
        ours, theirs = (unpacked(pack(c.tensors[f"blk.0.{name}.weight"])) for c in (hf, g))
        assert (ours == theirs).all()


def test_trap_08_absmean_of_ternary_weights_shrinks_the_scale(tmp_path: Path) -> None:
    """Floats that are scale x {-1, 0, 1} already keep their scale; absmean would multiply it by the density, about
    two thirds here.  Also when the model is marked as one to be ternarised."""
    for marked in (True, False):
        config = hf_config(**({} if marked else {"architectures": ["LlamaForCausalLM"], "quantization_config": None}))
        c = open_checkpoint(hf_directory(tmp_path / "m", config, hf_tensors("scaled")))
        tensor = c.tensors["blk.0.ffn_gate.weight"]
        floats = np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)
        matrix = pack(tensor, quantize=tensor.floats == "latent")
        assert tensor.floats == ("latent" if marked else "ternary")
        assert matrix.scales == [0.25] and (unpacked(matrix) * np.float32(0.25) == floats).all()
        assert 0.15 < np.abs(floats).mean() < 0.18  # what absmean would have made of it


def test_trap_10_sentencepiece_without_protobuf() -> None:
    """The model of a SentencePiece vocabulary is encoded by hand: the library's own classes need protobuf, which we do
    not have.  Ten strings, exact ids, from GGUF arrays alone."""
    pytest.importorskip("sentencepiece")
    samples = json.loads((VECTORS / "tokenizer" / "token_vectors.json").read_text())["samples"]
    code = (
        "import sys, json\n"
        "sys.modules['google'] = sys.modules['google.protobuf'] = None\n"
        "from edge.formats import open_checkpoint\n"
        "from edge.prompt.tokenizer import Tokenizer\n"
        f"spec = open_checkpoint({str(TINY / 'silu_mha_tied.bitnet.i2s128.f16.gguf')!r}).tokenizer\n"
        "assert spec.model is None\n"
        "tokenizer = Tokenizer.build(spec)\n"
        "print(json.dumps([tokenizer.encode(text) for text in json.load(sys.stdin)]))\n"
    )
    found = json.loads(in_python(code, given=json.dumps([sample["text"] for sample in samples])))
    assert found == [sample["spm"] for sample in samples] and len(samples) == 10
