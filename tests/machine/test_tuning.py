"""What is measured to be fastest on a machine (edge.machine.tuning), and what is remembered (edge.machine.choices).

The machine and its clock are made up: real load plays no part.
"""

from __future__ import annotations

import json
import random
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import edge
from benchmarks import make_model
from edge.cache.config import KVConfig
from edge.cli.group import cli
from edge.formats import open_checkpoint
from edge.loading import head_for
from edge.machine import choices, tuning
from edge.machine.board import Board
from edge.machine.choices import STREAMS, Choices, Key
from edge.machine.cores import find
from pyx.machine import cpu
from pyx.step.transformer import Segment

KEY = Key("bitnet-b1.58, 2 layers", "AMD EPYC (25, 1, 1), avx2, 2 of 2 cores", "1000 bytes")


class Machine:
    """Takes ``seconds`` for each value of each choice, with noise, and now and then another program runs."""

    def __init__(self, seconds: dict[str, dict[Any, float]], noise: float = 0.01, seed: int = 1) -> None:
        self.table, self.noise, self.random = seconds, noise, random.Random(seed)
        self.now = 100.0
        self.busy = 0.0  # share of trials during which another program takes a core
        self.used: dict[str, Any] = {}

    def clock(self) -> float:
        return self.now

    def alternatives(self) -> dict[str, Sequence[Any]]:
        return {name: list(values) for name, values in self.table.items()}

    def seconds(self, name: str, value: Any) -> float | None:
        taken = self.table[name][value] * (1 + self.random.uniform(0, self.noise))
        self.now += 1.1 * taken  # a trial also prepares what it measures
        return None if self.random.random() < self.busy else taken

    def use(self, name: str, value: Any) -> None:
        self.used[name] = value


def measured(machine: Machine) -> Choices:
    begun = machine.now
    found = tuning.measure(machine, machine.clock)
    assert machine.now - begun <= tuning.BOUND
    return found


def test_a_worse_default_is_corrected() -> None:
    machine = Machine({
        "threads": {4: 0.010, 3: 0.009, 2: 0.014}, "stream": {STREAMS[0]: 0.010, STREAMS[1]: 0.008, STREAMS[2]: 0.012},
        "head": {"two-stage": 0.011, "int8": 0.010}, "many_tokens": {16: 0.02, 32: 0.02}})
    assert measured(machine) == Choices(head="int8", threads=3, stream=STREAMS[1], many_tokens=16)
    assert machine.used == {"threads": 3, "stream": STREAMS[1], "head": "int8", "many_tokens": 16}


def test_a_default_that_is_as_good_stays() -> None:
    machine = Machine({"head": {"two-stage": 0.010, "int8": 0.0098}, "threads": {2: 0.010, 1: 0.017}})
    assert measured(machine) == Choices(head="two-stage", threads=2)


@pytest.mark.parametrize("seed", range(5))
def test_noise_chooses_nothing(seed: int) -> None:
    """Equal alternatives on a machine where times vary by half: hardly ever is one taken to be better."""
    machine = Machine({"head": {"two-stage": 0.010, "int8": 0.010}}, noise=0.5, seed=seed)
    assert measured(machine).head in (None, "two-stage")


def test_a_machine_whose_cores_are_taken_chooses_nothing() -> None:
    machine = Machine({"threads": {2: 0.010, 1: 0.017}, "head": {"two-stage": 0.010, "int8": 0.005}})
    machine.busy = 1.0
    assert measured(machine) == Choices()


@pytest.mark.parametrize("seconds", [0.001, 0.15])
def test_the_bound_is_kept(seconds: float) -> None:
    """On a slow machine less is measured; what was not measured often enough keeps its default."""
    machine = Machine({"threads": {3: seconds, 2: seconds / 2}, "head": {"int8": seconds, "two-stage": seconds / 2}})
    found = tuning.measure(machine, machine.clock, 0.2)
    assert machine.now <= 100.2 + 2 * 1.2 * seconds  # the first of each has no forerunner
    assert found == (Choices(threads=2, head="two-stage") if seconds < 0.1 else Choices())


# ---- the file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BITNET_EDGE_CACHE", str(tmp_path / "cache"))
    assert choices.place() == str(tmp_path / "cache" / "choices.json")
    return Path(choices.place())


