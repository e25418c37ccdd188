"""The GGUF reader and writer: golden files, the gguf package, and files that are wrong on purpose."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import InvalidFile, ModelNotFound, UsageError
from edge.formats import container, gguf_keys, open_checkpoint
from edge.layers import Rotation
from pyx.tokens import text_ends
from tests import handmade
from tests.handmade import ARR, F32, F64, I32, STR, U8, U16, U32, U64, model_file, value


@pytest.fixture(scope="session")
def tiny(root: Path) -> Path:
    return root / "tests" / "vectors" / "tiny_gguf"


# ---- good files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [
    "relu2_gqa_tied.bitnet-b1.58.tq2.bf16", "silu_mha_tied.bitnet.tq1.q8", "llama_untied_hd.llama.tq2.f16"])
def test_against_the_gguf_package(tiny: Path, name: str) -> None:
    """Where the package can read a file (no I2_S), every key and every tensor agree."""
    package = pytest.importorskip("gguf")
    theirs = package.GGUFReader(tiny / f"{name}.gguf")
    ours = container.read_header(tiny / f"{name}.gguf")
    keys = {key: field for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert list(ours.metadata) == list(keys)
    for key, field in keys.items():
        mine = ours.metadata[key]
        mine = mine.tolist() if isinstance(mine, memoryview) else list(mine) if field.types[0] == ARR else mine
        assert mine == field.contents(), key
    assert len(ours.tensors) == len(theirs.tensors)
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert (info.type, info.dims) == (tensor.tensor_type.name, tuple(tensor.shape.tolist()))
        assert (info.offset, info.nbytes) == (tensor.data_offset, tensor.n_bytes)
        assert bytes(ours.view[info.offset : info.offset + tensor.n_bytes]) == tensor.data.tobytes()


def test_version_2_and_other_alignment(tmp_path: Path) -> None:
    assert open_checkpoint(model_file(tmp_path, handmade.model(version=2))).config.hidden == 128
    data = handmade.model(keys={"general.alignment": value(U32, 256)}, alignment=256)
    assert container.read_header(model_file(tmp_path, data)).alignment == 256


def test_integers_of_any_width_and_per_layer_arrays(tmp_path: Path) -> None:
    a = "bitnet-b1.58"
    keys = {
        f"{a}.block_count": value(U16, 1),
        f"{a}.context_length": value(U64, 64),
        f"{a}.embedding_length": value(I32, 128),
        f"{a}.attention.head_count": value(ARR, (I32, [2])),
        f"{a}.feed_forward_length": value(ARR, (U64, [256, 256])),
        f"{a}.rope.freq_base": value(F64, 5e5),
        "tokenizer.ggml.add_bos_token": value(U8, 0),
    }
    c = open_checkpoint(model_file(tmp_path, handmade.model(keys=keys)))
    layer = c.config.layers[0]
    assert (layer.mixer.n_head, layer.feed_forward.ffn, layer.mixer.rotation.theta) == (2, 256, 5e5)
    assert c.tokenizer.add_bos is False
    keys[f"{a}.feed_forward_length"] = value(ARR, (U32, [256, 512]))
    with pytest.raises(InvalidFile, match="feed_forward_length.*layer to layer"):
        open_checkpoint(model_file(tmp_path, handmade.model(keys=keys)))


def test_defaults_of_absent_keys(tmp_path: Path) -> None:
    a = "bitnet-b1.58"
    keys = {f"{a}.attention.head_count_kv": None, f"{a}.rope.freq_base": None, "tokenizer.ggml.token_type": None}
    c = open_checkpoint(model_file(tmp_path, handmade.model(keys=keys, kv_heads=2)))
    assert (c.config.n_kv_head, c.config.head_dim, c.config.layers[0].mixer.rotation) == (2, 64, Rotation(10000.0, 64))
    assert c.config.n_vocab == handmade.VOCAB and c.config.name == "m"


def test_rope_scaling(tmp_path: Path) -> None:
    a = "bitnet-b1.58"
    keys = {f"{a}.rope.scaling.type": value(STR, "linear"), f"{a}.rope.scaling.factor": value(F32, 4.0)}
    assert open_checkpoint(model_file(tmp_path, handmade.model(keys=keys))).config.layers[0].mixer.rotation.scale == 4.0
    keys[f"{a}.rope.scaling.type"] = value(STR, "ntk")
    with pytest.raises(InvalidFile, match="ntk"):
        open_checkpoint(model_file(tmp_path, handmade.model(keys=keys)))
    freqs = {"rope_freqs.weight": ((32,), 0, np.ones(32, np.float32).tobytes())}
    assert "rope_freqs.weight" in open_checkpoint(model_file(tmp_path, handmade.model(tensors=freqs))).tensors


def test_vocabulary_smaller_than_the_embedding(tmp_path: Path) -> None:
    c = open_checkpoint(model_file(tmp_path, handmade.model(keys={"bitnet-b1.58.vocab_size": value(U32, 12)})))
    assert c.config.n_vocab == 16 and "vocab_size says 12" in c.notes[0]
    keys = {"tokenizer.ggml.tokens": value(ARR, (STR, [str(i) for i in range(17)])), "tokenizer.ggml.token_type": None}
    with pytest.raises(InvalidFile, match="17 entries for 16"):
        open_checkpoint(model_file(tmp_path, handmade.model(keys=keys)))


def test_scale_tensors_are_folded(tmp_path: Path) -> None:
    extra = {
        "blk.0.attn_q.scale": ((1,), 0, struct.pack("<f", 0.125)),
        "blk.0.ffn_down.scale": ((1, 1), 30, struct.pack("<f", 3.0)[2:]),
    }
    c = open_checkpoint(model_file(tmp_path, handmade.model(tensors=extra)))
    assert c.tensors["blk.0.attn_q.weight"].scale == 0.125
    assert c.tensors["blk.0.ffn_down.weight"].scale == 3.0
    assert c.tensors["blk.0.attn_k.weight"].scale == 1.0
    assert not any(name.endswith(".scale") for name in c.tensors)
    extra["blk.0.attn_q.scale"] = ((1,), 0, struct.pack("<f", float("nan")))
    with pytest.raises(InvalidFile, match=r"blk\.0\.attn_q\.weight has scale nan"):
        open_checkpoint(model_file(tmp_path, handmade.model(tensors=extra)))


def test_norms_may_be_half(tmp_path: Path) -> None:
    norm = {"output_norm.weight": ((128,), 1, np.ones(128, np.float16).tobytes())}
    c = open_checkpoint(model_file(tmp_path, handmade.model(tensors=norm)))
    assert c.tensors["output_norm.weight"].type == "F16"


def test_mixed_projections_are_legal(tiny: Path) -> None:
    c = open_checkpoint(tiny / "llama_untied_hd.llama.tq2.f16.gguf")
    assert {c.tensors[f"blk.{i}.attn_output.weight"].type for i in (0, 1)} == {"F16"}
    assert c.tensors["blk.0.attn_output.weight"].floats == "either"


def test_special_ids(tmp_path: Path) -> None:
    keys = {
        "tokenizer.ggml.eot_token_id": value(U32, 5),
        "tokenizer.ggml.eom_token_id": value(U32, 2),
        "tokenizer.ggml.padding_token_id": value(U32, 0xFFFFFFFF),
    }
    c = open_checkpoint(model_file(tmp_path, handmade.model(keys=keys)))
    assert c.tokenizer.eos_ids == (2, 5) and c.tokenizer.pad_id is None
    assert "padding_token_id 4294967295 is not a token" in c.notes[0]


@pytest.mark.parametrize("kind", [I32, U32, U64, U16])
def test_several_tokens_end_an_answer(tmp_path: Path, kind: int) -> None:
    """A list of them instead of one, as some converters write; and the list that ollama's has as well as the one."""
    keys = {"tokenizer.ggml.eos_token_id": value(ARR, (kind, [7, 3, 7, 99])),
            "tokenizer.ggml.eos_token_ids": value(ARR, (kind, [3, 9])),
            "tokenizer.ggml.eot_token_id": value(U32, 5),
            "tokenizer.ggml.eom_token_id": value(U32, 6),
            "tokenizer.ggml.bos_token_id": value(ARR, (kind, [1, 4]))}
    c = open_checkpoint(model_file(tmp_path, handmade.model(keys=keys)))
    assert c.tokenizer.eos_ids == (7, 3, 9, 5, 6) and c.tokenizer.bos_id == 1
    assert any("eos_token_id 99 is not a token" in note for note in c.notes)
    assert any("bos_token_id names 2 tokens; taken as 1" in note for note in c.notes)
    written = gguf_keys.metadata(c, "I2_S")
    assert written["tokenizer.ggml.eos_token_id"] == 7
    assert written["tokenizer.ggml.eos_token_ids"] == [7, 3, 9, 5, 6]
    assert (written["tokenizer.ggml.eot_token_id"], written["tokenizer.ggml.eom_token_id"]) == (5, 6)
    container.write(tmp_path / "again.gguf", written, [])
    again = container.read_header(tmp_path / "again.gguf")
    assert list(again.numbers("tokenizer.ggml.eos_token_ids")) == [7, 3, 9, 5, 6]


