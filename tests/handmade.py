"""Model files made by hand, byte by byte: independent of the writers in edge, and free to be wrong."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def text(value: str | bytes) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(value)) + value


def value(kind: int, content: Any) -> bytes:
    """Type id and bytes of a metadata value; an array is (element kind, list)."""
    if kind == STR:
        return struct.pack("<I", kind) + text(content)
    if kind == ARR:
        inner, items = content
        head = struct.pack("<IIQ", kind, inner, len(items))
        if inner == STR:
            return head + b"".join(map(text, items))
        return head + struct.pack(f"<{len(items)}{_CODES[inner]}", *items)
    return struct.pack("<I" + _CODES[kind], kind, content)


def gguf(
    keys: list[tuple[str, bytes]],
    tensors: list[tuple[str, tuple[int, ...], int, bytes]],
    *,
    version: int = 3,
    alignment: int = 32,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    offsets: dict[str, int] | None = None,
) -> bytes:
    """A GGUF file.  tensors: (name, ggml dims, type id, bytes); offsets and counts may be forced to lie."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors,
                                 len(keys) if n_keys is None else n_keys)
    for key, encoded in keys:
        head += text(key) + encoded
    data = b""
    for name, dims, type_id, content in tensors:
        offset = (offsets or {}).get(name, len(data))
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_id, offset)
        data += content + bytes(-len(content) % alignment)
    return head + bytes(-len(head) % alignment) + data


