"""What is measured to be fastest on a machine (edge.model.tuning), and what is remembered of it (edge.model.choices).

The machine and its clock are made up: real load plays no part.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import edge
from benchmarks import make_model
from edge.formats import open_checkpoint
from edge.loading import head_for
from edge.model import choices, tuning
from edge.model.board import Board
from edge.model.choices import Choices, Key
from edge.model.cores import find
from pyx import cpu

KEY = Key("bitnet-b1.58, 2 layers", "AMD EPYC (25, 1, 1), avx2, 2 of 2 cores", "1000 bytes")


class Machine:
    """Takes ``seconds`` for each value of each choice, with noise, and now and then another program runs."""

    def __init__(self, seconds: dict[str, dict[Any, float]], noise: float = 0.01, seed: int = 1) -> None:
        self.table, self.noise, self.random = seconds, noise, random.Random(seed)
        self.now = 100.0
        self.busy = False  # another program takes a core
        self.drift = 1.0  # by how much the next trial takes longer than the last, as the memory gets slower
        self.used: dict[str, Any] = {}

    def clock(self) -> float:
        return self.now

    def alternatives(self) -> dict[str, Sequence[Any]]:
        return {name: list(values) for name, values in self.table.items()}

    def seconds(self, name: str, value: Any) -> float | None:
        taken = self.table[name][value] * (1 + self.random.uniform(0, self.noise))
        for values in self.table.values():
            for each in values:
                values[each] *= self.drift
        self.now += 1.1 * taken  # a trial also prepares what it measures
        return None if self.busy else taken

    def use(self, name: str, value: Any) -> None:
        self.used[name] = value


def measured(machine: Machine, bound: float = tuning.BOUND) -> Choices:
    begun = machine.now
    found = tuning.measure(machine, machine.clock, bound)
    assert machine.now - begun <= bound
    return found


def test_a_worse_default_is_corrected() -> None:
    machine = Machine({
        "threads": {4: 0.010, 3: 0.009, 2: 0.014}, "ahead": {24576: 0.010, 4096: 0.008, 49152: 0.012},
        "head": {"two-stage": 0.011, "int8": 0.010}, "many_tokens": {16: 0.02, 32: 0.02}})  # fmt: skip
    assert measured(machine) == Choices(head="int8", threads=3, ahead=4096, many_tokens=16)
    assert machine.used == {"threads": 3, "ahead": 4096, "head": "int8", "many_tokens": 16}


def test_a_default_that_is_as_good_stays() -> None:
    machine = Machine({"head": {"two-stage": 0.010, "int8": 0.0098}, "threads": {2: 0.010, 1: 0.017}})
    assert measured(machine) == Choices(head="two-stage", threads=2)


@pytest.mark.parametrize("seed", range(20))
def test_noise_chooses_nothing(seed: int) -> None:
    """Equal alternatives on a machine where times vary by half: hardly ever is one taken to be better."""
    machine = Machine({"head": {"two-stage": 0.010, "int8": 0.010}}, noise=0.5, seed=seed)
    assert measured(machine).head in (None, "two-stage")


def test_a_machine_that_changes_meanwhile_chooses_nothing() -> None:
    machine = Machine({"head": {"two-stage": 0.010, "int8": 0.009}})
    machine.drift = 1.2
    assert not measured(machine)


def test_a_busy_machine_ends_the_measurement() -> None:
    machine = Machine({"threads": {2: 0.010, 1: 0.017}, "head": {"two-stage": 0.010, "int8": 0.005}})
    machine.busy = True
    with pytest.raises(tuning.Disturbed):
        tuning.measure(machine, machine.clock)
    assert machine.now - 100.0 < 0.1


@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.1, 0.15])
@pytest.mark.parametrize("bound", [0.2, 0.5, 0.9])
def test_the_bound_is_kept(seconds: float, bound: float) -> None:
    """On a slow machine less is measured; what was not measured often enough keeps its default."""
    names = ("threads", "ahead", "head", "many_tokens")
    machine = Machine({name: {"a": seconds, "b": seconds / 2, "c": seconds} for name in names})
    begun = machine.now
    machine.alternatives()
    found: dict[str, Any] = {}
    machine.use = lambda name, value: found.update({name: value})  # type: ignore[method-assign]
    try:
        tuning.measure(machine, machine.clock, bound)
    except TypeError:
        pytest.fail("a choice that is not a field")
    assert machine.now - begun <= bound + 1.1 * seconds * 1.01 * len(names)  # the first of each has no forerunner
    assert set(found.values()) <= {"a", "b"}


# ---- the file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BITNET_EDGE_CACHE", str(tmp_path / "cache"))
    assert choices.place() == str(tmp_path / "cache" / "choices.json")
    return Path(choices.place())


def test_what_was_measured_is_remembered(place: Path) -> None:
    assert choices.remembered(KEY) == Choices()
    assert choices.remember(KEY, Choices(head="int8", threads=2))
    assert choices.remember(KEY, Choices(head="two-stage", ahead=4096))
    assert choices.remembered(KEY) == Choices(head="two-stage", ahead=4096)
    assert len(choices.entries()) == 1
    assert choices.remember(KEY, Choices()) and choices.remembered(KEY) == Choices()
    assert [path.name for path in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize("other", [
    Key("another model", KEY.processor, KEY.kernels),
    Key(KEY.model, "Cortex-A72, neon, 4 of 4 cores", KEY.kernels),
    Key(KEY.model, KEY.processor, "2000 bytes"),
])
def test_of_another_model_processor_or_build_nothing_is_used(place: Path, other: Key) -> None:
    choices.remember(KEY, Choices(threads=1))
    assert choices.remembered(other) == Choices()
    choices.remember(other, Choices(threads=3))
    assert choices.remembered(KEY) == Choices(threads=1) and choices.remembered(other) == Choices(threads=3)


def entry(**changes: Any) -> dict[str, Any]:
    fields = {"model": KEY.model, "processor": KEY.processor, "kernels": KEY.kernels}
    return {**fields, "head": "int8", "threads": 2, "ahead": None, "many_tokens": None, **changes}


@pytest.mark.parametrize("content", [
    "", "{", "[]", "null", "[" * 100_000, '{"format": 1}', "\0" * 50, "x" * 100_000,
    json.dumps({"format": 2, "choices": [entry()]}),
    json.dumps({"format": 1, "choices": {"head": "int8"}}),
    json.dumps({"format": 1, "choices": [entry(), 7]}),
    json.dumps({"format": 1, "choices": [entry(head="a/b")]}),
    json.dumps({"format": 1, "choices": [entry(threads=-1)]}),
    json.dumps({"format": 1, "choices": [entry(threads=True)]}),
    json.dumps({"format": 1, "choices": [entry(threads="2")]}),
    json.dumps({"format": 1, "choices": [entry(ahead=1 << 40)]}),
    json.dumps({"format": 1, "choices": [entry(many_tokens=1)]}),
    json.dumps({"format": 1, "choices": [entry(model=None)]}),
    json.dumps({"format": 1, "choices": [entry(model="a\x1b[2J")]}),
])  # fmt: skip
def test_a_damaged_file_counts_as_absent_and_is_replaced(place: Path, content: str) -> None:
    place.parent.mkdir(parents=True)
    place.write_text(content)
    assert choices.entries() == [] and choices.remembered(KEY) == Choices()
    assert choices.remember(KEY, Choices(threads=1)) and choices.remembered(KEY) == Choices(threads=1)


def test_a_sound_entry_is_read(place: Path) -> None:
    """The entries above are wrong by what they change, not by their form."""
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"format": 1, "choices": [entry()]}))
    assert choices.remembered(KEY) == Choices(head="int8", threads=2)


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


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tuning") / "tiny.gguf"
    make_model.make(path, "tiny")
    return str(path)


def test_a_model_is_known_by_shape_and_types(tiny: str, tmp_path: Path) -> None:
    copy = tmp_path / "another name.gguf"
    copy.write_bytes(Path(tiny).read_bytes())
    smaller = tmp_path / "q8.gguf"
    make_model.make(smaller, "tiny", embedding="Q8_0")
    names = [choices.model_of(open_checkpoint(str(path))) for path in (tiny, copy, smaller)]
    assert names[0] == names[1] != names[2]
    assert names[0].isprintable() and str(tmp_path) not in names[1]


def test_a_processor_is_known_by_more_than_its_name(tmp_path: Path) -> None:
    for name, text in (("a", "model name: EPYC\nmodel: 1\n"), ("b", "model name: EPYC\nmodel: 17\n")):
        (tmp_path / name / "proc").mkdir(parents=True)
        (tmp_path / name / "proc" / "cpuinfo").write_text(text)
    assert len({choices.processor_of(Board(str(tmp_path / name))) for name in "ab"}) == 2


def key_of(path: str) -> Key:
    return choices.key_of(open_checkpoint(path))


def answer(engine: edge.Engine) -> list[int]:
    with engine.session() as session:
        return [token for piece in session.complete([1, 2, 3], max_tokens=12, ignore_eos=True,
                                                    sampling=edge.Sampling(seed=4)) for token in piece.ids]  # fmt: skip


def background() -> threading.Thread:
    """The thread that measures."""
    return next(thread for thread in threading.enumerate() if thread.name == "tuning")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models count as large ones, and so do their heads and the rows of these."""
    monkeypatch.setattr(tuning, "LEAST", 0)
    monkeypatch.setattr("edge.loading.LARGE_HEAD", 0)
    monkeypatch.setattr("pyx.bit_planes.BLOCK", 1)


