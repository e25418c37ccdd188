"""Conversations that wait in memory: found again with the same bits, the one that waited longest gives way first."""

from __future__ import annotations

from pathlib import Path

import pytest

import edge
from edge.engine import Engine
from edge.kv.config import FREE_SHARE, KVConfig
from edge.model.footprint import Footprint

GREEDY = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}


def asked(n: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Guest {n}: two teas and {n} scones, please. " * 4}]


def talk(engine: Engine, count: int) -> list[list[dict[str, str]]]:
    """So many conversations through one session, each set aside after its first answer."""
    session, talks = engine.session(), []
    for n in range(count):
        session.chat(asked(n), **GREEDY).text  # noqa: B018  to its end
        session.set_aside()
        talks.append([dict(each) for each in session.messages])
    return talks


def test_one_that_comes_back_has_the_same_bits(bundled_model: Path) -> None:
    more = {"role": "user", "content": "And a cake."}
    with edge.load(bundled_model, parallel=1, aside=8) as engine:
        engine.share_prefixes("1M")
        talks = talk(engine, 5)
        session = engine.session()
        assert session.take_up([*talks[2], more])
        answer = session.chat([*talks[2], more], **GREEDY)
        text, held = answer.text, b"".join(map(bytes, session.state.kv.dump()))
        assert answer.usage.cached > answer.usage.prompt // 2
    with edge.load(bundled_model, parallel=1) as engine:
        alone = engine.session()
        alone.chat(asked(2), **GREEDY).text  # noqa: B018
        assert alone.chat([*talks[2], more], **GREEDY).text == text
        assert b"".join(map(bytes, alone.state.kv.dump())) == held


def test_the_one_that_waited_longest_gives_way_first(bundled_model: Path) -> None:
    with edge.load(bundled_model, parallel=1, aside=8) as engine:
        engine.share_prefixes("1M")
        talks = talk(engine, 4)
        session = engine.session()
        assert session.take_up(talks[0])
        session.set_aside()  # used again: now the latest
        assert engine.space.drop_aside() and engine.space.drop_aside()
        assert [session.take_up(each) for each in talks] == [True, False, False, True]
        assert not engine.space.drop_aside()


def test_they_pay_for_their_tables(bundled_model: Path) -> None:
    """More short conversations than the room holds: what they take beside their pages counts, too."""
    with edge.load(bundled_model, parallel=1, aside=1) as engine:
        engine.share_prefixes("1M")
        talk(engine, 40)
        space = engine.space
        assert 0 < len(space.shelf) < 40
        assert space.pool.used + space.shelf.beside <= engine.plan.room + 2 * (space.shelf.beside // len(space.shelf))


@pytest.mark.parametrize(("free", "contexts"), [(1 << 40, 8), (1 << 20, 0), (0, 0)])
def test_what_is_planned_for_them(bundled_model: Path, free: int, contexts: int) -> None:
    """So many contexts, but no more than a share of what is free; with a limit they take what it leaves."""
    with edge.load(bundled_model) as engine:
        config = engine.config
    plain = KVConfig(parallel=2).plan(config)
    available = plain.kv_total + free
    plan = KVConfig(parallel=2, aside=8).plan(config, Footprint(), available)
    assert plan.aside == (8 * plan.kv_bytes if contexts else free // FREE_SHARE)
    assert plan.room == plan.kv_total + plan.aside and plan.total_bytes == plan.room
    assert any(line.startswith("aside") for line in plan.lines()) is (plan.aside > 0)
    limited = KVConfig(parallel=2, aside=8, memory=plain.kv_total + 1_000_000).plan(config, Footprint(), 1 << 40)
    assert limited.aside == 0 and limited.room == plain.kv_total + 1_000_000
