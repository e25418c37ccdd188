"""Hybrid models (Qwen3.5, Bonsai 2): gated delta layers, gated attention and rotated bases, against transformers.

The vectors are made by tests/vectors/make_models.py from the models of tests/oracles/tiny.py.
"""

from __future__ import annotations

import array
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.config import ModelConfig
from edge.errors import InvalidFile, UsageError
from edge.formats import basis, open_checkpoint
from edge.formats.container import Header, read_header
from edge.model.weights import build
from edge.tools.convert import convert
from pyx.kv import KVCache
from pyx.step import Segment, Transformer
from tests.formats.test_family_oracles import ENCODERS, GGUF_NAMES, whole_keys, with_floats
from tests.handmade import ARR, BOOL, F32, I32, STR, U32, gguf, hf_directory, hf_floats, value
from tests.oracles import hybrid, tiny
from tests.streams import run
from tests.vectors.stored import read


@pytest.mark.parametrize("name", tiny.HYBRIDS)
def test_the_oracle_says_what_transformers_says(name: str) -> None:
    """The formulas in float64 against float32 in chunks of 64: layer by layer, and every choice of 200."""
    model = tiny.HYBRIDS[name]
    oracle = hybrid.Model(model.config, tiny.weights(model))
    stored = read("families", name)
    place, logits, greedy = vectors(name)
    delta, attention = stored["delta"], stored["attention"]
    got, added = oracle.run(greedy[:-1])
    assert np.abs(added[0][place] - delta).max() <= 1e-5 * np.ptp(delta)
    assert np.abs(added[3][place] - attention).max() <= 1e-5 * np.ptp(attention)
    assert np.abs(got[place] - logits).max() <= 1e-5 * np.ptp(logits)
    assert got[len(tiny.LONG) - 1 :].argmax(1).tolist() == greedy[len(tiny.LONG) :] and len(greedy) == 270


def test_a_rotated_basis_is_its_own_way_back() -> None:
    """W' H s x is (W' H s) x; an embedding row z stands for s H z, and the head of the same rows takes H s x."""
    model = tiny.HYBRIDS["bonsai2"]
    name = "model.layers.0.mlp.down_proj.weight"
    codes, scales = tiny.codes_and_scales(model, name)
    stored = codes * np.repeat(scales.astype(np.float64), 128, 1)
    x = np.random.RandomState(0).randn(512)
    turned = ((tiny.signs(512) * x).reshape(-1, 128) @ tiny.transform(128)).ravel()
    assert np.abs(stored @ turned - tiny.weights(model)[name] @ x).max() <= 1e-5
    assert np.abs(tiny.transform(128) @ tiny.transform(128) - np.eye(128)).max() <= 1e-12


# ---- keys of rotated bases -------------------------------------------------------------------------------------------

PLUS_MINUS = [1, -1] * 16
WEIGHT = "blk.0.ffn_down.weight"


def rotated_header(
    path: Path, keys: dict[str, bytes | None] | None = None, tensors: tuple[str, ...] = (WEIGHT,), width: int = 32
) -> Header:
    """A header with the keys of a rotated basis; ``keys`` replace, add or (None) remove some."""
    usual = {
        "version": value(U32, 1), "block_size": value(U32, 16), "axis": value(STR, "input-last-dimension"),
        "transform": value(STR, "normalized-sylvester-walsh-hadamard"), "sign_mode": value(STR, "identity"),
        "weight_names": value(ARR, (STR, [WEIGHT])),
    }
    given = {name: content for name, content in (usual | (keys or {})).items() if content is not None}
    data = [(name, (width, 2), 1, bytes(4 * width)) for name in (*tensors, "token_embd.weight")]
    path = path / "m.gguf"
    path.write_bytes(gguf([(f"prism.hadamard.{name}", content) for name, content in given.items()], data))
    return read_header(path)


def strings(*values: str) -> bytes:
    return value(ARR, (STR, values))