def test_what_was_measured_is_remembered(place: Path) -> None:
    assert choices.remembered(KEY) == Choices()
    assert choices.remember(KEY, Choices(head="int8", threads=2))
    assert choices.remember(KEY, Choices(head="two-stage", stream=STREAMS[1]))
    assert choices.remembered(KEY) == Choices(head="two-stage", stream=STREAMS[1])
    assert len(choices.entries()) == 1
    assert choices.remember(KEY, Choices()) and choices.remembered(KEY) == Choices()
    assert [path.name for path in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize("other", [
    Key("another model", KEY.processor, KEY.kernels),
    Key(KEY.model, "Cortex-A72, neon, 4 of 4 cores", KEY.kernels),
    Key(KEY.model, KEY.processor, "2000 bytes"),
    KEY._replace(given=2),
])
def test_of_another_model_processor_or_build_nothing_is_used(place: Path, other: Key) -> None:
    choices.remember(KEY, Choices(threads=1))
    assert choices.remembered(other) == Choices()
    choices.remember(other, Choices(threads=3))
    assert choices.remembered(KEY) == Choices(threads=1) and choices.remembered(other) == Choices(threads=3)


def entry(**changes: Any) -> dict[str, Any]:
    fields = {"model": KEY.model, "processor": KEY.processor, "kernels": KEY.kernels}
    return {**fields, "head": "int8", "threads": 2, "stream": [2, "once", 3072], "many_tokens": None, **changes}


@pytest.mark.parametrize("content", [
    "", "[]", "[" * 100_000, "\0" * 50, "x" * 100_000, json.dumps({"format": 1, "choices": [entry()]}),
    *(json.dumps({"format": 2, "choices": [entry(), wrong]}) for wrong in (
        7, entry(head="a/b"), entry(threads=-1), entry(threads=True), entry(stream=[3, "L1", 7]), entry(many_tokens=1),
        entry(model="a\x1b[2J"), entry(given="1"))),
])
def test_a_damaged_file_counts_as_absent_and_is_replaced(place: Path, content: str) -> None:
    place.parent.mkdir(parents=True)
    place.write_text(content)
    assert choices.entries() == [] and choices.remembered(KEY) == Choices()
    assert choices.remember(KEY, Choices(threads=1)) and choices.remembered(KEY) == Choices(threads=1)


def test_a_sound_entry_is_read(place: Path) -> None:
    """The entries above are wrong by what they change, not by their form."""
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"format": 2, "choices": [entry()]}))
    assert choices.remembered(KEY) == Choices(head="int8", threads=2, stream=STREAMS[2])


def test_the_file_stays_small(place: Path) -> None:
    for i in range(choices.MOST + 10):
        choices.remember(Key(f"model {i}", KEY.processor, KEY.kernels), Choices(threads=i + 1))
    found = choices.entries()
    assert len(found) == choices.MOST and found[-1][1].threads == choices.MOST + 10


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITNET_EDGE_CACHE", "/proc/self/nothing")
    assert not choices.remember(KEY, Choices(threads=1))
    assert choices.remembered(KEY) == Choices()


# ---- a model ---------------------------------------------------------------------------------------------------------


def test_a_model_is_known_by_shape_and_types(tiny_model: str, tmp_path: Path) -> None:
    copy = tmp_path / "another name.gguf"
    copy.write_bytes(Path(tiny_model).read_bytes())
    smaller = tmp_path / "q8.gguf"
    make_model.make(smaller, "tiny", embedding="Q8_0")
    names = [choices.model_of(open_checkpoint(str(path))) for path in (tiny_model, copy, smaller)]
    assert names[0] == names[1] != names[2]
    assert names[0].isprintable() and str(tmp_path) not in names[1]


def test_a_processor_is_known_by_more_than_its_name(tmp_path: Path) -> None:
    for name, text in (("a", "model name: EPYC\nmodel: 1\n"), ("b", "model name: EPYC\nmodel: 17\n")):
        (tmp_path / name / "proc").mkdir(parents=True)
        (tmp_path / name / "proc" / "cpuinfo").write_text(text)
    assert len({Board(str(tmp_path / name)).processor() for name in "ab"}) == 2


def key_of(path: str) -> Key:
    return choices.key_of(open_checkpoint(path))


def answer(engine: edge.Engine) -> list[int]:
    with engine.session() as session:
        return [token for piece in session.complete([1, 2, 3], max_tokens=12, ignore_eos=True,
                                                    sampling=edge.Sampling(seed=4)) for token in piece.ids]


