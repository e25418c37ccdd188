"""Sessions over a fake model: prefix reuse, streaming, stopping, limits, threads.  Then the same on the real one."""

from __future__ import annotations

import threading
import time
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import edge
from edge.errors import ContextFull, UsageError
from edge.sampling import Sampling
from edge.session.stream import Piece, Stream
from edge.session.usage import Usage
from tests import fakes

GREEDY = Sampling(temperature=0.0)


def text(pieces) -> str:
    return "".join(piece.text for piece in pieces)


def ask(session, question, **options) -> str:
    return text(session.ask(question, **{"sampling": GREEDY, "max_tokens": 20, **options}))


# ---- prefix reuse -------------------------------------------------------------------------------------------------


def test_a_turn_reads_only_what_is_new():
    engine = fakes.engine(fakes.script("Hello there.", "Second.", "Third."))
    session = engine.session(system="You are a guide.")
    assert ask(session, "Hi") == "Hello there."
    first = session.outcome.usage
    assert first.cached == 0 and first.completion == 12
    assert ask(session, "More") == "Second."
    # everything of the first turn but its end mark is held, though the tokenizer joins what the model wrote apart
    assert session.outcome.usage.cached >= first.prompt + first.completion - 1
    assert session.outcome.usage.prompt == first.prompt + 12 + len(
        [fakes.EOT, fakes.USER, *b"More", fakes.EOT, fakes.ASSISTANT]
    )
    assert ask(session, "And") == "Third."
    assert [m["role"] for m in session.messages] == [
        "system", "user", "assistant", "user", "assistant", "user", "assistant",
    ]
    assert session.messages[2]["content"] == "Hello there."


@given(
    st.lists(st.sampled_from(["ask", "undo", "clear", "system", "edit", "close early", "stop"]), max_size=8),
    st.booleans(),
    st.sampled_from([0, 16, 48]),
)
def test_a_session_answers_as_if_it_had_just_begun(actions, sealed, snapshots):
    """Whatever happened before, the KV cache never shows: the next answer is that of a fresh session."""
    engine = fakes.engine(sealed=sealed, snapshots=snapshots)
    session = engine.session(system="the other thing")
    for i, action in enumerate(actions):
        if action == "ask":
            ask(session, f"question {i}", max_tokens=7)
        elif action == "undo":
            session.undo()
        elif action == "clear":
            session.clear()
        elif action == "system":
            session.system = f"the system {i}"
        elif action == "edit" and session.messages:
            session.messages[-1] = {**session.messages[-1], "content": "edited"}
        elif action == "close early":
            pieces = session.ask(f"close {i}", sampling=GREEDY, max_tokens=9)
            for _ in range(3):
                next(pieces)
            pieces.close()
        elif action == "stop":
            ask(session, "stop me", stop=["E", "AA", "XYZ"], max_tokens=9)
        if session.state.kv:
            assert session.state.kv.ids == list(session.state.tokens[: session.state.n_tokens])
    fresh = engine.session()
    fresh.messages = [dict(m) for m in session.messages]
    assert ask(session, "the last") == ask(fresh, "the last")
    assert session.messages == fresh.messages
    assert session.outcome.usage.prompt == fresh.outcome.usage.prompt


def test_a_cache_may_go_back_to_a_snapshot_only():
    """Even to evaluate the last token of a prompt again; the session reads on from there."""
    engine = fakes.engine(sealed=False, snapshots=12)
    session = engine.session()
    ids = list(range(97, 127))
    first = text(session.complete(ids, sampling=GREEDY, max_tokens=5))
    assert text(session.complete(ids, sampling=GREEDY, max_tokens=5)) == first
    assert session.outcome.usage == Usage(30, 24, 5)
    assert text(session.complete([*ids[:10], 65], sampling=GREEDY, max_tokens=1)) == text(
        engine.session().complete([*ids[:10], 65], sampling=GREEDY, max_tokens=1))
    assert session.outcome.usage == Usage(11, 0, 1)


