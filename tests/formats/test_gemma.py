"""Gemma 3 beyond its logits (test_family_oracles.py): windows of layers, caches of them, its texts, refusals."""

from __future__ import annotations

import array
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from edge import load
from edge.cache.planning import cache_plan
from edge.cli.group import cli
from edge.config import ModelConfig
from edge.errors import InvalidFile
from edge.formats import open_checkpoint
from edge.layers import Rotation
from edge.model.weights import build
from edge.options import Options
from edge.prompt.tokenizer import Tokenizer
from edge.tools.convert import convert
from edge.tools.embed import Embedder
from pyx.kv import KVCache
from pyx.step import Segment
from tests import handmade
from tests.configs import uniform
from tests.formats.test_experts import renamed
from tests.formats.test_families import made_up
from tests.formats.test_family_oracles import folder, gguf_file
from tests.handmade import ARR, BOOL, F32, I32, STR, U32, value
from tests.oracles import family
from tests.streams import restored, run

WINDOW = 70
SHAPE: dict[str, Any] = {"n_layer": 3, "qk_norm": "before", "post_norm": True, "activation": "gelu", "query_scale": 0.8,
                         "n_ctx_train": 512}
CONFIG = uniform(**SHAPE, sliding=(WINDOW, (0, 2), 300.0))
IDS = random.Random(7).choices(range(256), k=300)
PLANS: dict[str, dict[str, Any]] = {
    "f32": {"kv_type": "f32"},
    "int8": {"kv_type": "int8"},
    "int8:int4, spare": {"kv_type": "int8:int4", "spare": 2},
    "int4": {"kv_type": "int4"},
    "window": {"kv_type": "int8", "window": 128, "sinks": 4, "spare": 2},
    "window shorter than the model's": {"kv_type": "f16", "window": 40, "sinks": 4},
    "quarter": {"kv_type": "f16", "window": 128, "policy": "quarter"},
    "budgets": {"kv_type": "int8", "budgets": [[40, 200], [40, 200], [300, 30]]},
}


def cache_of(config: ModelConfig = CONFIG, n_ctx: int = 320, **plan: Any) -> KVCache:
    return KVCache(*config.kv_shape, n_ctx, **plan, windows=config.windows)


def test_a_layer_sees_its_window_and_nothing_before() -> None:
    """300 tokens with a window of 70, over its edge and that of many pages: NumPy in float64, which keeps all."""
    config = dataclasses.replace(CONFIG, activation_quant="none")
    checkpoint, arrays = made_up(config)
    expected = family.Model(config, arrays).logits(IDS)
    got = run(build(checkpoint, head="f32"), cache_of(kv_type="f32"), IDS)
    assert np.abs(got - expected).max() <= 1e-4 * np.ptp(expected)
    everything = uniform(**SHAPE, sliding=(300, (0, 2), 300.0), activation_quant="none")
    other = family.Model(everything, arrays).logits(IDS)
    assert np.abs(other - expected).max() > 0.05 * np.ptp(expected)


@pytest.mark.parametrize("plan", PLANS)
def test_chunks_threads_forks_and_crops_give_the_same_bits(plan: str) -> None:
    model = build(made_up(CONFIG)[0], head="f32")
    cache = cache_of(**PLANS[plan])
    alone = run(model, cache, IDS, 1 if plan != "quarter" else 64)
    for seed, threads in ((1, 1), (2, 3)):
        several = build(made_up(CONFIG)[0], head="f32", n_threads=threads)
        again = cache_of(**PLANS[plan])
        steps = random.Random(seed).choices((1, 1, 2, 5, 31, 33, 64), k=300)
        assert run(several, again, IDS, *steps).tobytes() == alone.tobytes()
        assert again.nbytes == KVCache.bytes_for(3, 2, 32, 320, **PLANS[plan], windows=CONFIG.windows)
    fork = cache.fork()
    more = random.Random(9).choices(range(256), k=15)
    first = run(model, fork, more)
    for back in (299, 290, 250, 30, 0):  # what is beyond a window is read again
        kept = cache.crop(back)
        assert kept <= back
        assert run(model, cache, IDS[kept:]).tobytes() == alone[kept:].tobytes()
    assert run(model, cache, more).tobytes() == first.tobytes()
    copy = restored(cache_of(**PLANS[plan]), fork)
    assert run(model, copy, [1, 2]).tobytes() == run(model, fork, [1, 2]).tobytes()


