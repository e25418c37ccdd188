"""Many answers at once: the same as alone, fair, bounded, cancellable, and none harmed by another."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import edge
import edge.aio
from edge.errors import Busy, MemoryRefused, UsageError
from edge.session import scheduler as scheduling
from pyx.step import Segment
from tests import fakes
from tests.at_once import together
from tests.campaigns import many

GREEDY = {"temperature": 0, "ignore_eos": True}


# ---- the same as alone -----------------------------------------------------------------------------------------------


def test_sessions_that_come_and_go_say_what_they_say_alone(bundled_model) -> None:
    """The campaign of tests/campaigns/many.py in some seconds."""
    counts, wrong = many.campaign(0, seed=3, sessions=30, length=3, threads=1)
    assert not wrong, "\n".join(wrong)
    assert counts["sessions"] == 30 and counts["segments of the fullest step"] > 4


def test_steps_are_shared() -> None:
    engine = fakes.engine()
    engine.model.transformer.hook = lambda: time.sleep(0.002)
    alone = engine.session().ask("question", max_tokens=30, **GREEDY).text
    before = engine.scheduler.steps
    sessions = [engine.session() for _ in range(4)]
    found = together(*(lambda s=s: s.ask("question", max_tokens=30, **GREEDY).text for s in sessions))
    assert found == [alone] * 4
    assert engine.scheduler.most_segments == 4
    assert engine.scheduler.steps - before < 2 * 31  # of 4 * 31
    assert engine.scheduler.running == 0


def test_leaving_an_async_loop_ends_the_answer() -> None:
    engine = fakes.engine(fakes.script("abcdefghijklmnopqrstuvwxyz" * 4, "next"))
    session = engine.session()

    async def main() -> str:
        answer = session.ask("q", max_tokens=100, temperature=0)
        async with edge.aio.pieces(answer) as pieces:
            async for piece in pieces:
                if piece.text == "c":
                    break
        return await edge.aio.text(session.ask("go on", temperature=0))

    async def cancelled() -> None:
        task = asyncio.create_task(edge.aio.text(session.ask("q", max_tokens=4000, **GREEDY)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert asyncio.run(asyncio.wait_for(main(), 30)) == "next"
    said = session.messages[1]["content"]
    assert said.startswith("abc") and len(said) < 3 + 2 * edge.aio.AHEAD
    engine.model.transformer.hook = lambda: time.sleep(0.001)
    asyncio.run(asyncio.wait_for(cancelled(), 30))
    assert engine.scheduler.running == 0


def test_async_errors_reach_their_reader() -> None:
    engine = fakes.engine(n_ctx=40)

    async def main() -> None:
        with pytest.raises(edge.EdgeError, match="context 40"):
            await edge.aio.text(engine.session().ask("q" * 50))
        assert await edge.aio.text(engine.session().ask("q", max_tokens=3, **GREEDY))

    asyncio.run(asyncio.wait_for(main(), 30))


def test_ctrl_c_while_others_run_ends_the_answer() -> None:
    """The thread that waits is interrupted; the stepping thread has let go of the answer then."""
    engine = fakes.engine()
    other = engine.session().ask("q", max_tokens=50, **GREEDY)
    next(other)
    engine.model.transformer.hook = lambda: time.sleep(0.002)
    session = engine.session()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    for whole in (False, True) * 3:
        answer = session.ask("q", max_tokens=100_000, **GREEDY)
        next(answer)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            if whole:
                _ = answer.text
            else:
                for _ in answer:
                    pass
        assert answer.finish_reason == "cancelled" and engine.scheduler.running == 1
    signal.signal(signal.SIGINT, before)
    assert session.ask("q", max_tokens=3, **GREEDY).text
    other.close()


class Losing:
    """A queue: Ctrl-C comes when get() has taken the end, as many times as it is told."""

    def __init__(self, queue: Any, times: int) -> None:
        self.queue, self.times = queue, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queue, name)

    def get(self, *_: object, **__: object) -> Any:
        item = self.queue.get()
        if item is scheduling.END and self.times:
            self.times -= 1
            raise KeyboardInterrupt
        return item


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_together_with_the_end_of_an_answer(times: int) -> None:
    """Regression: the end was lost, and the thread waited for it for ever."""
    engine = fakes.engine()
    session = engine.session()
    answer = session.ask("q", max_tokens=2, **GREEDY)
    next(answer)
    answer.job.pieces = Losing(answer.job.pieces, times)
    for _ in range(times):
        with pytest.raises(KeyboardInterrupt):
            for _ in answer:
                pass
    assert list(answer) == [] and answer.finish_reason == "length" and engine.scheduler.running == 0
    assert session.ask("q", max_tokens=3, **GREEDY).text


def test_a_loop_that_is_left_is_where_it_was() -> None:
    """However long it is away: nothing is written that was not asked for."""
    engine = fakes.engine(fakes.script("abcdefghij", "next"))
    session = engine.session()
    answer = session.ask("q", temperature=0)
    assert [next(answer).text for _ in range(3)] == ["a", "b", "c"]
    time.sleep(0.05)
    steps = engine.scheduler.steps
    assert answer.usage.completion == 0 and answer.outcome.said == b"abc"
    assert next(answer).text == "d" and engine.scheduler.steps <= steps + 1
    answer.close()
    assert session.messages[-1]["content"] == "abcd"
    assert session.ask("r", temperature=0).text == "next"


def test_an_answer_in_a_cycle_ends_when_it_is_collected() -> None:
    session = fakes.engine(fakes.script("abc", "next")).session()
    held: list[object] = [session.ask("q", temperature=0)]
    next(held[0])  # type: ignore[call-overload]
    held.append(held)
    del held
    gc.collect()
    assert session.ask("r", temperature=0).text == "next"


def test_a_program_may_end_during_an_answer(root) -> None:
    code = """if True:
        import edge
        engine = edge.load("demo", ctx=128, threads=1)
        answers = [engine.session().ask("Hi", max_tokens=99, ignore_eos=True) for _ in range(2)]
        for each in answers:
            next(each)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=root)
    assert (done.returncode, done.stderr) == (0, "")


