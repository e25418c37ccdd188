"""The trainer: rounding as the papers say, gradients, rows, runs that are killed and continue, and what is exported.

Needs the extra ``training``; without torch all of this is skipped.  Models are tiny, the text is that of
edge/bundled/dialogues.jsonl.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.services import ROOT

pytest.importorskip("torch", reason="training needs torch: pip install -e .[training]")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

import torch

import edge
from edge.formats import open_checkpoint
from edge.prompt.template import Template
from edge.prompt.tokenizer import Tokenizer
from tests.oracles.forward import Model as Oracle
from training import agree, data, demo, quantise
from training import tokenizer as bpe
from training.data import BOS, END, EOT, Rows
from training.export import export, write_huggingface
from training.model import SHAPES, Model
from training.run import Run
from training.train import start

TEXT = ROOT / "edge" / "bundled" / "dialogues.jsonl"
MICRO = SHAPES["micro"]
SCHEMES = list(quantise.SCHEMES)


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    bpe.train(data.read([TEXT]), MICRO.n_vocab).save(str(path))
    return path


@pytest.fixture(scope="module")
def tokenizer(tokenizer_json):
    return bpe.load(tokenizer_json)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """As the programs started here."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- rounding, against NumPy in float64 ------------------------------------------------------------------------------


