"""The store of known beginnings, and the memory limit over all of them; on real models."""

from __future__ import annotations

import os
import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge
from edge.cache.folder import Folder, files
from edge.cache.planning import FREE_SHARE, cache_plan
from edge.cache.state import common
from edge.cache.store import Store
from edge.engine import Engine
from edge.errors import MemoryRefused, UsageError
from edge.model.footprint import Footprint
from edge.options import Options
from edge.sampling import Sampling
from edge.session.outcome import Outcome
from tests.streams import run

GREEDY = Sampling(temperature=0.0)
SYSTEM = "You sell tickets, coffee and umbrellas at the harbour, and you answer politely and briefly. " * 3


@pytest.fixture
def engine(bundled_model):
    with edge.load(ctx=512, threads=1) as engine:
        yield engine


def count_steps(engine) -> list[int]:
    """Tokens of every step from now on."""
    seen: list[int] = []

    class Counting:
        def __init__(self, inner) -> None:
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def step(self, batch) -> None:
            seen.extend(len(segment.ids) for segment in batch)
            self.inner.step(batch)

    engine.model.transformer = Counting(engine.model.transformer)
    return seen


def in_memory(store: Store) -> list[array]:
    """Those of the entries in memory, the latest used last."""
    return [entry.tokens for entry in store.entries.values()]


class Beginnings(Folder):
    conversations = False


def keep_in(engine, path, conversations: bool = False) -> Folder:
    """Share beginnings, in memory and in a folder."""
    engine.store.share(None)
    os.makedirs(path, 0o700, exist_ok=True)
    folder = (Folder if conversations else Beginnings)(engine.space, path)
    engine.store.remember(folder)
    return folder


def empty(store: Store) -> None:
    while store.give_way():
        pass


def ask(session, question: str, n: int = 12) -> str:
    return "".join(piece.text for piece in session.ask(question, sampling=GREEDY, max_tokens=n, ignore_eos=True))


# ---- sharing ---------------------------------------------------------------------------------------------------------


def test_a_second_session_reads_only_its_own(engine) -> None:
    """Regression for stores that report success and evaluate everything all the same: the steps are counted."""
    alone = ask(engine.session(SYSTEM), "Hello, a coffee please.")
    store = engine.share_prefixes("64M")
    assert ask(engine.session(SYSTEM), "Hello, a coffee please.") == alone
    assert len(store.entries) == 1
    steps = count_steps(engine)
    second = engine.session(SYSTEM)
    assert ask(second, "Hello, a coffee please.", 1) == ask(engine.session(SYSTEM), "Hello, a coffee please.", 1)
    shared = len(in_memory(store)[0])
    assert second.outcome.usage.cached >= shared // 32 * 32
    assert sum(steps) == 2 * (second.outcome.usage.prompt - second.outcome.usage.cached)
    assert second.outcome.usage.cached > 0.8 * second.outcome.usage.prompt


@pytest.mark.parametrize("kv", ["f32", "f16", "int8"])
@pytest.mark.parametrize("overflow", ["stop", "slide"])
def test_answers_are_those_of_sessions_that_share_nothing(bundled_model, kv: str, overflow: str) -> None:
    questions = ["Two tickets, please.", "Is it raining?", "When do you open?"]
    with edge.load(ctx=256, kv=kv, overflow=overflow, threads=1) as engine:
        alone = [ask(engine.session(SYSTEM[:120]), question) for question in questions]
        engine.share_prefixes("64M")
        sessions = [engine.session(SYSTEM[:120]) for _ in questions]
        assert [ask(session, question) for session, question in zip(sessions, questions)] == alone
        again = [ask(session, "And then?") for session in sessions]  # all of them write behind the shared pages
        engine.store.stop()
        for session, question, answer, second in zip(sessions, questions, alone, again):
            fresh = engine.session(SYSTEM[:120])
            assert (ask(fresh, question), ask(fresh, "And then?")) == (answer, second)
            assert fresh.messages == session.messages


