"""Files that open here and would give wrong answers: each mislabelled on purpose, made from the bundled model."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import make_model
from edge.cli.group import cli
from edge.errors import InvalidFile
from edge.formats import container, open_checkpoint
from edge.formats.container import Entry, write
from edge.loading import load
from edge.model import interpretation, weights
from edge.prompt.tokenizer import Tokenizer
from edge.sampling import Sampling
from tests import handmade
from tests.configs import activation
from tests.handmade import ARR, BOOL, F32, I32, U32, hf_config, hf_directory, hf_tensors, model_file, value
from tests.oracles.attention import log_softmax
from tests.oracles.forward import Model

#: what the bundled model was trained on is another kind of text than anybody's; it says this well
KIOSK = "User: Two cappuccinos and a croissant, please.\nAssistant: Two cappuccinos and a croissant."


def as_layout_64(data: memoryview) -> bytes:
    """I2_S codes of layout 128 as an ARM build of bitnet.cpp arranges them: blocks of 64, 16 bytes each."""
    raw = np.frombuffer(data, np.uint8)
    packed, tail = raw[:-32].reshape(-1, 1, 32), raw[-32:]
    codes = (packed >> np.array([6, 4, 2, 0], np.uint8)[:, None] & 3).reshape(-1, 4, 16)  # 64 codes: 4 x 16
    joined = codes[:, 0] << 6 | codes[:, 1] << 4 | codes[:, 2] << 2 | codes[:, 3]
    return joined.astype(np.uint8).tobytes() + tail.tobytes()


def inverted(data: memoryview) -> bytes:
    """The same codes with the reciprocal of their scale."""
    raw = bytearray(data)
    (scale,) = struct.unpack_from("<f", raw, len(raw) - 32)
    struct.pack_into("<f", raw, len(raw) - 32, 1 / scale)
    return bytes(raw)


def mislabelled(source: Path, target: Path, change: Any = None, **keys: Any) -> str:
    """The bundled model without our own keys, its I2_S tensors changed; ``keys`` (None: none) of the architecture."""
    header = container.read_header(source)
    arch = "bitnet-b1.58"
    metadata = {key: content for key, content in header.metadata.items()
                if not key.startswith("bitnet_edge.") and key != f"{arch}.hidden_activation"}
    label = keys.pop("label", arch)
    metadata |= {f"{arch}.{key}": content for key, content in keys.items()}
    metadata = {key.replace(f"{arch}.", f"{label}."): content for key, content in metadata.items()}
    metadata["general.architecture"] = label
    entries = []
    for info in header.tensors.values():
        data = header.view[info.offset : info.offset + (info.nbytes or 0)]
        data = change(data) if change and info.type == "I2_S" else data
        entries.append(Entry(info.name, info.type, info.shape, data))
    write(target, metadata, entries)
    return str(target)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BITNET_EDGE_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_text_is_scored_as_numpy_says(bundled_model: Path) -> None:
    c = open_checkpoint(bundled_model)
    ids = interpretation.tokens(c, KIOSK)
    assert ids == [c.tokenizer.bos_id, *Tokenizer.build(c.tokenizer).encode(KIOSK)]
    logits = log_softmax(Model(c).logits(ids))
    expected = -np.mean([logits[i, token] for i, token in enumerate(ids[1:])])
    assert interpretation.score(c, ids) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("change", "keys", "taken", "words"),
    [
        (None, {}, {"i2s_layout": "128", "activation": "relu2"}, None),
        # W2: converted on an ARM board
        (as_layout_64, {}, {"i2s_layout": "64", "activation": "relu2"}, "layout 64"),
        # W8: converted from a model whose scales divide
        (inverted, {}, {"i2s_layout": "128", "inverted": True, "activation": "relu2"}, "scales inverted"),
        # W1 where grouped-query attention does not give it away, and W7
        (None, {"label": "bitnet"}, {"i2s_layout": "128", "activation": "relu2"}, None),
    ],
    ids=["as it should be", "layout 64", "inverted", "label bitnet"],
)
def test_the_reading_that_predicts_is_taken(
    bundled_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_state: Path, change: Any,
    keys: dict[str, Any], taken: dict[str, Any], words: str | None,
) -> None:
    path = mislabelled(bundled_model, tmp_path / "m.gguf", change, **keys)
    checkpoint = open_checkpoint(path)
    assert set(checkpoint.open) == set(taken)
    found = interpretation.interpretations(checkpoint, every=True)
    assert len(found) == 2 ** len(taken) and dict(interpretation.winner(checkpoint, found).options) == taken

    settled = interpretation.interpreted(checkpoint)
    told = [note for note in settled.notes if "nats per token" in note]
    assert (words is None) == (not told) and (words is None or words in told[0])
    assert activation(settled.config) == "relu2"
    # the second opening looks at nothing, and finds the same
    monkeypatch.setattr(interpretation, "score", lambda *_, **__: pytest.fail("scored twice"))
    again = interpretation.interpreted(open_checkpoint(path))
    assert again.notes == settled.notes and len(list((own_state / "readings").iterdir())) == 1
    # what was kept is not believed when it makes no sense
    (kept,) = (own_state / "readings").iterdir()
    for nonsense in ("", "[]", '{"options": {"i2s_layout": "9"}, "note": "x"}', '{"options": 1, "note": "x"}',
                     '{"options": {"model": "x"}, "note": "x"}', '{"options": {}, "note": "\\u001b[2J"}'):
        kept.write_text(nonsense)
        assert interpretation.remembered(str(kept), checkpoint) is None


def test_a_first_opening_reads_a_few_tokens_with_one_head(
    bundled_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is what it says costs one reading of the beginning; no reading makes a head of its own."""
    made: list[int] = []
    build, score = weights.output_head, interpretation.score
    monkeypatch.setattr(weights, "output_head", lambda *given: made.append(1) or build(*given))
    seen: list[tuple[int, float]] = []

    def counted(checkpoint: Any, ids: list[int], n_threads: int, head: Any) -> float:
        seen.append((len(ids), score(checkpoint, ids, n_threads, head)))
        return seen[-1][1]

    monkeypatch.setattr(interpretation, "score", counted)
    steps: list[tuple[float, float]] = []
    path = mislabelled(bundled_model, tmp_path / "m.gguf", as_layout_64)
    with load(path, ctx=256, threads=1, progress=lambda done, total: steps.append((done, total))):
        assert len(made) == 1
    few, more = interpretation.FIRST, interpretation.BEGINNING  # the other two predict nothing from the first word
    assert [most for most, _ in seen] == [more, few, few, more, few, more]
    assert len(steps) >= 7 and steps == sorted(steps), "progress for each reading"
    # the usual reading predicts: no other is tried, and none after one that does
    monkeypatch.setattr(interpretation, "FLUENT", 8.0)
    usual = open_checkpoint(mislabelled(bundled_model, tmp_path / "usual.gguf"))
    assert len(interpretation.interpretations(usual)) == 1
    assert len(interpretation.interpretations(open_checkpoint(path))) == 3
    with load(path, ctx=256, threads=1, activation="relu2") as engine:
        assert not any("nats" in note for note in engine.notes)


