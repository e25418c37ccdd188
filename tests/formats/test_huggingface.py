"""The Hugging Face reader: transformers' oracles, every way to store weights and tokenizers, and wrong files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from edge.errors import InvalidFile, ModelNotFound
from edge.formats import open_checkpoint, safetensors, sentencepiece_model
from edge.formats.checkpoint import Added
from edge.layers import Rotation
from tests import handmade
from tests.handmade import hf_config, hf_directory, hf_tensors
from tests.vectors.stored import oracle

VARIANTS = ["online_bf16", "packed_auto_f32", "packed_bitlinear_f32"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_against_the_safetensors_library(variant: str) -> None:
    library = pytest.importorskip("safetensors")
    path = oracle() / "relu2_gqa_tied" / variant / "model.safetensors"
    theirs = dict(library.deserialize(path.read_bytes()))
    ours = safetensors.read(str(path))
    assert set(ours) == set(theirs)
    for name, stored in ours.items():
        expected = theirs[name]
        assert (stored.type, list(stored.shape)) == (expected["dtype"], expected["shape"])
        assert bytes(stored.data) == bytes(expected["data"])


# ---- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_scale_of_any_shape_and_type(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    data = {"F32": struct.pack("<f", 0.5), "F16": struct.pack("<e", 0.5), "BF16": struct.pack("<f", 0.5)[2:]}[dtype]
    tensors = hf_tensors()
    tensors["model.layers.0.mlp.up_proj.weight_scale"] = (dtype, shape, data)
    t = open_checkpoint(hf_directory(tmp_path / "m", tensors=tensors)).tensors["blk.0.ffn_up.weight"]
    assert (t.type, t.shape, t.scale, len(t.data)) == ("HF_U8", (256, 128), 0.5, 256 * 128 // 4)


def test_sharded(tmp_path: Path) -> None:
    tensors = hf_tensors()
    folder = Path(hf_directory(tmp_path / "m", tensors=tensors))
    whole = open_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    names, weight_map = list(tensors), {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"model-{i + 1:05}-of-00002.safetensors"
        (folder / file).write_bytes(handmade.safetensors({name: tensors[name] for name in part}))
        weight_map.update(dict.fromkeys(part, file))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    c = open_checkpoint(folder)
    assert set(c.tensors) == set(whole.tensors)
    assert all(bytes(c.tensors[name].data) == bytes(whole.tensors[name].data) for name in c.tensors)

    for wrong, message in [
        ({**weight_map, names[0]: "../secret.safetensors"}, "not a plain"),
        ({**weight_map, names[0]: "/etc/passwd"}, "not a plain"),
        ({**weight_map, names[0]: "absent.safetensors"}, "absent.safetensors' is missing"),
        ({}, "weight_map is missing"),
    ]:
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(InvalidFile, match=message):
            open_checkpoint(folder)


def test_names_of_the_other_family(tmp_path: Path) -> None:
    """1bitLLM: inner_attn_ln and ffn_layernorm, inv_freq to be ignored, small n in the class name, latent weights."""
    tensors = hf_tensors("latent", sub_norms=("inner_attn_ln", "ffn_layernorm"))
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", (32,), bytes(128))
    config = hf_config(architectures=["BitnetForCausalLM"], hidden_act="silu", quantization_config=None, weight_bits=1)
    c = open_checkpoint(hf_directory(tmp_path / "m", config, tensors))
    assert c.config.arch == "bitnet" and c.config.layers[0].mixer.sub_norm
    assert c.tensors["blk.0.attn_q.weight"].floats == "latent"
    assert c.tensors["blk.0.attn_sub_norm.weight"].shape == (128,)


def test_tied_or_not(tmp_path: Path) -> None:
    both = hf_tensors(head=True)
    copied = {**both, "lm_head.weight": both["model.embed_tokens.weight"]}
    assert open_checkpoint(hf_directory(tmp_path / "a", tensors=copied)).config.tied  # a saved copy is ignored
    assert "output.weight" not in open_checkpoint(tmp_path / "a").tensors
    untied = hf_config(tie_word_embeddings=False)
    assert not open_checkpoint(hf_directory(tmp_path / "b", untied, both)).config.tied
    with pytest.raises(InvalidFile, match=r"lm_head\.weight is missing"):
        open_checkpoint(hf_directory(tmp_path / "c", untied))
    silent = hf_config(tie_word_embeddings=None)
    assert open_checkpoint(hf_directory(tmp_path / "d", silent)).config.tied
    assert not open_checkpoint(hf_directory(tmp_path / "e", silent, both)).config.tied


def test_a_config_that_says_tied_and_a_head_that_is_not(tmp_path: Path) -> None:
    """As transformers 5.24: a head of its own is kept, with a note; one that is alone is the embedding as well."""
    tensors = hf_tensors(head=True)
    table, head = (tensors[f"{name}.weight"] for name in ("model.embed_tokens", "lm_head"))
    data = bytearray(table[2])
    data[-1] ^= 1
    for other in ((*head[:2], bytes(data)), ("BF16", head[1], bytes(16 * 128 * 2))):
        c = open_checkpoint(hf_directory(tmp_path / "m", tensors={**tensors, "lm_head.weight": other}))
        assert not c.config.tied and bytes(c.tensors["output.weight"].data) == other[2]
        assert [note for note in c.notes if "lm_head.weight differs" in note and "tie_word_embeddings" in note]
    del tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = (*head[:2], bytes(data))
    c = open_checkpoint(hf_directory(tmp_path / "m", tensors=tensors))
    assert c.config.tied and bytes(c.tensors["token_embd.weight"].data) == bytes(data)
    assert "output.weight" not in c.tensors and not [note for note in c.notes if "lm_head" in note]
    for said in (False, None):
        with pytest.raises(InvalidFile, match=r"embed_tokens\.weight is missing"):
            open_checkpoint(hf_directory(tmp_path / "m", hf_config(tie_word_embeddings=said), tensors))


@pytest.mark.parametrize(
    ("changes", "theta", "scale"),
    [
        ({"rope_theta": 7000}, 7000.0, 1.0),
        ({"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 8000.0}}, 8000.0, 1.0),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 8000.0, "factor": 2.0}}, 8000.0, 2.0),
        ({"rope_theta": 9000.0, "rope_scaling": {"type": "linear", "factor": 4}}, 9000.0, 4.0),
        ({"rope_theta": None}, 10000.0, 1.0),
    ],
)
def test_rope_of_old_and_new_files(tmp_path: Path, changes: dict[str, Any], theta: float, scale: float) -> None:
    g = open_checkpoint(hf_directory(tmp_path / "m", hf_config(**changes))).config
    assert g.layers[0].mixer.rotation == Rotation(theta, 64, scale=scale)


def changed(name: str, content: tuple[str, tuple[int, ...], bytes] | None) -> dict[str, Any]:
    tensors: dict[str, Any] = hf_tensors()
    tensors[name] = content
    return {key: entry for key, entry in tensors.items() if entry is not None}


Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        (hf_config(architectures=["Qwen4ForCausalLM"]), None, "'Qwen4ForCausalLM' is not supported"),
        (hf_config(architectures=None, model_type="olmo"), None, "'olmo' is not supported"),
        (hf_config(architectures=[{}]), None, "is not supported"),
        (hf_config(quantization_config={"quant_method": "gptq"}), None, "'gptq', not BitNet"),
        (hf_config(quantization={"group_size": 128, "bits": 2}), None, "by MLX.* use a GGUF file .* or its original"),
        (hf_config(quantization_config=[1]), None, "quantization_config is not an object"),
        (hf_config(quantization_config={"quant_method": "bitnet", "use_rms_norm": True}), None, "use_rms_norm"),
        (hf_config(mlp_bias=True), None, "mlp_bias is set"),
        (hf_config(quantization_config=None), None, "packed weights, but .* multiplies or divides"),
        (hf_config(hidden_act="gelu"), None, "hidden_act 'gelu'"),
        (hf_config(hidden_size=None), None, "hidden_size is missing"),
        (hf_config(hidden_size="128"), None, "hidden_size is '128', not a sensible number"),
        (hf_config(hidden_size=10**400), None, "not a sensible number"),
        (hf_config(hidden_size=128.5), None, r"hidden is 128\.5"),
        (hf_config(num_attention_heads=0), None, "n_head is 0"),
        (hf_config(num_key_value_heads=3), None, "n_kv_head|cannot share"),
        (hf_config(num_hidden_layers=10**9), None, "n_layer is 1000000000"),
        (hf_config(num_hidden_layers=2), None, r"blk\.1\.attn_norm\.weight is missing"),
        (hf_config(rope_scaling={"rope_type": "ntk", "factor": 2}), None, "'ntk'"),
        (hf_config(rope_scaling={"rope_type": "linear"}), None, "factor is missing"),
        (hf_config(rope_parameters=[1]), None, "rope_parameters is not an object"),
        (None, changed("model.embed_tokens.weight", None), "embed_tokens.weight is missing"),
        (None, changed("model.layers.0.self_attn.q_norm.weight", ("F32", (64,), bytes(256))), "q_norm.*not part"),
        (None, changed("model.layers.0.self_attn.q_proj.rms_norm.weight", ("F32", (64,), bytes(256))), "do not agree"),
        (None, changed("model.layers.00.mlp.up_proj.weight", ("F32", (1,), bytes(4))), "not part"),
        (None, changed("model.layers.0.self_attn.inner_attn_ln.weight", ("F32", (128,), bytes(512))), "appears twice"),
        (None, changed(Q + "_scale", None), "has no weight_scale"),
        (None, changed(Q + "_scale", ("F32", (1,), struct.pack("<f", 0.0))), "weight_scale 0.0"),
        (None, changed(Q + "_scale", ("F32", (1,), struct.pack("<f", float("nan")))), "weight_scale nan"),
        (None, changed(Q + "_scale", ("F32", (2,), bytes(8))), "not one float"),
        (None, changed(Q, ("I8", (128, 128), bytes(128 * 128))), "stored as I8"),
        (None, changed(Q, ("U8", (32, 64), bytes(32 * 64))), r"shape \(128, 64\)"),
        (None, changed(Q, ("U8", (32, 128), b"\xff" * (32 * 128))), "holds codes"),
        (None, changed("model.norm.weight", ("U8", (128,), bytes(128))), "packed but has no"),
        # Falcon-E, revision bfloat16: float weights, no quantization_config, not ternary
        (hf_config(architectures=["LlamaForCausalLM"], hidden_act="silu", quantization_config=None),
         hf_tensors("latent", sub_norms=None), "dense model"),
    ],
)
def test_refused_with_one_line(tmp_path: Path, config: Any, tensors: Any, message: str) -> None:
    folder = hf_directory(tmp_path / "m", config, tensors)
    with pytest.raises(InvalidFile, match=message) as caught:
        open_checkpoint(folder)
    assert str(caught.value).startswith(folder) and "\n" not in str(caught.value)


def test_missing_files(tmp_path: Path) -> None:
    folder = Path(hf_directory(tmp_path / "m"))
    (folder / "model.safetensors").unlink()
    with pytest.raises(InvalidFile, match=r"no model\.safetensors"):
        open_checkpoint(folder)
    (folder / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(InvalidFile, match="pickled weights .'pytorch_model.bin'.*safetensors"):
        open_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(InvalidFile, match="pickled"):
        open_checkpoint(folder)
    with pytest.raises(ModelNotFound):
        open_checkpoint(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"abc", "too short"),
        (struct.pack("<Q", 1 << 62) + b"{}", "header claims"),
        (struct.pack("<Q", 3) + b"{}", "header claims"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (struct.pack("<Q", 2) + b"{x", "not valid JSON"),
        (struct.pack("<Q", 2) + b"\xff\xff", "not valid JSON"),
        (struct.pack("<Q", 60000) + b"[" * 60000, "not valid JSON|nested"),
        (struct.pack("<Q", 13) + b'{"a":1,"a":1}', "appears twice"),
        (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
        (handmade.safetensors({}, t=1), "not described by an object"),
        (handmade.safetensors({}, t={"dtype": "F32", "shape": [1]}), "an invalid shape"),
        (handmade.safetensors({}, t={"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}), "an invalid shape"),
        (handmade.safetensors({}, t={"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}), "an invalid shape"),
        (handmade.safetensors({}, t={"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}), "an invalid shape"),
        (handmade.safetensors({}, t={"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}), "dtype 'F64'"),
        (handmade.safetensors({}, t={"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}), "beyond the file"),
        (handmade.safetensors({"t": ("F32", (1,), bytes(4))},
                              u={"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}), "beyond the file"),
        (handmade.safetensors({"t": ("F32", (2,), bytes(4))}), "its shape and dtype need 8"),
        (handmade.safetensors({"t": ("F32", (1 << 40, 1 << 40), bytes(4))}), "need 4835703278458516698824704"),
        (handmade.safetensors({"t": ("F32", (2,), bytes(8))},
                              u={"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}), "overlaps"),
    ],
)
def test_hostile_safetensors(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(InvalidFile, match=message) as caught:
        safetensors.read(str(path))
    assert "\n" not in str(caught.value)


# ---- tokenizers ------------------------------------------------------------------------------------------------------

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, BYTE_LEVEL]}


def tokenizer_json(**changes: Any) -> dict[str, Any]:
    table = {
        "added_tokens": [{"id": 12, "content": "<|end|>", "special": True},
                         {"id": 13, "content": "<tool>", "special": False}],
        "pre_tokenizer": split(LLAMA3),
        "post_processor": None,
        "model": {"type": "BPE", "vocab": {chr(97 + i): i for i in range(10)}, "merges": ["a b", "c d"],
                  "ignore_merges": True},
    }
    table.update(changes)
    return table


def spec_of(tmp_path: Path, config: dict[str, Any] | None = None, **files: Any) -> Any:
    return open_checkpoint(hf_directory(tmp_path / "m", config, **files)).tokenizer


def test_byte_level_bpe(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, tokenizer__json=tokenizer_json())
    assert spec.kind == "bpe" and spec.pre == "llama-bpe" and spec.pattern == LLAMA3 and spec.ignore_merges
    assert list(spec.tokens) == [*"abcdefghij", "[PAD10]", "[PAD11]", "<|end|>", "<tool>"]
    assert list(spec.types) == [1] * 10 + [5, 5, 3, 4] and spec.merges == ["a b", "c d"]
    assert spec.added == {"<|end|>": Added(12), "<tool>": Added(13, False)}
    assert spec.eos_ids == (2,) and spec.bos_id == 1
    model = {**tokenizer_json()["model"], "merges": [["a", "b"], ["c", "d"]]}  # as newer files have them
    assert spec_of(tmp_path, tokenizer__json=tokenizer_json(model=model)).merges == ["a b", "c d"]


@pytest.mark.parametrize(
    ("pre", "name", "pattern"),
    [
        (split(LLAMA3), "llama-bpe", LLAMA3),
        (split(LLAMA3.replace("{1,3}", "")), "qwen2", LLAMA3.replace("{1,3}", "")),
        (split(r"\p{N}|\P{N}+"), "", r"\p{N}|\P{N}+"),
        ({"type": "ByteLevel", "use_regex": True}, "gpt-2", None),
        ({"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, {"type": "ByteLevel"}, {"type": "Digits"}]},
         "falcon", None),
    ],
)
def test_pre_tokenizers(tmp_path: Path, pre: Any, name: str, pattern: str | None) -> None:
    spec = spec_of(tmp_path, tokenizer__json=tokenizer_json(pre_tokenizer=pre))
    assert (spec.pre, spec.pattern) == (name, pattern)


PROCESSOR = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
             "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}


@pytest.mark.parametrize(
    ("files", "add_bos"),
    [
        ({}, False),
        ({"post_processor": PROCESSOR}, True),
        ({"post_processor": {"type": "Sequence", "processors": [BYTE_LEVEL, PROCESSOR]}}, True),
        ({"post_processor": {**PROCESSOR, "single": [{"Sequence": {}}]}, "template": "{{ bos_token }}"}, False),
        ({"template": "{{- bos_token }}{% for m in messages %}"}, True),
        ({"template": "{% for m in messages %}"}, False),
        ({"post_processor": PROCESSOR, "add_bos_token": False}, False),
        ({"add_bos_token": True}, True),
    ],
)
def test_whether_bos_is_added(tmp_path: Path, files: dict[str, Any], add_bos: bool) -> None:
    settings = {"chat_template": files.get("template"), "add_bos_token": files.get("add_bos_token")}
    fast = tokenizer_json(post_processor=files.get("post_processor"))
    assert spec_of(tmp_path, tokenizer__json=fast, tokenizer_config__json=settings).add_bos is add_bos


def test_all_stop_ids(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, hf_config(eos_token_id=[2, 3]), tokenizer__json=tokenizer_json(),
        generation_config__json={"eos_token_id": [7, 2, 99999, "x"], "pad_token_id": 4},
        tokenizer_config__json={"eos_token": {"content": "<|end|>"}})
    assert spec.eos_ids == (7, 2, 3, 12) and spec.pad_id == 4


def test_chat_templates(tmp_path: Path) -> None:
    """As transformers: files of their own take the place of all in tokenizer_config.json."""
    assert open_checkpoint(hf_directory(tmp_path / "m")).chat_template is None
    folder = hf_directory(tmp_path / "m", tokenizer_config__json={"chat_template": "A"})
    assert open_checkpoint(folder).chat_template == "A"
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}, {"name": "", "template": "N"}]
    folder = hf_directory(tmp_path / "m", tokenizer_config__json={"chat_template": named})
    c = open_checkpoint(folder)
    assert (c.chat_template, c.templates) == ("D", {"tool_use": "T"})
    folder = Path(folder)
    more = folder / "additional_chat_templates"
    more.mkdir()
    (more / "rag.jinja").write_text("R")
    (more / "not a name.jinja").write_text("N")
    (folder / "chat_template.jinja").write_text("J")
    c = open_checkpoint(folder)
    assert (c.chat_template, c.templates) == ("J", {"rag": "R"})
    (more / "rag.jinja").write_bytes(b"\xff")
    with pytest.raises(InvalidFile, match=r"rag\.jinja: not UTF-8"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("fast", "message"),
    [
        (tokenizer_json(model={"type": "BPE", "vocab": {"a": 99}, "merges": []}), "id 99, the embedding has 16"),
        (tokenizer_json(model={"type": "BPE", "vocab": {"a": -1}, "merges": []}), "id -1"),
        (tokenizer_json(model={"type": "BPE", "vocab": {"a": 1, "b": 1}, "merges": []}), "both 'a' and 'b'"),
        (tokenizer_json(model={"type": "BPE", "vocab": {"a": "0"}, "merges": []}), "id '0'"),
        (tokenizer_json(model={"type": "BPE", "vocab": {"\ud800": 0}, "merges": []}), "not Unicode"),
        (tokenizer_json(model={"type": "BPE", "vocab": {}, "merges": [["a"]]}), r"merge \['a'\]"),
        (tokenizer_json(model={"type": "BPE", "vocab": [], "merges": []}), "vocab or merges"),
        (tokenizer_json(model={"type": "Unigram"}), r"tokenizer\.model \(SentencePiece\) next to it"),
        (tokenizer_json(model={"type": "BPE", "byte_fallback": True}), "SentencePiece"),
        ("{", "not valid JSON"),
    ],
)
def test_tokenizers_that_cannot_be_used(tmp_path: Path, fast: Any, message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        open_checkpoint(hf_directory(tmp_path / "m", tokenizer__json=fast))


def test_sentencepiece_directory(root: Path, tmp_path: Path) -> None:
    """tokenizer.model is passed on whole; tokens beyond it come from added_tokens.json."""
    data = (root / "tests" / "vectors" / "tokenizer" / "spm512.model").read_bytes()
    tensors = hf_tensors()
    tensors["model.embed_tokens.weight"] = ("F32", (514, 128), bytes(514 * 128 * 4))
    folder = hf_directory(tmp_path / "m", hf_config(vocab_size=514), tensors, tokenizer__model=data,
                          added_tokens__json={"<pad>": 512, "</line>": 513, "<beyond>": 514, "<s>": 1})
    spec = open_checkpoint(folder).tokenizer
    assert spec.kind == "sentencepiece" and spec.model == data and spec.add_bos
    assert spec.added == {"<pad>": Added(512), "</line>": Added(513), "<s>": Added(1)}
    roles = hf_directory(tmp_path / "m", hf_config(vocab_size=514), tensors, tokenizer__model=data,
                         added_tokens__json={"<pad>": 512, "</line>": 513},
                         special_tokens_map__json={"pad_token": "<pad>"})
    assert open_checkpoint(roles).tokenizer.added == {"<pad>": Added(512), "</line>": Added(513, False)}
    hf_directory(tmp_path / "m")  # an embedding of 16 rows
    with pytest.raises(InvalidFile, match="512 pieces for 16 embedding rows"):
        open_checkpoint(folder)


def test_sentencepiece_parser_against_the_library(root: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    path = root / "tests" / "vectors" / "tokenizer" / "spm512.model"
    theirs = library.SentencePieceProcessor(model_file=str(path))
    ours = sentencepiece_model.parse(path.read_bytes(), str(path))
    assert len(ours.pieces) == theirs.get_piece_size() == 512
    assert ours.pieces == [theirs.id_to_piece(i) for i in range(512)]
    assert ours.scores.tolist() == [theirs.get_score(i) for i in range(512)]
    assert (ours.unk_id, ours.bos_id, ours.eos_id) == (theirs.unk_id(), theirs.bos_id(), theirs.eos_id())
    assert [kind == 6 for kind in ours.types] == [theirs.is_byte(i) for i in range(512)]
    assert ours.pad_id is None and theirs.pad_id() == -1 and ours.bpe


# ---- sampling that the folder recommends -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20},
         {"temperature": 0.6, "top_p": 0.95, "top_k": 20}),
        ({"do_sample": True, "temperature": 1, "min_p": None, "top_k": 20.0}, {"temperature": 1, "top_k": 20}),
        ({"do_sample": True}, {}),
        ({"do_sample": False, "temperature": 0.6}, {}),
        ({"do_sample": "true", "temperature": 0.6}, {}),
        ({"temperature": 0.6, "top_k": 20}, {}),
        ({"repetition_penalty": 1.05}, {"repeat_penalty": 1.05, "repeat_last_n": -1}),
        ({"do_sample": True, "top_k": 1, "repetition_penalty": 1},
         {"top_k": 1, "repeat_penalty": 1}),
        (None, {}),
    ],
)
def test_recommended_sampling(tmp_path: Path, generation: Any, expected: dict[str, Any]) -> None:
    files = {} if generation is None else {"generation_config__json": generation}
    checkpoint = open_checkpoint(hf_directory(tmp_path / "m", **files))
    assert checkpoint.sampling == expected
    assert not any("recommendation" in note or "generation_config" in note for note in checkpoint.notes)
    assert type(checkpoint.sampling.get("top_k", 0)) is int


@pytest.mark.parametrize(
    "bad",
    [("temperature", "0.6"), ("temperature", -0.1), ("temperature", 10**400), ("temperature", True),
     ("temperature", [0.6]), ("temperature", float("nan")), ("top_p", float("inf")), ("top_p", {"a": "\n" * 99}),
     ("top_k", 2.5), ("top_k", -5), ("min_p", 2), ("repetition_penalty", 0), ("repetition_penalty", "1.1")],
    ids=str,
)
def test_a_recommendation_that_is_not_valid_is_ignored_and_noted(tmp_path: Path, bad: tuple[str, Any]) -> None:
    generation = {"do_sample": True, "temperature": 0.5, "top_k": 3, bad[0]: bad[1]}
    checkpoint = open_checkpoint(hf_directory(tmp_path / "m", generation_config__json=generation))
    expected = {"temperature": 0.5, "top_k": 3}
    expected.pop(bad[0], None)
    assert checkpoint.sampling == expected
    notes = [note for note in checkpoint.notes if "recommendation" in note]
    assert len(notes) == 1 and notes[0].startswith(f"{bad[0]} is ") and "\n" not in notes[0] and len(notes[0]) < 200


@pytest.mark.parametrize(("generation", "named"), [
    ({"num_beams": 4, "no_repeat_ngram_size": 3}, "num_beams, no_repeat_ngram_size"),
    ({"bad_words_ids": [[5]], "suppress_tokens": [], "guidance_scale": 1.0, "num_beams": 1}, "bad_words_ids"),
    ({"do_sample": True, "typical_p": 0.9, "epsilon_cutoff": 0.0}, "typical_p"),
    ({"typical_p": 0.9, "max_length": 20, "use_cache": True, "pad_token_id": 0, "_from_model_config": True}, ""),
])
def test_keys_that_change_answers_and_are_not_used_are_named(tmp_path: Path, generation: Any, named: str) -> None:
    notes = open_checkpoint(hf_directory(tmp_path / "m", generation_config__json=generation)).notes
    said = [note for note in notes if "generation_config" in note]
    assert said == ([f"generation_config.json: {named} cannot be used: answers are made without"] if named else [])