def test_a_hundred_visitors_hold_one_copy(bundled_model) -> None:
    """Pages in use: the prefix once, and for each visitor the one page of every head that it has written to."""
    with edge.load(ctx=256, threads=1, overflow="stop") as engine:
        store = engine.share_prefixes("64M")
        texts = (SYSTEM + "Be kind. " * n for n in range(32))
        system = next(text for text in texts if 1 <= engine.session(text).warm() % 32 <= 4)  # room for a question
        empty(store)
        first = engine.session(system)
        first.warm()
        pool = first.state.kv.pool
        prefix = pool.used
        assert prefix == store.nbytes > 0
        visitors = [engine.session(system) for _ in range(100)]
        for i, visitor in enumerate(visitors):
            list(visitor.ask(f"Number {i}", max_tokens=0))
            assert visitor.outcome.usage.cached == first.state.n_tokens
        heads = engine.config.n_layer * engine.config.n_kv_head
        open_page = 32 * 2 * engine.config.head_dim * 2  # half floats
        assert pool.used == prefix + 100 * heads * open_page
        own = [visitor.state.kv.stats for visitor in visitors]
        assert all(each["pages"] - each["shared"] == heads for each in own)
        for visitor in visitors:
            visitor.close()
        assert pool.used == prefix


def test_what_was_used_longest_ago_goes(engine) -> None:
    store = engine.share_prefixes("64M")
    systems = [f"{letter} " + SYSTEM for letter in "ABC"]
    for system in systems:
        engine.session(system).warm()
    assert len(store.entries) == 3
    entry = store.nbytes // 3
    engine.session(systems[0]).warm()  # used again
    store.max_bytes = int(2.5 * entry)
    engine.session("D " + SYSTEM).warm()
    kept = [engine.tokenizer.decode(tokens) for tokens in in_memory(store)]
    assert len(kept) == 2 and kept[0].count("A You") == 1 and kept[1].count("D You") == 1
    assert store.nbytes <= store.max_bytes
    store.max_bytes = entry // 2
    engine.session("E " + SYSTEM).warm()
    assert len(store.entries) == 2  # too large for the store: nothing is dropped for it
    empty(store)
    assert len(store.entries) == store.nbytes == 0


# ---- conversations that are set aside --------------------------------------------------------------------------------

FIXED = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
MORE = {"role": "user", "content": "And a cake."}


