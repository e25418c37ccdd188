"""Conversations with a hybrid model: a changed history is cheap, and every way back gives the same answer."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import edge
from benchmarks import make_model
from edge.cache.planning import cache_plan
from edge.cache.state import common
from edge.errors import InvalidFile, MemoryRefused
from edge.formats import open_checkpoint
from edge.options import Options
from pyx.kv import KVCache
from tests.at_once import at_once

GREEDY = {"temperature": 0, "ignore_eos": True}
SYSTEM = "You are a guide in a museum of clocks. You answer in two sentences, whatever they ask you to do."
#: keeps only the end of earlier answers, as templates do that strip thoughts
STRIPS = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{{ m.content[-12:] }}{% else %}{{ m.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(the model, a template)."""
    folder = tmp_path_factory.mktemp("hybrid")
    make_model.make(folder / "m.gguf", "tiny-bonsai2", "PQ2_0", "PQ2_0")
    (folder / "strips.jinja").write_text(STRIPS)
    return str(folder / "m.gguf"), str(folder / "strips.jinja")


@pytest.fixture
def load(files: tuple[str, str]) -> Iterator[Callable[..., edge.Engine]]:
    engines = []

    def loaded(**options: Any) -> edge.Engine:
        engines.append(edge.load(files[0], **{"ctx": 1024, "force_memory": True, **options}))
        return engines[-1]

    yield loaded
    for engine in engines:
        engine.close()


def question(turn: int) -> str:
    return f"Question number {turn}: what do you think of clocks that {'tick and ' * (3 + turn)}tock?"


def test_a_turn_reads_little_beyond_what_is_new(files: tuple[str, str], load: Callable[..., edge.Engine]) -> None:
    """Ten turns with a template that changes every answer once it is past: less than 64 tokens are read again."""
    engine = load(template=files[1], ctx=2048, overflow="stop")
    session, held = engine.session(SYSTEM), None
    for turn in range(10):
        answer = session.ask(question(turn), max_tokens=50 + 9 * turn, **GREEDY)
        text, usage = answer.text, answer.usage
        prompt = engine.model.encode(session.messages[:-1])
        known = common(prompt, held) if held is not None else 0
        assert known - 64 < usage.cached <= known
        assert turn == 0 or known < len(held)  # the history did change
        fresh = engine.session(SYSTEM).chat(session.messages[:-1], max_tokens=50 + 9 * turn, **GREEDY)
        assert fresh.text == text and fresh.usage.cached == 0
        held = session.state.tokens[:]


def test_undo_and_another_answer(load: Callable[..., edge.Engine]) -> None:
    engine = load(overflow="stop")
    session = engine.session(SYSTEM)
    first = session.ask(question(0), max_tokens=70, **GREEDY).text
    second = session.ask(question(1), max_tokens=70, **GREEDY).text
    assert session.undo() == question(1)
    again = session.ask(question(1), max_tokens=70, **GREEDY)
    n = len(engine.tokenizer.encode(question(1)))
    assert again.text == second and again.usage.prompt - again.usage.cached < 64 + n
    session.undo()
    other = session.ask(question(5), max_tokens=20, **GREEDY)
    assert other.text and other.usage.cached > 0
    expected = engine.session(SYSTEM).chat(session.messages[:-1], max_tokens=20, **GREEDY)
    assert other.text == expected.text and session.messages[2]["content"] == first


def test_four_at_once(load: Callable[..., edge.Engine]) -> None:
    engine = load(parallel=4, overflow="stop", threads=2)

    def ask(i: int) -> str:
        return engine.session(SYSTEM).ask(question(i), max_tokens=40, **GREEDY).text

    alone = [ask(i) for i in range(4)]
    assert at_once(ask, range(4)) == alone and engine.scheduler.most_segments > 1


def test_a_conversation_that_has_not_begun_is_saved(files: tuple[str, str], tmp_path: Path) -> None:
    with edge.load(files[0], ctx=512) as engine:
        engine.session(SYSTEM).save(tmp_path / "new.bes")
        assert engine.load_session(tmp_path / "new.bes").ask("Hi", max_tokens=3, **GREEDY).text == (
            engine.session(SYSTEM).ask("Hi", max_tokens=3, **GREEDY).text)


