"""Drafts: what is looked up, against the obvious search; and answers, which must not depend on them."""

from __future__ import annotations

import array
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import edge
from edge import Sampling
from edge.errors import UsageError
from edge.model.drafting import MOST, Drafting
from pyx.tokens.draft import MOST_DRAFT, Draft

LONGEST = 4


def look_up(text: Sequence[int], most: int) -> list[int]:
    """What followed the latest of the longest matches of the end of text, as often as it takes."""
    for length in range(LONGEST, 0, -1):
        for i in range(len(text) - 2, -1, -1):
            if i + 1 >= length and list(text[i + 1 - length : i + 1]) == list(text[-length:]):
                found = list(text)
                for j in range(most):
                    found.append(found[i + 1 + j])
                return found[len(text) :]
    return []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, MOST), st.integers(-1, 9))
def test_looks_up_the_latest_of_the_longest(text, most, limit):
    draft = Draft(most, True)
    n = draft.propose(array.array("i", text[:-1]), text[-1], limit)
    want = look_up(text, most)
    assert n == (max(0, min(limit, most)) if want else 0)
    assert draft.ids.tolist()[: n + 1] == [text[-1], *want[:n]]
    assert draft.drafted == n


@given(st.lists(st.integers(0, 2), min_size=2, max_size=40), st.lists(st.integers(0, 2), max_size=8))
def test_follows_as_far_as_it_was_right(text, answer):
    draft = Draft(MOST, True)
    n = draft.propose(array.array("i", text[:-1]), text[-1], MOST)
    guess = draft.ids.tolist()[1 : n + 1]
    right = next((i for i, (a, b) in enumerate(zip(guess, answer)) if a != b), min(n, len(answer)))
    rows = [draft.follow(token) for token in answer]
    assert rows == [*range(1, right + 1), *[-1] * (len(answer) - right)]
    assert draft.accepted == right


def test_drafts_where_it_pays():
    """Steps that cost more than they bring, and drafts that are wrong, end it; both are tried again."""

    def life(cost, right, each, tokens=600):
        """Seconds for so many tokens of a text that repeats itself, in which drafts are right or wrong."""
        draft, text, seconds, written = Draft(MOST), array.array("i", [1, 2, 3] * 20), 0.0, 0
        draft.took(100, 100 * each)
        while written < tokens:
            n = draft.propose(text, 1 if right else 7, 7)
            draft.took(n + 1, cost(n + 1))
            seconds += cost(n + 1)
            written += 1
            for i in range(1, n + 1):
                if draft.follow(draft.ids[i] if right else 9) >= 0:
                    written += 1
                else:
                    break
            else:
                draft.follow(draft.ids[n + 1] if right and n < MOST else 9)
            if not right:
                text.append(7)
        return seconds / written, draft

    assert life(lambda n: 1.0, True, 0.2)[0] < 0.2  # memory is the bound: a batch costs what one token costs
    assert life(lambda n: max(1.0, 0.3 * n), True, 0.3)[0] < 0.5
    for each in (0.3, 1.0):  # every token costs the same, whatever a prompt promises
        assert life(lambda n: float(n), True, each)[0] < 1.06
    seconds, draft = life(lambda n: 1 + 0.3 * (n - 1), False, 0.3)
    assert seconds < 1.05 and draft.drafted < 60
    assert life(lambda n: 1.0, True, 0.0)[1].drafted == 0  # no prompt was read: nothing is known
    assert life(lambda n: float(n), True, 0.9)[1].idle and not life(lambda n: 1.0, True, 0.2)[1].idle
    always = Draft(3, True)
    assert always.propose(array.array("i", [5, 6, 5]), 6, 7) == 3


def test_options():
    assert MOST == MOST_DRAFT
    assert Drafting.parse("auto") == Drafting(MOST) and Drafting.parse("off") == Drafting.parse(0) == Drafting()
    assert Drafting.parse("3") == Drafting(3, True) and Drafting.parse(7) == Drafting(7, True)
    for bad in ("", "on", "8", "-1", 1.5, True, "٣", None):
        with pytest.raises(UsageError, match="draft is"):
            Drafting.parse(bad)
    for bad in (0, 8):
        with pytest.raises(ValueError):
            Draft(bad)


# ---- in the engine --------------------------------------------------------------------------------------------------

ORDER = "I'd like two large oat lattes, one espresso and two large oat lattes. Please read my order back."
SAMPLINGS = [
    Sampling(temperature=0),
    Sampling(temperature=0, repeat_penalty=1.3),
    Sampling(seed=11),
    Sampling(seed=12, temperature=1.2, top_k=0, repeat_penalty=1.1),
    Sampling.preset("creative", seed=13),
]


def answers(ctx: int = 256, samplings: Sequence[Sampling] = SAMPLINGS, **options):
    """(text, finish_reason, tokens held) of some calls, and how many tokens were drafted and right."""
    said, drafted, accepted = [], 0, 0
    with edge.load(ctx=ctx, threads=1, **options) as engine:
        for sampling in samplings:
            with engine.session() as session:
                for text in (ORDER, "And the price?"):
                    pieces = session.ask(text, sampling=sampling, max_tokens=60, ignore_eos=True)
                    text = "".join(piece.text for piece in pieces)
                    said.append((text, session.outcome.finish_reason, session.state.tokens.tolist()))
                    assert session.state.kv.n_tokens == len(session.state.tokens)
                    usage = session.outcome.usage
                    assert usage.accepted <= usage.drafted
                    drafted, accepted = drafted + usage.drafted, accepted + usage.accepted
    return said, drafted, accepted


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kv": "f16"},
        {"kv": "int8:f16", "window": 64},
        {"ctx": 128, "overflow": "slide", "kv": "f32"},
        {"head": "two-stage"},
        {"kv_policy": "quarter", "window": 64},
    ],
    ids=str,
)
def test_the_same_answers(options):
    """Greedy and drawn, with every way of forgetting; the same tokens are held."""
    want, none, _ = answers(**options, draft="off", samplings=SAMPLINGS[::2])
    got, drafted, accepted = answers(**options, draft=7, samplings=SAMPLINGS[::2])
    assert got == want and none == 0 and drafted > accepted > 0


