"""Convert: exact, verified, deterministic (tests/test_bundled.py: so the bundled model is made)."""

from __future__ import annotations

import array
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.errors import EdgeError, InvalidFile, ModelNotFound, UsageError
from edge.formats import gguf, names, open_checkpoint
from edge.formats.checkpoint import Checkpoint
from edge.formats.gguf_keys import architecture
from edge.model.weights import build
from edge.tools.convert import convert, to_f16, to_q8_0
from pyx.kv import KVCache
from pyx.stored_rows import StoredRows
from pyx.ternary import TernaryMatrix
from pyx.transformer import Segment
from tests import handmade
from tests.handmade import hf_config, hf_directory, hf_tensors

VECTORS = Path(__file__).parent / "vectors"
TINY = sorted((VECTORS / "tiny_gguf").glob("*.gguf"))
ORACLES = sorted(p.parent for p in (VECTORS / "oracle").glob("*/*/config.json") if "ragged" not in str(p))
IDS = [1, 5, 77, 200, 3, 9, 150, 42, 499, 17, 260, 8]


def layout_of(path: Path) -> str:
    return "64" if "i2s64" in path.name else "128"


def logits(checkpoint: Checkpoint) -> np.ndarray:
    """Logits [n][n_vocab] of IDS."""
    c = checkpoint.config
    out = np.zeros((len(IDS), c.n_vocab), np.float32)
    cache = KVCache(c.n_layer, c.n_kv_head, c.head_dim, 32, "f32")
    build(checkpoint, head="native").step([Segment(cache, array.array("i", IDS), out.reshape(-1), True)])
    return out


def matrix(checkpoint: Checkpoint, name: str) -> tuple[np.ndarray, list[float]]:
    """Weights -1, 0, 1 [out, in] and the scales of a projection."""
    t = checkpoint.tensors[name]
    packed = TernaryMatrix.pack(t.type, t.data, *t.shape, scale=t.scale, layout=t.layout)
    return np.array(packed.unpack(), np.int8).reshape(t.shape), packed.scales