def i2s(n: int, rng: np.random.Generator, scale: float = 0.5) -> bytes:
    """Random I2_S bytes of n weights: every code 0..2."""
    codes = rng.integers(0, 3, (n // 4, 4)).astype(np.uint8)
    return (codes[:, 0] << 6 | codes[:, 1] << 4 | codes[:, 2] << 2 | codes[:, 3]).astype(np.uint8).tobytes() \
        + struct.pack("<f", scale) + bytes(28)


HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 128, 256, 2, 1, 64, 16


def model(
    arch: str = "bitnet-b1.58",
    *,
    keys: dict[str, bytes | None] | None = None,
    tensors: dict[str, tuple[tuple[int, ...], int, bytes] | None] | None = None,
    proj: int = 36,
    sub_norm: bool | None = None,
    kv_heads: int = KV_HEADS,
    **container: Any,
) -> bytes:
    """A whole one-layer model; ``keys`` and ``tensors`` replace, add or (None) remove."""
    rng = np.random.default_rng(0)
    if sub_norm is None:
        sub_norm = arch != "llama"
    ones = np.ones(FFN, np.float32)
    all_keys: dict[str, bytes | None] = {
        "general.architecture": value(STR, arch),
        f"{arch}.context_length": value(U32, 64),
        f"{arch}.embedding_length": value(U32, HIDDEN),
        f"{arch}.block_count": value(U32, 1),
        f"{arch}.feed_forward_length": value(U32, FFN),
        f"{arch}.attention.head_count": value(U32, HEADS),
        f"{arch}.attention.head_count_kv": value(U32, kv_heads),
        f"{arch}.attention.layer_norm_rms_epsilon": value(F32, 1e-5),
        f"{arch}.rope.freq_base": value(F32, 10000.0),
        "tokenizer.ggml.model": value(STR, "gpt2"),
        "tokenizer.ggml.pre": value(STR, "llama-bpe"),
        "tokenizer.ggml.tokens": value(ARR, (STR, [chr(97 + i) for i in range(VOCAB)])),
        "tokenizer.ggml.token_type": value(ARR, (I32, [1] * VOCAB)),
        "tokenizer.ggml.merges": value(ARR, (STR, ["a b", "c d"])),
        "tokenizer.ggml.bos_token_id": value(U32, 1),
        "tokenizer.ggml.eos_token_id": value(U32, 2),
    }
    shapes = {
        "attn_q": (HIDDEN, HEADS * HEAD_DIM),
        "attn_k": (HIDDEN, kv_heads * HEAD_DIM),
        "attn_v": (HIDDEN, kv_heads * HEAD_DIM),
        "attn_output": (HEADS * HEAD_DIM, HIDDEN),
        "ffn_gate": (HIDDEN, FFN),
        "ffn_up": (HIDDEN, FFN),
        "ffn_down": (FFN, HIDDEN),
    }
    all_tensors: dict[str, tuple[tuple[int, ...], int, bytes] | None] = {
        "token_embd.weight": ((HIDDEN, VOCAB), 1, rng.standard_normal((VOCAB, HIDDEN)).astype(np.float16).tobytes()),
        "output_norm.weight": ((HIDDEN,), 0, ones[:HIDDEN].tobytes()),
        "blk.0.attn_norm.weight": ((HIDDEN,), 0, ones[:HIDDEN].tobytes()),
        "blk.0.ffn_norm.weight": ((HIDDEN,), 0, ones[:HIDDEN].tobytes()),
    }
    if sub_norm:
        all_tensors["blk.0.attn_sub_norm.weight"] = ((HEADS * HEAD_DIM,), 0, ones[: HEADS * HEAD_DIM].tobytes())
        all_tensors["blk.0.ffn_sub_norm.weight"] = ((FFN,), 0, ones.tobytes())
    for name, dims in shapes.items():
        n = dims[0] * dims[1]
        data = i2s(n, rng) if proj == 36 else rng.standard_normal(n).astype(np.float32).tobytes()[: n * 4]
        all_tensors[f"blk.0.{name}.weight"] = (dims, proj, data)
    if arch == "llama":
        all_tensors["output.weight"] = all_tensors["token_embd.weight"]
    all_keys.update(keys or {})
    all_tensors.update(tensors or {})
    return gguf(
        [(key, content) for key, content in all_keys.items() if content is not None],
        [(name, *content) for name, content in all_tensors.items() if content is not None],
        **container,
    )


def model_file(folder: Path, data: bytes) -> str:
    """The path of a file with these bytes."""
    path = folder / "m.gguf"
    path.write_bytes(data)
    return str(path)


def safetensors(tensors: dict[str, tuple[str, tuple[int, ...], bytes]], **lies: dict[str, Any]) -> bytes:
    """A safetensors file.  tensors: name -> (dtype, shape, bytes); ``lies`` overwrite header entries."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    header.update(lies)
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + data


def hf_floats(weights: dict[str, np.ndarray], matrices: str = "F32", vectors: str = "F32") -> dict[str, Any]:
    """Tensors of a safetensors file from float32 values: matrices of one type, everything else of another."""

    def data(values: np.ndarray, type: str) -> bytes:
        values = np.ascontiguousarray(values)
        if type == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return values.astype({"F32": np.float32, "F16": np.float16}[type]).tobytes()

    types = {name: matrices if values.ndim == 2 else vectors for name, values in weights.items()}
    return {name: (types[name], values.shape, data(values, types[name])) for name, values in weights.items()}


HF_NAMES = {
    "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "mlp.gate_proj": (FFN, HIDDEN),
    "mlp.up_proj": (FFN, HIDDEN),
    "mlp.down_proj": (HIDDEN, FFN),
}


def hf_config(**changes: Any) -> dict[str, Any]:
    """config.json of the one-layer model; None removes a key."""
    config = {
        "architectures": ["BitNetForCausalLM"],
        "model_type": "bitnet",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "hidden_act": "relu2",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "quantization_config": {
            "quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"
        },
    }
    config.update(changes)
    return {key: content for key, content in config.items() if content is not None}


def hf_tensors(
    kind: str = "packed", *, sub_norms: tuple[str, str] | None = ("attn_sub_norm", "ffn_sub_norm"), head: bool = False
) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Tensors of the one-layer model: "packed" (U8, weight_scale 0.25), "latent" or "scaled" (F32, 0.25 x {-1,0,1})."""
    rng = np.random.default_rng(1)

    def f32(*shape: int) -> tuple[str, tuple[int, ...], bytes]:
        return "F32", shape, rng.standard_normal(shape).astype(np.float32).tobytes()

    tensors = {
        "model.embed_tokens.weight": f32(VOCAB, HIDDEN),
        "model.norm.weight": f32(HIDDEN),
        "model.layers.0.input_layernorm.weight": f32(HIDDEN),
        "model.layers.0.post_attention_layernorm.weight": f32(HIDDEN),
    }
    if head:
        tensors["lm_head.weight"] = f32(VOCAB, HIDDEN)
    if sub_norms:
        tensors[f"model.layers.0.self_attn.{sub_norms[0]}.weight"] = f32(HEADS * HEAD_DIM)
        tensors[f"model.layers.0.mlp.{sub_norms[1]}.weight"] = f32(FFN)
    for name, (rows, k) in HF_NAMES.items():
        full = f"model.layers.0.{name}.weight"
        weights = rng.integers(-1, 2, (rows, k)).astype(np.int8)
        if kind == "packed":
            codes = (weights + 1).astype(np.uint8).reshape(4, rows // 4, k)
            packed = codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6
            tensors[full] = ("U8", (rows // 4, k), packed.astype(np.uint8).tobytes())
            tensors[full + "_scale"] = ("F32", (1,), struct.pack("<f", 0.25))
        elif kind == "scaled":
            tensors[full] = ("F32", (rows, k), (weights * np.float32(0.25)).tobytes())
        else:
            tensors[full] = f32(rows, k)
    return tensors


def hf_directory(
    folder: Any, config: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None, **files: Any
) -> str:
    """Write a Hugging Face directory; ``files``: name with "__" for "." -> str, bytes or an object for JSON."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hf_config() if config is None else config))
    (folder / "model.safetensors").write_bytes(safetensors(hf_tensors() if tensors is None else tensors))
    for name, content in files.items():
        if not isinstance(content, (str, bytes)):
            content = json.dumps(content)
        (folder / name.replace("__", ".")).write_bytes(content.encode() if isinstance(content, str) else content)
    return str(folder)