def test_an_answer_is_reused_with_the_tokens_the_model_wrote():
    engine = fakes.engine(fakes.script("the other thing here", "ok"))
    session = engine.session()
    ask(session, "q")
    held = session.state.n_tokens
    ask(session, "q2")
    assert session.outcome.usage.cached == held
    # special tokens are never exchanged for text that looks like them
    state = session.state
    state.tokens.append(fakes.EOT)
    ids = array("i", [*state.tokens[:-1], *b"<eot>", 70])
    assert state.splice(ids) == ids


def test_warm_reads_the_system_prompt_once():
    engine = fakes.engine()
    session = engine.session(system="A long system prompt. " * 20)
    held = session.warm()
    assert held > 400
    engine.model.transformer.evaluated.clear()
    assert session.warm() == held and not engine.model.transformer.evaluated
    answer = ask(session, "Hi")
    assert session.outcome.usage.cached == held
    assert answer == ask(engine.session(system="A long system prompt. " * 20), "Hi")
    assert session.warm() > held  # the history is warm as well
    assert engine.session().warm() > 0  # what the template begins with


def test_prefill_in_chunks_reports_and_can_be_cancelled():
    engine = fakes.engine()
    session = engine.session()
    seen = []
    engine.model.transformer.hook = lambda: time.sleep(0.001)
    prompt = list(range(97, 122)) * 20
    text(session.complete(prompt, max_tokens=1, on_prefill=lambda *a: seen.append(a)))
    assert seen[0] == (0, 500, 0) and seen[-1] == (500, 500, 0) and len(seen) > 3
    assert [a[0] for a in seen] == sorted({a[0] for a in seen})

    session = engine.session()
    pieces = session.complete(prompt, on_prefill=lambda done, *_: session.cancel() if done >= 64 else None)
    assert list(pieces) == [] and session.outcome.finish_reason == "cancelled"
    assert 64 <= session.state.n_tokens < 500
    text(session.complete(prompt, max_tokens=1))
    assert session.outcome.usage.cached >= 64  # nothing of it was lost


# ---- pieces -------------------------------------------------------------------------------------------------------

ANSWER = 'He said: "It is 3.5 km." Dr. Who waits... at no. 5, e.g. there! "Really?" Yes.\nBye. 1. One 你好。再见！ ok'


@pytest.mark.parametrize("by", ["token", "word", "clause", "sentence", "all"])
def test_pieces_add_up_and_every_token_is_in_one(by):
    session = fakes.engine(fakes.script(ANSWER)).session()
    pieces = list(session.ask("q", sampling=GREEDY, by=by))
    assert text(pieces) == ANSWER
    assert b"".join(piece.bytes for piece in pieces) == ANSWER.encode()
    assert bytes(token for piece in pieces for token in piece.ids) == ANSWER.encode()
    assert all(piece.text for piece in pieces)
    if by == "token":
        assert len(pieces) == len(ANSWER)  # bytes of one character come together
    if by == "all":
        assert len(pieces) == 1


def test_sentences():
    session = fakes.engine(fakes.script(ANSWER)).session()
    assert [piece.text for piece in session.ask("q", sampling=GREEDY, by="sentence")] == [
        'He said: "It is 3.5 km." ',
        "Dr. Who waits... at no. 5, e.g. there! ",
        '"Really?" ',
        "Yes.\n",
        "Bye. ",
        "1. One 你好。",
        "再见！",
        " ok",
    ]


def test_clauses():
    """The first piece is as short as can be said, the others are sentences."""
    for answer, pieces in {
        "Well, the lift is on the left, and it is slow. Take care, please.": [
            "Well, the lift is on the left, ", "and it is slow. ", "Take care, please."],
        "Yes. It is 3,5 km; then left, right.": ["Yes. ", "It is 3,5 km; then left, right."],
        "博物馆在九点开门了，六点关门。好，再见。": ["博物馆在九点开门了，", "六点关门。", "好，再见。"],
        "It opens – if at all – at nine": ["It opens – ", "if at all – at nine"],
    }.items():
        session = fakes.engine(fakes.script(answer)).session()
        assert [piece.text for piece in session.ask("q", sampling=GREEDY, by="clause")] == pieces


def test_words():
    session = fakes.engine(fakes.script("One  two\nthree.  ")).session()
    assert [p.text for p in session.ask("q", sampling=GREEDY, by="word")] == ["One ", " two\n", "three. ", " "]