EXPLICIT = {"sign_mode": value(STR, "explicit"), "sign_widths": value(ARR, (I32, [32])),
            "sign_values": value(ARR, (I32, PLUS_MINUS))}
TIED = {"version": value(U32, 2), "tied_output": value(BOOL, 1), "inverse_weight_names": strings("token_embd.weight")}


@pytest.mark.parametrize(("keys", "signs"), [
    ({}, None),
    ({"sign_widths": value(ARR, (I32, [3]))}, None),  # identity: they mean nothing
    ({"tied_output": value(BOOL, 0)}, None),
    (EXPLICIT, PLUS_MINUS),
    (EXPLICIT | {"sign_values": value(ARR, (U32, [sign % (1 << 32) for sign in PLUS_MINUS]))}, PLUS_MINUS),
    (EXPLICIT | {"sign_widths": value(ARR, (I32, [16, 32])),
                 "sign_values": value(ARR, (I32, [1] * 16 + PLUS_MINUS))}, PLUS_MINUS),
    (TIED, None),
])
def test_rotated_bases_are_read(tmp_path: Path, keys: dict[str, bytes | None], signs: list[int] | None) -> None:
    bases, grouped = basis.read(rotated_header(tmp_path, keys))
    assert set(bases) == {WEIGHT} | ({"token_embd.weight"} if keys is TIED else set()) and not grouped
    got = bases[WEIGHT]
    assert got.block == 16 and (got.signs is None) == (signs is None)
    assert signs is None or [1 if sign == 1 else -1 for sign in got.signs or ()] == signs


@pytest.mark.parametrize(("keys", "word"), [
    ({"version": value(U32, 3)}, "version"), ({"version": None}, "version"), ({"version": value(STR, "1")}, "version"),
    *(({"block_size": value(U32, size)}, "block_size") for size in (0, 1, 8, 12, 24, 1 << 31)),
    ({"block_size": None}, "block_size"), ({"block_size": value(U32, 64)}, "rows of 32"),
    ({"transform": value(STR, "sylvester")}, "transform"), ({"transform": None}, "transform"),
    ({"transform": value(U32, 1)}, "transform"), ({"axis": value(STR, "output")}, "axis"),
    ({"sign_mode": value(STR, "random")}, "sign_mode"), ({"sign_mode": None}, "sign_mode"),
    ({"weight_names": None}, "weight_names"), ({"weight_names": strings()}, "weight_names"),
    ({"weight_names": value(ARR, (I32, [1]))}, "weight_names"), ({"weight_names": strings(WEIGHT, WEIGHT)}, "twice"),
    ({"weight_names": strings("token_embd.weight")}, "where it cannot be"),
    ({"weight_names": strings("blk.0.gone.weight")}, "not a matrix"),
    ({"inverse_weight_names": strings(WEIGHT)}, "inverse_weight_names"),
    ({"inverse_weight_names": strings("token_embd.weight")}, "tied_output"),
    ({"gdn_v_rotated": value(BOOL, 1)}, "gdn_v_rotated"),
    (EXPLICIT | {"sign_widths": None}, "sign_values"), (EXPLICIT | {"sign_values": None}, "sign_values"),
    *((EXPLICIT | {"sign_widths": value(ARR, (I32, widths))}, "sign_widths")
      for widths in ([6], [0], [-32], [32, 32], [1 << 30, 16 + (1 << 30)][:1] * 2)),
    (EXPLICIT | {"sign_widths": value(ARR, (I32, [1 << 30]))}, "sign_values"),
    (EXPLICIT | {"sign_widths": value(ARR, (I32, [16])), "sign_values": value(ARR, (I32, [1] * 16))}, "no signs"),
    (EXPLICIT | {"sign_values": value(ARR, (I32, [2, *PLUS_MINUS[1:]]))}, "other numbers"),
    (EXPLICIT | {"sign_values": value(ARR, (I32, PLUS_MINUS[1:]))}, "sign_values"),
    (EXPLICIT | {"sign_values": value(ARR, (I32, [*PLUS_MINUS, 1]))}, "sign_values"),
    (TIED | {"tied_output": None}, "tied_output"), (TIED | {"inverse_weight_names": None}, "tied_output"),
])
def test_keys_of_rotated_bases_that_refuse_the_file(
    tmp_path: Path, keys: dict[str, bytes | None], word: str
) -> None:
    with pytest.raises(InvalidFile) as refused:
        basis.read(rotated_header(tmp_path, keys))
    assert word in str(refused.value) and "\n" not in str(refused.value)


