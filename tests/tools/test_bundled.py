"""The bundled model: it is what its page says, and converting what it holds gives the same bytes again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from edge.formats import container, open_checkpoint
from edge.formats.checkpoint import Checkpoint
from edge.tools.convert import convert
from tests.oracles.forward import floats, ternary

#: bitnet_edge and llama.cpp name -> name in a BitNetForCausalLM (transformers)
NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_sub_norm": "self_attn.attn_sub_norm", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_sub_norm": "mlp.ffn_sub_norm", "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens", "output_norm": "model.norm",
}


def extra(header: dict[str, Any]) -> dict[str, Any]:
    return {key: header[key] for key in ("general.name", "general.license", "general.description")}


def test_it_is_what_its_page_says(bundled_model: Path) -> None:
    page = (bundled_model.parent / "README.md").read_text()
    data = bundled_model.read_bytes()
    assert f"`{hashlib.sha256(data).hexdigest()}`" in page and f"{len(data):,} bytes" in page
    assert bundled_model.name in page and len(data) <= 8 << 20
    c = open_checkpoint(bundled_model)
    assert c.notes == [] and c.config.arch == "bitnet-b1.58" and c.config.layers[0].feed_forward.activation == "relu2"
    assert c.tokenizer.kind == "bpe" and c.tokenizer.add_bos and len(c.tokenizer.eos_ids) == 2
    assert c.chat_template and c.metadata["general.license"] == "mit"


def packed(codes: np.ndarray) -> np.ndarray:
    """-1, 0, 1 [rows, k] as transformers packs them: uint8 [rows/4, k], row block i in bits 2i, code + 1."""
    blocks = (codes + 1).astype(np.uint8).reshape(4, -1, codes.shape[1])
    return blocks[0] | blocks[1] << 2 | blocks[2] << 4 | blocks[3] << 6


def unpack(checkpoint: Checkpoint, folder: Path) -> None:
    """Write what a GGUF holds as the Hugging Face directory of a trainer: packed weights with their scale."""
    c, spec = checkpoint.config, checkpoint.tokenizer
    tensors = {}
    for name, tensor in checkpoint.tensors.items():
        *layer, last = name.removesuffix(".weight").split(".")
        hf = f"model.layers.{layer[1]}.{NAMES[last]}" if layer else NAMES[last]
        if tensor.type == "I2_S":
            weight = ternary(tensor)
            scale = np.abs(weight).max()
            tensors[f"{hf}.weight"] = packed(np.round(weight / scale))
            tensors[f"{hf}.weight_scale"] = np.array([scale], np.float32)
        else:
            tensors[f"{hf}.weight"] = floats(tensor).astype({"F16": np.float16, "F32": np.float32}[tensor.type])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    described = {
        "architectures": ["BitNetForCausalLM"], "model_type": "bitnet", "vocab_size": c.n_vocab,
        "hidden_size": c.hidden, "intermediate_size": c.layers[0].feed_forward.ffn, "num_hidden_layers": c.n_layer,
        "num_attention_heads": c.n_head, "num_key_value_heads": c.n_kv_head, "head_dim": c.head_dim,
        "hidden_act": "relu2", "rms_norm_eps": round(c.eps, 9), "rope_theta": c.layers[0].mixer.rotation.theta,
        "max_position_embeddings": c.n_ctx_train, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 1,
        "pad_token_id": 2, "quantization_config": {
            "quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"},
    }
    words = list(spec.tokens)
    special = [
        {"id": i, "content": words[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True} for i in range(3)]
    split = {"type": "Split", "pattern": {"Regex": spec.pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0", "added_tokens": special, "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(words)},
                  "merges": [pair.split(" ") for pair in spec.merges]},
    }
    others = {
        "config.json": described, "tokenizer.json": tokenizer,
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": [1, 2], "pad_token_id": 2},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": words[0], "eos_token": words[1],
            "pad_token": words[2], "model_max_length": c.n_ctx_train, "chat_template": checkpoint.chat_template},
    }
    for name, content in others.items():
        (folder / name).write_text(json.dumps(content))


def test_it_can_be_made_again(bundled_model: Path, tmp_path: Path) -> None:
    """From the Hugging Face directory that its own weights and tokenizer make, byte for byte."""
    unpack(open_checkpoint(bundled_model), tmp_path)
    convert(tmp_path, tmp_path / "m.gguf", extra=extra(container.read_header(bundled_model).metadata))
    assert (tmp_path / "m.gguf").read_bytes() == bundled_model.read_bytes()