def arrays(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("seed", range(4))
def test_weights_round_as_the_papers_say(seed):
    w = arrays(seed, 24, 40) * 0.02 + 0.003
    exact = w.astype(np.float64)
    codes, scale = quantise.ternary(torch.tensor(w))
    assert scale.item() == pytest.approx(np.abs(exact).mean(), rel=1e-6)
    assert (codes.numpy() == np.clip(np.round(exact / np.abs(exact).mean()), -1, 1)).all()
    codes, scale = quantise.binary(torch.tensor(w))
    assert scale.item() == pytest.approx(np.abs(exact).mean(), rel=1e-6)
    assert (codes.numpy() == np.where(exact > exact.mean(), 1, -1)).all()


@pytest.mark.parametrize("seed", range(4))
def test_activations_round_as_the_papers_say(seed):
    x = arrays(seed, 5, 33)
    exact = x.astype(np.float64)
    codes, step = quantise.int8(torch.tensor(x))
    wanted = np.clip(np.round(exact * 127 / np.abs(exact).max(-1, keepdims=True)), -128, 127)
    assert (codes.numpy() == wanted).all() and np.abs((codes * step).numpy() - exact).max() <= step.max().item() * 0.501
    sparse, _ = quantise.sparse_int8(torch.tensor(x))
    for row, dense in zip(sparse.numpy(), wanted):
        kept = np.abs(dense) >= np.sort(np.abs(dense))[-17]  # 17 of 33
        assert (row == np.where(kept, dense, 0)).all()
    codes, step = quantise.int4(torch.tensor(x))
    beta = np.abs(exact).mean(-1, keepdims=True)
    assert (codes.numpy() == np.clip(np.round(math.sqrt(7) / (beta + 1e-5) * exact), -8, 7)).all()
    assert np.allclose(step.numpy(), beta / math.sqrt(7), rtol=1e-4)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("place", ["inputs", "attention_output", "ffn_output"])
def test_the_gradient_passes_straight_through(scheme, place):
    """Weights and input get the gradient of a linear layer with the rounded values of the other factor."""
    rule = quantise.SCHEMES[scheme]
    layer = quantise.BitLinear(32, 12, rule.weights, getattr(rule, place))
    layer.weight = torch.nn.Parameter(torch.tensor(arrays(2, 12, 32) * 0.05))
    x, pull = torch.tensor(arrays(1, 2, 5, 32), requires_grad=True), torch.tensor(arrays(9, 2, 5, 12))
    dx, dw = torch.autograd.grad((layer(x) * pull).sum(), [x, layer.weight])
    weights, activations = (integers * scale for integers, scale in
                            (rule.weights(layer.weight.detach()), getattr(rule, place)(x.detach())))
    assert torch.allclose(layer(x), activations @ weights.mT, atol=1e-5)
    assert torch.allclose(dx, pull @ weights, atol=1e-5)
    assert torch.allclose(dw, pull.flatten(0, 1).mT @ activations.flatten(0, 1), atol=1e-4)


# ---- tokens and rows -------------------------------------------------------------------------------------------------

DIALOGUES = [
    [("user", "Hello"), ("assistant", "Hi! What can I do for you?"), ("user", "7:30 pm, please."), ("assistant", "7")],
    [("system", "Open 9:00-17:00"), ("user", " two <|eot_id|> teas\n\nand $5 "), ("assistant", "\"Two\" teas… ☕")],
    [("user", "<|begin_of_text|>User: System:"), ("assistant", "")],
]


def test_tokens_are_those_of_the_engines_template(tokenizer, tokenizer_json, tmp_path):
    write_huggingface(Model(MICRO), tokenizer_json, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    template, theirs = Template.for_model(checkpoint), Tokenizer.build(checkpoint.tokenizer)
    assert template.name == "bitnet-edge"
    for dialogue in [*DIALOGUES, *data.read([TEXT])]:
        messages = [{"role": role, "content": text} for role, text in dialogue]
        ids = [BOS, *data.encode(tokenizer, dialogue)[0]]
        assert ids == template.encode(theirs, messages, False)
        prompt = template.encode(theirs, messages[:-1], True)
        assert ids[: len(prompt)] == prompt  # the answer begins where training began it
    assert {EOT, END} == template.stop_ids(theirs)


def test_rows_begin_with_their_only_bos_and_with_a_dialogue(tokenizer):
    dialogues = list(data.read([TEXT]))
    rows = Rows(tokenizer, dialogues, seed=0)
    whole = [list(data.encode(tokenizer, dialogue)[0]) for dialogue in dialogues]
    for _ in range(10):
        ids, targets, weight = rows.batch(4, 96)
        assert ids.shape == targets.shape == weight.shape == (4, 96) and (ids[:, 1:] == targets[:, :-1]).all()
        for row in torch.cat((ids, targets[:, -1:]), 1).tolist():
            assert row[0] == BOS and BOS not in row[1:]
            *complete, cut = " ".join(map(str, row[1:])).split(f" {END} ")
            assert all([int(i) for i in part.split()] in whole for part in complete)
            cut = [int(i) for i in cut.split() if int(i) != END]
            assert any(ids[: len(cut)] == cut for ids in whole)


# ---- from text to the engine -----------------------------------------------------------------------------------------

STEPS = 60
SETTINGS = {"text": [str(TEXT)], "held_out": [str(TEXT)], "tokens": STEPS * 512, "shape": "micro", "batch": 512,
            "report": 10, "peak": 0.02, "compile": False}

#: the same run, killed in its 25th step
KILLED = """
import os, signal, sys, json
from training.train import Trainer, start

class Killed(Trainer):
    def step(self):
        if self.steps == 24:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step()

import training.train
training.train.Trainer = Killed
start(sys.argv[1], json.loads(sys.argv[2]))
"""


@pytest.fixture(scope="module", params=SCHEMES)
def finished(request, tmp_path_factory):
    """A run of each scheme that nobody has disturbed."""
    torch.set_num_threads(1)
    return start(tmp_path_factory.mktemp("run") / "whole", {**SETTINGS, "scheme": request.param})


def test_training_learns(finished):
    reports = finished.load()["reports"]
    assert [report["step"] for report in reports] == [10, 20, 30, 40, 50, 60]
    losses = [report["held_out"] for report in reports]
    assert losses[0] < math.log(MICRO.n_vocab) and losses[-1] < losses[0] - 1
    rows = (finished.folder / "log.csv").read_text().splitlines()
    assert len(rows) == 7 and rows[-1].startswith(f"60,{STEPS * 512},")


def test_a_killed_run_continues_to_the_same_weights(finished, tmp_path):
    given = {**SETTINGS, "scheme": finished.shape.scheme}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run"), json.dumps(given)], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    run = Run(tmp_path / "run")
    assert run.load()["steps"] == 20
    subprocess.run([sys.executable, "-m", "training.train", str(run.folder)], cwd=ROOT, check=True)
    a, b = finished.load(), run.load()
    assert a["steps"] == b["steps"] == STEPS and a["drawn"] == b["drawn"]
    for name, tensor in a["model"].items():
        assert torch.equal(tensor, b["model"][name]), name
    assert [r["held_out"] for r in a["reports"]] == [r["held_out"] for r in b["reports"]]


def test_engine_oracle_and_trainer_agree(finished):
    """By first choice and KL: a last bit may turn a rounding (training.agree)."""
    path = export(finished, "tiny")
    trainer, texts = agree.of_trainer(finished.model()), agree.texts_of(finished, 4)
    oracle = Oracle(open_checkpoint(path))
    for other in (agree.of_engine(path), lambda ids: torch.tensor(oracle.logits(ids)).float()):
        found = agree.compare(trainer, other, texts)
        least = 0.9 if finished.shape.scheme == "a4.8" else 0.97  # of 4 bits, more lie on an edge (training/README.md)
        assert found.same >= least * found.tokens and found.kl < 5e-3, found


def test_transformers_and_trainer_agree(finished):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    if finished.shape.scheme != "b1.58":
        pytest.skip("transformers has b1.58 only")
    export(finished, "tiny")
    found = agree.compare(agree.of_trainer(finished.model()), agree.of_transformers(finished.folder / "huggingface"),
                          agree.texts_of(finished, 4))
    assert found.same >= 0.98 * found.tokens and found.kl < 1e-3, found


def test_the_demo_model_is_made_by_one_command(tmp_path, monkeypatch):
    """From a corpus of a few dialogues to the file and its page, in another folder."""
    zstandard = pytest.importorskip("zstandard")
    unfit = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "I'm a human."}]}
    for split in ("train", "valid"):
        content = (TEXT.read_text() + json.dumps(unfit) + "\n").encode()
        (tmp_path / f"own.{split}.jsonl.zst").write_bytes(zstandard.compress(content))
    page = tmp_path / "to" / "README.md"
    page.parent.mkdir()
    page.write_text((ROOT / "edge" / "bundled" / "README.md").read_text())
    small = {"tokens": 20 * 512, "shape": "micro", "batch": 512, "report": 10, "compile": False}
    demo.make(tmp_path / "run", tmp_path, page.parent, small)
    assert "human" not in (tmp_path / "run" / "train.jsonl").read_text()
    (made,) = page.parent.glob("*.gguf")
    assert f"{made.stat().st_size:,} bytes" in page.read_text() and "20 steps, 0.01 M tokens" in page.read_text()
    assert edge.load(str(made)).config.hidden == MICRO.hidden