def test_named_chat_templates(tmp_path: Path) -> None:
    """tokenizer.chat_template.NAME, as llama.cpp's converter writes them; the usual one may be missing."""
    keys = {"tokenizer.chat_template": value(STR, "D"), "tokenizer.chat_template.tool_use": value(STR, "T"),
            "tokenizer.chat_template.rag": value(STR, "R"), "tokenizer.chat_template.a b": value(STR, "no name"),
            "tokenizer.chat_templates": value(ARR, (STR, ["tool_use", "rag"]))}
    c = open_checkpoint(model_file(tmp_path, handmade.model(keys=keys)))
    assert c.chat_template == "D" and c.templates == {"tool_use": "T", "rag": "R"}
    written = gguf_keys.metadata(c, "I2_S")
    for key in ("tokenizer.chat_template", "tokenizer.chat_template.tool_use", "tokenizer.chat_template.rag"):
        assert value(STR, written[key]) == keys[key]
    assert written["tokenizer.chat_templates"] == ["tool_use", "rag"]
    alone = open_checkpoint(model_file(tmp_path, handmade.model(keys={**keys, "tokenizer.chat_template": None})))
    assert alone.chat_template == "T"


def test_without_a_tokenizer(tmp_path: Path) -> None:
    c = open_checkpoint(model_file(tmp_path, handmade.model(keys={"tokenizer.ggml.model": value(STR, "no_vocab")})))
    assert c.tokenizer.kind == "none" and "no tokenizer" in c.notes[0]


