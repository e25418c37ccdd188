"""Write random-weight GGUF files in the published shapes of ternary models, to measure speed and memory.

    python benchmarks/make_model.py 2b-4t.gguf --shape 2b-4t --type I2_S --embedding F16

The answers of such a model are noise; its time per token, its header and its bytes are those of the real one.  The
file depends on shape, types and seed alone.  One seed gives the same ternary weights (60 % non-zero) in every type,
so answers can be compared across types too: scales are exact in F16, and each activation stays of order one.
Memory stays small: weights are drawn and written in pieces.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from edge.formats import container
from edge.formats.gguf_keys import KEY_PLANES
from edge.formats.names import parts
from edge.registry import shapes
from edge.registry.encodings import MOST_PLANES, PLANE_TYPES
from edge.registry.families import FAMILIES
from edge.registry.shapes import Shape

NONZERO = 0.6  # fraction of weights that are not 0; trained models have 0.5 to 0.7
PIECE = 1 << 20  # bytes of 2-bit codes drawn at once
TERNARY = ("I2_S", "TQ1_0", "TQ2_0", "Q2_0", "PQ2_0")
PLANES = {type: group for group, type in PLANE_TYPES.items()}  # sums of ternary matrices: type -> weights of a scale
TYPES = (*TERNARY, *PLANES, "F16")  # F16: the same weights, for the quantisers of other engines to read
FILE_TYPES = {"F16": 1, "TQ1_0": 36, "TQ2_0": 37, "I2_S": 40, "Q2_0": 41, "PQ2_0": 41, **dict.fromkeys(PLANES, 41)}
EMBEDDING = ("F16", "Q8_0", "Q6_K", "Q4_0", "Q2_0", "PQ2_0")


#: the published ones, those of the bundled model and of a dense model that planes were tried on, and some for tests
SHAPES = {
    "tiny": Shape("bitnet-b1.58", 2, 256, 768, 4, 2, 64, 512, 512, 1e4, 1e-5, True, "tiny"),
    "tiny-silu": Shape("bitnet", 2, 256, 512, 4, 4, 64, 512, 512, 1e4, 1e-5, True, "sentencepiece"),
    "tiny-llama": Shape("llama", 2, 256, 512, 4, 2, 128, 512, 512, 1e6, 1e-6, False, "tiny"),
    "tiny-qwen35": Shape("qwen35", 4, 256, 512, 4, 2, 128, 512, 1024, 1e7, 1e-6, True, "tiny", rotary=32,
                         delta=(2, 6, 64, 128)),
    "tiny-bonsai2": Shape("qwen35", 4, 256, 512, 4, 2, 128, 512, 1024, 1e7, 1e-6, True, "tiny", rotary=32,
                          delta=(2, 6, 64, 128), basis=128),
    "tiny-qwen3": Shape("qwen3", 2, 256, 512, 4, 2, 128, 512, 512, 1e6, 1e-6, True, "tiny"),
    "tiny-embedding": Shape("qwen3", 2, 256, 512, 4, 2, 128, 512, 512, 1e6, 1e-6, True, "tiny", inner_norm=True),
    "tiny-planes": Shape("llama", 2, 192, 320, 3, 1, 64, 512, 512, 1e5, 1e-5, True, "tiny"),
    "tiny-qwen3moe": Shape("qwen3moe", 2, 256, 128, 4, 2, 128, 512, 512, 1e6, 1e-6, True, "tiny", experts=(8, 2)),
    "tiny-maple": Shape("maple", 4, 256, 256, 4, 2, 128, 512, 512, 1e4, 1e-6, False, "tiny", window=96,
                        experts=(16, 4), rope_dim=64),
    "kiosk": Shape("bitnet-b1.58", 6, 256, 704, 4, 2, 64, 4096, 1024, 1e4, 1e-5, True, "tiny"),
    "smollm2-135m": Shape("llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, 1e-5, True, "tiny"),
    **shapes.SHAPES,
}


# ---- random numbers: the same on every machine and in every numpy --------------------------------------------------


class Stream:
    """Bytes drawn from a table by uniform 16-bit numbers; depends on the seed and a name only."""

    def __init__(self, seed: int, name: str) -> None:
        self._raw = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())])).random_raw

    def draw(self, table: np.ndarray, n: int) -> np.ndarray:
        """n entries of table [65536]; n is a multiple of 4."""
        return table[self._raw(n // 4).view(np.uint16)]


def _stretch(share: np.ndarray) -> np.ndarray:
    """Table [65536] of uint8 in which value v fills the given share (sums to 1) of the entries, to the nearest one."""
    edges = np.round(np.cumsum(share) * 65536).astype(np.int64)
    return np.searchsorted(edges, np.arange(65536), side="right").astype(np.uint8)


def _code_table() -> np.ndarray:
    """uint16 -> a byte of four independent codes 0, 1, 2 (weight + 1)."""
    one = np.array([NONZERO / 2, 1 - NONZERO, NONZERO / 2, 0.0])
    return _stretch(np.einsum("a,b,c,d->abcd", one, one, one, one).ravel())


def _normal_table() -> np.ndarray:
    """uint16 -> int8 of a normal distribution with standard deviation 30, within -127..127."""
    grid = np.arange(-127, 128)
    share = np.exp(-0.5 * (grid / 30.0) ** 2)
    return (_stretch(share / share.sum()).astype(np.int16) - 127).astype(np.int8)


CODES = _code_table()
NORMAL = _normal_table()

# ---- ternary types: every one is a rearrangement of the bytes of I2_S ------------------------------------------------
# An I2_S block of 128 codes is 32 bytes; byte p holds elements p, p+32, p+64, p+96 from the high bits down.

_BYTE = np.arange(256)
_FIELD = [(_BYTE >> shift) & 3 for shift in (6, 4, 2, 0)]  # field l of a byte = element 32*l + p
_REVERSED = np.sum([field << 2 * i for i, field in enumerate(_FIELD)], 0).astype(np.uint8)  # low bits first
_BASE3 = np.sum([field * 3 ** (4 - i) for i, field in enumerate(_FIELD)], 0).astype(np.uint8)  # digits of 81, 27, 9, 3


def _trits(digits: np.ndarray) -> np.ndarray:
    """Stored byte of a five-digit base-3 number 0..242 (TQ1_0)."""
    return ((digits.astype(np.uint16) * 256 + 242) // 243).astype(np.uint8)


def encode_tq2_0(i2s: np.ndarray, scale: np.float16) -> np.ndarray:
    """Blocks of 256 codes as TQ2_0 [n][66]: 64 bytes, low bits first, then the scale; i2s [n*64] uint8."""
    codes = i2s.reshape(-1, 64)
    out = np.empty((len(codes), 66), np.uint8)
    out[:, :64] = _REVERSED[codes]
    out[:, 64:] = np.frombuffer(scale.tobytes(), np.uint8)
    return out


def encode_tq1_0(i2s: np.ndarray, scale: np.float16) -> np.ndarray:
    """Blocks of 256 codes as TQ1_0 [n][54]: 48 bytes of five trits, 4 bytes of four, the scale; i2s [n*64] uint8."""
    low, high = i2s.reshape(-1, 2, 32).transpose(1, 0, 2)  # elements 0..127 and 128..255
    field = [table[high].astype(np.uint8) for table in _FIELD]
    out = np.empty((len(low), 54), np.uint8)
    out[:, :32] = _trits(_BASE3[low] + field[0])  # m, m+32, m+64, m+96, m+128
    out[:, 32:48] = _trits(  # 160 + m + 16*{0..4}
        81 * field[1][:, :16] + 27 * field[1][:, 16:] + 9 * field[2][:, :16] + 3 * field[2][:, 16:] + field[3][:, :16]
    )
    last = field[3][:, 16:].reshape(-1, 4, 4)  # 240 + j + 4*{0..3}
    out[:, 48:52] = _trits(81 * last[:, 0] + 27 * last[:, 1] + 9 * last[:, 2] + 3 * last[:, 3])
    out[:, 52:] = np.frombuffer(scale.tobytes(), np.uint8)
    return out


def encode_groups(i2s: np.ndarray, scale: np.float16, block: int) -> np.ndarray:
    """Blocks of 64 codes as Q2_0 [n][18] or of 128 as PQ2_0 [n][34]: the scale, then four neighbours in a byte, low
    bits first; i2s [n*32] uint8."""
    codes = np.stack(_FIELD).astype(np.uint8)[:, i2s.reshape(-1, 32)].transpose(1, 0, 2).reshape(-1, block // 4, 4)
    out = np.empty((len(codes), 2 + block // 4), np.uint8)
    out[:, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    out[:, 2:] = codes[:, :, 0] | codes[:, :, 1] << 2 | codes[:, :, 2] << 4 | codes[:, :, 3] << 6
    return out


encode_q2_0 = partial(encode_groups, block=64)
encode_pq2_0 = partial(encode_groups, block=128)


def encode_f16(i2s: np.ndarray, scale: np.float16) -> np.ndarray:
    """Blocks of 128 codes as F16 values [n][128]; i2s [n*32] uint8."""
    value = np.stack([(field - 1) * scale for field in _FIELD]).astype(np.float16)  # [4][256]
    return value[:, i2s.reshape(-1, 32)].transpose(1, 0, 2).reshape(-1, 128)


def encode_q6_k(q: np.ndarray, d: np.float16) -> np.ndarray:
    """Super-blocks of 256 numbers 0..63 (value - 32, times 4 d) as Q6_K [n][210]; q [n*256] uint8."""
    halves = q.reshape(-1, 2, 4, 32)
    out = np.empty((len(halves), 210), np.uint8)
    low, high = halves & 15, halves >> 4
    ql = np.concatenate([low[:, :, :2] | low[:, :, 2:] << 4], axis=2)  # [n][2][2][32]
    out[:, :128] = ql.reshape(-1, 128)
    out[:, 128:192] = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(-1, 64)
    out[:, 192:208] = 4
    out[:, 208:] = np.frombuffer(d.tobytes(), np.uint8)
    return out


# ---- tensors ---------------------------------------------------------------------------------------------------------


def ternary_pieces(seed: int, name: str, rows: int, k: int, type: str) -> Iterator[np.ndarray]:
    """The stored bytes of a random ternary matrix, piece by piece; type as in TERNARY, or F16."""
    scale = np.float16(1.0 / (NONZERO * k) ** 0.5)  # then the output of a unit input has variance one
    encoders: dict[str, Callable[[np.ndarray, np.float16], np.ndarray]] = {
        "TQ1_0": encode_tq1_0,
        "TQ2_0": encode_tq2_0,
        "F16": encode_f16,
        "Q2_0": encode_q2_0,
        "PQ2_0": encode_pq2_0,
    }
    encode = encoders.get(type)
    stream = Stream(seed, name)
    left = rows * k // 4
    while left:
        codes = stream.draw(CODES, min(PIECE, left))
        left -= len(codes)
        yield codes if encode is None else encode(codes, scale)
    if type == "I2_S":
        tail = np.zeros(8, np.float32)
        tail[0] = scale
        yield tail


def plane_pieces(seed: int, name: str, rows: int, k: int, type: str, planes: int) -> Iterator[np.ndarray]:
    """The stored bytes of a random sum of ternary matrices [rows][k], panel by panel; each plane has a third of the
    scale of the one before, as where a matrix is taken apart; type as in PLANES."""
    group = PLANES[type]
    scale = [np.float16(1.0 / (NONZERO * k) ** 0.5 / 3**p) for p in range(planes)]
    stream = Stream(seed, name)
    for first in range(0, rows, 64):
        panel = np.zeros((k // group, planes, 64 * (2 + group // 4)), np.uint8)
        there = min(64, rows - first)
        scales = np.zeros((k // group, planes, 64), np.float16)
        scales[:, :, :there] = np.array(scale)[:, None]
        panel[:, :, :128] = scales.view(np.uint8)
        codes = stream.draw(CODES, k * planes * 16).reshape(k // group, planes, -1)
        if there < 64:  # four rows of a byte are 16 apart; those that are not there are zeros
            codes = codes.reshape(k // group, planes, group // 4, 16, 4)
            mask = np.array([sum(3 << 2 * f for f in range(4) if 16 * f + i < there) for i in range(16)], np.uint8)
            codes = (codes & mask[:, None]).reshape(k // group, planes, -1)
        panel[:, :, 128:] = codes
        yield panel


def table_pieces(seed: int, name: str, rows: int, k: int, type: str) -> Iterator[np.ndarray]:
    """The stored bytes of a random embedding or output head with standard deviation about 0.02."""
    if type in ("Q2_0", "PQ2_0"):
        codes, scale = Stream(seed, name), np.float16(0.02 / NONZERO**0.5)
        for left in range(rows * k // 4, 0, -PIECE):
            yield encode_groups(codes.draw(CODES, min(PIECE, left)), scale, 64 if type == "Q2_0" else 128)
        return
    d = np.float16(0.02 / 30.0)
    stream = Stream(seed, name)
    left = rows * k
    while left:
        q = stream.draw(NORMAL, min(PIECE, left))
        left -= len(q)
        if type == "F16":
            yield (np.arange(-128, 128).astype(np.float32) * np.float32(d)).astype(np.float16)[q.astype(np.int16) + 128]
        elif type == "Q8_0":
            blocks = np.empty((len(q) // 32, 34), np.uint8)
            blocks[:, :2] = np.frombuffer(d.tobytes(), np.uint8)
            blocks[:, 2:] = q.view(np.uint8).reshape(-1, 32)
            yield blocks
        elif type == "Q4_0":  # by its largest of a block, as others do, would cost more than it shows
            codes = (np.clip(np.round(q / np.float32(16)), -8, 7) + 8).astype(np.uint8).reshape(-1, 2, 16)
            blocks = np.empty((len(codes), 18), np.uint8)
            blocks[:, :2] = np.frombuffer(np.float16(16 * d).tobytes(), np.uint8)
            blocks[:, 2:] = codes[:, 0] | codes[:, 1] << 4
            yield blocks
        else:
            yield encode_q6_k((np.round(q / np.float32(4)) + 32).astype(np.uint8), d)


def vector_pieces(seed: int, name: str, n: int) -> Iterator[np.ndarray]:
    """A norm weight around one (F32)."""
    noise = Stream(seed, name).draw(NORMAL, -(-n // 4) * 4)[:n]
    yield (1 + noise / np.float32(300)).astype(np.float32)


def router_pieces(seed: int, name: str, rows: int, k: int) -> Iterator[np.ndarray]:
    """A router (F32) whose scores have a standard deviation of about two: experts are used unevenly, as in a model."""
    yield Stream(seed, name).draw(NORMAL, rows * k).astype(np.float32) * np.float32(2 / 30 / k**0.5)


def stored_name(name: str) -> str:
    """The name of a tensor in files of hybrid models."""
    return name.replace(".ffn_norm.", ".post_attention_norm.")


def float_pieces(seed: int, name: str, n: int) -> Iterator[np.ndarray]:
    """Numbers of gated delta layers (F32): ssm_a about -0.5, small ones for the others."""
    noise = Stream(seed, name).draw(NORMAL, -(-n // 4) * 4)[:n] / np.float32(30)
    yield (-0.5 * np.exp2(noise) if name.endswith("ssm_a") else 0.1 * noise).astype(np.float32)


def plan(shape: Shape, type: str, embedding: str, planes: int = 1) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, stored type and shape (out, in; of planes in * planes) of every tensor, in file order.

    Where a row is no multiple of 256, TQ1_0 and TQ2_0 cannot hold it and the tensor is F16, as converters leave it.
    """
    named = stored_name if shape.delta else str
    tensors = []
    for part in (part for part in parts(shape.config("")) if part.needed):
        stored, dims = {"table": embedding}.get(part.role, "F32"), part.shape
        if part.role in ("matrix", "experts"):
            stored = "F16" if type.startswith("TQ") and dims[-1] % 256 else type
            dims = (*dims[:-1], dims[-1] * planes)
        tensors.append((named(part.name), stored, dims))
    return tensors


