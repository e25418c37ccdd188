"""Published files: what public logs and code say of their headers and configurations, rebuilt at full size without the
weights, is read right.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.errors import InvalidFile
from edge.formats import open_checkpoint
from edge.layers import Attention, Dense
from tests.handmade import ARR, BOOL, F32, I32, STR, U32, text, value
from tests.vectors.stored import VECTORS

FILES, FOLDERS = json.loads((VECTORS / "published.json").read_text()).values()
KINDS = {"str": STR, "u32": U32, "f32": F32, "bool": BOOL}
#: type -> (id, bytes of a tensor of k columns and m rows)
TYPES: dict[str, tuple[int, Any]] = {
    "F32": (0, lambda k, m=1: 4 * k * m), "F16": (1, lambda k, m: 2 * k * m),
    "TQ2_0": (35, lambda k, m: k * m // 256 * 66), "I2_S": (36, lambda k, m: k * m // 4 + 32),
    "TL2": (42, lambda k, m: -(-((k - 256) * m // 3 * 5 // 8 + 64 * m) // 32) * 32 + 32),
}


def stated(known: dict[str, Any]) -> dict[str, Any]:
    """Key without its first part -> value."""
    arch = known["keys"]["general.architecture"][1]
    return {key.removeprefix(f"{arch}.").removeprefix("general."): content
            for key, (_, content) in known["keys"].items()}


def shapes(known: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """(name, GGUF's dimensions, type) of all tensors."""
    keys = stated(known)
    hidden, ffn, heads = (keys[key] for key in ("embedding_length", "feed_forward_length", "attention.head_count"))
    kv, ternary = hidden // heads * keys["attention.head_count_kv"], list(known["types"])[-1]
    yield "token_embd.weight", (hidden, known["vocabulary"]), "F16"
    if known["types"]["F16"] == 2:
        yield "output.weight", (hidden, known["vocabulary"]), "F16"
    yield "output_norm.weight", (hidden,), "F32"
    for i in range(keys["block_count"]):
        for name, dims in (("attn_q", (hidden, hidden)), ("attn_k", (hidden, kv)), ("attn_v", (hidden, kv)),
                           ("attn_output", (hidden, hidden)), ("ffn_gate", (hidden, ffn)), ("ffn_up", (hidden, ffn)),
                           ("ffn_down", (ffn, hidden))):
            yield f"blk.{i}.{name}.weight", dims, ternary
        norms = {"attn_norm": hidden, "ffn_norm": hidden}
        if keys["architecture"] != "llama":
            norms |= {"attn_sub_norm": hidden, "ffn_sub_norm": ffn}
        for name, width in norms.items():
            yield f"blk.{i}.{name}.weight", (width,), "F32"


def rebuilt(path: Path, known: dict[str, Any]) -> list[tuple[str, tuple[int, ...], str]]:
    """Write the file, with holes for weights; returns its tensors."""
    tokens = [f"t{i}" for i in range(known["vocabulary"])]
    keys = {key: value(KINDS[kind], content) for key, (kind, content) in known["keys"].items()}
    keys |= {"tokenizer.ggml.tokens": value(ARR, (STR, tokens)), "tokenizer.ggml.merges": value(ARR, (STR, ["t 1"])),
             "tokenizer.ggml.token_type": value(ARR, (I32, [1] * len(tokens)))}
    tensors = list(shapes(known))
    head, at, places = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)), 0, []
    head += b"".join(text(key) + content for key, content in keys.items())
    for name, dims, type in tensors:
        number, nbytes = TYPES[type]
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, at)
        places.append((at, nbytes(*dims), type))
        at += -(-nbytes(*dims) // 32) * 32
    head += bytes(-len(head) % 32)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + at)
        for place, size, type in places:
            if type == "I2_S":
                file.seek(len(head) + place + size - 32)
                file.write(struct.pack("<f", 0.5))
    return tensors


