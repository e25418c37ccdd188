"""The trainer: rounding as the papers say, gradients, batches, runs that go on bit for bit, and what is exported.

Needs torch (``pip install -e .[training]``); without it all of this is skipped.  Models are tiny and random.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="training needs torch: pip install -e .[training]")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

import torch
from oracles.forward import Model as Oracle

from edge.formats import open_checkpoint
from edge.prompt.template import Template
from edge.prompt.tokenizer import Tokenizer
from edge.tools.convert import convert
from training import corpus, data, quantise, schedule
from training import tokenizer as bpe
from training.agree import compare, of_engine, of_trainer
from training.checkpoint import Run
from training.data import BOS, END, EOT, Position, Shard
from training.evaluate import score
from training.export import read_master, write_master
from training.model import SHAPES, Model
from training.optimizer import Muon, Optimizer, orthogonalised
from training.schedule import Phase
from training.train import Trainer

MICRO = SHAPES["micro"]
ROLES = {"system": 0.25, "user": 0.5, "assistant": 1.0}
OWN = Phase(1.0, 96, {"kiosk": 1}, ROLES)


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    """A small vocabulary of what training.turns prints."""
    texts = itertools.islice(corpus.dialogues("kiosk", "train", 0), 150)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    bpe.train(texts, MICRO.n_vocab).save(str(path))
    return str(path)


@pytest.fixture(scope="module")
def tokenizer(tokenizer_json):
    return data.load_tokenizer(tokenizer_json)


@pytest.fixture
def one_thread():
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


def test_nothing_is_divided_by_zero():
    zero = torch.zeros(2, 8)
    for rule in (quantise.ternary, quantise.binary, quantise.int8, quantise.int4, quantise.sparse_int8):
        codes, scale = rule(zero)
        assert torch.isfinite(codes).all() and torch.isfinite(scale).all() and (scale > 0).all()


@pytest.mark.parametrize("name", ["b1.58", "v1", "a4.8"])
def test_the_gradient_passes_straight_through(name):
    """One product with its own backward pass, against the usual trick x + (rounded - x).detach()."""
    scheme = quantise.SCHEMES[name]
    x = torch.tensor(arrays(1, 2, 5, 32), requires_grad=True)
    w = [torch.tensor(arrays(2 + i, n, 32) * 0.05, requires_grad=True) for i, n in enumerate((8, 12))]
    ours = quantise.project(x, w, scheme, scheme.inputs, torch.float32)
    pull = [torch.tensor(arrays(9 + i, *y.shape)) for i, y in enumerate(ours)]
    got = torch.autograd.grad(sum((y * p).sum() for y, p in zip(ours, pull)), [x, *w])
    codes, step = quantise.ACTIVATIONS[scheme.inputs](x)
    passed = x + (codes * step - x).detach()
    total = 0
    for one, y, p in zip(w, ours, pull):
        rounded, scale = quantise.WEIGHTS[scheme.weights](one)
        wanted = passed @ (one + (rounded * scale - one).detach()).mT
        assert torch.allclose(y, wanted, atol=1e-5)
        total = total + (wanted * p).sum()
    for ours_, wanted in zip(got, torch.autograd.grad(total, [x, *w])):
        assert torch.allclose(ours_, wanted, atol=1e-4, rtol=1e-4)


def test_bfloat16_holds_both_grids():
    values = torch.arange(-128, 128).float()
    assert (values.bfloat16().float() == values).all()


# ---- the optimizer and the schedule ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(16, 48), (48, 16), (32, 32)])
def test_muon_evens_out_the_directions(shape):
    g = torch.tensor(arrays(3, *shape)) @ torch.diag(torch.logspace(0, -1, shape[1]))
    values = torch.linalg.svdvals(orthogonalised(g).float())
    assert values.min() > 0.5 and values.max() < 1.35


def test_muon_is_torchs_muon():
    ours = [torch.nn.Parameter(torch.tensor(arrays(i, 16, 24))) for i in range(3)]
    theirs = [torch.nn.Parameter(matrix.detach().clone()) for matrix in ours]
    muon = Muon(ours)
    reference = torch.optim.Muon(theirs, lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        for i, (a, b) in enumerate(zip(ours, theirs)):
            a.grad = torch.tensor(arrays(10 * step + i, 16, 24))
            b.grad = a.grad.clone()
        muon.step(0.01, 0.1)
        reference.step()
    for a, b, i in zip(ours, theirs, range(3)):
        assert torch.allclose(a, b, atol=2e-3)
        assert (a - torch.tensor(arrays(i, 16, 24))).abs().mean() > 5e-3  # both went somewhere


def test_learning_rate_warms_up_holds_and_falls():
    peak = 8e-3
    rates = [schedule.learning_rate(p / 1000, peak) for p in range(1001)]
    assert rates[0] == 0 and rates[30] == rates[499] == peak == max(rates)
    assert rates[500] == pytest.approx(0.4 * peak) and rates[1000] == 0
    assert all(a > b for a, b in zip(rates[500:], rates[501:]))
    assert schedule.weight_decay(0.49) == 0.1 and schedule.weight_decay(0.5) == 0


def test_phases_reach_the_end_and_shares_are_whole():
    assert [p.until for p in schedule.PHASES] == sorted(p.until for p in schedule.PHASES)
    assert schedule.phase(0).tokens == 384 and schedule.phase(1).tokens == 2048 == SHAPES["xs"].n_ctx
    for phase in schedule.PHASES:
        assert set(phase.mixture) <= set(corpus.SOURCES) and sum(phase.mixture.values()) == pytest.approx(1)


# ---- tokens and rows -------------------------------------------------------------------------------------------------

DIALOGUES = [
    [("user", "Hello"), ("assistant", "Hi! What can I do for you?"), ("user", "7:30 pm, please."), ("assistant", "7")],
    [("system", "Open 9:00-17:00"), ("user", " two <|eot_id|> teas\n\nand $5 "), ("assistant", "\"Two\" teas… ☕")],
    [("user", "<|begin_of_text|>User: System:"), ("assistant", "")],
]


def test_tokens_are_those_of_the_engines_template(tokenizer, tokenizer_json, tmp_path):
    write_master(Model(MICRO), tokenizer_json, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    template, theirs = Template.for_model(checkpoint), Tokenizer.build(checkpoint.tokenizer)
    assert template.name == "bitnet-edge"
    for dialogue in [*DIALOGUES, *itertools.islice(corpus.dialogues("kiosk", "valid", 1), 20)]:
        messages = [{"role": role, "content": text} for role, text in dialogue]
        encoded = data.encode(tokenizer, dialogue, ROLES)
        assert [BOS, *encoded.ids] == template.encode(theirs, messages, False)
        prompt = template.encode(theirs, messages[:-1], True)
        assert [BOS, *encoded.ids][: len(prompt)] == prompt  # the answer begins where training began it
    assert {EOT, END} == template.stop_ids(theirs)


def test_template_words_are_whole_tokens(tokenizer):
    for word in ("User", "Assistant", "System"):
        assert tokenizer.encode(f"{word}: a").tokens[:2] == [word, ":"]


@given(st.text())
@settings(max_examples=200)
def test_no_text_is_unknown(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_answers_weigh_what_they_should(tokenizer):
    one = data.encode(tokenizer, [("user", "a tea"), ("assistant", "Yes.")], ROLES)
    user, answer = (len(tokenizer.encode(text).ids) for text in ("User: a tea", "Assistant: Yes."))
    assert one.weight == [0.5] * (user + 1) + [0.5] * 2 + [1.0] * (answer - 2 + 1)
    assert one.ids[-1] == one.ids[user] == EOT


def test_what_people_wrote_is_learned_in_full(tokenizer, monkeypatch):
    """Guests of our own making are given, mostly; strangers' talk is learned from both sides."""
    talk = [("system", "Style: free talk."), ("user", "I like films."), ("assistant", "So do I.")]
    monkeypatch.setattr(corpus, "_read", lambda source, split: [talk] * 4)
    monkeypatch.setattr(corpus, "SOURCES", (*corpus.SOURCES, "own"))
    weights = {}
    for source in ("free", "own"):
        shard = Shard(tokenizer, 0, 0, phases=lambda _, source=source: Phase(1.0, 64, {source: 1}, ROLES))
        weights[source] = set(shard.batch(0, 64, 0.0)[2].unique().tolist())
    assert weights == {"free": {0.0, ROLES["user"], 1.0}, "own": {0.0, ROLES["system"], ROLES["user"], 1.0}}
    one = Shard(tokenizer, 0, 0, phases=lambda _: Phase(1.0, 64, {"free": 1}, ROLES))
    ids, targets, weight = one.batch(0, 64, 0.0)
    told = [token for token, w in zip(targets.flatten().tolist(), weight.flatten().tolist()) if w == 1.0]
    assert "I like films." in tokenizer.decode(told)