def pieces(seed: int, name: str, type: str, shape: tuple[int, ...], planes: int = 1) -> Iterator[np.ndarray]:
    """The stored bytes of one tensor of the plan."""
    if any(part in name for part in (".ssm_a", ".ssm_beta", ".ssm_conv1d", ".ssm_dt")):
        return float_pieces(seed, name, int(np.prod(shape)))
    if len(shape) == 1:
        return vector_pieces(seed, name, shape[0])
    if name in ("token_embd.weight", "output.weight"):
        rows, k = shape
        return table_pieces(seed, name, rows, k, type)
    if name.endswith("ffn_gate_inp.weight"):
        rows, k = shape
        return router_pieces(seed, name, rows, k)
    rows, k = math.prod(shape[:-1]), shape[-1]
    if type in PLANES:
        return plane_pieces(seed, name, rows, k // planes, type, planes)
    return ternary_pieces(seed, name, rows, k, type)


def basis_keys(shape: Shape) -> dict[str, Any]:
    """The keys of a rotated basis: signs for each width, and the matrices in it."""
    names = [stored_name(part.name) for part in parts(shape.config("")) if part.role in ("matrix", "table")]
    inner = shape.delta[1] * shape.delta[3] if shape.delta else shape.n_head * shape.head_dim
    widths = sorted({shape.hidden, inner, shape.n_head * shape.head_dim, shape.ffn})
    signs = [1 if code & 1 else -1 for width in widths for code in Stream(width, "signs").draw(CODES, width)]
    return {
        "version": 2 if shape.tied else 1, **({"tied_output": True} if shape.tied else {}), "block_size": shape.basis,
        "transform": "normalized-sylvester-walsh-hadamard", "axis": "input-last-dimension", "sign_mode": "explicit",
        "sign_widths": widths, "sign_values": signs,
        "weight_names": names[1:], "inverse_weight_names": names[:1], "gdn_v_grouped": True,
    }


WORD, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # tokenizer.ggml.token_type; the words are made up, nothing is borrowed

#: special tokens of Llama 3 besides its reserved ones, by id
LLAMA3_SPECIAL = {
    128000: "<|begin_of_text|>",
    128001: "<|end_of_text|>",
    128006: "<|start_header_id|>",
    128007: "<|end_header_id|>",
    128009: "<|eot_id|>",
}


def byte_alphabet() -> list[str]:
    """The 256 bytes in the printable alphabet of GPT-2, in the order of the ids of such vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte) for byte in printable] + [chr(0x100 + i) for i in range(256 - len(printable))]


def _syllables() -> list[str]:
    """36 two-letter syllables."""
    return [consonant + vowel for consonant in "bdfgklmnr" for vowel in "aeio"]


def _words() -> Iterator[tuple[str, list[str]]]:
    """Endless words of 1, 2, 3 ... syllables in a fixed order, each with its syllables."""
    length = 1
    while True:
        for syllables in product(_syllables(), repeat=length):
            yield "".join(syllables), list(syllables)
        length += 1


def qwen2_special(token_id: int) -> str:
    """Text of the special token at an id from 151643 on."""
    named = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    index = token_id - 151643
    return named[index] if index < len(named) else f"<|special_{index}|>"


def llama3_special(token_id: int) -> str:
    """Text of the special token at an id from 128000 on."""
    if token_id in LLAMA3_SPECIAL:
        return LLAMA3_SPECIAL[token_id]
    index = token_id - 128002 - sum(128002 <= known < token_id for known in LLAMA3_SPECIAL)
    return f"<|reserved_special_token_{index}|>"


def byte_level_bpe(
    n_vocab: int, special: dict[int, str], n_merge: int | None = None
) -> tuple[list[str], list[int], list[str]]:
    """Tokens, token types and merges of a byte-level BPE vocabulary of exactly ``n_vocab`` tokens.

    ``special`` (id -> text) must be at the end of the vocabulary.  Merges stand in the order of the ids of their
    results, as in Llama 3, where a token has one merge for every way to split it; ``n_merge`` keeps that many of
    them, at least one per word (None: all).  Raises ValueError for impossible numbers.
    """
    n_word = n_vocab - 256 - len(special)
    if n_word < 0 or sorted(special) != list(range(n_vocab - len(special), n_vocab)):
        raise ValueError(f"{n_vocab} tokens cannot end in the special ids {min(special)} to {max(special)}")
    words = [word for word, _ in zip(_words(), range(n_word))]
    tokens = byte_alphabet() + [word for word, _ in words] + [special[i] for i in sorted(special)]
    types = [WORD] * (256 + n_word) + [CONTROL] * len(special)

    splits = 0
    for _, syllables in words:
        splits += max(1, len(syllables) - 1)
    surplus = 0 if n_merge is None else splits - n_merge  # how many ways to split to leave out
    if n_merge is not None and not n_word <= n_merge <= splits:
        raise ValueError(f"{n_word} words have {n_word} to {splits} merges, not {n_merge}")
    merges = []
    for word, syllables in words:
        cuts = range(2, len(word), 2) if len(syllables) > 1 else (1,)
        for cut in cuts:
            if surplus and cut > 2:  # the first way to split always stays
                surplus -= 1
            else:
                merges.append(f"{word[:cut]} {word[cut:]}")
    return tokens, types, merges


def sentencepiece_bpe(n_vocab: int) -> tuple[list[str], list[int], list[float]]:
    """Tokens, types and scores of a SentencePiece BPE vocabulary with byte fallback, Llama-2 style.

    <unk>, <s>, </s>, 256 bytes, then words in the order of their scores; single letters come last.
    """
    letters = ["\u2581", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?'-:;()\""]
    n_word = n_vocab - 3 - 256 - len(letters)
    if n_word < 0:
        raise ValueError(f"a vocabulary with bytes and letters has at least {n_vocab - n_word} tokens, not {n_vocab}")
    words = [word for (word, _), _ in zip(_words(), range(n_word))]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words, *letters]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[WORD] * (n_word + len(letters))]
    scores = [0.0] * 259 + [-float(i) for i in range(n_word + len(letters))]
    return tokens, types, scores


def metadata(shape: Shape, name: str, type: str) -> dict[str, Any]:
    """Header of the file: dimensions and a dummy vocabulary of the right size."""
    a = shape.arch
    meta: dict[str, Any] = {
        "general.architecture": a,
        "general.name": f"random weights, shape {name}",
        f"{a}.vocab_size": shape.n_vocab,
        f"{a}.context_length": shape.n_ctx,
        f"{a}.embedding_length": shape.hidden,
        f"{a}.block_count": shape.n_layer,
        f"{a}.feed_forward_length": shape.ffn,
        f"{a}.rope.dimension_count": shape.head_dim,
        f"{a}.attention.head_count": shape.n_head,
        f"{a}.attention.head_count_kv": shape.n_kv_head,
        f"{a}.attention.key_length": shape.head_dim,
        f"{a}.attention.value_length": shape.head_dim,
        f"{a}.attention.layer_norm_rms_epsilon": shape.eps,
        f"{a}.rope.freq_base": shape.theta,
        "general.file_type": FILE_TYPES[type],
        "general.quantization_version": 2,
    }
    if type in PLANES:
        meta[KEY_PLANES] = PLANES[type]
    if shape.experts:
        meta[f"{a}.expert_count"], meta[f"{a}.expert_used_count"] = shape.experts
        meta[f"{a}.expert_feed_forward_length"] = shape.ffn
    if FAMILIES[a].unrotated:
        meta |= {
            f"{a}.rope.dimension_count": 0, f"{a}.rope.dimension_count_swa": shape.rope_dim,
            f"{a}.attention.sliding_window_pattern": [i % 4 < 3 for i in range(shape.n_layer)],
            f"{a}.expert_gating_func": 1, f"{a}.expert_weights_norm": True,
            f"{a}.swiglu_clamp_exp": [7.0] * shape.n_layer,
        }
    if shape.delta:
        n_k, n_v, dk, dv = shape.delta
        meta |= {
            f"{a}.rope.dimension_count": shape.rotary, f"{a}.full_attention_interval": 4, f"{a}.ssm.conv_kernel": 4,
            f"{a}.ssm.state_size": dk, f"{a}.ssm.group_count": n_k, f"{a}.ssm.time_step_rank": n_v,
            f"{a}.ssm.inner_size": n_v * dv,
            f"{a}.rope.dimension_sections": [shape.rotary // 2, 0, 0, 0],  # of text all positions are the same
        }
    if shape.basis:
        meta |= {f"prism.hadamard.{key}": value for key, value in basis_keys(shape).items()}
    if shape.window:
        meta[f"{a}.attention.sliding_window"] = shape.window
    if shape.vocabulary == "sentencepiece":
        tokens, types, scores = sentencepiece_bpe(shape.n_vocab)
        meta |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores}
        meta |= {"tokenizer.ggml.token_type": types, "tokenizer.ggml.unknown_token_id": 0}
        bos, eos = 1, 2
    else:
        if shape.vocabulary == "llama3":
            special = {i: llama3_special(i) for i in range(128000, shape.n_vocab)}
        elif shape.vocabulary == "qwen2":
            special = {i: qwen2_special(i) for i in range(151643, shape.n_vocab)}
        else:
            names = ("<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>")
            special = {shape.n_vocab - 4 + i: text for i, text in enumerate(names)}
        tokens, types, merges = byte_level_bpe(shape.n_vocab, special, shape.n_merge)
        pre = "qwen2" if shape.vocabulary == "qwen2" else "llama-bpe"
        meta |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens}
        meta |= {"tokenizer.ggml.scores": [0.0] * len(tokens), "tokenizer.ggml.token_type": types}
        meta["tokenizer.ggml.merges"] = merges
        bos, eos = min(special), min(special) + (2 if shape.vocabulary == "qwen2" else 1)
    meta |= {"tokenizer.ggml.bos_token_id": bos, "tokenizer.ggml.eos_token_id": eos}
    meta["tokenizer.ggml.add_bos_token"] = shape.vocabulary != "qwen2"
    return meta


# ---- the file --------------------------------------------------------------------------------------------------------


def make(
    path: str | Path, name: str | Shape, type: str = "I2_S", embedding: str = "F16", seed: int = 1,
    arch: str | None = None, planes: int = 1,
) -> int:
    """Write the model of a shape, or of that name in SHAPES, and return the size of the file in bytes.

    ``planes``: ternary matrices whose sum each matrix is; more than one only for types in PLANES, in which a matrix is
    always such a sum.
    ``arch``: another of the names of the same architecture, for engines that know one of them alone (llama.cpp:
    "bitnet", which computes with SiLU; the work is the same).  Raises ValueError where the shape cannot be stored in
    these types (Q6_K needs a hidden size divisible by 256), and for a name that means another architecture.
    """
    shape = name if isinstance(name, Shape) else SHAPES[name]
    if arch is not None:
        if not shape.sub_norm:
            raise ValueError(f"shape {name} is of architecture {shape.arch}, which has one name only")
        shape = replace(shape, arch=arch)
    if not 1 <= planes <= (MOST_PLANES if type in PLANES else 1):
        raise ValueError(f"{planes} planes; types {', '.join(PLANES)} hold 1 to {MOST_PLANES}, others none")
    entries = [
        container.Entry(tensor, stored, dims, partial(_views, seed, tensor, stored, dims, planes))
        for tensor, stored, dims in plan(shape, type, embedding, planes)
    ]
    container.write(path, metadata(shape, name if isinstance(name, str) else "made up", type), entries)
    return Path(path).stat().st_size


def _views(seed: int, name: str, type: str, shape: tuple[int, ...], planes: int) -> Iterator[memoryview]:
    for piece in pieces(seed, name, type, shape, planes):
        yield np.ascontiguousarray(piece).data


def arguments_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write a random-weight GGUF file in a published shape.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="2b-4t")
    parser.add_argument("--type", choices=TYPES, default="I2_S")
    parser.add_argument("--planes", type=int, default=1, metavar="N", help="of types with R64 in their name: "
                        "the number of ternary matrices whose sum each matrix is")
    parser.add_argument("--embedding", choices=EMBEDDING, default="F16")
    parser.add_argument("--arch", choices=("bitnet", "bitnet-b1.58"), help="name of the architecture in the header")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Parse, write, say how large and how long."""
    parser = arguments_parser()
    chosen = parser.parse_args(arguments)
    start = time.perf_counter()
    try:
        size = make(chosen.path, chosen.shape, chosen.type, chosen.embedding, chosen.seed, chosen.arch,
                    chosen.planes)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    seconds = time.perf_counter() - start
    print(f"{chosen.path}: {size / 1e6:.1f} MB in {seconds:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