# ---- bounded ---------------------------------------------------------------------------------------------------------


def bounded(parallel: int, **more) -> edge.Engine:
    engine = fakes.engine(**more)
    engine.scheduler.limit(parallel, 64)
    return engine


def test_more_answers_than_places_wait_for_their_turn() -> None:
    engine = bounded(2)
    engine.model.transformer.hook = lambda: time.sleep(0.001)
    alone = fakes.engine().session().ask("q", max_tokens=10, **GREEDY).text
    calls = [lambda: engine.session().ask("q", max_tokens=10, **GREEDY).text for _ in range(6)]
    assert together(*calls) == [alone] * 6
    assert engine.scheduler.most_segments == 2


@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_an_answer_that_waits_can_be_ended(way: str) -> None:
    engine = bounded(1)
    running, waiting = engine.session(), engine.session("s")
    answer = running.ask("q", max_tokens=50, **GREEDY)
    next(answer)
    other = waiting.ask("q", timeout=0.05 if way == "timeout" else None)
    if way == "cancel":
        threading.Timer(0.05, other.cancel).start()
    assert together(lambda: other.text) == [""]
    assert other.finish_reason == {"cancel": "cancelled"}.get(way, way)
    assert [m["role"] for m in waiting.messages] == ["system"] and engine.scheduler.waiting == 0
    answer.close()
    assert waiting.ask("q", max_tokens=3, **GREEDY).text


def test_one_thread_does_not_wait_for_itself() -> None:
    engine = bounded(1)
    answer = engine.session().ask("q", max_tokens=5, **GREEDY)
    next(answer)
    with pytest.raises(Busy, match="this thread already runs"):
        next(engine.session().ask("q"))
    answer.close()
    assert engine.session().ask("q", max_tokens=3, **GREEDY).text


def test_contexts_are_planned_and_idle_ones_give_way(bundled_model) -> None:
    one = edge.load(ctx=256, threads=1, overflow="stop")
    plan = one.plan
    one.close()
    with edge.load(ctx=256, threads=1, overflow="stop", parallel=3) as engine:
        assert engine.plan.kv_total == 3 * plan.kv_bytes
        assert engine.plan.total_bytes - engine.plan.footprint.program == (
            plan.total_bytes - plan.footprint.program + 2 * (plan.kv_bytes + plan.footprint.session)
        )
        assert any("3 contexts of 256 tokens" in line for line in engine.plan.lines())
        sessions = [engine.session() for _ in range(5)]
        said = [session.ask(f"Hello {i}", max_tokens=8, **GREEDY).text for i, session in enumerate(sessions)]
        assert [session.state.nbytes > 0 for session in sessions] == [False, False, True, True, True]
        assert engine.memory()["kv"] <= engine.plan.kv_total and engine.space.pool.used <= engine.plan.room
        again = [session.ask("And then?", max_tokens=8, **GREEDY).text for session in sessions]
    with edge.load(ctx=256, threads=1, overflow="stop") as engine:
        for i, session in enumerate(engine.session() for _ in range(5)):
            assert session.ask(f"Hello {i}", max_tokens=8, **GREEDY).text == said[i]
            assert session.ask("And then?", max_tokens=8, **GREEDY).text == again[i]
    for bad in (0, -1, True, 1.5, "2"):
        with pytest.raises(UsageError, match="parallel"):
            edge.load(parallel=bad)