def test_name_is_safe_to_print(tmp_path: Path) -> None:
    data = handmade.model(keys={"general.name": value(STR, "\x1b[2Jowned")})
    assert open_checkpoint(model_file(tmp_path, data)).config.name == "m"


def test_options_are_checked(tmp_path: Path) -> None:
    path = model_file(tmp_path, handmade.model())
    with pytest.raises(UsageError, match="layout '256'"):
        open_checkpoint(path, i2s_layout="256")
    with pytest.raises(UsageError, match="gelu"):
        open_checkpoint(path, activation="gelu")
    assert {t.layout for t in open_checkpoint(path, i2s_layout="64").tensors.values() if t.type == "I2_S"} == {"64"}


# ---- refused, by name ------------------------------------------------------------------------------------------------


def projection(codes: int, scale: float) -> bytes:
    """A file with these codes and this scale in a matrix."""
    data = bytes([codes]) * (128 * 128 // 4) + struct.pack("<f", scale) + bytes(28)
    return handmade.model(tensors={"blk.0.attn_q.weight": ((128, 128), 36, data)})


TQ2_0_OF_NAN = (bytes(64) + struct.pack("<e", float("nan"))) * 128


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"GG", "not a GGUF"),
        (b"PK\x03\x04" + bytes(60), "pickled PyTorch.*safetensors"),
        (b"\x80\x02" + bytes(60), "pickled PyTorch"),
        (b"ggjt" + bytes(60), "before GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"FUGG" + bytes(60), "big-endian"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(60), "big-endian"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(60), "version 1"),
        (b"GGUF" + struct.pack("<I", 9) + bytes(60), "version 9"),
        (handmade.model(keys={"general.architecture": None}), "general.architecture is missing"),
        (handmade.model("qwen4", sub_norm=False), "'qwen4' is not supported"),
        (handmade.model(keys={"prism.hadamard.version": value(U32, 1)}), "prism.hadamard.block_size"),
        (handmade.model(keys={"split.count": value(U16, 3), "split.no": value(U16, 1)}),
         "part 2 of a model in 3 files; open the first"),
        (handmade.model(tensors={"token_embd.weight": None}), "vocabulary-only"),
        (handmade.model(tensors={"blk.0.ffn_up.weight": None}), r"blk\.0\.ffn_up\.weight is missing"),
        (handmade.model(tensors={"blk.0.attn_q.bias": ((128,), 0, bytes(512))}), r"blk\.0\.attn_k\.bias is missing"),
        (handmade.model(tensors={"blk.0.attn_q_norm.weight": ((64,), 0, bytes(256))}), "attn_q_norm.*not part"),
        (handmade.model(tensors={"blk.0.ffn_norm.weight": ((64,), 0, bytes(256))}), r"shape \(64,\).*\(128,\)"),
        (handmade.model(tensors={"token_embd.weight": ((128, 16), 24, bytes(16 * 128))}), "stored as I8"),
        (handmade.model(tensors={"token_embd.weight": ((128, 16), 36, bytes(544))}), "stored as I2_S"),
        (handmade.model(tensors={"output_norm.weight": ((128,), 8, bytes(136))}), "stored as Q8_0"),
        (projection(0b01010101, 0.0), r"blk\.0\.attn_q\.weight has scale 0.0"),
        (projection(0b01010101, float("nan")), "has scale nan"),
        (projection(0b01010101, float("-inf")), "has scale -inf"),
        (projection(0b11010101, 1.0), r"blk\.0\.attn_q\.weight holds codes"),
        (handmade.model(tensors={"blk.0.ffn_down.weight": ((256, 128), 35, TQ2_0_OF_NAN)}), "down.* has scale nan"),
        (handmade.model(proj=0), r"dense model.*F32.*llama\.cpp"),
        (handmade.model(proj=41), "type 41 and .* bytes for .* not a known layout"),
        (handmade.model(proj=135), "135 and .* not a known layout"),
        (handmade.model(proj=143), "143 and .* not a known layout"),
        (handmade.model(proj=343), "PTQ1_0_R64; download or convert the model again"),
        (handmade.model(proj=999), "type 999, which is not known"),
        (handmade.model(keys={"tokenizer.ggml.model": value(STR, "bert")}), "'bert' is not supported"),
        (handmade.model(keys={"bitnet-b1.58.hidden_activation": value(STR, "tanh")}), "'tanh' is not supported"),
        (handmade.model(keys={"bitnet-b1.58.attention.layer_norm_rms_epsilon": None}), "epsilon is missing"),
        (handmade.model(keys={"bitnet-b1.58.block_count": None}), "block_count is missing"),
        (handmade.model(keys={"bitnet-b1.58.block_count": value(STR, "1")}), "block_count' is not an integer"),
        (handmade.model(keys={"bitnet-b1.58.block_count": value(U32, 4000000000)}), "n_layer is 4000000000"),
        (handmade.model(keys={"bitnet-b1.58.attention.head_count": value(U32, 0)}), "n_head is 0"),
        (handmade.model(keys={"bitnet-b1.58.attention.head_count_kv": value(U32, 0)}), "n_kv_head is 0"),
        (handmade.model(keys={"bitnet-b1.58.attention.value_length": value(U32, 32)}), "value_length differs"),
        (handmade.model(keys={f"bitnet-b1.58.attention.{key}_length": value(U32, 32) for key in ("key", "value")}),
         r"attn_sub_norm\.weight has shape \(128,\), the model needs \(64,\)"),
        (handmade.model(keys={"bitnet-b1.58.rope.freq_base": value(F32, float("nan"))}), "theta is nan"),
        (handmade.model(keys={"tokenizer.ggml.tokens": value(ARR, (U32, [1, 2]))}), "tokens' is not a list of texts"),
        (handmade.model(keys={"tokenizer.ggml.token_type": value(ARR, (I32, [1, 2]))}), "token_type has 2 entries"),
    ],
)
def test_refused_with_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = model_file(tmp_path, data)
    with pytest.raises(InvalidFile, match=message) as caught:
        open_checkpoint(path)
    line = str(caught.value)
    assert line.startswith(path) and "\n" not in line and caught.value.exit_code == 4


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no such file"):
        open_checkpoint(tmp_path / "absent.gguf")
    with pytest.raises(ModelNotFound, match="neither"):
        open_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(InvalidFile, match="pickled"):
        open_checkpoint(tmp_path)
    model_file(tmp_path, handmade.model())
    assert open_checkpoint(tmp_path).config.hidden == 128
    (tmp_path / "n.gguf").write_bytes(b"")
    with pytest.raises(ModelNotFound, match="2 GGUF files; name one"):
        open_checkpoint(tmp_path)