def test_matrices_with_the_same_input_have_the_same_basis(tmp_path: Path) -> None:
    names = ("blk.0.attn_qkv.weight", "blk.0.attn_gate.weight")
    keys: dict[str, bytes | None] = {"weight_names": strings(names[0])}
    with pytest.raises(InvalidFile, match="attn_gate"):
        basis.read(rotated_header(tmp_path, keys, names))
    assert set(basis.read(rotated_header(tmp_path, {"weight_names": strings(*names)}, names))[0]) == set(names)
    with pytest.raises(InvalidFile, match="tied_output"):  # there is a head
        basis.read(rotated_header(tmp_path, TIED, (WEIGHT, "output.weight")))


# ---- files -----------------------------------------------------------------------------------------------------------

NAMES = GGUF_NAMES | {
    "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
}


def gguf_name(key: str) -> str:
    if not key.startswith("model.layers."):
        return {"model.e": "token_embd", "model.n": "output_norm", "lm_head": "output"}[key[:7]] + ".weight"
    _, _, index, rest = key.split(".", 3)
    whole = {"linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.A_log": "ssm_a"}
    return f"blk.{index}.{whole.get(rest) or NAMES[rest.removesuffix('.weight')] + '.weight'}"


def tiled(c: dict[str, Any], name: str, x: np.ndarray) -> np.ndarray:
    """Value heads as GGUF orders them: number r of key head k at r * n_k + k instead of k * rep + r; over rows, or over
    the columns of out_proj.
    """
    n_k, n_v, dv = c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_value_head_dim"]
    order = np.arange(n_v).reshape(n_k, n_v // n_k).T.ravel()
    if "out_proj" in name:
        return x.reshape(len(x), n_v, -1)[:, order].reshape(x.shape)
    n_qk = 2 * n_k * c["linear_key_head_dim"] if "in_proj_qkv" in name or "conv1d" in name else 0
    rows = dv if len(x) > n_v else 1
    last = x[n_qk:].reshape(n_v, rows, -1)[order].reshape(x[n_qk:].shape)
    return np.concatenate([x[:n_qk], last])


def hybrid_file(path: Path, name: str, form: str = "PQ2_0", keys: dict[str, bytes | None] | None = None,
                more: tuple[Any, ...] = (), grouped: bool = True) -> str:
    """The tiny model as a GGUF file, as others publish them; bonsai2 in its rotated basis, with ``grouped`` columns of
    ssm_out."""
    model, c = tiny.HYBRIDS[name], tiny.HYBRIDS[name].config
    metadata: dict[str, bytes | None] = {
        "general.architecture": value(STR, "qwen35"), **whole_keys("qwen35", c),
        "qwen35.context_length": value(U32, 512), "qwen35.block_count": value(U32, 4),
        "qwen35.attention.layer_norm_rms_epsilon": value(F32, 1e-6), "qwen35.rope.freq_base": value(F32, 1e7),
        "qwen35.rope.dimension_count": value(U32, 32),
        "qwen35.rope.dimension_sections": value(ARR, (I32, [6, 5, 5, 0])),
        "qwen35.full_attention_interval": value(U32, 4), "qwen35.ssm.inner_size": value(U32, 768),
        "tokenizer.ggml.model": value(STR, "no_vocab"), "general.alignment": value(U32, 64),
    }
    tensors, rotated = [], []
    for key, values in tiny.weights(model).items():
        target = gguf_name(key)
        of_delta = "linear_attn" in key and "linear_attn.norm" not in key
        if tiny.is_ternary(model, key):
            codes, scales = tiny.codes_and_scales(model, key)
            rotated += [target] if target != "token_embd.weight" else []
            if of_delta and not ("out_proj" in key and grouped and model.basis):
                codes, scales = tiled(c, key, codes), tiled(c, key, scales)
            number, encode = ENCODERS[form]
            tensors.append((target, codes.shape[::-1], number, encode(codes, scales)))
            continue
        if "conv1d" in key:
            values = values[:, 0]
        if of_delta:
            values = tiled(c, key, values)
        if key.endswith("A_log"):
            values = -np.exp(values)
        if values.ndim == 1 and "linear_attn" not in key:
            values = values + 1
        half = values.ndim == 2 and "conv1d" not in key
        tensors.append((target, values.shape[::-1], 1 if half else 0,
                        values.astype("<f2" if half else "<f4").tobytes()))
    if model.basis:
        widths = (256, 768, 512)
        signs = [int(sign) for width in widths for sign in tiny.signs(width)]
        if not grouped:
            signs[256:1024] = tiled(c, "out_proj", np.array([signs[256:1024]]))[0].tolist()
        metadata |= {
            f"prism.hadamard.{key}": content for key, content in {
                "version": value(U32, 2), "tied_output": value(BOOL, 1), "block_size": value(U32, model.basis),
                "transform": value(STR, "normalized-sylvester-walsh-hadamard"),
                "axis": value(STR, "input-last-dimension"), "sign_mode": value(STR, "explicit"),
                "sign_widths": value(ARR, (I32, widths)), "sign_values": value(ARR, (I32, signs)),
                "weight_names": strings(*rotated), "inverse_weight_names": strings("token_embd.weight"),
                "gdn_v_grouped": value(BOOL, grouped),
            }.items()
        }
    given = [(key, content) for key, content in (metadata | (keys or {})).items() if content is not None]
    target = path / f"{name}.gguf"
    target.write_bytes(gguf(given, [*tensors, *more], alignment=64))
    return str(target)


BITNET = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"}


def hybrid_folder(path: Path, name: str | tiny.Tiny, nested: bool = False) -> str:
    """The tiny model as a Hugging Face folder; nested: as that of a model that also sees."""
    model = tiny.HYBRIDS[name] if isinstance(name, str) else name
    config = {**model.config, "architectures": [model.architecture]}
    if model.quantization:
        config["quantization_config"] = model.quantization
    tensors = hf_floats(tiny.weights(model), "F16")
    if nested:
        config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
                  "tie_word_embeddings": model.config["tie_word_embeddings"], "text_config": model.config}
        tensors = {re.sub("^model", "model.language_model", key): tensor for key, tensor in tensors.items()}
        for extra in ("model.visual.patch_embed.proj.weight", "mtp.layers.0.mlp.up_proj.weight"):
            tensors[extra] = ("F32", (4, 4), bytes(64))
    return hf_directory(path, config, tensors)