def test_loading_answers_as_the_good_file_does(bundled_model: Path, tmp_path: Path) -> None:
    path = mislabelled(bundled_model, tmp_path / "m.gguf", as_layout_64)
    words = []
    for each in (str(bundled_model), path):
        with load(each, ctx=256, threads=1, template="bitnet-edge") as engine:
            answer = engine.session().ask("Two coffees, please.", max_tokens=12, sampling=Sampling(temperature=0.0))
            words.append("".join(piece.text for piece in answer))
            notes = engine.notes
    assert words[0] == words[1] and any("layout 64" in note for note in notes)


def test_what_was_said_is_not_looked_for(bundled_model: Path, tmp_path: Path) -> None:
    path = mislabelled(bundled_model, tmp_path / "m.gguf")
    assert "i2s_layout" not in open_checkpoint(path, i2s_layout="128").open
    assert not open_checkpoint(path, activation="relu2").open, "who knows that knows the file"
    path = mislabelled(bundled_model, tmp_path / "m.gguf", hidden_activation="relu2")
    assert "activation" not in open_checkpoint(path).open
    assert not open_checkpoint(bundled_model).open, "a file of ours says all"


def test_a_random_model_is_left_as_it_is(tmp_path: Path, root: Path) -> None:
    """No reading predicts: none is the winner."""
    path = root / "tests" / "vectors" / "tiny_gguf" / "relu2_gqa_tied.bitnet-b1.58.i2s128.f16.gguf"
    checkpoint = open_checkpoint(path)
    assert interpretation.interpreted(checkpoint) is checkpoint


