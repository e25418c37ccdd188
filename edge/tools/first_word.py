"""First word: how long a person waits for it, and which tokens are read meanwhile (docs/first-word.md).

One system prompt and one question, four times: nothing is known; another process has read the system prompt; the same
process; and while the question is being typed.
"""

from __future__ import annotations

import datetime
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from edge.amounts import count, median
from edge.cache.plan import PAGE
from edge.cache.remembered import Remembered
from edge.errors import UsageError
from edge.machine.board import Board
from edge.sampling import Sampling
from edge.session.read_ahead import certain

if TYPE_CHECKING:
    from edge.cache.state import KVState
    from edge.cache.store_entry import Entry
    from edge.engine import Engine
    from edge.session.session import Session

TYPED = 40  # words a minute
SPOKEN = 150
TOKENS_OF_A_WORD = 1.3  # of English
N_GEN = 32  # tokens of the answer whose speed is measured
WORDS = 40  # of the question
QUESTION = (
    "My sister and her two children arrive on Friday evening after a long journey, so please tell me which of the "
    "rooms upstairs are warm enough by then, and what I should still switch on before I leave home today"
)
NEXT = QUESTION.replace("sister", "brother").replace("Friday", "Sunday")
FACTS = (
    "The lamp in the hall is on. ", "The heating in the kitchen is set to twenty degrees. ",
    "The door to the garden is shut. ", "The blinds of the bedroom are open. ", "The washing machine has finished. ",
    "Nobody is in the cellar. ",
)
GREEDY = Sampling(temperature=0.0)
CASES = {
    "cold": "nothing is known",
    "second process": "the system prompt is on the disk",
    "same process": "the next question",
    "typed": f"typed at {TYPED} words a minute",
}


@dataclass(frozen=True)
class Row:
    """A case: tokens of the prompt, of these read after Enter, and seconds from there to the first token."""

    case: str
    prompt: int
    read: int
    seconds: float


@dataclass(frozen=True)
class Report:
    """A finished measurement: ``header`` is what was measured and on which machine."""

    header: dict[str, Any]
    rows: list[Row]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**self.header, "rows": [asdict(row) for row in self.rows]}

    def to_markdown(self) -> str:
        """A table for people."""
        head = self.header
        width = max(map(len, CASES))
        lines = [
            f"{head['model']}, {count(head['threads'], 'thread')}, KV {head['kv']}: a system prompt of "
            f"{head['system_tokens']} tokens, a question of {WORDS} words", "",
            f"| {'case':<{width}} | tokens read | first token, s |",
            f"|-{'-' * width}-|-------------|----------------|",
        ]
        lines += [f"| {row.case:<{width}} | {row.read:>11} | {row.seconds:>14.2f} |" for row in self.rows]
        return "\n".join([*lines, "", *(f"{case}: {about}" for case, about in CASES.items()), self.speech(), ""])

    def speech(self) -> str:
        """Whether a voice that says the answer would have to wait for it."""
        rate, words = self.header["tokens_per_second"], self.header["words_per_minute"]
        would = "would starve" if self.header["starves"] else "does not starve"
        return f"speech: {rate:.1f} tokens/s are {words:.0f} words a minute; a voice of {SPOKEN} words a minute {would}"


class _Keeping(Remembered):
    """Keeps every beginning, however soon it is read: the case with a cache is measured in any event."""

    def put(self, entry: Entry, state: KVState) -> None:
        state.reading_seconds = float("inf")
        super().put(entry, state)


def run(
    model: str | None = None,
    n: int = 1000,
    repeats: int = 1,
    progress: Callable[[float, float], object] | None = None,
    **options: Any,
) -> Report:
    """Measure with a system prompt of about ``n`` tokens; medians of ``repeats`` runs.  ``options``: of edge.load.

    The remembered prompts of the user are neither used nor changed.
    """
    found: dict[str, list[Row]] = {case: [] for case in CASES}
    rates: list[float] = []
    header: dict[str, Any] = {}

    def add(case: str, session: Session) -> None:
        used = session.outcome.usage
        seconds = session.outcome.timings.first_token_seconds
        found[case].append(Row(case, used.prompt, used.prompt - used.cached, round(seconds, 4)))
        if progress is not None:
            progress(sum(map(len, found.values())), repeats * len(CASES))

    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="bitnet-edge-") as folder:
            for case in ("cold", "second process"):
                with _loaded(model, n, folder, options) as engine:
                    system, held = system_prompt(engine, n)
                    session = engine.session(system)
                    _ask(session, QUESTION)
                    add(case, session)
                    if case == "second process":
                        _ask(session, NEXT, N_GEN)
                        add("same process", session)
                        made = session.outcome.usage.completion - 1
                        rates.append(made / max(session.outcome.timings.decode_seconds, 1e-9))
                        session = engine.session(system)
                        typed(session, QUESTION)
                        _ask(session, QUESTION)
                        add("typed", session)
                        header = {**_machine(engine), "repeats": repeats, "kv": engine.plan.kv_type,
                                  "system_tokens": held, "question_words": WORDS}
    rate = median(rates)
    words = rate * 60 / TOKENS_OF_A_WORD
    header |= {"tokens_per_second": round(rate, 2), "words_per_minute": round(words, 1), "starves": words < SPOKEN}
    rows = [Row(case, each[-1].prompt, each[-1].read, median([row.seconds for row in each]))
            for case, each in found.items()]
    return Report(header, rows)


def _machine(engine: Engine) -> dict[str, Any]:
    import edge

    return {"date": datetime.date.today().isoformat(), "version": edge.__version__, "model": engine.config.name,
            **Board().summary(), "threads": engine.n_threads}


def _loaded(model: str | None, n: int, folder: str, options: dict[str, Any]) -> Engine:
    """An engine as a new process has it, with a folder of remembered prompts of its own."""
    import edge

    engine = edge.load(model, ctx=n + 512, remember=False, **{"overflow": "stop", **options})
    engine.store.remember(_Keeping(engine.space, f"{folder}/beginnings", 1 << 40))
    engine.wait_for_weights()
    return engine


def _ask(session: Session, question: str, most: int = 1) -> None:
    for _ in session.ask(question, sampling=GREEDY, max_tokens=most, ignore_eos=most > 1):
        pass


def system_prompt(engine: Engine, n: int) -> tuple[str, int]:
    """(a text of a house, its tokens: ``n`` or a few more)."""
    if n < 2 * PAGE:
        raise UsageError(f"--first-word {n}: a prompt of fewer than {2 * PAGE} tokens is read at once")
    encode, text, i = engine.tokenizer.encode, "You are the assistant of a house. ", 0
    longest = max(len(encode(fact)) for fact in FACTS)
    while (held := len(encode(text))) < n:
        for _ in range(max(1, (n - held) // longest)):
            text += FACTS[i % len(FACTS)]
            i += 1
    return text, held


def typed(session: Session, text: str, words_per_minute: float = TYPED) -> None:
    """Read a question as a chat does while it is typed: each word has the time until the next, and no wait is added."""
    words = text.split()
    for i in range(1, len(words) + 1):
        end = time.perf_counter() + 60 / words_per_minute
        session.read_ahead(certain(" ".join(words[:i])), partial(_is_over, end))


def _is_over(end: float) -> bool:
    return time.perf_counter() > end