def test_the_same_answers_of_all_samplings():
    want = answers(draft="off")[0]
    assert answers(draft=2)[0] == want and answers(draft="auto")[0] == want


@pytest.fixture(scope="module")
def engines():
    with edge.load(ctx=256, threads=1, draft="off") as plain, edge.load(ctx=256, threads=1, draft=7) as drafting:
        yield plain, drafting


def loop(session, **options):
    """A text that repeats itself, so that nearly every draft is right."""
    ids = session.model.tokenizer.encode("one two three four five six seven. " * 3)
    options = {"sampling": Sampling(temperature=0), "ignore_eos": True, **options}
    return session.complete(ids, **options)


def test_the_end_of_the_context(engines):
    """Up to the last token of a context that may not slide."""
    said = []
    for draft in ("off", 7):
        with edge.load(ctx=96, threads=1, draft=draft, overflow="stop") as engine, engine.session() as session:
            said.append(("".join(piece.text for piece in loop(session, max_tokens=500)), session.outcome.finish_reason))
            assert session.state.kv.n_tokens == 96
    assert said[0] == said[1] and said[0][1] == "context_full"


@pytest.mark.parametrize("most", [1, 2, 3, 9, 10])
def test_no_more_than_asked_for(engines, most):
    said = []
    for engine in engines:
        with engine.session() as session:
            said.append("".join(piece.text for piece in loop(session, max_tokens=most)))
            assert session.outcome.usage.completion == most
            assert session.state.kv.n_tokens == session.outcome.usage.prompt + most - 1
    assert said[0] == said[1]


def test_a_stop_inside_a_draft(engines):
    """What was drafted behind a stop is taken back, and the conversation goes on from there."""
    plain, drafting = engines
    with plain.session() as session:
        text = "".join(piece.text for piece in loop(session, max_tokens=60))
    for word in {word for word in text.split() if len(word) > 2}:
        said = []
        for engine in engines:
            with engine.session() as session:
                first = "".join(piece.text for piece in loop(session, max_tokens=60, stop=[word]))
                held = session.state.tokens.tolist()
                more = "".join(p.text for p in session.complete([*held, 5], sampling=Sampling(seed=3), max_tokens=8))
                said.append((first, session.outcome.usage.cached, held, more))
        assert said[0] == said[1]


def interrupted(batch):
    raise KeyboardInterrupt


def test_interrupts(engines):
    """Cancelled from outside, closed by the caller, and Ctrl-C in the middle of a step: the books stay right."""
    plain, drafting = engines
    with plain.session() as session:
        want = "".join(piece.text for piece in loop(session, max_tokens=40))
    for way in ("cancel", "close", "Ctrl-C"):
        with drafting.session() as session:
            pieces = loop(session, max_tokens=40)
            for _ in range(12):
                next(pieces)
            if way == "cancel":
                threading.Thread(target=session.cancel).start()
                rest = list(pieces)
                assert len(rest) < 28
            elif way == "close":
                pieces.close()
            else:
                with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
                    patch.setattr(drafting.model, "step", interrupted)
                    list(pieces)
            assert session.state.kv.n_tokens == len(session.state.tokens)
            assert "".join(piece.text for piece in loop(session, max_tokens=40)) == want


def test_ctrl_c_inside_a_step(engines, monkeypatch):
    """An exception between a step and its bookkeeping: the next call starts afresh, and right."""
    plain, drafting = engines
    with plain.session() as session:
        want = "".join(piece.text for piece in loop(session, max_tokens=40))
    with drafting.session() as session:
        pieces = loop(session, max_tokens=40)
        for _ in range(10):
            next(pieces)
        step = drafting.model.step

        def interrupted(batch):
            step(batch)
            raise KeyboardInterrupt

        drafting.model.step = interrupted
        with pytest.raises(KeyboardInterrupt):
            list(pieces)
        drafting.model.step = step
        assert "".join(piece.text for piece in loop(session, max_tokens=40)) == want


def test_usage_and_stats(engines):
    with engines[1].session() as session:
        list(loop(session, max_tokens=40))
        usage = session.outcome.usage
        assert 0 < usage.accepted <= usage.drafted
        assert f"tok ({usage.accepted} of {usage.drafted} drafted)" in session.stats_line()
    with engines[0].session() as session:
        list(loop(session, max_tokens=4))
        assert session.outcome.usage.drafted == 0 and "drafted" not in session.stats_line()


def test_memory_of_the_rows():
    n_vocab = 4 * 7
    with edge.load(ctx=256, draft="off") as off, edge.load(ctx=256, draft="auto") as auto:
        more = auto.plan.footprint.scratch - off.plan.footprint.scratch
        assert more == n_vocab * off.config.n_vocab