def test_show_prints_the_scores_and_check_says_whether(bundled_model: Path, tmp_path: Path) -> None:
    run = CliRunner()
    good = run.invoke(cli, ["model", "--check", str(bundled_model)])
    figures = [re.findall(r"short text with (.*) nats", run.invoke(cli, ["model", "demo", *words]).stdout)
               for words in ([], ["--check"])]
    assert figures[0] == figures[1] and len(figures[0]) == 1, "one text, one figure"
    assert good.exit_code == 0 and "sound" in good.stdout and "nats per token" in good.stdout
    bad = mislabelled(bundled_model, tmp_path / "m.gguf", as_layout_64)
    shown = run.invoke(cli, ["model", bad, "--json"])
    facts = json.loads(shown.stdout)
    assert len(facts["readings"]) == 4 and any("layout 64" in note for note in facts["notes"])
    checked = run.invoke(cli, ["model", "--check", bad])
    assert checked.exit_code == 4 and "is mislabelled: read with layout 64" in checked.stderr
    # a byte of codes that no weight has, in the middle where opening does not look
    data = bytearray(bundled_model.read_bytes())
    info = container.read_header(bundled_model).tensors["blk.3.ffn_up.weight"]
    data[info.offset + 100] = 0xFF
    (tmp_path / "d.gguf").write_bytes(data)
    assert "blk.3.ffn_up.weight holds codes" in run.invoke(cli, ["model", "--check", str(tmp_path / "d.gguf")]).stderr
    # weights of twice their scale, which the format of groups has, are no fault
    make_model.make(tmp_path / "q.gguf", "tiny-qwen3", "PQ2_0", "PQ2_0")
    data = bytearray((tmp_path / "q.gguf").read_bytes())
    info = container.read_header(tmp_path / "q.gguf").tensors["blk.1.attn_k.weight"]
    data[info.offset + 40] = 0b11011011
    (tmp_path / "q.gguf").write_bytes(data)
    assert list(interpretation.faults(open_checkpoint(tmp_path / "q.gguf"))) == []
    random = bytearray(bundled_model.read_bytes())
    info = container.read_header(bundled_model).tensors["token_embd.weight"]
    n = info.nbytes or 0
    random[info.offset : info.offset + n] = np.random.default_rng(0).standard_normal(n // 2).astype("<f2").tobytes()
    (tmp_path / "r.gguf").write_bytes(random)
    checked = run.invoke(cli, ["model", "--check", str(tmp_path / "r.gguf"), "--json"])
    assert checked.exit_code == 4 and "never a language model" in checked.stderr


# ---- W3, W6: told without a score ------------------------------------------------------------------------------


def test_w3_modules_that_are_not_converted_stay_floats(tmp_path: Path) -> None:
    from edge.model.weights import build

    excluded = ["lm_head", "model.layers.0.mlp.up_proj", "v_proj"]
    quantization: dict[str, Any] = {"quant_method": "bitnet", "modules_to_not_convert": excluded}
    folder = hf_directory(tmp_path / "m", hf_config(quantization_config=quantization), hf_tensors("latent"))
    c = open_checkpoint(folder)
    dense = {name for name, tensor in c.tensors.items() if tensor.floats == "dense"}
    assert dense == {"blk.0.ffn_up.weight", "blk.0.attn_v.weight"}
    assert [matrix.is_dense for matrix in build(c).matrices] == [False, False, True, False, False, True, False]
    quantization["modules_to_not_convert"] = [1]
    with pytest.raises(InvalidFile, match="modules_to_not_convert"):
        open_checkpoint(hf_directory(tmp_path / "m", hf_config(quantization_config=quantization)))


@pytest.mark.parametrize(
    ("key", "content", "refused"),
    [
        ("logit_scale", value(F32, 0.5), True),
        ("logit_scale", value(F32, 1.0), False),
        ("embedding_scale", value(F32, 12.0), True),
        ("residual_scale", value(F32, 0.22), True),
        ("attention.scale", value(F32, 0.2), True),
        ("attention.scale", value(F32, 0.125), False),  # 1 / sqrt(64)
        ("attn_logit_softcapping", value(F32, 50.0), True),
        ("final_logit_softcapping", value(F32, 30.0), True),
        ("expert_count", value(U32, 8), True),
        ("expert_count", value(U32, 0), False),
        ("attention.sliding_window", value(U32, 32), True),
        ("attention.sliding_window", value(U32, 64), False),  # as long as the context
        ("attention.causal", value(BOOL, 0), True),
        ("use_parallel_residual", value(BOOL, 1), True),
        ("logit_scale", value(ARR, (I32, [1])), True),
    ],
)
def test_w6_keys_that_change_the_arithmetic(tmp_path: Path, key: str, content: bytes, refused: bool) -> None:
    path = model_file(tmp_path, handmade.model("llama", keys={f"llama.{key}": content}))
    if not refused:
        assert open_checkpoint(path).notes == []
        return
    with pytest.raises(InvalidFile, match=f"llama.{key}"):
        open_checkpoint(path)