def test_a_batch_changes_no_bit() -> None:
    model = build(made_up(CONFIG)[0], head="f32", n_threads=2)
    alone = [run(model, cache_of(**plan), IDS[i * 9 : i * 9 + 100], 10) for i, plan in enumerate(PLANS.values())]
    caches = [cache_of(**plan) for plan in PLANS.values()]
    outs = [np.zeros((100, 256), np.float32) for _ in caches]
    for start in range(0, 100, 10):
        model.step([
            Segment(cache, array.array("i", IDS[i * 9 + start : i * 9 + start + 10]),
                    outs[i][start : start + 10].reshape(-1), True)
            for i, cache in enumerate(caches)
        ])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(alone, outs, strict=True))


def test_layers_with_windows_take_no_more_memory() -> None:
    """The plan says the true size, and long contexts grow in the layers that see all only."""
    config = dataclasses.replace(CONFIG, n_ctx_train=1 << 17)
    pages = {n: cache_plan(config, Options(ctx=n, kv="f16")).kv_bytes for n in (1024, 2048)}
    page = KVCache.bytes_for(1, 1, 32, 64, "f16") - KVCache.bytes_for(1, 1, 32, 32, "f16")
    assert pages[2048] - pages[1024] == 1024 // 32 * 2 * page  # of one layer, with its two heads
    plan = cache_plan(config, Options(ctx=2048))
    assert "2 of 3 layers keep 70" in "\n".join(plan.lines())
    assert plan.kv_bytes == cache_of(config, **{k: v for k, v in plan.cache.items() if k != "windows"}).nbytes


# ---- files -----------------------------------------------------------------------------------------------------------


def test_what_a_folder_says(tmp_path: Path) -> None:
    c = open_checkpoint(folder(tmp_path / "m", "gemma3")).config
    near, all_ = c.layers[0], c.layers[2]
    assert c.layers == (near, near, all_, near, near, all_, near) and c.windows == (7, 7, 0, 7, 7, 0, 7)
    assert near.mixer.rotation == Rotation(1e4, 128, divided=False)
    assert all_.mixer.rotation == Rotation(1e6, 128, scale=8.0)
    assert c.embedding_scale == 16.0 and all(layer.post_norm for layer in c.layers)
    assert [layer.mixer.query_scale for layer in c.layers] == pytest.approx([(128 / 96) ** 0.5] * 7)
    # as older files have it: a period, and the two bases at the top
    old = {"layer_types": None, "rope_parameters": None, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
           "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert open_checkpoint(folder(tmp_path / "m", "gemma3", **old)).config == c
    few = dataclasses.replace(c, layers=(near,) * 5 + (all_, near))
    assert open_checkpoint(folder(tmp_path / "m", "gemma3", **old, sliding_window_pattern=None)).config == few


@pytest.mark.parametrize(("changes", "words"), [
    ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is set"),
    ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is set"),
    ({"use_bidirectional_attention": True}, "use_bidirectional_attention is set"),
    ({"hidden_activation": "gelu"}, "hidden_act 'gelu' is not supported"),
    ({"hidden_activation": ["gelu"]}, "hidden_act"),
    ({"layer_types": ["sliding_attention"]}, "1 entries for 7 layers"),
    ({"layer_types": ["chunked_attention"] * 7}, "layer_types holds"),
    ({"layer_types": 3}, "layer_types holds"),
    ({"sliding_window": 0}, "window of 0 tokens"),
    ({"sliding_window": None}, "sliding_window is missing"),
    ({"query_pre_attn_scalar": "x"}, "query_pre_attn_scalar"),
    ({"num_hidden_layers": -3}, "n_layer is -3"),
    ({"num_hidden_layers": 2.5, "layer_types": None}, "n_layer is 2.5"),
    ({"head_dim": -4}, "head_dim"),
    ({"hidden_size": -256}, "hidden"),
    ({"rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_type": "linear", "factor": 2}}},
     "'linear' of sliding_attention"),
    ({"architectures": ["Gemma3ForConditionalGeneration"]}, "vision part.*Gemma3ForCausalLM"),
    ({"architectures": ["Gemma2ForCausalLM"]}, "soft caps"),
])
def test_folders_that_cannot_be_run(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = folder(tmp_path / "m", "gemma3")
    config = json.loads((Path(path) / "config.json").read_text()) | changes
    (Path(path) / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    with pytest.raises(InvalidFile, match=words) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)


ONES = np.ones(handmade.HIDDEN, np.float32).tobytes()
NORMS = {f"blk.0.{name}.weight": ((handmade.HIDDEN,), 0, ONES) for name in ("post_attention_norm", "post_ffw_norm")}
NORMS |= {f"blk.0.{name}.weight": ((handmade.HEAD_DIM,), 0, ONES[: 4 * handmade.HEAD_DIM])
          for name in ("attn_q_norm", "attn_k_norm")}
TEXTS = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "u", "m", "\n", "\u2581", "<h1>",
         "a", "b", "c", "\u2581a", "hi"]