def background() -> threading.Thread:
    """The thread that measures."""
    return next(thread for thread in threading.enumerate() if thread.name == "tuning")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models count as large ones, and so do their heads and the rows of these."""
    monkeypatch.setattr(tuning, "LEAST", 0)
    monkeypatch.setattr("edge.loading.LARGE_HEAD", 0)
    monkeypatch.setattr("pyx.head.bit_planes.BLOCK", 1)


def test_trials_measure_the_model_and_change_no_answer(tiny_model: str, place: Path, large: None) -> None:
    """Whatever is chosen, every answer is the same; what is measured is used at the next start, unless it is given."""
    with edge.load(tiny_model, threads=2, tune=False) as engine:
        expected = answer(engine)
        assert engine.tune() is None
    with edge.load(tiny_model) as engine:
        assert engine.tune() is None  # nothing was answered yet
        first = answer(engine)
        model = engine.model
        trials = tuning.Trials(model, open_checkpoint(tiny_model), engine.space.new_cache, ("two-stage", "int8"))
        listed = trials.alternatives()
        for name, values in listed.items():
            for value in values:
                for _ in range(2):
                    trials.seconds(name, value)
        assert answer(engine) == first == expected
    key = key_of(tiny_model)
    assert set(listed) == ({"threads", "stream", "head", "many_tokens"})
    choices.remember(key, Choices(head="int8", threads=1, stream=STREAMS[3], many_tokens=64))
    for options, head, threads in (({}, "int8", 1), ({"head": "two-stage", "threads": 2}, "two-stage", 2),
                                   ({"tune": False}, "two-stage", find().threads)):
        with edge.load(tiny_model, **options) as engine:
            assert (engine.model.transformer.head_kind, engine.n_threads) == (head, threads)
            assert answer(engine) == expected


@pytest.mark.parametrize("kv", ["int8", "f16"])
@pytest.mark.parametrize("ctx", [34, 256])
def test_trials_of_many_tokens_and_of_one_take_turns(
    tiny_model: str, place: Path, large: None, kv: str, ctx: int
) -> None:
    """They run through different numbers of layers; what was not clear is measured again, with the other in between."""
    with edge.load(tiny_model, ctx=ctx, kv=kv) as engine:
        answer(engine)
        trials = tuning.Trials(engine.model, open_checkpoint(tiny_model), engine.space.new_cache)
        for _ in range(3):
            trials.seconds("many_tokens", 32)
            for _ in range(50):
                trials.seconds("threads", 1)


def test_in_the_background_it_waits_for_an_answer(
    tiny_model: str, place: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_at: list[int] = []

    def measure(subject: tuning.Trials, **_: float) -> Choices:
        measured_at.append(engine.model.steps)
        return Choices(threads=1) if measured_at[0] == engine.model.steps else Choices(stream=STREAMS[2], head="int8")

    monkeypatch.setattr(tuning, "measure", measure)
    monkeypatch.setattr(tuning, "PAUSE", 0.01)
    monkeypatch.setattr(tuning, "AGAIN", 0.0)
    monkeypatch.setattr("edge.loading.choose", lambda *_: (1, None))  # with more, a busy machine is not measured
    with edge.load(tiny_model) as engine:
        engine.tune_when_idle()
        thread = background()
        thread.join(0.1)
        assert thread.is_alive() and not measured_at
        answer(engine)
        while choices.remembered(key_of(tiny_model)) != Choices(threads=1):
            thread.join(0.01)
        assert thread.is_alive() and len(measured_at) == 2 and measured_at[0] > 0  # twice, what was not clear
        answer(engine)  # the rest is measured behind the next one
        thread.join(20)
        assert not thread.is_alive() and len(measured_at) == 3
    assert choices.remembered(key_of(tiny_model)) == Choices(threads=1, stream=STREAMS[2], head="int8")


def test_an_answer_ends_a_measurement(tiny_model: str, place: Path, large: None) -> None:
    with edge.load(tiny_model) as engine:
        answer(engine)
        trials = tuning.Trials(engine.model, open_checkpoint(tiny_model), engine.space.new_cache,
                               idle=lambda: not engine.admission.running)
        assert trials.seconds("stream", STREAMS[1]) is not False
        with engine.session() as session:
            pieces = iter(session.complete([1, 2], max_tokens=4, ignore_eos=True))
            next(pieces)
            with pytest.raises(tuning.Disturbed):
                trials.seconds("stream", STREAMS[1])
            list(pieces)


def test_how_weights_are_read_is_used_at_once(
    tiny_model: str, place: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a number of threads that was asked for, too: it is not compared, and has an entry of its own."""
    compared: list[str] = []

    def measure(subject: tuning.Trials, **_: float) -> Choices:
        compared.extend(name for name, values in subject.alternatives().items() if len(values) > 1)
        return Choices(stream=STREAMS[3])

    monkeypatch.setattr(tuning, "measure", measure)
    cpu.choose()  # as a load does, whether or not another test has loaded a model in this process
    own = cpu.chosen_now()[0]
    with edge.load(tiny_model, threads=1) as engine:
        expected = answer(engine)
        assert cpu.chosen_now()[0] == own != STREAMS[3]
        assert engine.tune() == Choices(stream=STREAMS[3]) and "threads" not in compared
        assert cpu.chosen_now()[0] == STREAMS[3] and answer(engine) == expected
        with edge.load(tiny_model, threads=2) as second:  # what all models share stays
            answer(second)
            monkeypatch.setattr(tuning, "measure", lambda *_, **__: Choices(stream=STREAMS[4]))
            assert second.tune() and cpu.chosen_now()[0] == STREAMS[3]
    with edge.load(tiny_model):
        assert cpu.chosen_now()[0] == own
    with edge.load(tiny_model, threads=1):
        assert cpu.chosen_now()[0] == STREAMS[3]