@pytest.mark.parametrize("by", ["token", "word", "all"])
@pytest.mark.parametrize(
    ("lead", "parts", "expected"),
    [
        (" ", [" Yes", " no"], "Yes no"), (" ", ["Yes"], "Yes"), (" ", [" ", " Yes"], " Yes"),
        ("\n\n", ["\n", "\n", "a\n"], "a\n"), ("\n\n", ["\n", "a"], "a"), (" ", [" "], ""),
    ],
)
def test_what_the_template_puts_before_an_answer_is_dropped_once(by, lead, parts, expected):
    stream = Stream(Letters(parts), by=by, lead=lead)
    pieces = [piece for i in range(len(parts)) for piece in stream.push(i)] + list(stream.flush())
    assert text(pieces) == expected
    assert [i for piece in pieces for i in piece.ids] == list(range(len(parts)))


# ---- stop strings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["token", "word", "clause", "sentence", "all"])
@pytest.mark.parametrize(
    ("answer", "stop", "expected"),
    [
        ("Hello END world", ["END"], "Hello "),
        ("Hello EN world", ["END"], "Hello EN world"),
        ("Hello EN", ["END"], "Hello EN"),
        ("ENENEND", ["END"], "ENEN"),
        ("aab aaab", ["aaab"], "aab "),
        ("abcabd", ["abd", "bc"], "a"),
        ("stop at once", ["stop"], ""),
        ("x\n\ny", ["\n\n", "y"], "x"),
        ("a€b€c", ["€c"], "a€b"),
    ],
)
def test_stop_strings_never_show_and_what_is_before_always_does(by, answer, stop, expected):
    session = fakes.engine(fakes.script(answer)).session()
    pieces = list(session.ask("q", sampling=GREEDY, stop=stop, by=by))
    assert text(pieces) == expected
    assert session.outcome.finish_reason == "stop"
    assert session.messages[-1]["content"] == expected


class Letters:
    """A decoder that gives any text for an id."""

    def __init__(self, parts):
        self.parts = parts

    def push(self, i):
        return self.parts[i]


@given(
    st.lists(st.text(alphabet="abc. \n", max_size=4), max_size=12),
    st.lists(st.text(alphabet="abc.", min_size=1, max_size=4), max_size=3),
    st.sampled_from(["token", "word", "clause", "sentence", "all"]),
)
def test_streams_cut_where_the_whole_text_would_be_cut(parts, stop, by):
    stream = Stream(Letters(parts), stop, by)
    pieces: list[Piece] = []
    pushed = 0
    for i in range(len(parts)):
        pieces += stream.push(i)
        pushed = i + 1
        if stream.stopped:
            break
    pieces += stream.flush()
    seen = "".join(parts[:pushed])
    cut = min((at for at in map(seen.find, stop) if at >= 0), default=len(seen))
    assert text(pieces) == seen[:cut]
    assert stream.stopped == (cut < len(seen) or any(s in seen for s in stop))
    ids = [i for piece in pieces for i in piece.ids]
    assert ids == list(range(len(ids)))
    if not stream.stopped:
        assert len(ids) == len(parts)


# ---- how an answer ends -------------------------------------------------------------------------------------------


def test_max_tokens_and_ignore_eos():
    session = fakes.engine(fakes.script("abc")).session()
    assert ask(session, "q", max_tokens=2) == "ab" and session.outcome.finish_reason == "length"
    assert session.outcome.usage.completion == 2
    session.clear()
    assert ask(session, "q") == "abc" and session.outcome.finish_reason == "stop"
    session.clear()
    pieces = list(session.ask("q", sampling=GREEDY, max_tokens=5, ignore_eos=True))
    assert text(pieces) == "abc" and session.outcome.finish_reason == "length"
    assert [i for p in pieces for i in p.ids] == [*b"abc", fakes.EOT, fakes.EOT]


def test_no_tokens_is_prefill_only():
    session = fakes.engine().session(system="s")
    assert ask(session, "q", max_tokens=0) == "" and session.outcome.finish_reason == "length"
    assert session.state.n_tokens > 0 and len(session.messages) == 1