KINDS = [3, 3, 3, 2, 4, 4, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1]


def one_layer(keys: dict[str, Any] | None = None, **more: Any) -> bytes:
    """A model of one layer with a SentencePiece vocabulary of 16 pieces as Gemma's converters write it."""
    return handmade.model("gemma3", sub_norm=False, tensors=NORMS | more.pop("tensors", {}), keys={
        "gemma3.attention.sliding_window": value(U32, 8),
        "gemma3.rope.freq_base": value(F32, 1e6),
        "tokenizer.ggml.model": value(STR, "llama"),
        "tokenizer.ggml.pre": value(STR, "default"),
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.tokens": value(ARR, (STR, TEXTS)),
        "tokenizer.ggml.scores": value(ARR, (F32, [-float(i) for i in range(16)])),
        "tokenizer.ggml.token_type": value(ARR, (I32, KINDS)),
        "tokenizer.ggml.bos_token_id": value(U32, 2),
        "tokenizer.ggml.unknown_token_id": value(U32, 3),
        "tokenizer.ggml.eos_token_id": value(U32, 1),
        "tokenizer.ggml.add_space_prefix": value(BOOL, 0),
        **(keys or {}),
    }, **more)


def test_a_file_speaks_in_turns(tmp_path: Path) -> None:
    """Without a template of its own: Gemma's; markers that users type are text, HTML tags that the model writes too."""
    path = tmp_path / "m.gguf"
    path.write_bytes(one_layer())
    checkpoint = open_checkpoint(path)
    tokenizer = Tokenizer.build(checkpoint.tokenizer)
    assert {"<start_of_turn>", "<end_of_turn>"} <= set(tokenizer.special) and 5 in tokenizer.eos_ids
    assert tokenizer.decode([10, 11]) == "<h1>a" and 4 not in tokenizer.encode("<start_of_turn>")
    with load(path, ctx=64) as engine:
        ids = engine.model.template.encode(tokenizer, [{"role": "user", "content": "a"}])
        assert "".join(TEXTS[i] for i in ids if TEXTS[i] != "<unk>") == (
            "<bos><start_of_turn>u\na<end_of_turn>\n<start_of_turn>m\n")


@pytest.mark.parametrize(("keys", "words"), [
    ({"gemma3.attention.sliding_window": None}, "sliding_window is missing"),
    ({"gemma3.attention.sliding_window": value(U32, 1 << 30)}, "window is 1073741824"),
    ({"gemma3.attention.sliding_window_pattern": value(ARR, (BOOL, [1, 0]))}, "2 entries for 1 layers"),
    ({"gemma3.attention.sliding_window_pattern": value(STR, "x")}, "is not a number"),
    ({"gemma3.rope.freq_base_swa": value(F32, float("nan"))}, "theta is nan"),
    ({"gemma3.attention.scale": value(F32, float("nan"))}, "query_scale is nan"),
    ({"gemma3.final_logit_softcapping": value(F32, 30.0)}, "final_logit_softcapping' is 30"),
    ({"gemma3.attn_logit_softcapping": value(F32, 50.0)}, "attn_logit_softcapping' is 50"),
    ({"gemma3.block_count": value(U32, 1 << 31)}, "n_layer"),
    ({"gemma3.attention.key_length": value(I32, -64)}, "head_dim"),
    ({"gemma3.embedding_length": value(I32, -128)}, "hidden"),
])
def test_files_that_cannot_be_run(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(one_layer(keys))
    with pytest.raises(InvalidFile, match=words) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)