# ---- hostile containers ----------------------------------------------------------------------------------------------

ONE = [("t", (32,), 0, bytes(128))]
KEY = [("k", value(U32, 1))]


def header(n_keys: int, rest: bytes, n_tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + rest


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (handmade.gguf(KEY, ONE, n_keys=1 << 62), "claims"),
        (handmade.gguf(KEY, ONE, n_tensors=1 << 62), "claims"),
        (handmade.gguf(KEY, ONE, n_keys=60000), "."),
        (header(1, handmade.text("k")), "ends inside key 'k'"),
        (header(1, struct.pack("<Q", 1 << 63) + b"k"), "claims 9223372036854775808 bytes of text"),
        (header(1, struct.pack("<Q", 100) + b"k"), "ends inside key 0"),
        (header(1, handmade.text(b"\xff") + value(U32, 1)), "not UTF-8"),
        (header(1, handmade.text("k") + struct.pack("<IQ", STR, 1 << 40)), "bytes of text"),
        (header(1, handmade.text("k") + struct.pack("<IIQ", ARR, STR, 1 << 61)), "more than the file can hold"),
        (header(1, handmade.text("k") + struct.pack("<IIQ", ARR, STR, 2) + handmade.text("a") + b"12345678"),
         "ends inside key 'k'"),
        (header(1, handmade.text("k") + struct.pack("<IIQQ", ARR, STR, 1, (1 << 64) - 1)), "ends inside key 'k'"),
        (header(1, handmade.text("k") + struct.pack("<IIQ", ARR, F64, 1 << 61)), "ends inside"),
        (header(1, handmade.text("k") + struct.pack("<IIQ", ARR, ARR, 1)), "array of type 9"),
        (header(1, handmade.text("k") + struct.pack("<I", 77)), "value type 77"),
        (handmade.gguf(KEY + KEY, ONE), "key 'k' appears twice"),
        (handmade.gguf(KEY, ONE + ONE), "tensor 't' appears twice"),
        (handmade.gguf([("general.alignment", value(U32, 24))], ONE), "alignment is 24"),
        (handmade.gguf([("general.alignment", value(U32, 0))], ONE), "alignment is 0"),
        (handmade.gguf([("general.alignment", value(STR, "x"))], ONE), "alignment is 'x'"),
        (handmade.gguf(KEY, [("t", (), 0, b"")]), "0 dimensions"),
        (handmade.gguf(KEY, [("t", (1, 1, 1, 1, 32), 0, bytes(128))]), "5 dimensions"),
        (handmade.gguf(KEY, [("t", (0, 32), 0, bytes(128))]), r"dimensions \(0, 32\)"),
        (handmade.gguf(KEY, [("t", (1 << 32, 1 << 32), 0, bytes(128))]), "cannot be in this file"),
        (handmade.gguf(KEY, [("t", (1 << 63, 2, 1 << 62, 4), 1, bytes(128))]), "cannot be in this file"),
        (handmade.gguf(KEY, [("t", (33,), 8, bytes(128))]), "rows of 33"),
        (handmade.gguf(KEY, [("t", (3, 3), 36, bytes(128))]), "9 weights do not fill"),
        (handmade.gguf(KEY, ONE, offsets={"t": 8}), "not a multiple of the alignment"),
        (handmade.gguf(KEY, ONE, offsets={"t": 32}), "beyond the file"),
        (handmade.gguf(KEY, ONE, offsets={"t": (1 << 64) - 32}), "beyond the file"),
        (handmade.gguf(KEY, ONE)[:-1], "beyond the file"),
        (handmade.gguf(KEY, [("a", (32,), 0, bytes(128)), ("b", (32,), 0, bytes(128))], offsets={"b": 64}),
         "'a' overlaps 'b'"),
        (handmade.gguf(KEY, [("a", (32,), 0, bytes(128)), ("b", (32,), 0, bytes(128))], offsets={"b": 0}),
         "overlaps"),
    ],
)
def test_hostile_headers(tmp_path: Path, data: bytes, message: str) -> None:
    path = model_file(tmp_path, data)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidFile, match=message) as caught:
            container.read_header(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)


