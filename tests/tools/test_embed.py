"""Embedding models: a norm in front of each projection (SubLN), last token, length 1; against NumPy in float64."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
from array import array
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import edge
from benchmarks import make_model
from edge.cache.plan import Plan
from edge.cli.group import cli
from edge.config import ModelConfig
from edge.errors import UsageError
from edge.formats import open_checkpoint
from edge.formats.checkpoint import TokenizerSpec
from edge.model.footprint import footprint
from edge.model.weights import build
from edge.options import Options
from edge.prompt.tokenizer.steps import ALPHABET
from edge.tools.embed import KV, Embedder, cosine, npy
from pyx import machine
from pyx.kv import KVCache
from pyx.step import Head, Segment, Transformer
from pyx.weights import StoredRows
from tests.configs import held, planned, uniform
from tests.formats.test_families import IDS, made_up
from tests.oracles import family
from tests.services import bitnet_edge

#: as BitNet-embedding-0.6B: Qwen3, a norm for each projection, activations int8 per token
MADE_UP = uniform(arch="qwen3", qk_norm="before", inner_norm=True, inner_eps=1e-6)


def bytes_tokenizer() -> TokenizerSpec:
    return TokenizerSpec("bpe", tokens=list(ALPHABET), types=[1] * 256, pre="gpt-2", eos_ids=(255,), add_bos=False)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_vector_is_what_numpy_says(threads: int) -> None:
    checkpoint, arrays = made_up(MADE_UP)
    checkpoint.tokenizer = bytes_tokenizer()
    expected = family.Model(MADE_UP, arrays, "int8").hidden(IDS * 4)[-1]
    expected /= np.linalg.norm(expected)
    got = Embedder(checkpoint, Options(**KV, threads=threads)).of_tokens(IDS * 4)  # more than a step takes
    assert np.linalg.norm(got) == pytest.approx(1, abs=1e-6)
    assert cosine(got, expected.astype(np.float32)) > 0.999


@pytest.mark.parametrize("quant, scale", [("int8", 1.0), ("int8-128", 0.25)])
def test_the_vector_is_that_of_an_identity_head(quant: str, scale: float, own_isa: None) -> None:
    """The output of the last norm, bit for bit, on every instruction set and number of threads."""
    config = dataclasses.replace(MADE_UP, activation_quant=quant, logit_scale=scale)
    checkpoint, _ = made_up(config)
    checkpoint.tokenizer = bytes_tokenizer()
    n = config.hidden
    identity = Head(StoredRows("F32", np.eye(n, dtype=np.float32).tobytes(), n, n), "f32", 3)
    found = set()
    for isa in machine.supported():
        machine.use(isa)
        for threads in (1, 2, 3):
            old, new = (build(checkpoint, n_threads=threads, head=head) for head in (identity, "none"))
            for ids in (IDS[:1], IDS):
                expected, got = (vectors(model, config, ids) for model in (old, new))
                assert (expected + 0).tobytes() == (got + 0).tobytes() and got.any(axis=1).all()  # -0.0 is 0.0
            found.add(got.tobytes())
            of_text = np.array(Embedder(checkpoint, Options(**KV, threads=threads, isa=isa)).of_tokens(IDS))
            length = math.sqrt(math.fsum(float(x) ** 2 for x in got[-1]))
            assert of_text.astype(np.float32).tolist() == [np.float32(float(x) / length) for x in got[-1]]
    assert len(found) == 1


def vectors(model: Transformer, config: ModelConfig, ids: list[int]) -> np.ndarray:
    """The output of a step for each token, [n][hidden]."""
    out = np.empty(len(ids) * config.hidden, np.float32)
    cache = KVCache(*config.kv_shape, len(ids), "f16")
    model.step([Segment(cache, array("i", ids), out, all_logits=True)])
    return out.reshape(len(ids), -1)


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["I2_S", "TQ2_0", "Q2_0"])
def test_the_plan_is_what_is_taken(tmp_path: Path, kind: str, threads: int) -> None:
    path = tmp_path / "tiny.gguf"
    make_model.make(path, "tiny", kind)
    checkpoint = open_checkpoint(str(path), i2s_layout="128")
    transformer = build(checkpoint, n_threads=threads, head="none")
    expected = footprint(checkpoint, "none", n_threads=threads)
    assert planned(expected) == held(transformer)
    assert expected.head_mapped == expected.head_allocated == 0 and transformer.n_vocab == checkpoint.config.hidden
    assert expected.total < footprint(checkpoint, n_threads=threads).total


def test_the_cache_is_that_of_the_plan() -> None:
    """One cache, as long as the longest text, is used for every text."""
    checkpoint, _ = made_up(MADE_UP)
    checkpoint.tokenizer = bytes_tokenizer()
    plans: list[Plan] = []
    texts = ["a pot of tea", "tea", "a cup of coffee, please"]
    embedder = Embedder(checkpoint, texts=texts, on_plan=plans.append)
    assert plans == [embedder.plan] and embedder.n_ctx == embedder.plan.n_ctx == len(texts[2])
    shape = MADE_UP.kv_shape
    assert embedder.plan.kv_bytes == KVCache.bytes_for(*shape, len(texts[2]), "f16")
    alone = [Embedder(checkpoint, texts=[text]).vector(text) for text in texts]
    assert [embedder.vector(text) for text in texts] == alone == [Embedder(checkpoint).vector(text) for text in texts]
    with pytest.raises(UsageError, match="24 tokens, the model reads 23; shorten it, or use a larger ctx"):
        embedder.vector(texts[2] + "!")
    assert len(embedder.tokens(texts[2] + "!", cut=True)) == 23
    with pytest.raises(UsageError, match="an empty text"):
        Embedder(checkpoint, texts=["tea", ""])
    longer = dataclasses.replace(MADE_UP, n_ctx_train=4096)
    checkpoint = made_up(longer)[0]
    checkpoint.tokenizer = bytes_tokenizer()
    assert Embedder(checkpoint).n_ctx == 2048
    assert Embedder(checkpoint, Options(**KV, ctx=5000)).n_ctx == 4096


def test_what_does_not_fit_is_refused_in_one_line(bundled_model: Path) -> None:
    embed = functools.partial(bitnet_edge, "embed", "-m", bundled_model, "-q")
    refused = embed("tea", "--memory", "20M")
    assert refused.returncode == 5 and refused.stdout == "" and refused.stderr.count("\n") == 1
    assert "the limit is 20 MB" in refused.stderr
    too_long = embed("a long text about tea", "--ctx", "2")
    assert too_long.returncode == 2 and "the model reads 2; shorten it" in too_long.stderr
    assert embed("tea", "--memory", "500M").stdout == embed("tea").stdout != ""


# ---- texts and the command -------------------------------------------------------------------------------------------


def test_texts_and_their_ends() -> None:
    checkpoint, _ = made_up(MADE_UP)
    checkpoint.tokenizer = bytes_tokenizer()
    embedder = Embedder(checkpoint)
    assert embedder.vector("tea") == embedder.of_tokens(embedder.tokens("tea"))
    assert cosine(embedder.vector("tea"), embedder.vector("tea")) == pytest.approx(1, abs=1e-6)
    checkpoint.metadata = {"tokenizer.ggml.add_eos_token": True}
    assert Embedder(checkpoint).tokens("tea")[-1] == 255
    for text, message in (("", "empty"), ("a" * 300, "300 tokens")):
        with pytest.raises(UsageError, match=message):
            embedder.vector(text)


def test_what_is_no_list_of_texts_is_refused(bundled_model: Path) -> None:
    embedder = Embedder(str(bundled_model))
    for wrong in ("abc", [None], [b"abc"]):
        with pytest.raises(UsageError, match="texts"):
            embedder.embed(wrong)


def test_npy_is_read_by_numpy() -> None:
    checkpoint, _ = made_up(MADE_UP)
    checkpoint.tokenizer = bytes_tokenizer()
    vectors = [Embedder(checkpoint).vector(text) for text in ("tea", "coffee")]
    stored = np.load(io.BytesIO(npy(vectors)), allow_pickle=False)
    assert stored.dtype == np.float32 and stored.shape == (2, 128) and (stored[1] == vectors[1]).all()
    array = Embedder(checkpoint).embed(["tea", "coffee"])
    assert array.dtype == np.float32 and (array == stored).all() and Embedder(checkpoint).embed([]).shape == (0, 128)


def test_the_command(bundled_model: Path, tmp_path: Path) -> None:
    """Any model can be asked."""
    run = CliRunner()
    done = run.invoke(cli, ["embed", "-m", str(bundled_model), "A tea, please.", "A coffee, please."])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0 and [line["text"] for line in lines] == ["A tea, please.", "A coffee, please."]
    alike = run.invoke(cli, ["embed", "-m", str(bundled_model), "A tea, please.", "A coffee, please.", "--cosine"])
    assert float(alike.stdout) == pytest.approx(cosine(lines[0]["vector"], lines[1]["vector"]), abs=1e-4)
    target = tmp_path / "v.npy"
    assert run.invoke(cli, ["embed", "-m", str(bundled_model), "x", "--npy", str(target)]).exit_code == 0
    assert np.load(target).shape == (1, 256)
    assert run.invoke(cli, ["embed", "-m", str(bundled_model), "x", "--cosine"]).exit_code == 2
    assert "is not an embedding model" in done.stderr
    for nothing in ("", " \n"):
        empty = run.invoke(cli, ["embed", "-m", str(bundled_model), nothing])
        assert empty.exit_code == 2 and "an empty text has no vector" in str(empty.exception) + empty.stderr


def test_a_model_by_path_or_name(tmp_path: Path) -> None:
    of_checkpoint = Embedder(open_checkpoint("demo")).vector("tea")
    assert Embedder("demo").vector("tea") == of_checkpoint == Embedder(Path(open_checkpoint("demo").path)).vector("tea")
    for wrong in (3, None, b"demo", edge.load("demo", ctx=64)):
        with pytest.raises(UsageError, match="must be a path or a name"):
            Embedder(wrong)  # type: ignore[arg-type]