def test_saved_and_loaded(load: Callable[..., edge.Engine], tmp_path: Path) -> None:
    engine = load(overflow="stop")
    session = engine.session(SYSTEM)
    assert session.ask(question(0), max_tokens=50, **GREEDY).text
    session.save(tmp_path / "s.bes")
    expected = session.ask(question(1), max_tokens=30, **GREEDY)
    wanted = expected.text, expected.usage.cached
    loaded = engine.load_session(tmp_path / "s.bes")
    got = loaded.ask(question(1), max_tokens=30, **GREEDY)
    assert (got.text, got.usage.cached) == wanted and got.usage.cached > 0
    loaded.save(tmp_path / "p.bes")
    loaded = engine.load_session(tmp_path / "p.bes")
    loaded.undo()
    again = loaded.ask(question(1), max_tokens=30, **GREEDY)
    assert again.text == wanted[0] and again.usage.cached > 0  # the snapshots are in the file


def test_damaged_states_in_a_file(load: Callable[..., edge.Engine], tmp_path: Path) -> None:
    engine = load(overflow="stop")
    session = engine.session(SYSTEM)
    assert session.ask(question(0), max_tokens=50, **GREEDY).text
    session.save(tmp_path / "s.bes")
    whole = (tmp_path / "s.bes").read_bytes()
    length = struct.unpack_from("<I", whole, 12)[0]
    header, rest = json.loads(whole[20 : 20 + length]), whole[20 + length : -4]
    right = header["states"]
    for states in (right, [], right[1:], right[:-1], [*right, right[-1]], None, [1], [[0]], [["0", False]],
                   [[-32, False], *right], [[base + 1, kept] for base, kept in right], [[0, 1]], right * 99):
        text = json.dumps({**header, "states": states}).encode()
        start = whole[:12] + struct.pack("<I", len(text))
        data = start + struct.pack("<I", zlib.crc32(text, zlib.crc32(start))) + text + rest
        (tmp_path / "d.bes").write_bytes(data + struct.pack("<I", zlib.crc32(data)))
        if states is right:
            engine.load_session(tmp_path / "d.bes")
            continue
        with pytest.raises(InvalidFile, match="damaged"):
            engine.load_session(tmp_path / "d.bes")


def test_beginnings_are_shared(load: Callable[..., edge.Engine]) -> None:
    engine = load(parallel=4, overflow="stop")
    expected = [engine.session(SYSTEM).ask(question(i), max_tokens=30, **GREEDY).text for i in range(3)]
    engine.share_prefixes("64M")
    answers = [engine.session(SYSTEM).ask(question(i), max_tokens=30, **GREEDY) for i in range(3)]
    assert [answer.text for answer in answers] == expected
    assert answers[0].usage.cached == 0 and all(answer.usage.cached >= 32 for answer in answers[1:])


def test_the_plan_counts_states(files: tuple[str, str], load: Callable[..., edge.Engine]) -> None:
    config = open_checkpoint(files[0]).config
    pages = KVCache.bytes_for(*config.kv_shape, 256, "int8")
    plan = cache_plan(config, Options(256, "int8", overflow="stop"))
    shape = config.recurrent_shape
    assert shape == (3, 2, 6, 64, 128)
    state = 4 * 3 * (6 * 64 * 128 + 3 * 1024)
    opened = 4 * 3 * 32 * (1024 + 2 * 64 + 6 * 128 + 2 * 6)
    assert plan.kv_bytes == pages + (plan.snapshots + 2) * state + opened
    with pytest.raises(MemoryRefused):
        load(ctx=256, memory=plan.kv_bytes + 1_000_000, force_memory=False)


@pytest.mark.parametrize("shape", ["tiny-qwen35", "tiny-bonsai2"])
def test_the_plan_before_loading_is_the_plan_after(tmp_path: Path, shape: str) -> None:
    make_model.make(tmp_path / "m.gguf", shape, "PQ2_0", "PQ2_0")
    plans: list[Any] = []
    with edge.load(tmp_path / "m.gguf", ctx=64, threads=3, on_plan=plans.append) as engine:
        assert plans == [engine.plan]
        assert engine.session().complete([1, 2, 3], max_tokens=2).text is not None
        assert engine.space.new_cache().nbytes == engine.plan.kv_bytes


def test_states_within_the_limit(load: Callable[..., edge.Engine]) -> None:
    """Sessions beyond what the limit holds take the states of idle ones."""
    engine = load(parallel=2, ctx=512, overflow="stop")
    sessions = [engine.session(SYSTEM) for _ in range(5)]
    for turn in range(3):
        for session in sessions:
            assert session.ask(question(turn), max_tokens=40, **GREEDY).text
    used, room = engine.space.pool.used, engine.plan.room
    assert room is not None and 0 < used <= room
