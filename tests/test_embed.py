"""Embedding models: a norm in front of each projection (SubLN), last token, length 1; against NumPy in float64."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from edge.cli.group import cli
from edge.errors import UsageError
from edge.formats.checkpoint import TokenizerSpec
from edge.tools.embed import Embedder, cosine, npy
from tests import handmade
from tests.oracles import family
from tests.test_families import BASE, IDS, made_up

#: as BitNet-embedding-0.6B: Qwen3, a norm for each projection, activations int8 per token
MADE_UP = dataclasses.replace(BASE, arch="qwen3", qk_norm="before", inner_norm=True, inner_eps=1e-6)


def bytes_tokenizer() -> TokenizerSpec:
    from edge.prompt.tokenizer.byte_level import ALPHABET

    return TokenizerSpec("bpe", tokens=list(ALPHABET), types=[1] * 256, pre="gpt-2", eos_ids=(255,), add_bos=False)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_vector_is_what_numpy_says(threads: int) -> None:
    checkpoint, arrays = made_up(MADE_UP)
    checkpoint.tokenizer = bytes_tokenizer()
    expected = family.Model(MADE_UP, arrays, "int8").hidden(IDS * 4)[-1]
    expected /= np.linalg.norm(expected)
    got = Embedder(checkpoint, threads).of_tokens(IDS * 4)  # more than a step takes
    assert np.linalg.norm(got) == pytest.approx(1, abs=1e-6)
    assert cosine(got, expected.astype(np.float32)) > 0.999


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


def test_npy_is_read_by_numpy() -> None:
    checkpoint, _ = made_up(MADE_UP)
    checkpoint.tokenizer = bytes_tokenizer()
    vectors = [Embedder(checkpoint).vector(text) for text in ("tea", "coffee")]
    stored = np.load(io.BytesIO(npy(vectors)), allow_pickle=False)
    assert stored.dtype == np.float32 and stored.shape == (2, 128) and (stored[1] == vectors[1]).all()


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


@pytest.mark.parametrize("command", ["embed -m {} tea", "run -m {} tea", "model show {}", "model check {}",
                                     "tokens count tea -m {}"])
def test_a_broken_vocabulary_names_the_file(tmp_path: Path, command: str) -> None:
    path = tmp_path / "broken.gguf"
    tokens = handmade.value(handmade.ARR, (handmade.STR, [chr(97 + i // 2) for i in range(handmade.VOCAB)]))
    path.write_bytes(handmade.model(keys={"tokenizer.ggml.tokens": tokens}))
    done = CliRunner().invoke(cli, command.format(path).split())
    said = f"{path}: merge 0 ('a b') gives no token of the vocabulary; it is damaged"
    assert done.exit_code == 4 and done.stderr.count(said) == 1 and done.stderr.splitlines()[-1].endswith(said)