def test_trials_measure_the_model_and_change_no_answer(tiny: str, place: Path, large: None) -> None:
    """Whatever is chosen, every answer is the same; what is measured is used at the next start, unless it is given."""
    with edge.load(tiny, threads=2, tune=False) as engine:
        expected = answer(engine)
        assert engine.tune() is None and not engine.measures
    with edge.load(tiny) as engine:
        assert engine.tune() is None  # nothing was answered yet
        first = answer(engine)
        model = engine.model
        trials = tuning.Trials(model, open_checkpoint(tiny), engine.space.new_cache, ("two-stage", "int8"))
        listed = trials.alternatives()
        for name, values in listed.items():
            for value in values:
                for _ in range(2):
                    trials.seconds(name, value)
        assert answer(engine) == first == expected
    key = key_of(tiny)
    assert set(listed) == ({"threads", "ahead", "head", "many_tokens"})
    for head in ("int8", "two-stage"):
        choices.remember(key, Choices(head=head, threads=1, ahead=4096, many_tokens=64))
        with edge.load(tiny) as engine:
            assert (engine.model.transformer.head_kind, engine.n_threads) == (head, 1)
            assert any("measured on this machine" in note for note in engine.notes)
            assert answer(engine) == expected
        with edge.load(tiny, head="int8", threads=2) as engine:
            assert (engine.model.transformer.head_kind, engine.n_threads) == ("int8", 2)
            assert answer(engine) == expected
        with edge.load(tiny, tune=False) as engine:
            assert (engine.model.transformer.head_kind, engine.n_threads) == ("two-stage", find().threads)
            assert answer(engine) == expected


