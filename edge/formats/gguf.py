"""GGUF: describe the ternary models in it.

The container is read by :mod:`edge.formats.gguf_header` and written by :mod:`edge.formats.gguf_writer`; here is what
is known about ternary models in GGUF files: architectures and their habits, type ids that mean different things in
different forks, what to refuse and in which words.
"""

from __future__ import annotations

import math
import os
import struct
from typing import Any

from edge.config import ModelConfig
from edge.errors import UsageError
from edge.formats import names
from edge.formats.checkpoint import TERNARY_TYPES, Checkpoint, Tensor, TokenizerSpec
from edge.formats.gguf_header import (
    ALIGNMENT,
    TYPE_IDS,
    TYPES,
    Header,
    StringArray,
    TensorInfo,
    read_header,
    tensor_bytes,
)
from edge.formats.gguf_keys import KEY_EOS_IDS, KEY_IGNORE_MERGES, KEY_PATTERN
from edge.formats.gguf_writer import Entry, write
from edge.formats.mapped import located, shown

__all__ = [
    "TYPES",
    "TYPE_IDS",
    "Entry",
    "Header",
    "StringArray",
    "TensorInfo",
    "read",
    "read_header",
    "read_tokenizer",
    "tensor_bytes",
    "write",
]

LAYOUTS = ("128", "64", "1x4")
ARCHITECTURES = ("bitnet", "bitnet-b1.58", "bitnet-25", "llama")

#: names of pre-tokenisers that split like Llama 3, whose tokenizers put BOS first
_LLAMA3_PRE = ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "falcon_e")

_AGAIN = "download or convert the model again as I2_S or TQ2_0"
#: ids whose meaning depends on who wrote the file, or that we name only to refuse them well
_FOREIGN: dict[int, str] = {
    37: f"I8_S; {_AGAIN}",
    38: f"TL1, a table layout that can only be decoded with the tile sizes of the machine that wrote it; {_AGAIN}",
    40: f"NVFP4 (or an early Q1_0); {_AGAIN}",
    41: "Q1_0, which is binary rather than ternary; use a ternary model",
    134: f"IQ1_BN of ik_llama.cpp; {_AGAIN}",
    135: f"IQ2_BN of ik_llama.cpp; {_AGAIN}",
    142: f"PQ2_0, group-scaled weights of the Prism fork; {_AGAIN}",
    143: f"PTQ1_0, group-scaled weights of the Prism fork; {_AGAIN}",
    335: f"IQ2_BN_R4 of ik_llama.cpp; {_AGAIN}",
}


def read(path: str | os.PathLike[str], *, i2s_layout: str = "128", activation: str | None = None) -> Checkpoint:
    """Describe a ternary model in a GGUF file.

    ``i2s_layout``: how I2_S codes are arranged; nothing in the file tells (all published files use "128").
    ``activation``: "relu2" or "silu", over what the file or its architecture says.
    Raises ModelNotFound, InvalidFile (one line naming the key or tensor) or UsageError.
    """
    if i2s_layout not in LAYOUTS:
        raise UsageError(f"i2s layout {i2s_layout!r} is not known; use one of {', '.join(LAYOUTS)}")
    if activation not in (None, "relu2", "silu"):
        raise UsageError(f"activation {activation!r} is not known; use relu2 or silu")
    header = read_header(path)
    notes: list[str] = []
    arch = _check_kind(header)
    config = _config(header, arch, activation, notes)
    tensors = _tensors(header, i2s_layout)
    with located(header.path):
        notes += names.check(config, tensors)
    spec = _tokenizer(header, config.n_vocab, notes)
    return Checkpoint(
        path=header.path,
        format="gguf",
        config=config,
        tensors=tensors,
        tokenizer=spec,
        chat_template=header.text("tokenizer.chat_template"),
        # float projections of a GGUF are what they are: dense unless their values are ternary already
        metadata={**header.metadata, "ternary_marker": False},
        notes=notes,
        keep=(header.view,),
    )


def read_tokenizer(path: str | os.PathLike[str]) -> TokenizerSpec:
    """Only the tokenizer of a GGUF file, which may be vocabulary-only."""
    header = read_header(path)
    return _tokenizer(header, len(header.strings("tokenizer.ggml.tokens")), [])