def test_rows_begin_with_their_only_bos_and_hold_whole_dialogues(tokenizer):
    shard = Shard(tokenizer, 0, 0, phases=lambda _: OWN)
    lost = total = 0
    for step in range(40):
        ids, targets, weight = shard.batch(step, 400, 0.0)
        assert ids.shape == targets.shape == weight.shape == (4, 96)
        assert (ids[:, 0] == BOS).all() and (ids[:, 1:] != BOS).all() and (ids[:, 1:] == targets[:, :-1]).all()
        after_end = targets[ids == END]
        assert {shard.tokenizer.id_to_token(int(i)) for i in after_end} <= {"User", "System", bpe.END}
        lost += (weight == 0).sum().item()
        total += weight.numel()
    assert lost < 0.4 * total  # dialogues here are nearly as long as a row


def test_batches_depend_on_seed_and_step_alone(tokenizer):
    def shard(seed=0, number=0):
        return Shard(tokenizer, seed, number, phases=lambda _: OWN)

    straight = shard()
    batches = [straight.batch(step, 192, 0.0) for step in range(70)]
    later = shard()
    later.begin(straight.start)  # the third block, in the middle of which a run was interrupted
    for step in (66, 69):
        assert all(torch.equal(a, b) for a, b in zip(later.batch(step, 192, 0.5), batches[step]))
    for other in (shard(seed=1), shard(number=1)):
        assert not torch.equal(other.batch(0, 192, 0.0)[0], batches[0][0])
    assert not torch.equal(batches[0][0], batches[32][0])