def test_in_the_background_it_waits_for_an_answer(
    tiny: str, place: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_at: list[int] = []

    def measure(subject: tuning.Trials) -> Choices:
        measured_at.append(engine.model.steps)
        return Choices(threads=1)

    monkeypatch.setattr(tuning, "measure", measure)
    monkeypatch.setattr(tuning, "PAUSE", 0.01)
    monkeypatch.setattr("edge.loading.choose", lambda *_: (1, None))  # with more, a busy machine is not measured
    with edge.load(tiny) as engine:
        engine.tune_when_idle()
        thread = background()
        thread.join(0.1)
        assert thread.is_alive() and not measured_at
        answer(engine)
        thread.join(20)
        assert not thread.is_alive() and len(measured_at) == 1 and measured_at[0] > 0
    assert choices.remembered(key_of(tiny)) == Choices(threads=1)
    with edge.load(tiny) as engine:
        assert engine.measures  # the head is not known yet


def test_an_answer_ends_a_measurement(tiny: str, place: Path, large: None) -> None:
    with edge.load(tiny) as engine:
        answer(engine)
        trials = tuning.Trials(
            engine.model, open_checkpoint(tiny), engine.space.new_cache, idle=lambda: not engine.admission.running)
        assert trials.seconds("ahead", 4096) is not False
        with engine.session() as session:
            pieces = iter(session.complete([1, 2], max_tokens=4, ignore_eos=True))
            next(pieces)
            with pytest.raises(tuning.Disturbed):
                trials.seconds("ahead", 4096)
            list(pieces)


def test_closing_ends_the_wait(tiny: str, place: Path, large: None) -> None:
    engine = edge.load(tiny)
    engine.tune_when_idle()
    thread = background()
    engine.close()
    assert not thread.is_alive() and not place.exists()


def test_small_models_are_not_measured(tiny: str, place: Path) -> None:
    with edge.load(tiny) as engine:
        answer(engine)
        assert not engine.measures and engine.tune() is None


def test_only_types_that_give_the_same_answers_are_compared(tiny: str, large: None) -> None:
    from edge.cache.config import KVConfig

    checkpoint, wishes = open_checkpoint(tiny), KVConfig()
    assert head_for("auto", checkpoint, wishes) == ("two-stage", ("two-stage", "int8"))
    assert head_for("auto", checkpoint, wishes, measured="int8") == ("int8", ("two-stage", "int8"))
    assert head_for("auto", checkpoint, wishes, measured="int4")[0] == "two-stage"
    assert head_for("f16", checkpoint, wishes, measured="int8") == ("f16", ())
    assert head_for("auto", checkpoint, wishes, constrained=True, measured="two-stage") == ("int8", ())


@pytest.mark.parametrize("isa", cpu.supported())
def test_prompts_are_read_to_the_same_bits(tiny: str, isa: str) -> None:
    """From however many tokens on tables are looked up, and however far ahead weights are fetched."""
    from array import array

    from pyx.transformer import Segment

    def logits(engine: edge.Engine) -> bytes:
        out = array("f", bytes(4 * engine.config.n_vocab))
        ids = array("i", [(7 * i * i + 3 * i) % 500 for i in range(60)])
        engine.model.transformer.step([Segment(engine.space.new_cache(), ids, out)])
        return out.tobytes()

    with edge.load(tiny, isa=isa, threads=1) as engine:
        own = cpu.chosen_now()
        expected = logits(engine)
        try:
            for ahead, many in ((0, 16), (1024, 32), (1 << 20, 1024)):
                cpu.choose(ahead, many)
                assert cpu.chosen_now() == (ahead or own[0], many)
                assert logits(engine) == expected
        finally:
            cpu.choose()
        assert cpu.chosen_now() == own
        for wrong in ((-1, 0), (1 << 30, 0), (0, 8)):
            with pytest.raises(ValueError, match="out of range"):
                cpu.choose(*wrong)


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """--no-tune, its variable, and doctor --tune."""
    from click.testing import CliRunner

    from edge.cli.group import cli

    done = CliRunner().invoke(cli, ["doctor", "--no-selftest", "--tune", "-m", "demo"])
    assert done.exit_code == 0 and "nothing to choose" in done.stderr and not choices.entries()
    choices.remember(Key("a model", choices.processor_of(), choices.kernels()), Choices(head="int8"))
    choices.remember(Key("another machine's", "Cortex-A53", choices.kernels()), Choices(threads=3))
    shown = CliRunner().invoke(cli, ["doctor", "--no-selftest"]).stdout
    assert "head int8 (a model)" in shown and "another machine's" not in shown

    given: list[Any] = []

    def load(*_: Any, **options: Any) -> None:
        given.append(options.get("tune"))
        raise edge.EdgeError("enough")

    monkeypatch.setattr(edge, "load", load)
    for arguments, variable in (([], None), (["--no-tune"], None), ([], "0"), (["--tune"], "0")):
        CliRunner().invoke(cli, ["run", "-m", "demo", *arguments, "hello"], env={"BITNET_EDGE_TUNE": variable})
    assert given == [None, False, False, True]