@pytest.mark.parametrize("path", TINY + ORACLES, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_i2s_is_exact(tmp_path: Path, path: Path) -> None:
    """Same dimensions, same tokenizer, the same logits (to the bit unless rows are reordered)."""
    source = open_checkpoint(path, i2s_layout=layout_of(path))
    result = convert(path, tmp_path / "m.gguf", embedding="keep", i2s_layout=layout_of(path))
    again = open_checkpoint(tmp_path / "m.gguf")
    a, b = source.config, again.config
    assert b.arch == architecture(a) and b.rope_style == ("interleaved" if b.arch == "llama" else "half")
    for key in ("n_layer", "hidden", "ffn", "n_head", "n_kv_head", "head_dim", "n_vocab", "n_ctx_train", "rope_theta",
                "rope_dim", "activation", "sub_norm", "tied", "rope_scale"):
        assert getattr(a, key) == getattr(b, key), key
    assert len(again.notes) == (source.tokenizer.kind == "none")
    assert {t.type for name, t in again.tensors.items() if names.is_projection(name)} == {"I2_S"}
    for key in ("kind", "pre", "bos_id", "eos_ids", "add_bos", "pad_id"):
        if source.tokenizer.kind != "none":
            assert getattr(source.tokenizer, key) == getattr(again.tokenizer, key), key
    assert list(source.tokenizer.tokens) == list(again.tokenizer.tokens)
    assert list(source.tokenizer.scores) == list(again.tokenizer.scores)
    assert list(source.tokenizer.merges) == list(again.tokenizer.merges)
    assert np.float32(a.eps) == np.float32(b.eps)
    before, after = logits(source), logits(again)
    if a.rope_style == b.rope_style:
        assert (before == after).all()
    else:  # reordered rows: q.k is summed in another order
        assert np.abs(before - after).max() <= 1e-5 * np.ptp(before)
    data = (tmp_path / "m.gguf").read_bytes()
    assert (result.nbytes, result.sha256) == (len(data), hashlib.sha256(data).hexdigest())


def test_llama_rows_are_reordered_as_everybody_does(tmp_path: Path) -> None:
    """Q and K of a Hugging Face llama become the very bytes that an independent converter wrote."""
    golden = open_checkpoint(VECTORS / "tiny_gguf" / "llama_untied_hd.llama.i2s128.f16.gguf")
    convert(VECTORS / "oracle" / "llama_untied_hd" / "packed_auto_f32", tmp_path / "m.gguf")
    ours = open_checkpoint(tmp_path / "m.gguf")
    for name in golden.tensors:
        if names.is_projection(name):
            n = golden.tensors[name].data.nbytes - 28  # behind the scale stands whatever the writer left
            assert bytes(ours.tensors[name].data[:n]) == bytes(golden.tensors[name].data[:n]), name


def test_rows_go_back_again() -> None:
    """The two orders are inverse to each other."""
    from types import SimpleNamespace

    from edge.tools.convert import Target

    config = SimpleNamespace(head_dim=8, n_head=3, n_kv_head=1)
    there = Target.order(SimpleNamespace(config=config, permute="interleaved"), "blk.0.attn_q.weight")
    back = Target.order(SimpleNamespace(config=config, permute="half"), "blk.0.attn_q.weight")
    assert there is not None and back is not None
    assert there[:8] == [0, 4, 1, 5, 2, 6, 3, 7] and [there[i] for i in back] == list(range(24))
    assert len(Target.order(SimpleNamespace(config=config, permute="half"), "blk.0.attn_k.weight") or ()) == 8
    assert Target.order(SimpleNamespace(config=config, permute="half"), "blk.0.attn_v.weight") is None
    assert Target.order(SimpleNamespace(config=config, permute=None), "blk.0.attn_q.weight") is None


def test_tq2_is_what_the_gguf_package_decodes(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    source = open_checkpoint(VECTORS / "oracle" / "silu_mha_tied" / "packed_auto_f32")
    convert(source.path, tmp_path / "m.gguf", type="TQ2_0", embedding="Q8_0")
    again = open_checkpoint(tmp_path / "m.gguf")
    for tensor in package.GGUFReader(tmp_path / "m.gguf").tensors:
        theirs = package.dequantize(tensor.data, tensor.tensor_type)
        if names.is_projection(tensor.name):
            weights, (scale,) = matrix(source, tensor.name)
            assert (theirs == weights * np.float16(scale).astype(np.float32)).all()
            assert again.tensors[tensor.name].type == "TQ2_0"
        elif tensor.name == "token_embd.weight":
            table = source.tensors[tensor.name]
            expected = np.frombuffer(table.data, np.float32).reshape(table.shape)
            assert np.abs(theirs - expected).max() <= np.abs(expected).max() / 250
            mine = package.quantize(expected, package.GGMLQuantizationType.Q8_0)
            assert (mine == tensor.data).mean() > 0.999  # ties apart, the same bytes


def test_several_scales(tmp_path: Path) -> None:
    """A matrix with a scale per block of rows (TriLM) fits TQ2_0, not I2_S; so do scales per 256 columns."""
    config = hf_config(architectures=["LlamaForCausalLM"], hidden_act="silu", quantization_config=None,
                       hidden_size=256, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True)
    rng = np.random.default_rng(5)
    tensors: dict[str, Any] = {}
    shapes = {**{f"self_attn.{x}_proj": (256, 256) for x in "qkvo"}, "mlp.gate_proj": (256, 256),
              "mlp.up_proj": (256, 256), "mlp.down_proj": (256, 256)}
    scale = {"self_attn.q_proj": np.repeat([0.5, 0.25], 128)[:, None]}
    for name, shape in shapes.items():
        w = rng.integers(-1, 2, shape) * scale.get(name, 0.5)
        tensors[f"model.layers.0.{name}.weight"] = ("F32", shape, w.astype(np.float32).tobytes())
    for name in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        tensors[f"{name}.weight"] = ("F32", (256,), np.ones(256, np.float32).tobytes())
    tensors["model.embed_tokens.weight"] = ("F32", (16, 256), rng.random((16, 256), np.float32).tobytes())
    folder = hf_directory(tmp_path / "m", config, tensors)
    with pytest.raises(UsageError, match=r"blk\.0\.attn_q\.weight has 256 scales.*TQ2_0"):
        convert(folder, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()
    convert(folder, tmp_path / "m.gguf", type="TQ2_0")
    weights, scales = matrix(open_checkpoint(tmp_path / "m.gguf"), "blk.0.attn_q.weight")
    stored = np.frombuffer(tensors["model.layers.0.self_attn.q_proj.weight"][2], np.float32).reshape(256, 256)
    expected = stored.reshape(4, 2, 32, 256).swapaxes(1, 2).reshape(256, 256)  # llama's order of rows
    assert (weights * np.array(scales)[:, None] == expected).all()


def test_layouts_become_one(tmp_path: Path) -> None:
    """The same matrix in any I2_S layout gives the same file."""
    vectors = json.loads((VECTORS / "pack_vectors.json").read_text())
    weights = np.array(vectors["ternary_row_major"], np.int8)
    digests = set()
    for layout, key in {"128": "I2_S_128", "64": "I2_S_64_arm", "1x4": "I2_S_1x4"}.items():
        raw = bytes.fromhex(vectors["vectors"][key]["hex"])
        matrix_ = TernaryMatrix.pack("I2_S", raw, 8, 256, layout=layout)
        assert (np.array(matrix_.unpack()).reshape(8, 256) == weights).all()
        digests.add(matrix_.encode())
    assert len(digests) == 1


def test_deterministic(tmp_path: Path) -> None:
    for name in ("a", "b"):
        convert(ORACLES[0], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_progress_and_result(tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    result = convert(ORACLES[0], tmp_path / "m.gguf", progress=lambda *args: calls.append(args),
                     extra={"general.license": "mit"})
    amounts, totals, names = zip(*calls)
    assert len(calls) == result.n_tensors + 1 and list(amounts) == sorted(set(amounts)) and amounts[0] == 0
    assert set(totals) == {amounts[-1]} and 0 < amounts[-1] < result.nbytes and names[-1] == "verifying"
    assert gguf.read_header(tmp_path / "m.gguf").metadata["general.license"] == "mit"
    convert(tmp_path / "m.gguf", tmp_path / "n.gguf")  # survives the next conversion
    assert gguf.read_header(tmp_path / "n.gguf").metadata["general.license"] == "mit"


def test_refusals(tmp_path: Path) -> None:
    src, dst = TINY[0], tmp_path / "m.gguf"
    for kind, arguments, message in [
        (UsageError, {"type": "Q4_0"}, "type 'Q4_0'"),
        (UsageError, {"embedding": "Q4_K"}, "embedding 'Q4_K'"),
    ]:
        with pytest.raises(kind, match=message):
            convert(src, dst, **arguments)
    with pytest.raises(ModelNotFound):
        convert(tmp_path / "absent", dst)
    with pytest.raises(UsageError, match="is a directory; name the file"):
        convert(src, tmp_path)
    with pytest.raises(EdgeError, match="cannot be written"):
        convert(src, tmp_path / "absent" / "m.gguf")
    with pytest.raises(UsageError, match="not a multiple of 128 as I2_S needs"):
        convert(VECTORS / "oracle" / "silu_ragged" / "packed_auto_f32", dst)
    with pytest.raises(UsageError, match="not a multiple of 256 as TQ2_0 needs"):
        convert(VECTORS / "tiny_gguf" / "llama_untied_hd.llama.i2s128.f16.gguf", dst, type="TQ2_0")
    dst.write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists already"):
        convert(src, dst)
    assert dst.read_bytes() == b"mine"
    with pytest.raises(UsageError, match="the source itself"):
        copy = tmp_path / "copy.gguf"
        copy.write_bytes(src.read_bytes())
        convert(copy, copy, force=True)
    convert(src, dst, force=True)
    assert open_checkpoint(dst).config.n_layer == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.gguf", "m.gguf"]


def test_a_dense_projection_in_a_hugging_face_model_is_refused(tmp_path: Path) -> None:
    tensors = hf_tensors("scaled")
    name = "model.layers.0.mlp.down_proj.weight"
    tensors[name] = ("F32", (128, 256), np.random.default_rng(0).random((128, 256), np.float32).tobytes())
    config = hf_config(architectures=["LlamaForCausalLM"], quantization_config=None)
    folder = hf_directory(tmp_path / "m", config, tensors)
    with pytest.raises(InvalidFile, match=r"blk\.0\.ffn_down\.weight.*dense"):
        convert(folder, tmp_path / "m.gguf")


def test_a_dense_projection_in_a_gguf_stays(tmp_path: Path) -> None:
    dense = np.random.default_rng(0).standard_normal((128, 128)).astype(np.float16)
    src = tmp_path / "s.gguf"
    src.write_bytes(handmade.model("llama", tensors={"blk.0.attn_q.weight": ((128, 128), 1, dense.tobytes())}))
    result = convert(src, tmp_path / "m.gguf")
    assert result.notes == ["blk.0.attn_q.weight is not ternary; copied as F16"]
    assert bytes(open_checkpoint(tmp_path / "m.gguf").tensors["blk.0.attn_q.weight"].data) == dense.tobytes()


@pytest.mark.parametrize("broken", ["blk.1.ffn_up.weight", "token_embd.weight", "output_norm.weight"])
def test_verification_finds_a_flipped_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    real = gguf.write

    def bad_disk(path: Any, metadata: Any, entries: Any) -> None:
        real(path, metadata, entries)
        info = gguf.read_header(path).tensors[broken]
        with open(path, "r+b") as file:
            file.seek(info.offset + 100)
            byte = file.read(1)[0]
            file.seek(info.offset + 100)
            file.write(bytes([byte ^ (1 if byte & 3 != 2 else 2)]))

    monkeypatch.setattr(gguf, "write", bad_disk)
    with pytest.raises(EdgeError, match=re.escape(broken)):
        convert(TINY[0], tmp_path / "m.gguf")
    assert list(tmp_path.iterdir()) == []


def test_float_encoders() -> None:
    row = array.array("f", np.random.default_rng(2).standard_normal(96).astype(np.float32))
    row[32:64] = array.array("f", bytes(128))  # a block of zeros
    assert to_f16(row) == np.array(row, np.float32).astype(np.float16).tobytes()
    decoded = StoredRows("Q8_0", to_q8_0(row), 1, 96).row(0)
    assert np.abs(np.array(decoded) - np.array(row)).max() <= max(map(abs, row)) / 127 * 0.51
    with pytest.raises(OverflowError):
        to_f16(array.array("f", [1e6]))


def test_values_beyond_f16_are_named(tmp_path: Path) -> None:
    tensors = hf_tensors()
    tensors["model.embed_tokens.weight"] = ("F32", (16, 128), struct.pack("<f", 1e6) * (16 * 128))
    with pytest.raises(InvalidFile, match=r"token_embd\.weight holds values that F16 cannot; use F32"):
        convert(hf_directory(tmp_path / "m", tensors=tensors), tmp_path / "m.gguf")
    convert(tmp_path / "m", tmp_path / "m.gguf", embedding="F32")


def test_sentencepiece_survives(tmp_path: Path) -> None:
    """A Hugging Face directory with tokenizer.model and an added token becomes GGUF arrays."""
    data = (VECTORS / "tiny_gguf" / "spm512.model").read_bytes()
    tensors = hf_tensors()
    tensors["model.embed_tokens.weight"] = ("F32", (515, 128), bytes(515 * 128 * 4))
    folder = hf_directory(tmp_path / "m", hf_config(vocab_size=515), tensors, tokenizer__model=data,
                          added_tokens__json={"</line>": 513})
    convert(folder, tmp_path / "m.gguf")
    spec = open_checkpoint(tmp_path / "m.gguf").tokenizer
    golden = open_checkpoint(VECTORS / "tiny_gguf" / "silu_mha_tied.bitnet.i2s128.f16.gguf").tokenizer
    assert list(spec.tokens) == [*golden.tokens, "[PAD512]", "</line>", "[PAD514]"]
    assert list(spec.types) == [*golden.types, 5, 3, 5]
    assert list(spec.scores) == [*golden.scores, 0.0, 0.0, 0.0]


def test_what_killed_conversions_left_is_deleted(tmp_path: Path) -> None:
    """A file of a process that is gone goes; one of a process that still runs, and any other file, stays."""
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    target = tmp_path / "m[1].gguf"
    gone = [tmp_path / f"m[1].gguf.unverified-{int(dead.stdout)}{end}" for end in ("", ".part-7")]
    kept = [tmp_path / f"m[1].gguf.unverified-{os.getpid()}x", tmp_path / "m[1].gguf.unverified-mine",
            tmp_path / "m1.gguf.unverified-1"]  # fmt: skip
    for path in gone + kept:
        path.write_bytes(b"half")
    convert(VECTORS / "tiny_gguf" / "silu_mha_tied.bitnet.tq2.f16.gguf", target)
    assert target.exists() and not any(path.exists() for path in gone) and all(path.exists() for path in kept)