def test_a_corpus_is_read_whole_before_it_is_read_again(monkeypatch):
    texts = [[("user", str(i))] for i in range(10)]
    monkeypatch.setattr(corpus, "dialogues", lambda source, split, seed: iter(texts))
    for number in range(data.SHARDS):
        source = data.Shuffled("task", "train", 0, number)
        epochs = [[source[5 * epoch + i][0][1] for i in range(5)] for epoch in range(3)]
        assert all(sorted(epoch, key=int) == [str(i) for i in range(number, 10, 2)] for epoch in epochs)
        assert epochs[0] != epochs[1] or epochs[1] != epochs[2]
        again = data.Shuffled("task", "train", 0, number)
        assert again[12] == source[12] and again[3] == source[3]


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def new_run(tokenizer_json, tmp_path, monkeypatch, one_thread):
    """A function that makes a run of a few steps, on printed dialogues only."""
    monkeypatch.setattr(schedule, "PHASES", (replace(OWN, until=0.5, tokens=64), replace(OWN, tokens=128)))
    monkeypatch.setattr("training.train.HELD_OUT", {"kiosk": replace(OWN, tokens=64)})

    def make(name, tokens=40 * 256):
        run = Run(tmp_path / name)
        run.describe({"shape": "micro", "device": "cpu", "seed": 3, "batch": 128, "compile": False, "peak": 0.01,
                      "tokens": tokens, "deadline": None, "progress": None})  # fmt: skip
        (run.folder / "tokenizer.json").write_bytes(open(tokenizer_json, "rb").read())
        return run

    return make


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(new_run):
    whole = new_run("whole")
    Trainer(whole, 0, 1).train()
    halves = new_run("halves")
    first = Trainer(halves, 0, 1)
    first.saved = 0.0
    for _ in range(35):  # into the second block of batches
        first.train_step(1.0)
    first.save("last.pt")
    second = Trainer(halves, 0, 1)
    second.resume()
    second.train()
    a, b = whole.load("last.pt"), halves.load("last.pt")
    assert a["step"] == b["step"] == 40 and a["progress"] == b["progress"] == 1
    assert a["positions"] == b["positions"]
    for name in a["model"]:
        assert torch.equal(a["model"][name], b["model"][name]), name
    for name, buffer in a["optimizer"]["muon"].items():
        assert torch.equal(buffer, b["optimizer"]["muon"][name])
    assert whole.load("stable.pt")["progress"] == pytest.approx(0.5, abs=0.03)