def cache(config: ModelConfig, n_ctx: int = 512, kv_type: str = "f32", **plan: Any) -> KVCache:
    return KVCache(*config.kv_shape, n_ctx, kv_type, recurrent=config.recurrent_shape, snapshots=4, **plan)


def vectors(name: str) -> tuple[np.ndarray, np.ndarray, list[int]]:
    stored = read("families", name)
    return stored["place"], stored["logits"], stored["greedy"].tolist()


FORMS = [("qwen35", "PQ2_0"), ("qwen35", "Q2_0 of 64"), ("qwen35", "PQ2_0_R64"), ("qwen35", "F16"),
         ("bonsai2", "PQ2_0"), ("bonsai2", "PQ2_0_R64")]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_float_activations_give_what_transformers_gives(tmp_path: Path, name: str, form: str) -> None:
    """And every one of 200 choices, token by token."""
    place, expected, greedy = vectors(name)
    checkpoint = with_floats(open_checkpoint(hybrid_file(tmp_path, name, form)))
    c, model = checkpoint.config, build(checkpoint, head="f32")
    kv = cache(c)
    got = run(model, kv, tiny.LONG, 64)
    assert np.abs(got[place] - expected).max() <= 1e-4 * np.ptp(expected)
    n = len(tiny.LONG)
    assert got[-1].argmax() == greedy[n] and run(model, kv, greedy[n:-1], 1).argmax(1).tolist() == greedy[n + 1 :]