def test_cancel_keeps_what_was_said():
    session = fakes.engine(fakes.script("abcdefgh", "next")).session()
    said = []
    for piece in session.ask("q", sampling=GREEDY):
        said.append(piece.text)
        if len(said) == 3:
            session.cancel()
    assert said == ["a", "b", "c"] and session.outcome.finish_reason == "cancelled"
    assert session.messages[-1] == {"role": "assistant", "content": "abc"}
    assert ask(session, "go on") == "next"  # the flag does not stick


def test_cancel_from_another_thread():
    engine = fakes.engine()
    session = engine.session()
    steps, begun, cancelled = iter(range(100_000)), threading.Event(), threading.Event()

    def step():
        if next(steps) == 20:  # in the middle of the answer
            begun.set()
            assert cancelled.wait(300)

    def cancel():
        begun.wait(300)
        session.cancel()
        cancelled.set()

    engine.model.transformer.hook = step
    other = threading.Thread(target=cancel)
    other.start()
    ask(session, "q", max_tokens=100_000)
    other.join(300)
    assert session.outcome.finish_reason == "cancelled" and session.outcome.usage.completion < 25


class Clock:
    """Stands in for time.perf_counter, so that no load of the machine shows."""

    def __init__(self, monkeypatch):
        self.now = 1.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def advance(self, seconds):
        self.now += seconds


def test_timeout(monkeypatch):
    clock = Clock(monkeypatch)
    engine = fakes.engine()
    engine.model.transformer.hook = lambda: clock.advance(0.005)
    session = engine.session()
    answer = ask(session, "q", max_tokens=100_000, timeout=0.1)
    assert session.outcome.finish_reason == "timeout" and 10 < len(answer) <= 22
    session.clear()
    assert ask(session, "q" * 4000, timeout=0.02) == ""  # in the middle of the prompt
    assert session.outcome.finish_reason == "timeout" and session.messages == []


def test_closing_the_iterator_keeps_what_was_heard():
    session = fakes.engine(fakes.script("One. Two. Three.", "next")).session()
    pieces = session.ask("q", sampling=GREEDY, by="sentence")
    assert next(pieces).text == "One. "
    pieces.close()
    assert session.outcome.finish_reason == "cancelled"
    assert session.messages[-1]["content"] == "One. "
    held = session.state.n_tokens
    assert ask(session, "go on") == "next"
    assert session.outcome.usage.cached >= held - fakes.KV.PAGE


def test_context_full():
    session = fakes.engine(n_ctx=40).session()
    answer = ask(session, "q", max_tokens=100)
    assert session.outcome.finish_reason == "context_full"
    prompt = session.outcome.usage.prompt
    assert len(answer) == 40 - prompt + 1  # the last token needs no room
    before = [dict(m) for m in session.messages]
    with pytest.raises(ContextFull, match="context 40"):
        ask(session, "q" * 40)
    assert session.messages == before
    session.clear()
    text(session.complete([65] * 40, max_tokens=9))
    assert session.outcome.usage.completion == 1 and session.outcome.finish_reason == "context_full"
    with pytest.raises(ContextFull):
        text(session.complete([65] * 41))
    session.system = "s" * 50
    with pytest.raises(ContextFull):
        session.warm()


def test_when_the_ring_has_lost_the_beginning_the_oldest_turns_are_left_out():
    engine = fakes.engine(fakes.script("an answer of some length."), n_ctx=128, overflow="slide")
    session = engine.session(system="sys")
    for i in range(10):
        ask(session, f"question {i}", max_tokens=60)
    assert session.context.left_out == 0
    session.undo()
    session.undo()
    engine.model.transformer.evaluated.clear()
    assert ask(session, "again", max_tokens=60) == "an answer of some length."
    assert session.context.left_out > 0 and session.outcome.usage.prompt <= 112
    assert len(session.messages) == 1 + 2 * 9  # the caller's record is whole
    cached = []
    for _ in range(4):
        ask(session, "and on", max_tokens=60)
        cached.append(session.outcome.usage.cached)
    assert session.context.left_out > 0 and max(cached) > 0
    with pytest.raises(ContextFull):
        ask(session, "x" * 300)
    while session.undo():
        pass
    assert session.context.left_out == 0 and ask(session, "new", max_tokens=60) == "an answer of some length."


