"""Convert: exact, verified, deterministic."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edge
from benchmarks import make_model
from edge.errors import Busy, EdgeError, InvalidFile, ModelNotFound, UsageError
from edge.formats import container, names, open_checkpoint
from edge.formats.checkpoint import Checkpoint
from edge.formats.gguf_keys import architecture
from edge.model.footprint import footprint
from edge.model.weights import build
from edge.tools import convert as converting
from edge.tools.convert import convert
from pyx.kv import KVCache
from pyx.weights import StoredRows, TernaryMatrix, all_floats
from tests import handmade
from tests.configs import each_layer, styled
from tests.handmade import HIDDEN, VOCAB, hf_config, hf_directory, hf_tensors
from tests.oracles.packings import panels, q2_0
from tests.services import in_python
from tests.streams import run
from tests.vectors.stored import TINY, VECTORS, layout_of, oracle

ORACLES = sorted(p.parent for p in oracle().glob("*/*/config.json") if "ragged" not in str(p))
IDS = [1, 5, 77, 200, 3, 9, 150, 42, 499, 17, 260, 8]


def logits(checkpoint: Checkpoint) -> np.ndarray:
    """Logits [n][n_vocab] of IDS."""
    return run(build(checkpoint, head="native"), KVCache(*checkpoint.config.kv_shape, 32, "f32"), IDS)


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
    style = a.layers[0].mixer.rotation.style, "interleaved" if architecture(a) == "llama" else "half"
    assert b.arch == architecture(a) and each_layer(a, lambda layer: styled(layer, style[1])).layers == b.layers
    for key in ("hidden", "n_vocab", "n_ctx_train", "tied"):
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
    if style[0] == style[1]:
        assert (before == after).all()
    else:  # reordered rows: q.k is summed in another order
        assert np.abs(before - after).max() <= 1e-5 * np.ptp(before)
    data = (tmp_path / "m.gguf").read_bytes()
    assert (result.nbytes, result.sha256) == (len(data), hashlib.sha256(data).hexdigest())


def test_llama_rows_are_reordered_as_everybody_does(tmp_path: Path) -> None:
    """Q and K of a Hugging Face llama become the very bytes that an independent converter wrote."""
    golden = open_checkpoint(VECTORS / "tiny_gguf" / "llama_untied_hd.llama.i2s128.f16.gguf")
    convert(oracle() / "llama_untied_hd" / "packed_auto_f32", tmp_path / "m.gguf")
    ours = open_checkpoint(tmp_path / "m.gguf")
    for name in golden.tensors:
        if names.is_projection(name):
            n = golden.tensors[name].data.nbytes - 28  # after the scale stands whatever the writer left
            assert bytes(ours.tensors[name].data[:n]) == bytes(golden.tensors[name].data[:n]), name


def test_tq2_is_what_the_gguf_package_decodes(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    source = open_checkpoint(oracle() / "silu_mha_tied" / "packed_auto_f32")
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
    """A matrix with a scale per block of rows (TriLM) fits TQ2_0 and panels, not I2_S."""
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
    convert(folder, tmp_path / "m.gguf")
    made = open_checkpoint(tmp_path / "m.gguf")
    assert made.config.activation_quant == "int8-128"  # trained on activations of floats
    stored = np.frombuffer(tensors["model.layers.0.self_attn.q_proj.weight"][2], np.float32).reshape(256, 256)
    expected = stored.reshape(4, 2, 32, 256).swapaxes(1, 2).reshape(256, 256)  # llama's order of rows
    query = made.tensors["blk.0.attn_q.weight"]
    assert (np.array(all_floats(StoredRows(query.type, query.data, 256, 256))).reshape(256, 256) == expected).all()



def test_progress_and_result(tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    result = convert(ORACLES[0], tmp_path / "m.gguf", progress=lambda *args: calls.append(args),
                     extra={"general.license": "mit"})
    amounts, totals, names = zip(*calls)
    assert len(set(names)) == result.n_tensors + 1 and list(amounts) == sorted(amounts) and amounts[0] == 0
    assert set(totals) == {amounts[-1]} and 0 < amounts[-1] < result.nbytes and names[-1] == "verifying"
    assert container.read_header(tmp_path / "m.gguf").metadata["general.license"] == "mit"
    convert(tmp_path / "m.gguf", tmp_path / "n.gguf")  # survives the next conversion
    assert container.read_header(tmp_path / "n.gguf").metadata["general.license"] == "mit"


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
    with pytest.raises(EdgeError, match="folder .* does not exist"):
        convert(src, tmp_path / "absent" / "m.gguf")
    with pytest.raises(UsageError, match="not a multiple of 128 as I2_S needs"):
        convert(oracle() / "silu_ragged" / "packed_auto_f32", dst)
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
    def bad_disk(fd: int) -> None:
        offset = container.read_header(tmp_path / "m.gguf.part").tensors[broken].offset + 100
        byte = os.pread(fd, 1, offset)[0]
        os.pwrite(fd, bytes([byte ^ (1 if byte & 3 != 2 else 2)]), offset)

    monkeypatch.setattr(converting, "drop_cached", bad_disk)
    with pytest.raises(EdgeError, match=re.escape(broken)):
        convert(TINY[0], tmp_path / "m.gguf")
    assert list(tmp_path.iterdir()) == []


def test_recommended_sampling_survives(tmp_path: Path) -> None:
    """From a folder into a GGUF, and from there into another."""
    generation = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0,
                  "repetition_penalty": 1.1}
    source = hf_directory(tmp_path / "hf", generation_config__json=generation)
    convert(source, tmp_path / "m.gguf")
    convert(tmp_path / "m.gguf", tmp_path / "again.gguf", embedding="Q8_0")
    for name in ("m.gguf", "again.gguf"):
        checkpoint = open_checkpoint(tmp_path / name)
        assert checkpoint.sampling == {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0,
                                       "repeat_penalty": 1.1, "repeat_last_n": -1}
        keys = {key: each for key, each in checkpoint.metadata.items() if key.startswith("general.sampling.")}
        names = ("temp", "top_p", "top_k", "min_p", "penalty_repeat", "penalty_last_n")
        assert set(keys) == {f"general.sampling.{name}" for name in names}
        assert isinstance(keys["general.sampling.temp"], float) and keys["general.sampling.top_k"] == 20


def test_sentencepiece_survives(tmp_path: Path) -> None:
    """A Hugging Face directory with tokenizer.model and an added token becomes GGUF arrays."""
    data = (VECTORS / "tokenizer" / "spm512.model").read_bytes()
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


# ---- panels ----------------------------------------------------------------------------------------------------------


def test_scales_per_group_become_panels(tmp_path: Path) -> None:
    """The same answers from the map, without any copy; the plan is exact; and back to rows for other programs."""
    grouped = tmp_path / "g.gguf"
    make_model.make(grouped, "tiny-qwen3", "Q2_0", "Q2_0")  # embedding and tied head, too
    convert(grouped, tmp_path / "p.gguf")
    source, again = open_checkpoint(grouped), open_checkpoint(tmp_path / "p.gguf")
    matrices = {name for name, tensor in again.tensors.items() if len(tensor.shape) == 2}
    assert {again.tensors[name].type for name in matrices} == {"PQ2_0_R64"}
    data = (tmp_path / "p.gguf").read_bytes()
    assert all(data.index(bytes(again.tensors[name].data)) % 64 == 0 for name in matrices)
    assert source.config == again.config and not again.notes and again.open == {}
    for head in ("auto", "int8", "f32"):
        models = [build(each, head=head) for each in (source, again)]
        assert all(model.weight_bytes_allocated == 0 for model in models)
        runs = [run(model, KVCache(*again.config.kv_shape, 32, "f32"), IDS) for model in models]
        assert runs[0].tobytes() == runs[1].tobytes(), head
    for weights in ("map", "huge"):
        expected = footprint(again, "auto", weights, 0, 2)
        with edge.load(tmp_path / "p.gguf", ctx=64, threads=2, weights=weights) as engine:
            engine.wait_for_weights()
            model, copied = engine.model.transformer, weights == "huge"
            assert model.weight_bytes_allocated == (model.weight_bytes if copied else 0)
            assert expected.mapped == model.weight_bytes - model.weight_bytes_allocated
            assert (expected.head_mapped, expected.head_allocated) == ((0, model.head.nbytes) if copied else
                                                                       (model.head.nbytes, 0))
            assert footprint(again, "auto", weights, 0, engine.n_threads).scratch == engine.plan.footprint.scratch
    convert(tmp_path / "p.gguf", tmp_path / "rows.gguf", type="TQ2_0")
    convert(grouped, tmp_path / "direct.gguf", type="TQ2_0")
    assert (tmp_path / "rows.gguf").read_bytes() == (tmp_path / "direct.gguf").read_bytes()
    convert(tmp_path / "rows.gguf", tmp_path / "q.gguf")
    assert (tmp_path / "q.gguf").read_bytes() == data


def test_rows_of_a_separate_embedding_stay_rows(tmp_path: Path) -> None:
    """Only a head is read as a whole."""
    codes = np.random.default_rng(1).integers(-1, 2, (VOCAB, HIDDEN)).astype(np.int8)
    rows = q2_0(128, codes, np.full((VOCAB, 1), 0.5))
    tables = dict.fromkeys(("token_embd.weight", "output.weight"), ((HIDDEN, VOCAB), 142, rows))
    src = tmp_path / "s.gguf"
    src.write_bytes(handmade.model("llama", tensors=dict(tables)))
    convert(src, tmp_path / "m.gguf")
    again = open_checkpoint(tmp_path / "m.gguf")
    assert bytes(again.tensors["token_embd.weight"].data) == rows
    assert bytes(again.tensors["output.weight"].data) == panels(codes, np.full((VOCAB, 1), 0.5))


# ---- conversions that do not end -------------------------------------------------------------------------------------


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_interrupted_conversion_leaves_nothing(tmp_path: Path) -> None:
    def stop(_done: int, _total: int, name: str) -> None:
        if name == "blk.1.attn_q.weight":
            with pytest.raises(InvalidFile):
                open_checkpoint(tmp_path / "m.gguf.part")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(TINY[0], tmp_path / "m.gguf", progress=stop)
    assert left(tmp_path) == []


def test_a_killed_conversion(tmp_path: Path) -> None:
    """kill -9 in the middle of a tensor; its file is used again.  Before that, a second conversion is refused."""
    code = "import sys, time\nfrom edge.tools import convert as c\nput = c.put\n" \
           "def slow(file, entry):\n    if entry.name.startswith('blk.1.ffn_up'):\n" \
           "        file.write(bytes(100))\n        file.flush()\n        print('now', flush=True)\n" \
           "        time.sleep(600)\n    return put(file, entry)\nc.put = slow\n" \
           "c.convert(*sys.argv[1:])"
    child = subprocess.Popen([sys.executable, "-c", code, str(TINY[0]), str(tmp_path / "m.gguf")],
                             cwd=VECTORS.parent.parent, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"now\n"
        with pytest.raises(Busy, match=r"another process or thread is writing .*m\.gguf"):
            convert(TINY[0], tmp_path / "m.gguf")
    finally:
        child.kill()
        child.wait(300)
        child.stdout.close()
    assert left(tmp_path) == ["m.gguf.part"]
    (tmp_path / "m.gguf.part").open("ab").write(bytes(1_000_000))
    result = convert(TINY[0], tmp_path / "m.gguf")
    assert left(tmp_path) == ["m.gguf"]
    assert result.sha256 == convert(TINY[0], tmp_path / "n.gguf").sha256


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: Any, _entry: container.Entry) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(converting, "put", full)
    with pytest.raises(EdgeError, match=r"m\.gguf: cannot be written \(No space left on device\)$"):
        convert(TINY[0], tmp_path / "m.gguf")
    assert left(tmp_path) == []


def test_what_cannot_be_converted_leaves_nothing(tmp_path: Path) -> None:
    tensors = hf_tensors()
    tensors["model.embed_tokens.weight"] = ("F32", (16, 128), struct.pack("<f", 1e6) * (16 * 128))
    folder = hf_directory(tmp_path / "m", tensors=tensors)
    (tmp_path / "m.gguf").write_bytes(b"old")
    with pytest.raises(InvalidFile, match="use F32"):
        convert(folder, tmp_path / "m.gguf", force=True)
    assert left(tmp_path) == ["m", "m.gguf"] and (tmp_path / "m.gguf").read_bytes() == b"old"


def test_a_conversion_leaves_nothing_in_memory(tmp_path: Path) -> None:
    """Regression: the source stayed mapped until Python's collector ran, and a chat that began with a pull showed it as
    memory of the program.
    """
    program = (
        "import gc, sys; gc.disable()\n"
        "from edge.tools.convert import convert\n"
        "convert(sys.argv[1], sys.argv[2])\n"
        "print([line for line in open('/proc/self/maps') if '.gguf' in line])\n"
    )
    assert in_python(program, TINY[0], tmp_path / "out.gguf") == "[]\n"


def test_the_bundled_model_is_what_its_page_says(bundled_model: Path) -> None:
    page = (bundled_model.parent / "README.md").read_text()
    data = bundled_model.read_bytes()
    assert f"`{hashlib.sha256(data).hexdigest()}`" in page and f"{len(data):,} bytes" in page
    assert bundled_model.name in page and len(data) <= 8 << 20
    c = open_checkpoint(bundled_model)
    assert c.notes == [] and c.config.arch == "bitnet-b1.58" and c.config.layers[0].feed_forward.activation == "relu2"
    assert c.tokenizer.kind == "bpe" and c.tokenizer.add_bos and len(c.tokenizer.eos_ids) == 2
    assert c.chat_template and c.metadata["general.license"] == "mit"