def test_files_by_period_or_layer_by_layer(tmp_path: Path) -> None:
    path = gguf_file(tmp_path, "gemma3", "PQ2_0")
    by_period = open_checkpoint(path).config
    kinds = [window > 0 for window in by_period.windows]
    more = {"gemma3.attention.sliding_window_pattern": value(ARR, (BOOL, kinds))}
    assert open_checkpoint(gguf_file(tmp_path, "gemma3", "PQ2_0", keys=more)).config == by_period
    none = {"gemma3.attention.sliding_window": value(U32, 0)}
    assert open_checkpoint(gguf_file(tmp_path, "gemma3", "PQ2_0", keys=none)).config.windows is None
    convert(gguf_file(tmp_path, "gemma3", "PQ2_0"), tmp_path / "c.gguf")
    back = open_checkpoint(tmp_path / "c.gguf").config
    assert back.windows == by_period.windows
    for one, other in zip(back.attention, by_period.attention, strict=True):
        assert one.rotation == other.rotation and one.query_scale == pytest.approx(other.query_scale, rel=1e-6)


def test_missing_and_misplaced_norms(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(one_layer(tensors={"blk.0.post_ffw_norm.weight": None}))
    with pytest.raises(InvalidFile, match="post_ffw_norm.weight is missing"):
        open_checkpoint(path)
    path.write_bytes(handmade.model("llama", tensors=NORMS))
    with pytest.raises(InvalidFile, match="is not part of this kind of model"):
        open_checkpoint(path)
    with pytest.raises(InvalidFile, match="'output_norm' is not part of this kind of model"):
        open_checkpoint(renamed(folder(tmp_path / "m", "gemma3"), "model.norm.weight", "model.norm"))


def test_vectors_of_a_model_with_norms_in_front_of_projections(tmp_path: Path) -> None:
    """BitNet-embedding-270M in small: Gemma 3, int8 per token, a norm in front of each projection; against NumPy."""
    tensors = {f"blk.0.{name}_norm_in.weight": ((k,), 0, np.full(k, 0.5 + i / 8, np.float32).tobytes())
               for i, (name, k) in enumerate((("attn_q", 128), ("attn_k", 128), ("attn_v", 128), ("attn_output", 128),
                                              ("ffn_gate", 128), ("ffn_up", 128), ("ffn_down", 256)))}
    path = tmp_path / "m.gguf"
    path.write_bytes(one_layer(tensors=tensors))
    checkpoint = open_checkpoint(path)
    assert checkpoint.config.layers[0].inner_norm and checkpoint.config.activation_quant == "int8"
    ids = [2, 11, 12, 13, 14, 15, 6, 7, 8, 9, 11, 12]
    arrays = {}
    for name, tensor in checkpoint.tensors.items():
        if tensor.type == "I2_S":
            codes = np.frombuffer(tensor.data[:-32], np.uint8).reshape(-1, 32)
            weights = np.stack([codes >> shift & 3 for shift in (6, 4, 2, 0)], 1).reshape(tensor.shape)
            arrays[name] = (weights.astype(np.float64) - 1) * 0.5
        else:
            arrays[name] = np.frombuffer(tensor.data, np.float16 if tensor.type == "F16" else np.float32).reshape(
                tensor.shape)
    expected = family.Model(checkpoint.config, arrays, "int8").hidden(ids)[-1]
    expected /= np.linalg.norm(expected)
    got = np.array(Embedder(checkpoint).of_tokens(ids))
    assert got @ expected > 0.9999
    result = CliRunner().invoke(cli, ["embed", "-m", str(path), "a b"])
    assert result.exit_code == 0, result.output