# ---- rules --------------------------------------------------------------------------------------------------------


def test_one_answer_at_a_time():
    session = fakes.engine().session()
    pieces = session.ask("q")
    next(pieces)
    for call in (lambda: session.ask("r"), lambda: session.complete("r"), session.undo, session.clear, session.warm):
        with pytest.raises(UsageError, match="still answering"):
            call()
    with pytest.raises(UsageError, match="still answering"):
        session.system = "x"
    pieces.close()
    session.clear()
    first, second = session.ask("a", sampling=GREEDY), session.ask("b", sampling=GREEDY)
    next(first)
    with pytest.raises(UsageError, match="still answering"):
        next(second)
    first.close()


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": -1}, {"max_tokens": 1.5}, {"max_tokens": True}, {"stop": [""]}, {"stop": ""}, {"stop": [3]},
        {"by": "letter"}, {"timeout": 0}, {"timeout": float("nan")}, {"sampling": {"temp": 1}},
    ],
)
def test_bad_arguments_are_refused_at_the_call(options):
    session = fakes.engine().session()
    with pytest.raises(UsageError):
        session.ask("q", **options)
    with pytest.raises(UsageError):
        session.complete("q", **options)
    assert session.messages == []


def test_bad_prompts_are_refused():
    engine = fakes.engine()
    session = engine.session()
    for bad in ("\ud800", 3, None, b"x"):
        with pytest.raises(UsageError):
            session.ask(bad)
    for bad in ([], [-1], [fakes.N_VOCAB], ["a"], [1.0]):
        with pytest.raises(UsageError):
            list(session.complete(bad))
    assert text(session.complete("", max_tokens=1))  # a lone BOS is a prompt
    assert text(session.answer(engine.prepare(prompt="", max_tokens=1)))
    engine.model.tokenizer.add_bos = False
    with pytest.raises(UsageError, match="empty"):
        list(session.complete(""))


def test_an_error_in_a_step_leaves_a_usable_session():
    engine = fakes.engine(fakes.script("abcdef", "next"))
    session = engine.session()

    def fail():
        if len(engine.model.transformer.evaluated) == 4:
            raise RuntimeError("boom")

    engine.model.transformer.hook = fail
    with pytest.raises(RuntimeError, match="boom"):
        ask(session, "q")
    engine.model.transformer.hook = None
    assert [m["role"] for m in session.messages] == ["user", "assistant"] and session.messages[1]["content"]
    assert ask(session, "r") == "next"


def test_same_seed_same_answer():
    def flat(history):
        return fakes.by_hash(history)

    engine = fakes.engine(flat)
    hot = Sampling(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)
    answers = [[p.ids for p in engine.session().ask("q", sampling=hot, max_tokens=30)] for _ in range(2)]
    assert answers[0] == answers[1]
    session = engine.session()
    again = [[p.ids for p in session.complete("q", sampling=hot, max_tokens=30)] for _ in range(2)]
    assert again[0] == again[1]
    free = Sampling(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0)
    a, b = ([p.ids for p in engine.session().ask("q", sampling=free, max_tokens=30)] for _ in range(2))
    assert a != b


def test_penalties_look_at_the_last_tokens_prompt_included():
    engine = fakes.engine(lambda history: 97)
    one = Sampling(temperature=0.0, repeat_penalty=1.0, presence_penalty=100.0, repeat_last_n=3)
    assert text(engine.session().complete([97, 98, 98, 98], sampling=one, max_tokens=1)) == "a"
    assert text(engine.session().complete([97, 98, 98], sampling=one, max_tokens=1)) == "\x00"
    whole = Sampling(temperature=0.0, presence_penalty=100.0, repeat_last_n=-1)
    assert text(engine.session().complete([97, *[98] * 200], sampling=whole, max_tokens=1)) == "\x00"
    none = Sampling(temperature=0.0, presence_penalty=100.0, repeat_last_n=0)
    assert text(engine.session().complete([97] * 9, sampling=none, max_tokens=1)) == "a"


# ---- engine -------------------------------------------------------------------------------------------------------