def test_rounded_activations_are_those_of_the_oracle(tmp_path: Path) -> None:
    """NumPy with int8 per 128 values: the first tokens to the last digits, until a value at the edge of rounding tips
    over; those behind it see that."""
    model = tiny.HYBRIDS["qwen35"]
    expected, _ = hybrid.Model(model.config, tiny.weights(model), "int8-128").run(tiny.LONG)
    checkpoint = open_checkpoint(hybrid_file(tmp_path, "qwen35"))
    assert checkpoint.config.activation_quant == "int8-128"
    got = run(build(checkpoint, head="f32"), cache(checkpoint.config), tiny.LONG)
    off = np.abs(got - expected).max(1) / np.ptp(expected)
    print("against oracle", off)
    assert off[:2].max() <= 1e-5 and np.median(off) <= 1.5e-2


@pytest.mark.parametrize("name", tiny.HYBRIDS)
def test_rounded_activations_stay_near(tmp_path: Path, name: str) -> None:
    """The cost of int8 on random weights, whose choices are close: the last digit of a state is felt long after."""
    _, _, greedy = vectors(name)
    path = hybrid_file(tmp_path, name)
    exact, rounded = (run(build(each, head="f32"), cache(each.config), greedy)
                      for each in (with_floats(open_checkpoint(path)), open_checkpoint(path)))
    range_ = np.ptp(exact)
    two = np.sort(exact, 1)[:, -2:]
    same = exact.argmax(1) == rounded.argmax(1)
    clear = two[:, 1] - two[:, 0] >= 4e-2 * range_
    print(name, np.sqrt(((exact - rounded) ** 2).mean()) / range_, same.mean(), same[clear].mean(), clear.sum())
    assert np.sqrt(((exact - rounded) ** 2).mean()) <= 1.5e-2 * range_
    assert same.mean() >= 0.85 and same[clear].mean() >= 0.99 and clear.sum() >= 50


@pytest.mark.parametrize("nested", [False, True])
def test_a_hugging_face_folder_is_the_same_model(tmp_path: Path, nested: bool) -> None:
    place, expected, _ = vectors("qwen35")
    checkpoint = with_floats(open_checkpoint(hybrid_folder(tmp_path / "m", "qwen35", nested)))
    got = run(build(checkpoint, head="f32"), cache(checkpoint.config), tiny.LONG)
    assert np.abs(got[place] - expected).max() <= 1e-4 * np.ptp(expected)
    assert len(checkpoint.notes) == (3 if nested else 1)  # vision, further tokens; no tokenizer


# ---- the same bits in any batch ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelConfig, str]:
    path = hybrid_file(tmp_path_factory.mktemp("hybrid"), "bonsai2", "PQ2_0_R64")
    return open_checkpoint(path).config, path


def built(path: str, n_threads: int = 1) -> Transformer:
    return build(open_checkpoint(path), n_threads, head="f32")


TEXT = [1, *np.random.RandomState(7).randint(3, 320, 149).tolist()]


@pytest.mark.parametrize("steps", [(1,), (7,), (32,), (31, 2, 64), (128,), (33, 1)])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_same_bits_in_steps_of_any_length(
    model: tuple[ModelConfig, str], steps: tuple[int, ...], n_threads: int
) -> None:
    config, path = model
    expected = run(built(path), cache(config, kv_type="int8"), TEXT, 64)
    got = run(built(path, n_threads), cache(config, kv_type="int8"), TEXT, *steps)
    assert (got.view(np.int32) == expected.view(np.int32)).all()