@pytest.mark.parametrize("name", FILES)
def test_headers_out_of_public_logs_are_read(tmp_path: Path, name: str) -> None:
    known = FILES[name]
    tensors = rebuilt(tmp_path / "m.gguf", known)
    assert len(tensors) == known["tensors"] and Counter(type for *_, type in tensors) == known["types"]
    if "refused" in known:
        with pytest.raises(InvalidFile, match=known["refused"]):
            open_checkpoint(tmp_path / "m.gguf")
        return
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    said, config = stated(known), checkpoint.config
    assert checkpoint.head == known["head"] and config.tied is (known["head"] == "token_embd.weight")
    assert (config.hidden, config.n_layer, config.n_vocab) == (
        said["embedding_length"], said["block_count"], known["vocabulary"])
    assert config.name == said.get("name", config.name) and config.name
    layer = config.layers[0]
    assert isinstance(layer.mixer, Attention) and isinstance(layer.feed_forward, Dense)
    assert (layer.mixer.n_head, layer.mixer.n_kv_head) == (
        said["attention.head_count"], said["attention.head_count_kv"])
    assert layer.feed_forward.activation == ("silu" if said["architecture"] == "llama" else "relu2")
    assert layer.mixer.rotation.theta == said.get("rope.freq_base", 10000.0)
    if "bytes" in known:
        assert sum(len(tensor.data) for tensor in checkpoint.tensors.values()) == known["bytes"]
    if "parameters" in known:
        assert round(sum(math.prod(dims) for _, dims, _ in tensors) / 1e7) == round(known["parameters"] / 1e7)


def weights(known: dict[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(name, type, shape) of all tensors of a folder."""
    c, packed = known["config"], known["stored"] == "U8"
    hidden, ffn, vocabulary = c["hidden_size"], c["intermediate_size"], known["vocabulary"]
    size = c.get("head_dim", hidden // c["num_attention_heads"])
    q, kv = c["num_attention_heads"] * size, c["num_key_value_heads"] * size
    float_type = "BF16" if packed else known["stored"]
    yield "model.embed_tokens.weight", float_type, (vocabulary, hidden)
    yield "model.norm.weight", float_type, (hidden,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", float_type, (vocabulary, hidden)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, rows, columns in (("self_attn.q_proj", q, hidden), ("self_attn.k_proj", kv, hidden),
                                    ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, q),
                                    ("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden),
                                    ("mlp.down_proj", hidden, ffn)):
            yield f"{at}{name}.weight", known["stored"], (rows // 4 if packed else rows, columns)
            if packed:
                yield f"{at}{name}.weight_scale", "BF16", (1,)
        widths = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
        widths |= dict(zip(known.get("sub_norms", ()), (q, ffn))) | dict.fromkeys(known.get("head_norms", ()), size)
        for name, width in widths.items():
            yield f"{at}{name}.weight", float_type, (width,)


@pytest.mark.parametrize("name", FOLDERS)
def test_configurations_out_of_public_code_are_read(tmp_path: Path, name: str) -> None:
    known = FOLDERS[name]
    (tmp_path / "config.json").write_text(json.dumps(known["config"]))
    header, at, ones = {}, 0, []
    for tensor, type, shape in weights(known):
        size = math.prod(shape) * (1 if type == "U8" else 2)
        header[tensor] = {"dtype": type, "shape": shape, "data_offsets": [at, at + size]}
        ones += [at] if tensor.endswith("weight_scale") else []
        at += size
    text = json.dumps(header).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
        for place in ones:
            file.seek(8 + len(text) + place)
            file.write(b"\x80\x3f")  # 1 in BF16
    config, c = open_checkpoint(tmp_path).config, known["config"]
    mixer, feed = config.layers[0].mixer, config.layers[0].feed_forward
    assert isinstance(mixer, Attention) and isinstance(feed, Dense)
    assert (config.arch, config.tied, config.n_layer, config.n_ctx_train, config.eps) == (
        known["arch"], c["tie_word_embeddings"], c["num_hidden_layers"], c["max_position_embeddings"],
        c["rms_norm_eps"])
    assert (mixer.n_head, mixer.n_kv_head, feed.ffn) == (
        c["num_attention_heads"], c["num_key_value_heads"], c["intermediate_size"])
    assert mixer.rotation.theta == pytest.approx(known.get("theta", c["rope_theta"]), rel=1e-6)
    assert feed.activation == c.get("hidden_act", "silu") and mixer.sub_norm is ("sub_norms" in known)