def test_training_learns_and_keeps_its_log(new_run):
    run = new_run("run", tokens=45 * 256)
    Trainer(run, 0, 1).train()
    rows = (run.folder / "log.csv").read_text().splitlines()
    assert len(rows) == 46
    losses = [float(row.split(",")[4]) for row in rows[1:]]
    assert losses[0] == pytest.approx(math.log(MICRO.n_vocab), abs=0.3) and np.mean(losses[-5:]) < losses[0] - 1
    assert "kiosk" in (run.folder / "held_out.csv").read_text()


def test_a_run_with_a_deadline_ends_there(new_run, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("training.train.time.time", lambda: clock[0])
    run = new_run("timed", tokens=None)
    run.describe({**run.settings, "deadline": 1100.0})
    trainer = Trainer(run, 0, 1)
    trainer.saved = float("inf")
    seen = []
    while trainer.progress < 1:
        trainer.train_step(10.0 if clock[0] < 1050 else 2.0)  # the machine becomes faster half-way
        clock[0] += 10.0 if clock[0] < 1050 else 2.0
        seen.append((clock[0], trainer.progress))
    assert 1096 <= clock[0] <= 1102
    assert all(abs(progress - (now - 1000) / 100) < 0.12 for now, progress in seen)


def test_an_interrupted_save_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    run = Run(tmp_path)
    run.save("last.pt", {"step": 1})

    def torn(state, path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", torn)
    with pytest.raises(OSError, match="disk full"):
        run.save("last.pt", {"step": 2})
    assert run.load("last.pt") == {"step": 1}


# ---- what leaves the trainer -----------------------------------------------------------------------------------------


def trained(scheme, steps=30):
    """A model whose weights are not those of the start."""
    model = Model(replace(MICRO, scheme=scheme), seed=1)
    optimizer = Optimizer(model)
    ids = torch.tensor(np.random.default_rng(0).integers(3, MICRO.n_vocab, (2, 33)))
    for _ in range(steps):
        loss = model.loss(ids[:, :-1], ids[:, 1:], torch.ones(2, 32)) / 64
        model.zero_grad()
        loss.backward()
        optimizer.step(0.01, 0.0)
    assert loss < math.log(MICRO.n_vocab) - 1
    return model, ids[0].tolist()


@pytest.mark.parametrize("scheme", ["b1.58", "v1", "a4.8"])
def test_trainer_oracle_and_engine_agree(scheme, tokenizer_json, tmp_path):
    """By arg-max and KL: a last bit may turn a rounding (training.agree)."""
    model, ids = trained(scheme)
    write_master(model, tokenizer_json, tmp_path / "master")
    convert(tmp_path / "master", tmp_path / "m.gguf")
    with torch.no_grad():
        ours = model(torch.tensor([ids]))[0]
    others = {"engine": of_engine(tmp_path / "m.gguf")(ids),
              "oracle": torch.tensor(Oracle(open_checkpoint(tmp_path / "m.gguf")).logits(ids)).float()}  # fmt: skip
    for name, logits in others.items():
        same, kl, _ = compare(ours, logits)
        assert same >= len(ids) - 2 and kl.mean() < 2e-3, (name, same, kl.mean())
    if scheme != "v1":  # v1 leaves as the rounded weights
        assert torch.equal(of_trainer(tmp_path / "master")(ids), ours)
        again = read_master(tmp_path / "master")
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters()))