def test_the_same_bits_in_a_batch(model: tuple[ModelConfig, str]) -> None:
    """Four texts in one step, at different places of their chunks."""
    config, path = model
    engine, texts = built(path, 2), [TEXT[i * 9 : i * 9 + 60 + 17 * i] for i in range(4)]
    alone = [run(engine, cache(config), text, 50)[-1] for text in texts]
    caches, rows = [cache(config) for _ in texts], [np.zeros(config.n_vocab, np.float32) for _ in texts]
    for kv, text in zip(caches, texts, strict=True):
        run(engine, kv, text[:-20], 13)
    for at in range(20):
        engine.step([Segment(kv, array.array("i", [text[len(text) - 20 + at]]), row)
                     for kv, text, row in zip(caches, texts, rows, strict=True)])
    assert all((row.view(np.int32) == one.view(np.int32)).all() for row, one in zip(rows, alone, strict=True))


@pytest.mark.parametrize("kv_type", ["f16", "int8"])
def test_going_back(model: tuple[ModelConfig, str], kv_type: str) -> None:
    """To any place of the open chunk, else to a snapshot; what is read again gives the same bits."""
    config, path = model
    engine = built(path)
    expected = run(engine, cache(config, kv_type=kv_type), TEXT, 64)
    kv = cache(config, kv_type=kv_type)
    run(engine, kv, TEXT[:40], 40)
    kv.mark()
    run(engine, kv, TEXT[40:150], 32)
    assert [base for base, _ in kv.states] == [32, 96, 128]
    for n in (149, 141, 140, 129, 128, 127, 100, 96, 95, 70, 32, 31, 0):
        kept = kv.crop(n)
        assert kept == kv.n_tokens <= n
        if n >= 32:
            assert n - kept < 64  # of the text, at most two chunks
        if n >= 128 and kv_type == "f16":
            assert kept == n
        got = run(engine, kv, TEXT[kept:n], 5) if kept < n else np.zeros((0, 320), np.float32)
        assert (got.view(np.int32) == expected[kept:n].view(np.int32)).all()
    assert kv.states == [] and (run(engine, kv, TEXT, 50).view(np.int32) == expected.view(np.int32)).all()


def test_snapshots_have_a_limit(model: tuple[ModelConfig, str]) -> None:
    config, path = model
    engine, kv = built(path), cache(config)
    long = TEXT * 3
    for at in range(0, 450, 45):
        run(engine, kv, long[at : at + 45], 45)
        kv.mark()
    bases = [base for base, _ in kv.states]
    assert len(bases) == 6 and bases[0] == 32 and bases == sorted(bases) and bases[-1] == 448 - 32 * (450 % 32 == 0)


def test_forks_and_files(model: tuple[ModelConfig, str]) -> None:
    config, path = model
    engine, kv = built(path), cache(config, kv_type="int8")
    expected = run(engine, cache(config, kv_type="int8"), TEXT, 64)
    run(engine, kv, TEXT[:75], 75)
    kv.mark()
    other, counters, states = kv.fork(), kv.counters, kv.states
    run(engine, kv, TEXT[3:100], 30)  # a different text: the fork does not see it
    got = run(engine, other, TEXT[75:], 40)
    assert (got.view(np.int32) == expected[75:].view(np.int32)).all()
    other.crop(75)
    if other.n_tokens < 75:
        run(engine, other, TEXT[other.n_tokens : 75], 64)
    saved = b"".join(bytes(piece) for piece in other.dump())
    counters, states = other.counters, other.states
    again = cache(config, kv_type="int8")
    assert len(saved) == again.dump_bytes(*counters, states)
    stream = io.BytesIO(saved)
    again.restore(*counters, lambda view: stream.readinto(view), states)
    assert again.states == states and again.counters == counters
    assert (run(engine, again, TEXT[75:], 9).view(np.int32) == expected[75:].view(np.int32)).all()
    for wrong in ([], states[:-1], [[31, False]], [[64, False], [64, True]], [[96, False]], [[0, False]] * 9):
        with pytest.raises(ValueError, match="states"):
            cache(config, kv_type="int8").dump_bytes(*counters, wrong)