def test_kv_is_allocated_on_first_use_and_freed():
    engine = fakes.engine()
    session = engine.session()
    assert session.state.nbytes == 0 == engine.memory()["kv"]
    ask(session, "q")
    assert session.state.nbytes == 1000 == engine.memory()["kv"]
    session.close()
    assert session.state.nbytes == 0
    with pytest.raises(UsageError, match="closed"):
        session.ask("q")
    with engine.session() as other:
        ask(other, "q")
    assert other.state.nbytes == 0


def test_closing_during_an_answer():
    engine = fakes.engine()
    session = engine.session()
    pieces = session.ask("q", sampling=GREEDY)
    next(pieces)
    session.close()
    assert list(pieces) == [] and session.outcome.finish_reason == "cancelled" and session.state.nbytes == 0

    session = engine.session()
    pieces = session.ask("q", sampling=GREEDY)
    next(pieces)
    engine.close()
    engine.close()
    assert list(pieces) == []
    for call in (engine.session, lambda: session.ask("q"), session.warm):
        with pytest.raises(UsageError, match="closed"):
            call()


# ---- the package --------------------------------------------------------------------------------------------------


HALF = "\ud800"  # of a surrogate pair


@pytest.mark.parametrize("arguments", [
    {"model": 3}, {"model": b"demo"}, {"model": HALF}, {"model": "a\0b"}, {"template": 3}, {"system": 3},
    {"system": HALF}, {"reserve": "x"}, {"reserve": -1}, {"reserve": 1.5}, {"exact": "x"}, {"constrained": "x"},
    {"kv": 3}, {"kv_budget": 3}, {"kv_budget": HALF}, {"kv_offload": 3}, {"memory": "١00M"}, {"isa": 3}, {"ctx": "x"},
], ids=ascii)
def test_load_names_an_argument_of_another_type(arguments):
    (name, _), = arguments.items()
    with pytest.raises(UsageError, match=f"(?i){name}"):
        edge.load(**{"model": "demo", **arguments})


@pytest.mark.parametrize("call", [
    lambda session: session.ask("Hi", stop=3), lambda session: session.ask("Hi", choices=3),
    lambda session: session.ask("Hi", choices=[HALF]), lambda session: session.ask("Hi", regex=HALF),
    lambda session: session.ask("Hi", grammar=HALF), lambda session: session.ask("Hi", stop=[HALF]),
    lambda session: session.ask(HALF), lambda session: session.ask(3), lambda session: session.choose("Hi", 3),
    lambda session: session.ask("Hi", temperature="1"), lambda session: session.ask("Hi", seed=[1]),
    lambda session: session.logits(3), lambda session: session.logits([1.5]), lambda session: session.logits([True]),
    lambda session: session.save(None), lambda session: session.save(HALF), lambda session: session.save("a\0b"),
    lambda session: session.save(b"a"),
])
def test_a_session_names_an_argument_of_another_type(call):
    with edge.load("demo", ctx=128) as engine, pytest.raises(UsageError):
        call(engine.session())


def test_an_engine_names_an_argument_of_another_type():
    with edge.load("demo", ctx=128) as engine:
        for wrong in (HALF, 3):
            with pytest.raises(UsageError, match="system"):
                engine.session(wrong)
        for wrong in (HALF, 3):
            with pytest.raises(UsageError, match="message"):
                engine.session().read_ahead(wrong)
        for wrong in (HALF, "a\0b", None, 3):
            with pytest.raises(UsageError, match="path"):
                engine.load_session(wrong)


def test_numbers_of_numpy_are_numbers():
    with edge.load("demo", ctx=np.int64(128), parallel=np.int32(1), reserve=np.int64(0)) as engine:
        session = engine.session()
        ids = [1, 5, 6]
        expected = session.logits(ids)
        for given in (np.array(ids), list(np.array(ids)), np.array(ids, np.uint8)):
            assert (session.logits(given) == expected).all()
        answer = engine.session().ask(
            "Hi", temperature=np.float32(0.5), top_k=np.int64(3), seed=np.uint32(7), max_tokens=np.int16(5))
        assert answer.text == engine.session().ask("Hi", temperature=0.5, top_k=3, seed=7, max_tokens=5).text