def guest(n: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Guest {n}: two teas and {n} scones, please. " * 4}]


def talk(engine: Engine, count: int) -> list[list[dict[str, str]]]:
    """So many conversations through one session, each set aside after its first answer."""
    session, talks = engine.session(), []
    for n in range(count):
        session.chat(guest(n), **FIXED).text  # noqa: B018  to its end
        engine.store.set_aside(session.state)
        talks.append([dict(each) for each in session.messages])
    return talks


def came_back(session) -> bool:
    """Whether most of its prompt was in the store."""
    return session.outcome.usage.cached > session.outcome.usage.prompt // 2


def held(session) -> bytes:
    return b"".join(map(bytes, session.state.kv.dump()))


@pytest.mark.parametrize("overflow", ["stop", "slide"])
def test_one_that_comes_back_has_the_same_bits(bundled_model, overflow: str) -> None:
    with edge.load(bundled_model, parallel=1, spare_contexts=8, overflow=overflow) as engine:
        engine.store.share(None)
        talks = talk(engine, 5)
        session = engine.session()
        answer = session.chat([*talks[2], MORE], **FIXED)
        text, pages = answer.text, held(session)
        assert came_back(session)
    with edge.load(bundled_model, parallel=1, overflow=overflow) as engine:
        alone = engine.session()
        alone.chat(guest(2), **FIXED).text  # noqa: B018
        assert alone.chat([*talks[2], MORE], **FIXED).text == text
        assert held(alone) == pages


def test_the_one_that_waited_longest_gives_way_first(bundled_model) -> None:
    with edge.load(bundled_model, parallel=1, spare_contexts=8) as engine:
        store = engine.store.share(None)
        talks = talk(engine, 4)
        session = engine.session()
        session.chat([*talks[0], MORE], **FIXED).text  # noqa: B018  used again: now the latest
        assert store.give_way() and store.give_way()

        def known(talk: list[dict[str, str]]) -> bool:
            fresh = engine.session()
            fresh.chat([*talk, MORE], max_tokens=0).text  # noqa: B018
            return came_back(fresh)

        assert [known(each) for each in talks] == [True, False, False, True]
        assert store.give_way() and store.give_way() and not store.give_way()


def spelt(engine: Engine, answer: str = "Two scones.") -> edge.Session:
    """A session that holds an answer in a token for each letter, as if its model had written it so."""
    session = engine.session()
    session.chat(guest(1), max_tokens=0).text  # noqa: B018
    encode = engine.tokenizer.encode
    letters = [encode(letter)[-1] for letter in engine.model.answer_lead + answer]
    assert engine.tokenizer.decode(letters).strip() == answer and len(letters) > len(encode(answer))
    session.complete([*session.state.tokens, *letters], max_tokens=0).text  # noqa: B018
    session.messages = [*guest(1), {"role": "assistant", "content": answer}]
    return session


def numbers(session: edge.Session) -> list[float]:
    """Of a choice and of the next turn, which is taken back."""
    found = [each.logprob for each in session.choose("More tea?", ["Yes.", "No, thank you."])]
    answer = session.ask("How much?", logprobs=0, **FIXED)
    assert answer.text
    session.undo()
    return [*found, *(each.logprob for each in answer.logprobs)]


@pytest.mark.parametrize("overflow", ["stop", "slide"])
def test_how_another_session_wrote_the_same_text_changes_nothing(bundled_model, overflow: str) -> None:
    with edge.load(bundled_model, ctx=512, threads=1, overflow=overflow) as engine:
        writer, alone = spelt(engine), engine.session()
        alone.messages = [dict(each) for each in writer.messages]
        expected = numbers(alone)
        assert numbers(writer) != expected
        engine.share_prefixes("64M")
        engine.store.set_aside(spelt(engine).state)
        reader = engine.session()
        reader.messages = [dict(each) for each in writer.messages]
        reader.warm()
        assert reader.outcome.usage.cached > 0  # up to the answer, whose tokens are others
        assert numbers(reader) == expected
        late = engine.session()
        late.messages = [dict(each) for each in writer.messages]
        assert late.choose("More tea?", ["Yes."])[0].logprob == expected[0]


@pytest.mark.parametrize("sharing", [False, True])
def test_a_session_whose_memory_was_needed_goes_on_with_what_it_wrote(bundled_model, tmp_path, sharing: bool) -> None:
    """Regression: the tokens were forgotten with the pages, so its answers depended on who else needed memory."""
    with edge.load(bundled_model, ctx=512, threads=1, overflow="stop") as engine:
        if sharing:
            engine.share_prefixes("64M")
        session = spelt(engine)
        if sharing:
            engine.store.set_aside(session.state)
        expected, n = numbers(session), session.state.n_tokens

        def free() -> None:
            while engine.space.give_way():
                pass
            assert session.state.nbytes == 0 == session.state.n_tokens

        free()
        assert numbers(session) == expected
        free()
        session.save(tmp_path / "freed.bes")
        assert numbers(engine.load_session(tmp_path / "freed.bes")) == expected
        interrupted = session.ask("How much?", on_prefill=lambda done, total, cached: done and session.cancel())
        assert not interrupted.text and 0 < session.state.n_tokens <= n
        assert sharing or session.state.n_tokens < n // 2  # not all was read again
        assert numbers(session) == expected


def test_a_shared_beginning_on_disk_has_nothing_of_the_conversation(bundled_model, tmp_path) -> None:
    with edge.load(bundled_model, ctx=512, threads=1, overflow="stop") as engine:
        session = engine.session(SYSTEM)
        ask(session, "A tea, please.")
        while engine.space.give_way():
            pass
        keep_in(engine, tmp_path)
        ask(session, "And a cake.")
        (path,) = (path for _, _, path in files(str(tmp_path)))
        assert b'"lost":[]' in open(path, "rb").read()
        assert list(engine.load_session(path).state.tokens) == list(in_memory(engine.store)[0])


def test_a_conversation_takes_the_place_of_its_earlier_parts(bundled_model, tmp_path) -> None:
    with edge.load(bundled_model, parallel=1, spare_contexts=8, overflow="slide") as engine:
        store, folder = engine.store, keep_in(engine, tmp_path, conversations=True)
        session = engine.session(SYSTEM)
        for question in ("A tea, please.", "With lemon.", "How much is it?"):
            list(session.ask(question, sampling=GREEDY))
            engine.store.set_aside(session.state)
        assert len(store.entries) == 2  # the system prompt, which others share, and the conversation
        assert in_memory(store)[-1] == session.state.tokens
        assert [path for _, _, path in files(folder.path)] == [str(path) for path in tmp_path.iterdir()]
        assert len(files(folder.path)) == 1  # the conversation: the folder is for these


def test_a_conversation_of_a_slid_window_is_used_whole_or_not_at_all(bundled_model, tmp_path) -> None:
    with edge.load(bundled_model, parallel=1, spare_contexts=8, ctx=128, overflow="slide") as engine:
        store = engine.store
        keep_in(engine, tmp_path, conversations=True)
        session = engine.session()
        for n in range(6):
            list(session.ask(f"Number {n}: " + "a tea and a scone, please. " * 5, sampling=GREEDY))
        assert session.state.evicted > 0
        store.set_aside(session.state)
        tokens = session.state.tokens[: session.state.n_tokens]
        for _ in ("memory", "file"):
            assert store.find(tokens[:-40]) is None and store.find(tokens).n_tokens == len(tokens)
            empty(store)


def long_talk(what: str, turns: int) -> list[dict[str, str]]:
    return [each for n in range(turns) for each in (
        {"role": "user", "content": f"Number {n}: {what}, please, and tell me of the two."},
        {"role": "assistant", "content": f"Here is {what} {n}, and there is no more to tell."})]


@pytest.mark.parametrize("where", ["alone", "memory", "file"])
def test_a_conversation_that_is_sent_has_one_answer(bundled_model, tmp_path, where: str) -> None:
    """However long it has become, and whatever the engine has read and written before."""
    with edge.load(bundled_model, parallel=1, spare_contexts=8, ctx=128, overflow="slide") as engine:
        expected = []
        for turns in range(9):
            with engine.session() as session:
                answer = session.chat([*long_talk("tea", turns), MORE], logprobs=0, **FIXED)
                expected.append((answer.text, answer.usage.prompt, [each.logprob for each in answer.logprobs]))
        assert max(prompt for _, prompt, _ in expected) <= 128
        if where != "alone":
            keep_in(engine, tmp_path, conversations=True)
        session, read = engine.session(), 0
        for turns, wanted in enumerate(expected):
            if where != "alone":
                session.chat([*long_talk("a scone", turns), MORE], max_tokens=9).text  # noqa: B018
                engine.store.set_aside(session.state)
            if where == "file":
                empty(engine.store)
            answer = session.chat([*long_talk("tea", turns), MORE], logprobs=0, **FIXED)
            assert (answer.text, answer.usage.prompt, [each.logprob for each in answer.logprobs]) == wanted
            read += answer.usage.prompt - answer.usage.cached
            engine.store.set_aside(session.state)
        assert where == "alone" or read < 0.9 * sum(prompt for _, prompt, _ in expected)


@pytest.mark.parametrize(("free", "contexts"), [(1 << 40, 8), (1 << 20, 0), (0, 0)])
def test_what_is_planned_for_them(bundled_model, free: int, contexts: int) -> None:
    """So many contexts, but no more than a share of what is free; with a limit they take what it leaves."""
    with edge.load(bundled_model) as engine:
        config = engine.config
    plain = cache_plan(config, Options(parallel=2))
    available = plain.kv_total + free
    plan = cache_plan(config, Options(parallel=2, spare_contexts=8), Footprint(), available)
    assert plan.waiting_bytes == (8 * plan.kv_bytes if contexts else free // FREE_SHARE)
    assert plan.room == plan.kv_total + plan.waiting_bytes and plan.total_bytes == plan.room
    assert any(line.startswith("waiting") for line in plan.lines()) is (plan.waiting_bytes > 0)
    limit = plain.kv_total + 1_000_000
    limited = cache_plan(config, Options(parallel=2, spare_contexts=8, memory=limit), Footprint(), 1 << 40)
    assert limited.waiting_bytes == 0 and limited.room == limit


# ---- on disk ---------------------------------------------------------------------------------------------------------


def test_a_folder_outlives_the_process(bundled_model, tmp_path) -> None:
    folder = tmp_path / "prefixes"
    with edge.load(ctx=512, threads=1) as engine:
        keep_in(engine, folder)
        expected = ask(engine.session(SYSTEM), "Hello")
        shared = len(in_memory(engine.store)[0])
    written = list(folder.iterdir())
    assert len(written) == 1 and written[0].stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700
    with edge.load(ctx=512, threads=1) as engine:
        keep_in(engine, folder)
        session = engine.session(SYSTEM)
        assert ask(session, "Hello") == expected
        assert session.outcome.usage.cached >= shared // 32 * 32
        assert ask(engine.session("Another " + SYSTEM), "Hello")
        assert len(list(folder.iterdir())) == 2
    with edge.load(ctx=256, threads=1) as engine:  # another plan: the files are of no use, and stay
        keep_in(engine, folder)
        session = engine.session(SYSTEM)
        ask(session, "Hello")
        assert session.outcome.usage.cached == 0 and len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("kept", [0, 5, 30, 400, 0.5])
def test_damaged_files_are_dropped_after_a_restart(bundled_model, tmp_path, kept: float) -> None:
    """Cut at each of its parts: what a file holds is only known from its head then."""
    with edge.load(ctx=512, threads=1) as engine:
        keep_in(engine, tmp_path)
        expected = ask(engine.session(SYSTEM), "Hello")
    path = next(tmp_path.iterdir())
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if kept < 1 else int(kept)])
    with edge.load(ctx=512, threads=1) as engine:
        keep_in(engine, tmp_path)
        session = engine.session(SYSTEM)
        assert ask(session, "Hello") == expected and session.outcome.usage.cached == 0
        assert list(tmp_path.iterdir()) == [path]  # written anew
        empty(engine.store)
        session = engine.session(SYSTEM)
        assert ask(session, "Hello") == expected and session.outcome.usage.cached > 0