def _check_kind(header: Header) -> str:
    """Refuse, by name, what we know and do not run; returns the architecture."""
    count = header.integer("split.count", 1) or 1
    if count > 1:
        part = (header.integer("split.no", 0) or 0) + 1
        header.fail(f"part {part} of a model split in {count}; join the parts with 'llama-gguf-split --merge' first")
    if any(key.startswith("prism.hadamard.") for key in header.metadata):
        header.fail("its weights are stored in a rotated basis (prism.hadamard.*), which would give garbage here; "
                    "use a model without it")
    arch = header.text("general.architecture")
    if arch is None:
        header.fail("general.architecture is missing; this is no model file")
    if arch not in ARCHITECTURES:
        header.fail(f"architecture {shown(arch)} is not supported ({', '.join(ARCHITECTURES)} are); "
                    "bitnet-edge runs BitNet-type ternary models")
    for info in header.tensors.values():
        reason = _foreign(info, arch)
        if reason:
            header.fail(f"tensor {shown(info.name)} has type {reason}")
    if "token_embd.weight" not in header.tensors:
        header.fail("it holds no weights (token_embd.weight is missing): a vocabulary-only or incomplete file")
    kinds = {info.type for name, info in header.tensors.items() if names.is_projection(name)}
    if kinds and not kinds & set(TERNARY_TYPES):
        header.fail(f"a dense model (its matrices are {', '.join(sorted(kinds))}), not a ternary one; run it with "
                    "llama.cpp, or, if its weights are ternary, convert it to I2_S or TQ2_0 first")
    return arch