def test_closing_ends_the_wait(tiny_model: str, place: Path, large: None) -> None:
    engine = edge.load(tiny_model)
    engine.tune_when_idle()
    thread = background()
    engine.close()
    assert not thread.is_alive() and not place.exists()


def test_small_models_are_not_measured(tiny_model: str, place: Path) -> None:
    with edge.load(tiny_model) as engine:
        answer(engine)
        assert engine.tune() is None


def test_only_types_that_give_the_same_answers_are_compared(tiny_model: str, large: None) -> None:
    checkpoint, wishes = open_checkpoint(tiny_model), KVConfig()
    assert head_for("auto", checkpoint, wishes) == ("two-stage", ("two-stage", "int8"))
    assert head_for("auto", checkpoint, wishes, measured="int8") == ("int8", ("two-stage", "int8"))
    assert head_for("auto", checkpoint, wishes, measured="q8_0")[0] == "two-stage"
    assert head_for("f16", checkpoint, wishes, measured="int8") == ("f16", ())
    assert head_for("auto", checkpoint, wishes, constrained=True, measured="two-stage") == ("int8", ())


@pytest.mark.parametrize("isa", cpu.supported())
def test_prompts_are_read_to_the_same_bits(tiny_model: str, isa: str) -> None:
    """From however many tokens on tables are looked up, and however weights are read."""

    def logits(engine: edge.Engine) -> bytes:
        out = array("f", bytes(4 * engine.config.n_vocab))
        ids = array("i", [(7 * i * i + 3 * i) % 500 for i in range(60)])
        engine.model.transformer.step([Segment(engine.space.new_cache(), ids, out)])
        return out.tobytes()

    with edge.load(tiny_model, isa=isa, threads=1) as engine:
        own = cpu.chosen_now()
        expected = logits(engine)
        try:
            for stream, many in ((None, 16), ((1, "once", 1024), 32), ((2, "L2", 1 << 20), 1024)):
                cpu.choose(stream, many)
                assert cpu.chosen_now() == (stream or own[0], many)
                assert logits(engine) == expected
        finally:
            cpu.choose()
        assert cpu.chosen_now() == own
        for wrong in (((4, "L1", 1 << 30), 0), ((3, "L1", 0), 0), ((4, "L3", 0), 0), (None, 8)):
            with pytest.raises(ValueError, match="out of range"):
                cpu.choose(*wrong)


def test_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """--set tune=off and its variable."""
    given: list[Any] = []

    def load(*_: Any, **options: Any) -> None:
        given.append(options.get("tune"))
        raise edge.EdgeError("enough")

    monkeypatch.setattr(edge, "load", load)
    off = "tune=off"
    for arguments, variable in (([], None), (["--set", off], None), ([], off), (["--set", "tune=on"], off)):
        CliRunner().invoke(cli, ["run", "-m", "demo", *arguments, "hello"], env={"BITNET_EDGE_SET": variable})
    assert given == [None, False, False, True]