def test_names_in_messages_are_tamed(tmp_path: Path) -> None:
    data = handmade.gguf(KEY, [("\x1b[31m\n" + "x" * 200, (0,), 0, b"")])
    with pytest.raises(InvalidFile) as caught:
        container.read_header(model_file(tmp_path, data))
    assert "\x1b" not in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 400


SEED_FILES = [handmade.model(), handmade.model("llama"), handmade.model("bitnet", keys={
    "tokenizer.ggml.model": value(STR, "llama"), "tokenizer.ggml.scores": value(ARR, (F32, [0.5] * 16))})]
HEADER_BYTES = [max(data.rindex(b"ffn_down.weight"), data.rindex(b"output.weight")) + 64 for data in SEED_FILES]


def read_everything(path: str) -> None:
    """Open, and touch all that is decoded late."""
    c = open_checkpoint(path)
    for sequence in (c.tokenizer.tokens, c.tokenizer.merges, c.tokenizer.scores, c.tokenizer.types):
        list(sequence)
    for tensor in c.tensors.values():
        assert len(bytes(tensor.data)) == tensor.data.nbytes


@given(
    which=st.integers(0, len(SEED_FILES) - 1),
    places=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from([1, 2, 4, 8]), st.one_of(
        st.sampled_from([0, 1, 0xFF, 0x7F, 1 << 31, (1 << 64) - 1, 1 << 62, 40, 8, 9]), st.integers(0, (1 << 64) - 1)
    )), max_size=4),
    cut=st.one_of(st.none(), st.none(), st.floats(0, 1)),
)
def test_fuzz(tmp_path_factory: pytest.TempPathFactory, which: int, places: list[tuple[float, int, int]],
              cut: float | None) -> None:
    """Whatever bytes change in the header, and wherever the file ends: InvalidFile or a model, in bounded memory."""
    data = bytearray(SEED_FILES[which])
    for where, width, content in places:
        at = int(where * HEADER_BYTES[which])
        data[at : at + width] = (content & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    if cut is not None:
        del data[int(cut * len(data)) :]
    path = tmp_path_factory.getbasetemp() / "fuzz.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        read_everything(str(path))
    except InvalidFile as error:
        assert "\n" not in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 << 20


# ---- the writer ------------------------------------------------------------------------------------------------------

METADATA = {
    "general.architecture": "bitnet", "a.bool": True, "a.u32": 7, "a.i32": -7, "a.u64": 1 << 40, "a.f32": 0.5,
    "a.f64": -1e300, "a.text": "größe", "a.texts": ["a", "", "ü"], "a.floats": [0.5, 2], "a.ints": [1, -1],
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    entries = [
        container.Entry("norm", "F32", (3,), struct.pack("<3f", 1, 2, 3)),
        container.Entry("embd", "F16", (2, 5), lambda: (bytes([i] * 10) for i in range(2))),
        container.Entry("proj", "I2_S", (4, 128), handmade.i2s(512, np.random.default_rng(3))),
    ]
    path = tmp_path / "w.gguf"
    container.write(path, METADATA, entries)
    again = container.read_header(path)
    arrays = (container.StringArray, memoryview)
    plain = {key: list(v) if isinstance(v, arrays) else v for key, v in again.metadata.items()}
    assert plain == METADATA
    assert [(i.name, i.type, i.shape) for i in again.tensors.values()] == [e[:3] for e in entries]
    info = again.tensors["embd"]
    assert bytes(again.view[info.offset : info.offset + 20]) == bytes([0] * 10 + [1] * 10)
    assert all(info.offset % 32 == 0 for info in again.tensors.values())

    other = tmp_path / "v.gguf"
    container.write(other, {**again.metadata}, entries)  # what was read can be written, and gives the same bytes
    assert other.read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.gguf", "w.gguf"]


def test_the_gguf_package_reads_what_we_write(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    path = tmp_path / "w.gguf"
    weights = np.arange(512, dtype=np.float32).reshape(2, 256)
    container.write(path, METADATA, [container.Entry("t", "F32", (2, 256), weights.tobytes())])
    theirs = package.GGUFReader(path)
    for key, expected in METADATA.items():
        assert theirs.fields[key].contents() == expected
    assert (theirs.tensors[0].data == weights).all()


def test_a_failing_producer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    path.write_bytes(b"old")

    def fail() -> list[bytes]:
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        container.write(path, {}, [container.Entry("t", "F32", (3,), fail)])
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_panels_are_whole_and_aligned(tmp_path: Path) -> None:
    """PQ2_0_R64: a multiple of 64 rows is stored, at a multiple of 64 bytes; anything else is refused."""
    first, second = bytes(range(256)) * 17, bytes(range(255, -1, -1)) * 17  # 2 groups of 64 rows: 4352 bytes
    entries = [container.Entry("norm", "F32", (3,), bytes(12)), container.Entry("a", "PQ2_0_R64", (1, 256), first),
               container.Entry("b", "PQ2_0_R64", (64, 256), second), container.Entry("end", "F32", (1,), bytes(4))]
    path = tmp_path / "w.gguf"
    container.write(path, METADATA, entries)
    again = container.read_header(path)
    assert again.alignment == 64 and len(again.view) % 64 == 0
    for name, data in (("a", first), ("b", second)):
        info = again.tensors[name]
        assert info.type == "PQ2_0_R64" and info.offset % 64 == 0 and info.nbytes == 4352
        assert bytes(again.view[info.offset : info.offset + 4352]) == data
    with pytest.raises(ValueError, match="a brought 4352 bytes, PQ2_0_R64 needs 8704"):
        container.write(path, {}, [container.Entry("a", "PQ2_0_R64", (65, 256), first)])
    keys = [("general.alignment", handmade.value(handmade.U32, 64))]
    for dims, keys_, alignment, message in [
        ((256, 65), keys, 64, "ends beyond the file"),
        ((192, 64), keys, 64, "rows of 192 are not a multiple of the block of 128"),
        ((256, 64), [], 32, "is PQ2_0_R64, which needs an alignment of 64, not 32"),
    ]:
        path.write_bytes(handmade.gguf(keys_, [("a", dims, 342, first)], alignment=alignment))
        with pytest.raises(InvalidFile, match=message):
            container.read_header(path)


# ---- where texts end -------------------------------------------------------------------------------------------------


def test_the_ends_of_texts_stay_inside_the_buffer() -> None:
    """Lengths up to 2^64 - 1, cut anywhere."""
    stored = b"".join(struct.pack("<Q", len(text)) + text for text in (b"", b"a", b"bc" * 9))
    assert list(text_ends(stored, 0, 3)) == [8, 17, 43]
    assert list(text_ends(b"xx" + stored, 2, 3)) == [10, 19, 45]
    for cut in range(24, len(stored)):
        assert list(text_ends(stored[:cut], 0, 3)) == [8, 17]
    for length in ((1 << 64) - 1, 1 << 63, (1 << 63) - 1, 17):
        assert list(text_ends(struct.pack("<Q", length) + bytes(16), 0, 1)) == []
    assert list(text_ends(b"", 0, 0)) == []
    for start, count in ((0, 6), (-1, 1), (44, 0), (0, -1), (43, 1)):
        with pytest.raises(ValueError, match="cannot be in"):
            text_ends(stored, start, count)


# ---- models in several files -----------------------------------------------------------------------------------------


def parts(folder: Path, n: int = 3, **lies: int) -> str:
    """The made-up model in n files; ``lies`` change what the second says."""
    whole = container.read_header(model_file(folder, handmade.model()))
    names = list(whole.tensors)
    for part in range(n):
        said = {"split.no": part, "split.count": n, "split.tensors.count": len(names)}
        said |= lies if part == 1 else {}
        metadata = whole.metadata if part == 0 else {}
        entries = [container.Entry(name, whole.tensors[name].type, whole.tensors[name].shape,
                              whole.view[whole.tensors[name].offset :][: whole.tensors[name].nbytes])
                   for name in names[part::n]]
        container.write(folder / f"m-{part + 1:05}-of-{n:05}.gguf", {**metadata, **said}, entries)
    return str(folder / f"m-00001-of-{n:05}.gguf")


def test_a_model_in_several_files(tmp_path: Path) -> None:
    path = parts(tmp_path)
    whole, joined = open_checkpoint(tmp_path / "m.gguf"), open_checkpoint(path)
    assert {n: bytes(t.data) for n, t in joined.tensors.items()} == {n: bytes(t.data) for n, t in whole.tensors.items()}
    assert joined.config == whole.config or joined.config.name != whole.config.name


def test_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    second = tmp_path / "m-00002-of-00003.gguf"
    path = parts(tmp_path)
    with pytest.raises(InvalidFile, match="open the first"):
        open_checkpoint(second)
    parts(tmp_path, **{"split.no": 2})
    with pytest.raises(InvalidFile, match="not part 2 of 3"):
        open_checkpoint(path)
    parts(tmp_path)
    second.write_bytes((tmp_path / "m-00003-of-00003.gguf").read_bytes())
    with pytest.raises(InvalidFile, match="not part 2 of 3"):
        open_checkpoint(path)
    second.unlink()
    with pytest.raises(InvalidFile, match="m-00002-of-00003.gguf' is not in its folder"):
        open_checkpoint(path)
    (tmp_path / "m-00001-of-00003.gguf").rename(tmp_path / "other.gguf")
    with pytest.raises(InvalidFile, match="open the first"):
        open_checkpoint(tmp_path / "other.gguf")


# ---- sampling that the file recommends -------------------------------------------------------------------------------


def test_recommended_sampling(tmp_path: Path) -> None:
    keys = {"temp": value(F32, 0.6), "top_k": value(I32, 20), "top_p": value(F32, 0.95), "min_p": value(F64, 0.0),
            "penalty_repeat": value(F32, 1.1), "penalty_last_n": value(I32, -1)}
    data = handmade.model(keys={f"general.sampling.{name}": each for name, each in keys.items()})
    checkpoint = open_checkpoint(model_file(tmp_path, data))
    assert checkpoint.sampling == {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0,
                                   "repeat_penalty": 1.1, "repeat_last_n": -1}
    assert open_checkpoint(model_file(tmp_path, handmade.model())).sampling == {}