# ---- other files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", tiny.HYBRIDS)
def test_conversion_keeps_the_model(tmp_path: Path, name: str) -> None:
    """Panels, and the keys of the basis: the same bits."""
    path = hybrid_file(tmp_path, name, keys={"qwen35.hidden_activation": value(STR, "silu")})
    convert(path, tmp_path / "c.gguf")
    one, two = open_checkpoint(path), open_checkpoint(tmp_path / "c.gguf")
    assert two.tensors["blk.0.attn_qkv.weight"].type == "PQ2_0_R64"
    assert two.tensors["blk.0.ssm_alpha.weight"].type == "F32"
    assert (two.tensors["blk.0.ssm_out.weight"].basis is not None) == (name == "bonsai2") == two.config.rotated
    logits = [run(build(each), cache(each.config), tiny.LONG[:40]) for each in (one, two)]
    assert (logits[0].view(np.int32) == logits[1].view(np.int32)).all()


def test_folders_become_files_of_the_usual_order(tmp_path: Path) -> None:
    """Hugging Face has the value heads of a key head together, GGUF has not: what transformers says, from a file that
    is the one others publish, tensor by tensor."""
    place, expected, _ = vectors("qwen35")
    folder, path = hybrid_folder(tmp_path / "m", "qwen35"), tmp_path / "c.gguf"
    convert(folder, path)
    checkpoint = with_floats(open_checkpoint(path))
    assert checkpoint.config.recurrent[0].tiled and checkpoint.config.recurrent[0].n_v_head == 6
    got = run(build(checkpoint, head="f32"), cache(checkpoint.config), tiny.LONG)
    assert np.abs(got[place] - expected).max() <= 1e-4 * np.ptp(expected)
    published = open_checkpoint(hybrid_file(tmp_path, "qwen35", "PQ2_0_R64")).tensors
    for name, tensor in open_checkpoint(path).tensors.items():
        other = published[name]
        if tensor.type == other.type and not name.endswith("ssm_a"):  # whose exponential is rounded elsewhere
            assert bytes(tensor.data) == bytes(other.data), name


@pytest.mark.parametrize("type_", ["I2_S", "TQ2_0"])
def test_folders_with_a_scale_for_each_matrix(tmp_path: Path, type_: str) -> None:
    """Trained with activations rounded by token: sums of integers, so the same bits in any order of heads."""
    model = dataclasses.replace(tiny.HYBRIDS["qwen35"], group=0, ternary_table=False, quantization=BITNET)
    folder = hybrid_folder(tmp_path / "m", model)
    convert(folder, tmp_path / "c.gguf", type_, "F32")
    one, two = (open_checkpoint(each) for each in (folder, tmp_path / "c.gguf"))
    assert two.tensors["blk.0.ssm_out.weight"].type == type_ and one.config.activation_quant == "int8"
    logits = [run(build(each, head="f32"), cache(each.config), tiny.LONG) for each in (one, two)]
    assert (logits[0].view(np.int32) == logits[1].view(np.int32)).all()


def test_heads_that_are_narrower_than_a_scale(tmp_path: Path) -> None:
    model = tiny.HYBRIDS["qwen35"]
    narrow = dataclasses.replace(model, config={**model.config, "linear_value_head_dim": 64})
    with pytest.raises(UsageError, match=r"ssm_out\.weight has scales for more weights than a value head") as refused:
        convert(hybrid_folder(tmp_path / "m", narrow), tmp_path / "c.gguf")
    assert "\n" not in str(refused.value)