# ---- none harms another ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("raised", "told"), [(RuntimeError("boom"), RuntimeError), (MemoryError(), MemoryRefused)])
def test_an_error_is_that_of_one(raised: Exception, told: type[Exception]) -> None:
    engine = fakes.engine()
    alone = engine.session().ask("q", max_tokens=30, **GREEDY).text
    step = engine.model.transformer.step

    def failing(batch) -> None:
        time.sleep(0.001)
        if any(len(each.kv.ids) > 20 and each.kv.ids[2] == ord("X") for each in batch):
            raise raised
        step(batch)

    engine.model.transformer.step = failing
    results = together(
        *(lambda: engine.session().ask("q", max_tokens=30, **GREEDY).text for _ in range(3)),
        lambda: engine.session().ask("Xq", max_tokens=30, **GREEDY).text,
    )
    assert results[:3] == [alone] * 3 and isinstance(results[3], told)
    assert engine.scheduler.running == 0


def test_a_fault_of_the_thread_hangs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda *_: None)
    engine = fakes.engine()
    faults = iter([SystemExit("a bug")])

    def hook() -> None:
        for fault in faults:
            raise fault

    engine.model.transformer.hook = hook
    with pytest.raises(SystemExit, match="a bug"):
        engine.session().ask("question", max_tokens=3, **GREEDY).text  # noqa: B018
    assert engine.scheduler.silent == 0  # nothing waits for it
    assert engine.session().ask("question", max_tokens=3, **GREEDY).text


def test_closing_the_engine_ends_all_of_them() -> None:
    engine = fakes.engine()
    engine.model.transformer.hook = lambda: time.sleep(0.002)
    threading.Timer(0.1, engine.close).start()
    results = together(*(lambda: engine.session().ask("q", max_tokens=4000, **GREEDY).text for _ in range(3)))
    assert all(isinstance(each, (UsageError, str)) for each in results)


# ---- a long prompt freezes nobody ------------------------------------------------------------------------------------


def test_a_prompt_takes_the_room_that_writers_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a clock: how many rows a step has while three write and one reads."""
    engine = fakes.engine()
    rows: list[list[int]] = []
    step = engine.model.transformer.step

    def noted(batch) -> None:
        rows.append(sorted(len(each.ids) for each in batch))
        time.sleep(2e-3 + 1e-3 * sum(rows[-1]))  # the writers answer in time
        step(batch)

    def took(self: scheduling.Balance, batch: list[Segment], _: float) -> None:
        record(self, batch, 2e-3 + 1e-3 * sum(len(each.ids) for each in batch))

    engine.model.transformer.step = noted
    record = scheduling.Balance.took  # what a step takes on a busy machine is not what it costs
    monkeypatch.setattr(scheduling.Balance, "took", took)
    writers = [engine.session() for _ in range(3)]
    reading = threading.Event()

    def read() -> str:
        reading.wait(300)
        return engine.session().complete([97] * 600, max_tokens=2, **GREEDY).text

    def write(session) -> str:
        parts = []
        for piece in session.ask("q", max_tokens=120, **GREEDY):
            parts.append(piece.text)
            if len(parts) == 30:
                reading.set()
        return "".join(parts)

    results = together(*(lambda s=s: write(s) for s in writers), read)
    assert all(isinstance(each, str) and each for each in results)
    mixed = [each for each in rows if len(each) == 4 and each[-1] > 1]
    assert len(mixed) > 20  # it was read together with them, in many steps
    assert all(each[:3] == [1, 1, 1] for each in mixed)
    # (2 + 3 + n) ms is at most twice (2 + 3) ms: n = 5, and LEAST_PROMPT where that is less
    assert max(each[-1] for each in mixed) <= 2 * scheduling.LEAST_PROMPT
