"""Many sessions at once, coming and going as they like: every answer must be the one that it gives alone.

A session follows a script drawn from its number: questions with seeds of their own, answers left early, turns taken
back, another conversation, saving and loading, moving to another session, forks of a common beginning,
waiting.  The script is run alone first; then as many as a hundred run at once, each when it likes, on threads of their
own and in one event loop, over one engine that shares prefixes and has less memory than all of them want.  Some are
cancelled at any moment: what they had said must be the beginning of what they say alone.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import edge
import edge.aio
from benchmarks import make_model
from edge.machine import placement
from tests.at_once import together

SYSTEMS = ("You sell coffee and tea at the harbour. " * 3, "You are a guide in a museum of boats. " * 2, None)
WORDS = "please tell me about the tea the boats a large coffee two tickets when do you open thank you and then".split()
ACTIONS = ("ask",) * 6 + ("leave early", "undo", "chat", "save", "move", "warm", "choose", "wait")
Transcript = list[tuple[Any, ...]]


class Script:
    """The script of session ``number``.  ``answer`` runs an answer to at most n pieces and returns what it said."""

    patient = False  # prompts in wide steps, as in a batch

    def __init__(self, engine: edge.Engine, number: int, folder: Path, length: int = 5) -> None:
        self.engine, self.folder = engine, folder
        self.rng = random.Random(number)
        self.name = f"{number}"
        self.length = length
        self.transcript: Transcript = []

    def options(self) -> dict[str, Any]:
        rng = self.rng
        greedy = rng.random() < 0.3
        return {
            "max_tokens": rng.randint(1, 24), "seed": rng.randrange(1 << 30), "ignore_eos": rng.random() < 0.3,
            "temperature": 0.0 if greedy else 1.2, "repeat_penalty": rng.choice([1.0, 1.1]),
            "by": rng.choice(["token", "word", "all"]), "logprobs": rng.choice([None, None, None, 2]),
        }

    def question(self) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.choice([2, 5, 12, 60])))

    def steps(self) -> Any:
        """A generator: yields (answer, most pieces), is sent what was said; or yields a function to be called."""
        rng = self.rng
        session = self.engine.session(rng.choice(SYSTEMS) or "")
        session.state.patient = self.patient
        for _ in range(self.length):
            action = rng.choice(ACTIONS)
            said: Any = None
            if action in ("ask", "leave early"):
                question, options = self.question(), self.options()
                said = yield session.ask(question, **options), rng.randint(1, 4) if action == "leave early" else 1 << 30
            elif action == "chat":
                talk = [{"role": "user", "content": self.question()}]
                said = yield session.chat(talk, **self.options()), 1 << 30
            elif action == "undo":
                said = session.undo()
            elif action == "save":
                path = self.folder / f"{self.name}.save"
                yield partial(session.save, path)
                session.close()
                session = yield partial(self.engine.load_session, path)
            elif action == "move":  # set aside; another session goes on
                self.engine.store.set_aside(session.state)
                talk = [*session.messages, {"role": "user", "content": self.question()}]
                session.close()
                session = self.engine.session("")
                session.state.patient = self.patient
                said = yield session.chat(talk, **self.options()), 1 << 30
            elif action == "warm":
                yield session.warm
            elif action == "choose":
                found = yield partial(session.choose, self.question(), ["Yes.", "No, thank you."])
                said = [(each.text, each.logprob) for each in found]
            elif action == "wait":
                yield partial(time.sleep, 0.01)
            self.transcript.append((action, said, [dict(message) for message in session.messages]))
        session.close()


def run(script: Script) -> Transcript:
    """In this thread."""
    steps, sent = script.steps(), None
    while True:
        try:
            step = steps.send(sent)
        except StopIteration:
            return script.transcript
        sent = step() if callable(step) else first_pieces(*step)


async def run_async(script: Script) -> Transcript:
    """In an event loop, with answers of many at once in one thread."""
    steps, sent = script.steps(), None
    while True:
        try:
            step = steps.send(sent)
        except StopIteration:
            return script.transcript
        if callable(step):
            sent = await asyncio.to_thread(step)
        elif step[1] < 1 << 30:  # how far it runs ahead of its reader is not known: left early in a thread
            sent = await asyncio.to_thread(first_pieces, *step)
        else:
            answer = step[0]
            sent = (await edge.aio.text(answer), answer.finish_reason, [each.logprob for each in answer.logprobs])


def first_pieces(answer: edge.Answer, most: int) -> tuple[str, str | None, list[float]]:
    """(text, finish reason, log probabilities) of an answer that is left after so many pieces."""
    parts = [piece.text for _, piece in zip(range(most), answer)]
    answer.close()
    return "".join(parts), answer.finish_reason, [each.logprob for each in answer.logprobs]


def cancelled(engine: edge.Engine, number: int, counts: Counter[str], wrong: list[str]) -> None:
    """One answer, cancelled at any moment: what it has said is how it begins when it is alone."""
    rng = random.Random(-number)
    options = {"max_tokens": 40, "seed": number, "ignore_eos": True}
    question = "Tell me about " + " ".join(rng.choices(WORDS, k=rng.choice([3, 80])))
    whole = engine.session().ask(question, **options).text
    answer = engine.session().ask(question, **options)
    timer = threading.Timer(rng.random() * 0.1, answer.cancel)
    timer.start()
    said = answer.text
    timer.join()
    counts[f"cancelled ({answer.finish_reason})"] += 1
    if not whole.startswith(said.rstrip("\ufffd")) or answer.finish_reason not in ("cancelled", "length"):
        wrong.append(f"cancelled {number}: {said!r} is not how {whole!r} begins")


def campaign(
    seconds: float, seed: int, only: int | None = None, *, model: str = "demo", sessions: int = 100,
    length: int = 5, patient: bool = False, **options: Any,
) -> tuple[Counter[str], list[str]]:
    """(counts, what was wrong).  ``patient``: prompts in wide steps, as in a batch; ``only``: a round's seed."""
    if only is not None:
        seconds, seed = 0, only
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "alone").mkdir()
        with edge.load(model, **{"ctx": 512, "overflow": "stop", "cache": False, **options}) as engine:
            expected = {n: run(Script(engine, n, folder / "alone", length)) for n in range(sessions)}
        with edge.load(
            model, **{"ctx": 512, "overflow": "stop", "parallel": sessions // 2 + 1, "cache": False, **options}
        ) as engine:
            engine.share_prefixes("4M")
            Script.patient = patient
            until = time.monotonic() + seconds
            turn = 0

            def check(number: int, found: Transcript) -> None:
                counts["sessions"] += 1
                counts["answers"] += sum(each[0] in ("ask", "leave early", "chat") for each in found)
                counts.update(each[0] for each in found)
                if found != expected[number]:
                    at = next(i for i, (a, b) in enumerate(zip(found, expected[number])) if a != b)
                    wrong.append(f"session {number}, step {at}: {found[at]!r}, alone {expected[number][at]!r}")

            def visit(number: int, pause: float) -> None:
                try:
                    time.sleep(pause)
                    if number % 5 == 4:
                        cancelled(engine, number + turn * sessions, counts, wrong)
                    place = folder / f"{threading.get_ident()}"
                    place.mkdir(exist_ok=True)
                    check(number, run(Script(engine, number, place, length)))
                except Exception as error:
                    wrong.append(f"session {number}: {type(error).__name__}: {error}")

            async def visit_async(number: int, pause: float) -> None:
                try:
                    await asyncio.sleep(pause)
                    place = folder / f"loop{number}"
                    place.mkdir(exist_ok=True)
                    check(number, await run_async(Script(engine, number, place, length)))
                except Exception as error:
                    wrong.append(f"session {number}, async: {type(error).__name__}: {error}")

            async def visits(numbers: list[int]) -> None:
                await asyncio.gather(*(visit_async(n, rng.random() * 0.2) for n in numbers))

            while not wrong:
                turn += 1
                numbers = rng.sample(range(sessions), sessions)
                in_threads, in_loop = numbers[: sessions // 2], numbers[sessions // 2 :]
                calls = [partial(visit, n, rng.random() * 0.2) for n in in_threads]
                wrong += filter(None, together(*calls, partial(asyncio.run, visits(in_loop))))
                counts["rounds"] += 1
                if engine.scheduler.running or engine.scheduler.waiting:
                    wrong.append(f"{engine.scheduler.running} places were not given back")
                if time.monotonic() >= until:
                    break
            if engine.model.moving is not None:
                counts["copies of all weights"] = 1
            counts["segments of the fullest step"] = engine.scheduler.most_segments
            counts["steps"] = engine.scheduler.steps
    return counts, wrong


#: shape, types of matrices and of the head (None: the demo model), options.  Random weights write texts that the
#: tokenizer would cut into other tokens, so none of their sessions may lose its cache to another one.
KINDS: tuple[tuple[tuple[str, str, str] | None, dict[str, Any]], ...] = (
    (None, {"threads": 3}),
    (None, {"patient": True, "head": "two-stage"}),
    (("tiny-bonsai2", "PQ2_0", "PQ2_0"), {}),
    (("tiny-maple", "PQ2_0", "PQ2_0"), {}),
    (("tiny-qwen3", "PQ2_0", "PQ2_0"), {"weights": "auto"}),
    (("tiny", "I2_S", "Q8_0"), {"head": "two-stage"}),
    (("tiny-qwen3", "Q2_0", "Q2_0"), {"weights": "auto", "isa": "scalar"}),
)


def of_every_kind(seconds: float, seed: int, only: int | None = None) -> tuple[Counter[str], list[str]]:
    """(counts, what was wrong) of twelve sessions with a model of each kind, until something is wrong."""
    placement.LEAST, placement.PAUSE = 1, 0.05  # small models are copied, too, and answer meanwhile
    counts, sessions = Counter[str](), 12
    with tempfile.TemporaryDirectory() as folder:
        for i, (shape, options) in enumerate(KINDS):
            options = {"threads": 2, **options}
            if shape is not None:
                make_model.make(Path(folder) / f"{i}.gguf", *shape)
                options |= {"model": f"{folder}/{i}.gguf", "ctx": 1800, "parallel": sessions}
            more, wrong = campaign(seconds / len(KINDS), seed, only, sessions=sessions, **options)
            counts += more
            if wrong:
                return counts, [f"{shape or 'demo'} {options}", *wrong]
    return counts, []