def test_files_stay_within_their_bytes(bundled_model, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("not ours")
    with edge.load(ctx=512, threads=1) as engine:
        store, folder = engine.store, keep_in(engine, tmp_path)
        engine.session("A " + SYSTEM).warm()
        size = sum(nbytes for _, nbytes, _ in files(folder.path))
        folder.max_bytes = 2 * size + size // 2
        monkeypatch.setattr("edge.cache.folder.MOST_FILES", 3)
        for i, letter in enumerate("BCD"):
            engine.session(f"{letter} " + SYSTEM).warm()
            for at, (_, _, path) in enumerate(files(folder.path)):
                os.utime(path, (1000 * i + at, 1000 * i + at))
        assert len(files(folder.path)) == 2 and (tmp_path / "notes.txt").exists()
        empty(store)
        session = engine.session("D " + SYSTEM)
        session.warm()
        assert session.outcome.usage.cached > 0
        folder.max_bytes = 1 << 40
        for i, letter in enumerate("EFG"):
            engine.session(f"{letter} " + SYSTEM).warm()
            assert len(files(folder.path)) == 3, i  # no more than so many, and not fewer
        folder.max_bytes = size // 2
        engine.session("H " + SYSTEM).warm()
        assert len(files(folder.path)) == 3  # what is larger than all that may be there removes nothing
        Folder(engine.space, tmp_path, 2 * size + size // 2)
        assert len(files(tmp_path)) == 2  # a smaller limit holds from the start
        folder.path = str(tmp_path / "gone")  # a folder that went away costs time, not answers
        assert ask(engine.session("Z " + SYSTEM), "Hello")
    with edge.load(ctx=64) as engine, pytest.raises(UsageError, match="cannot keep"):
        Folder(engine.space, tmp_path / "notes.txt")


def test_the_tokens_of_files_are_counted(bundled_model, tmp_path) -> None:
    """They are in memory, so pages may take so much less; but never less than what the sessions were promised."""
    with edge.load(bundled_model, ctx=512, threads=1, parallel=1, spare_contexts=4, overflow="stop") as engine:
        keep_in(engine, tmp_path, conversations=True)
        engine.store.share(0)  # none in memory
        talk(engine, 5)
        listed = sum(each.stat().st_size > 0 and int(each.name.split("-")[0]) for each in tmp_path.iterdir())
        assert listed > 0 and engine.space.pool.limit == engine.plan.room - 4 * listed
    for spare in (0, 4):
        with edge.load(bundled_model, ctx=512, threads=1, parallel=1, spare_contexts=spare, overflow="stop") as engine:
            keep_in(engine, tmp_path, conversations=True)
            engine.store.share(0)
            engine.session().ask("Hi", max_tokens=1).close()
            with engine.session() as session:
                assert ask(session, "Hello", 2) is not None
            assert engine.space.pool.limit == max(engine.plan.kv_total, engine.plan.room - 4 * listed)


def test_conversations_are_written_only_where_that_is_asked_for(bundled_model, tmp_path) -> None:
    """A folder of beginnings gets no conversation; one of conversations no beginning."""
    for conversations in (False, True):
        place = tmp_path / str(conversations)
        with edge.load(bundled_model, parallel=1, spare_contexts=8) as engine:
            store, folder = engine.store, keep_in(engine, place, conversations=conversations)
            engine.session(SYSTEM).warm()
            beginning = len(in_memory(store)[0])
            talk(engine, 1)
            kept = [int(os.path.basename(path)[:8]) for _, _, path in files(folder.path)]
            assert len(kept) == 1 and (kept[0] == beginning) is not conversations
            assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}


def test_a_file_of_another_process_is_found(bundled_model, tmp_path) -> None:
    with edge.load(bundled_model, parallel=1) as one, edge.load(bundled_model, parallel=1) as other:
        for engine in (one, other):
            keep_in(engine, tmp_path, conversations=True)
        assert other.store.find(array("i", [1] * 200)) is None
        (messages,) = talk(one, 1)
        session = other.session()
        session.chat([*messages, MORE], max_tokens=0).text  # noqa: B018
        assert came_back(session)
        next(tmp_path.iterdir()).unlink()
        empty(other.store)
        session = other.session()
        session.chat([*messages, MORE], max_tokens=0).text  # noqa: B018
        assert not came_back(session)


def test_a_file_comes_back_although_memory_is_full(bundled_model, tmp_path) -> None:
    """What is in memory gives way to it."""
    with edge.load(bundled_model, parallel=1, overflow="stop", ctx=512) as engine:  # room for one context
        store, folder = engine.store, keep_in(engine, tmp_path, conversations=True)
        talks = talk(engine, 8)
        assert len(store.entries) < 8 == len(files(folder.path))
        for messages in talks:
            session = engine.session()
            session.chat([*messages, MORE], max_tokens=0).text  # noqa: B018
            assert came_back(session)
            assert engine.space.pool.used <= engine.plan.room


# ---- any order of things ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tiny_model):
    with edge.load(tiny_model, ctx=160, threads=1) as engine:
        yield engine


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 150), st.integers(0, 2)), min_size=1, max_size=8))
@settings(max_examples=25)
def test_sessions_over_a_store_hold_what_they_should(tiny, actions) -> None:
    """Random prompts of few beginnings, a store that is always too small; logits equal to those of a fresh cache."""
    rng = random.Random(5)
    texts = [array("i", [rng.randrange(400) for _ in range(160)]) for _ in range(2)]
    texts += [texts[0][:70] + texts[1][70:], texts[1][:33] + texts[0][33:]]
    tiny.share_prefixes(60_000)
    states = [tiny.space.new_state() for _ in range(3)]
    try:
        for text, n, which in actions:
            context = states[which]
            tiny.space.take(context)
            held = common(context.tokens, texts[text][:n])
            tiny.store.sync(context, texts[text][:n])

            def work(context=context, text=text, n=n):
                yield None
                yield from context.prefill(texts[text][:n], lambda: None, share=n // 2, shared=tiny.store.add)

            tiny.scheduler.run(Outcome(), work())
            assert context.tokens == texts[text][:n] and context.kv.n_tokens == n and held <= n
            fresh = run(tiny.model.transformer, tiny.space.new_cache(tiny.plan), texts[text][:n], 40)
            assert context.logits.tobytes() == fresh[-1].tobytes()
            assert tiny.store.nbytes <= 60_000
    finally:
        tiny.store.stop()


# ---- one limit for all -----------------------------------------------------------------------------------------------


def test_the_limit_counts_all_sessions(bundled_model) -> None:
    with edge.load(ctx=512, threads=1, overflow="stop") as engine:
        fixed, one = engine.plan.footprint.total, engine.plan.kv_bytes
    limit = fixed + one + one // 2 + (8 << 20)  # the program may have grown a little meanwhile
    with edge.load(ctx=512, threads=1, overflow="stop", memory=limit) as engine:
        room = engine.plan.room
        assert one <= room < one + one // 2 + (16 << 20)
        sessions = [engine.session() for _ in range(2 + room // one)]
        prompt = [7] * 500
        for session in sessions:
            list(session.complete(prompt, max_tokens=0))
            assert engine.space.pool.used <= room
        assert sessions[0].state.nbytes == 0 < sessions[-1].state.nbytes  # what was idle longest has given way
        last = sessions[-1].complete([*prompt, 8], max_tokens=5, ignore_eos=True)
        next(last)  # this one is not idle
        with pytest.raises(MemoryRefused, match="the memory limit is reached"):
            held = [session.complete(prompt, max_tokens=5, ignore_eos=True) for session in sessions[:-1]]
            for answer in held:
                next(answer)
        assert len(list(last)) > 0 and last.finish_reason == "length"  # and it does not notice
        for answer in held:
            answer.close()
        assert len(list(sessions[0].complete(prompt, max_tokens=3, ignore_eos=True))) > 0
        assert engine.space.pool.used <= room


def test_prefixes_make_room_for_sessions(bundled_model) -> None:
    with edge.load(ctx=512, threads=1, overflow="stop") as engine:
        store = engine.share_prefixes("64M")
        engine.session(SYSTEM).warm()
        assert len(store.entries) == 1
        pool = engine.space.new_cache().pool  # there is one for all
        small = engine.plan.kv_bytes + store.nbytes // 2
        engine.space.pool = type(pool)(small)
        empty(store)
        engine.session(SYSTEM).warm()
        held = store.nbytes
        full = engine.session()
        list(full.complete([7] * 500, max_tokens=0))
        assert held > 0 and len(store.entries) == 0 and engine.space.pool.used <= small