def test_columns_in_the_usual_order(tmp_path: Path) -> None:
    """A rotated basis without gdn_v_grouped: columns and signs of ssm_out are those of tiled heads."""
    place, expected, _ = vectors("bonsai2")
    assert open_checkpoint(hybrid_file(tmp_path, "bonsai2")).config.recurrent[0].grouped_out
    usual = with_floats(open_checkpoint(hybrid_file(tmp_path, "bonsai2", grouped=False)))
    assert not usual.config.recurrent[0].grouped_out
    got = run(build(usual, head="f32"), cache(usual.config), tiny.LONG)
    assert np.abs(got[place] - expected).max() <= 1e-4 * np.ptp(expected)


def test_parts_that_do_not_read_text_are_skipped(tmp_path: Path) -> None:
    extra = [("v.blk.0.attn_q.weight", (32, 4), 1, bytes(256)), ("mm.0.weight", (32, 4), 1, bytes(256)),
             ("blk.4.nextn.eh_proj.weight", (32, 4), 1, bytes(256)), ("blk.4.attn_norm.weight", (256,), 0, bytes(1024))]
    keys = {"qwen35.block_count": value(U32, 5), "qwen35.nextn_predict_layers": value(U32, 1)}
    path = hybrid_file(tmp_path, "qwen35", keys=keys, more=tuple(extra))
    checkpoint = open_checkpoint(path)
    assert checkpoint.config.n_layer == 4
    assert not any(name.startswith(("v.", "mm.", "blk.4")) for name in checkpoint.tensors)
    assert [note for note in checkpoint.notes if "not used" in note] == [
        "its vision part is not used", "the layers that predict further tokens are not used"]
    place, expected, _ = vectors("qwen35")
    exact = with_floats(checkpoint)
    got = run(build(exact, head="f32"), cache(exact.config), tiny.LONG)
    assert np.abs(got[place] - expected).max() <= 1e-4 * np.ptp(expected)


@pytest.mark.parametrize(("key", "content"), [
    *((f"ssm.{name}", None) for name in ("conv_kernel", "state_size", "group_count", "time_step_rank", "inner_size")),
    ("ssm.conv_kernel", 3), ("ssm.conv_kernel", 1 << 31), ("ssm.state_size", 0), ("ssm.state_size", 63),
    ("ssm.state_size", 512), ("ssm.state_size", (1 << 32) - 1), ("ssm.group_count", 0), ("ssm.group_count", 4),
    ("ssm.group_count", 1 << 31), ("ssm.time_step_rank", 0), ("ssm.time_step_rank", 7), ("ssm.time_step_rank", 768),
    ("ssm.inner_size", 0), ("ssm.inner_size", 767), ("ssm.inner_size", 1 << 30), ("full_attention_interval", 0),
    ("full_attention_interval", 5), ("full_attention_interval", 1), ("block_count", 3), ("block_count", 1 << 31),
    ("nextn_predict_layers", 4), ("nextn_predict_layers", 1 << 31), ("rope.dimension_count", 130),
    ("attention.key_length", 64),
])
def test_hostile_keys(tmp_path: Path, key: str, content: int | None) -> None:
    """One line, before anything is allocated."""
    keys = {f"qwen35.{key}": None if content is None else value(U32, content)}
    with pytest.raises(InvalidFile) as refused:
        open_checkpoint(hybrid_file(tmp_path, "qwen35", keys=keys))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("change", "words"), [
    ({"layer_types": ["linear_attention"] * 4}, "no layer has attention"), ({"layer_types": [1, 2]}, "layer_types"),
    ({"layer_types": ["full_attention"]}, "layer_types"), ({"linear_conv_kernel_dim": 5}, "linear_conv_kernel_dim"),
    ({"linear_num_key_heads": 0}, "n_k_head"), ({"linear_num_value_heads": 1 << 40}, "n_v_head"),
    ({"linear_key_head_dim": 40}, "multiples of 16"), ({"linear_value_head_dim": "64"}, "linear_value_head_dim"),
    ({"text_config": []}, "text_config"),
])
def test_hostile_folders(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    folder = Path(hybrid_folder(tmp_path / "m", "qwen35"))
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidFile, match=words) as refused:
        open_checkpoint(str(folder))
    assert "\n" not in str(refused.value)