def test_trainer_and_transformers_agree(tokenizer_json, tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from training.agree import of_transformers

    model, ids = trained("b1.58")
    write_master(model, tokenizer_json, tmp_path)
    same, kl, _ = compare(of_trainer(tmp_path)(ids), of_transformers(tmp_path)(ids))
    assert same >= len(ids) - 1 and kl.mean() < 1e-3


def test_the_twin_is_not_rounded():
    rounded, twin = Model(MICRO, seed=1), Model(replace(MICRO, scheme="none"), seed=1)
    ids = torch.arange(3, 40)[None]
    assert all(torch.equal(a, b) for a, b in zip(rounded.parameters(), twin.parameters()))
    with torch.no_grad():
        assert not torch.allclose(rounded(ids), twin(ids), atol=1e-3)
        w, x = twin.layers[0].q_proj, torch.randn(3, MICRO.hidden)
        scheme = quantise.SCHEMES["none"]
        assert torch.allclose(quantise.project(x, [w], scheme, "none", torch.float32)[0], x @ w.mT)


def test_blocks_of_queries_change_nothing(monkeypatch):
    from training import model

    q, k, v = (torch.tensor(arrays(i, 2, heads, 40, 16)) for i, heads in enumerate((4, 2, 2)))
    whole = model.attention(q, k, v)
    monkeypatch.setattr(model, "_BLOCK", 16)
    assert torch.allclose(model.attention(q, k, v), whole, atol=1e-6)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1),
                                                                is_causal=True)  # fmt: skip
    assert torch.allclose(whole, expected, atol=1e-5)


def test_held_out_scores_are_counted_by_hand(tokenizer, tokenizer_json):
    model = Model(MICRO, seed=1)
    dialogues = [DIALOGUES[0], DIALOGUES[1], DIALOGUES[0][:2]]
    total = score(model, tokenizer_json, dialogues)
    nats = answers = 0.0
    tokens = n_answer = 0
    for dialogue in dialogues:
        given = [] if dialogue[0][0] != "system" else data.encode(tokenizer, dialogue[:1], ROLES).ids
        one = data.encode(tokenizer, dialogue, ROLES)
        with torch.no_grad():
            log_p = model(torch.tensor([[BOS, *one.ids]]))[0].log_softmax(-1)
        for i, (token, weight) in enumerate(zip(one.ids, one.weight)):
            if i >= len(given):
                nats -= log_p[i, token].item()
                tokens += 1
                answers -= log_p[i, token].item() * (weight == 1)
                n_answer += weight == 1
    assert (total.tokens, total.answer_tokens) == (tokens, n_answer)
    assert total.nats == pytest.approx(nats, rel=1e-4) and total.answer_nats == pytest.approx(answers, rel=1e-4)
    assert total.n_byte == sum(len(text.strip().encode()) for d in dialogues for role, text in d if role != "system")


def test_positions_are_plain_data():
    """What a checkpoint holds of the data can be read without running code (torch.load with weights_only)."""
    from dataclasses import asdict

    position = Position(3, 0.25, {"task": 7})
    assert Position(**asdict(position)) == position