def _foreign(info: TensorInfo, arch: str) -> str | None:
    """Why a tensor's type cannot be read, told by id, architecture and byte span (ids differ between forks)."""
    n, k = math.prod(info.dims), info.dims[0]
    if info.type_id == TYPE_IDS["I2_S"]:
        # 36 was IQ4_NL_4_4 in llama.cpp once: 18 bytes per 32 weights, more than twice as long
        nl = n // 32 * 18
        if n >= 1024 and nl <= info.span < nl + ALIGNMENT:
            return f"36 with the size of IQ4_NL_4_4, not of I2_S; {_AGAIN}"
        return None
    if info.type_id in TYPES:
        return None
    if info.type_id in (39, 42):
        if arch.startswith(("bitnet", "llama")) and len(info.dims) == 2 and k > 256:
            rows = n // k
            tl2 = -(-((k - 256) * rows // 3 * 5 // 8 + 256 * rows // 2 * 4 // 8) // 32) * 32 + 32
            if tl2 <= info.span < tl2 + 64:
                return f"{info.type_id} with the size of TL2, which cannot be decoded without the sizes it was " \
                       f"written for; {_AGAIN}"
        if info.type_id == 39:
            return f"MXFP4 (or TL2); {_AGAIN}"
        groups = 128 if n // 128 * 34 <= info.span < n // 64 * 18 else 64
        return f"Q2_0 in groups of {groups}, which is not supported; {_AGAIN}"
    if info.type_id in _FOREIGN:
        return f"{info.type_id}, {_FOREIGN[info.type_id]}"
    return f"id {info.type_id}, which is not known; {_AGAIN}"


def _config(header: Header, arch: str, override: str | None, notes: list[str]) -> ModelConfig:
    """ModelConfig from ``<arch>.*`` and the shapes of a few tensors."""

    def need(key: str) -> int:
        value = header.integer(f"{arch}.{key}")
        if value is None:
            header.fail(f"{arch}.{key} is missing; the file is incomplete, get it again")
        return value

    hidden = need("embedding_length")
    n_head = need("attention.head_count")
    n_kv_head = header.integer(f"{arch}.attention.head_count_kv", n_head) or 0
    head_dim = header.integer(f"{arch}.attention.key_length", hidden // n_head if n_head else 0) or 0
    if header.integer(f"{arch}.attention.value_length", head_dim) != head_dim:
        header.fail(f"{arch}.attention.value_length differs from key_length, which is not supported")
    embedding = header.tensors["token_embd.weight"].shape
    n_vocab = embedding[0]
    said = header.integer(f"{arch}.vocab_size")
    if said is not None and said != n_vocab:
        notes.append(f"{arch}.vocab_size says {said}, the embedding has {n_vocab} rows; taken as {n_vocab}")
    eps = header.real(f"{arch}.attention.layer_norm_rms_epsilon")
    if eps is None:
        header.fail(f"{arch}.attention.layer_norm_rms_epsilon is missing; the file is incomplete, get it again")
    theta = header.real(f"{arch}.rope.freq_base", 10000.0) or 0.0
    scaling = header.text(f"{arch}.rope.scaling.type", "none")
    factor = header.real(f"{arch}.rope.scaling.factor", header.real(f"{arch}.rope.scale_linear", 1.0))
    if scaling not in ("none", "linear") and factor != 1.0:
        header.fail(f"{arch}.rope.scaling.type {shown(scaling)} is not supported (linear is)")
    name = header.text("general.name") or ""
    if not 0 < len(name) < 200 or not name.isprintable():  # it will be printed: no escape sequences
        name = os.path.splitext(os.path.basename(header.path))[0]
    fields: dict[str, Any] = {
        "n_layer": need("block_count"),
        "ffn": need("feed_forward_length"),
        "n_ctx_train": need("context_length"),
        "rope_dim": header.integer(f"{arch}.rope.dimension_count", head_dim),
        "activation": _activation(header, arch, n_head == n_kv_head and theta == 10000.0, override, notes),
        "name": name,
    }
    with located(header.path):
        return ModelConfig(
            arch=arch,
            hidden=hidden,
            n_head=n_head,
            n_kv_head=n_kv_head,
            head_dim=head_dim,
            n_vocab=n_vocab,
            rope_theta=theta,
            # llama files keep Q and K rows permuted for interleaved pairs; bitnet files do not
            rope_style="interleaved" if arch == "llama" else "half",
            eps=eps,
            sub_norm="blk.0.attn_sub_norm.weight" in header.tensors,
            tied="output.weight" not in header.tensors,
            rope_scale=factor if factor else 1.0,
            activation_quant=header.text(f"{arch}.activation_quantization") or "int8",
            **fields,
        )


def _activation(header: Header, arch: str, mha_10000: bool, override: str | None, notes: list[str]) -> str:
    """Which activation gates the feed-forward part.

    The user's word, then ``<arch>.hidden_activation``, then the architecture: bitnet and llama are SiLU, bitnet-b1.58
    and bitnet-25 are squared ReLU, except that Microsoft's converter labels the SiLU models of 1bitLLM bitnet-b1.58
    too.  Those have a SentencePiece vocabulary, or full multi-head attention and rope base 10000.
    """
    said = header.text(f"{arch}.hidden_activation")
    if said is not None:
        said = {"relu_squared": "relu2", "relu_sqr": "relu2", "swish": "silu"}.get(said, said)
        if said not in ("relu2", "silu"):
            header.fail(f"{arch}.hidden_activation {shown(said)} is not supported (relu2 and silu are)")
    if override is not None:
        if said not in (None, override):
            notes.append(f"activation {override} as asked, although the file says {said}")
        return override
    if said is not None:
        return said
    if arch in ("bitnet", "llama"):
        return "silu"
    sentencepiece = header.text("tokenizer.ggml.model") == "llama"
    if sentencepiece or mha_10000:
        why = "a SentencePiece vocabulary" if sentencepiece else "full attention and rope base 10000"
        notes.append(f"activation taken as SiLU: labelled {arch} but has {why}, as the 1bitLLM models do; "
                     "if answers are garbage, ask for relu2")
        return "silu"
    return "relu2"


def _tensors(header: Header, i2s_layout: str) -> dict[str, Tensor]:
    """Tensors by name, with ``.scale`` companions folded in."""
    scales: dict[str, float] = {}
    for name, info in header.tensors.items():
        if name.endswith(".scale") and name[:-6] + ".weight" in header.tensors:
            if info.type not in names.VECTOR_TYPES or math.prod(info.dims) != 1:
                header.fail(f"tensor {shown(name)} is not one float; the file is damaged")
            scales[name[:-6] + ".weight"] = _one_float(header.view[info.offset : info.offset + (info.nbytes or 0)],
                                                       info.type)
    tensors = {}
    for name, info in header.tensors.items():
        if name.endswith(".scale") and name[:-6] + ".weight" in scales:
            continue
        assert info.nbytes is not None  # foreign types were refused
        shape = info.shape
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]  # ggml's trailing dimensions of 1 mean nothing
        tensor = Tensor(
            name=name,
            type=info.type,
            shape=shape,
            data=header.view[info.offset : info.offset + info.nbytes],
            scale=scales.get(name, 1.0),
            layout=i2s_layout if info.type == "I2_S" else "128",
        )
        if tensor.type == "I2_S":
            # n/4 bytes cannot hold a last block that is not full: its columns lie in bytes that were cut off
            whole = shape[0] % 4 == 0 if i2s_layout == "1x4" else math.prod(shape) % int(i2s_layout) == 0
            if not whole:
                header.fail(f"tensor {shown(name)} of shape {shape} cannot be I2_S in layout {i2s_layout}")
        tensors[name] = tensor
    return tensors


def _one_float(data: memoryview, type_name: str) -> float:
    if type_name == "F32":
        return float(struct.unpack("<f", data)[0])
    if type_name == "F16":
        return float(struct.unpack("<e", data)[0])
    return float(struct.unpack("<f", b"\0\0" + bytes(data))[0])  # BF16: the upper half of a float32


def _tokenizer(header: Header, n_vocab: int, notes: list[str]) -> TokenizerSpec:
    """TokenizerSpec from ``tokenizer.ggml.*``; kind "none" when the file brings no tokenizer."""
    model = header.text("tokenizer.ggml.model", "none")
    tokens = header.strings("tokenizer.ggml.tokens")
    if model in ("none", "no_vocab") or not tokens:
        notes.append("the file brings no tokenizer: it can be run on token ids only")
        return TokenizerSpec(kind="none", add_bos=False)
    if model not in ("gpt2", "llama"):
        header.fail(f"tokenizer type {shown(model)} is not supported (gpt2 and llama are)")
    if len(tokens) > n_vocab:
        header.fail(f"tokenizer.ggml.tokens has {len(tokens)} entries for {n_vocab} embedding rows; it is damaged")
    scores = header.numbers("tokenizer.ggml.scores")
    types = header.numbers("tokenizer.ggml.token_type")
    for key, values in (("scores", scores), ("token_type", types)):
        if values and len(values) != len(tokens):
            header.fail(f"tokenizer.ggml.{key} has {len(values)} entries for {len(tokens)} tokens; it is damaged")
    bpe = model == "gpt2"
    pre = header.text("tokenizer.ggml.pre", "") or ""
    if bpe and not pre and len(tokens) == 128256:
        # The official 2B-4T file has no pre; 128256 tokens are Llama 3's vocabulary.
        pre = "llama-bpe"
        notes.append("tokenizer.ggml.pre is missing; taken as llama-bpe because there are 128256 tokens")

    def token_id(key: str) -> int | None:
        value = header.integer(f"tokenizer.ggml.{key}_token_id")
        if value is not None and not 0 <= value < n_vocab:
            notes.append(f"tokenizer.ggml.{key}_token_id {value} is no token; ignored")
            return None
        return value

    eos = [token_id("eos"), token_id("eot"), token_id("eom")]
    for extra in header.numbers(KEY_EOS_IDS)[:64]:
        eos.append(extra if isinstance(extra, int) and 0 <= extra < n_vocab else None)
    bos = token_id("bos")
    add_bos = header.flag("tokenizer.ggml.add_bos_token", not bpe or pre in _LLAMA3_PRE)
    return TokenizerSpec(
        kind="bpe" if bpe else "sentencepiece",
        tokens=tokens,
        scores=scores,
        types=types,
        merges=header.strings("tokenizer.ggml.merges"),
        pre=pre,
        pattern=header.text(KEY_PATTERN),
        ignore_merges=header.flag(KEY_IGNORE_MERGES),
        bos_id=bos,
        eos_ids=tuple(dict.fromkeys(i for i in eos if i is not None)),
        pad_id=token_id("padding"),
        unk_id=token_id("unknown"),
        add_bos=bool(add_bos) and bos is not None,
        add_space_prefix=bool(header.flag("tokenizer.ggml.add_space_prefix", not bpe)),
    )
