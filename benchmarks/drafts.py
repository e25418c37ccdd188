"""What drafts (--draft) bring: tokens per second of answers with each setting, in turns.

    python benchmarks/drafts.py [MODEL] [--threads 1,2] [--modes off,auto,7] [--turns 6] [--rounds 5]
    python benchmarks/drafts.py 2b-4t.gguf --replay --tokenizer ggml-vocab-llama-bpe.gguf --chats 1

Two texts: talk at a counter, the first turns of each conversation of a file (one session a conversation, as in chat,
facts in the system prompt); and a sentence eight times, which the answer goes on with.  Without --replay the model
answers in its own words, greedily and drawn with fixed seeds.  A model of random weights has no words: with --replay
every token that it chooses is replaced by the next one of the answer that stands in the file, so that drafts are as
often right as for a model that says these words, and cost what they cost in this one.

A round runs every setting once; the answers have to be the same.  Printed are tokens/s behind the first token of each
answer, median of the rounds with the least and the most, the median of the ratios within a round, and how many tokens
of a round were drafted and right.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge
from edge.formats import gguf_tokenizer
from edge.model.drafting import Drafting
from edge.prompt.tokenizer import Tokenizer

TEXT = Path(__file__).resolve().parent / "kv_dialogues.jsonl"
SENTENCE = "One large oat latte and two small espressos for Beatriweo, please. "
SAMPLINGS = {"greedy": edge.Sampling(temperature=0.0), "drawn": edge.Sampling(seed=1)}
MOST = 100  # tokens of an answer

Conversation = list[dict[str, str]]


@dataclass
class Tally:
    """What was counted in a round with one setting."""

    tokens: int = 0
    seconds: float = 0.0
    drafted: int = 0
    right: int = 0
    said: list[str] = field(default_factory=list)

    def add(self, session: edge.Session, text: str) -> None:
        self.tokens += max(0, session.outcome.usage.completion - 1)  # the first comes out of the prompt
        self.seconds += session.outcome.timings.decode_seconds
        self.drafted += session.outcome.usage.drafted
        self.right += session.outcome.usage.accepted
        self.said.append(text)


class Script:
    """A sampler whose choices are made, and then replaced by the next token of a text."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.ids: Sequence[int] = ()
        self.at = 0

    def sample(self, *arguments: Any) -> int:
        self.inner.sample(*arguments)
        self.at += 1
        return self.ids[self.at - 1]

    def reseed(self, seed: int) -> None:
        self.inner.reseed(seed)


class Bench:
    """One model; ``tokenizer``: the words of replayed texts."""

    def __init__(self, engine: edge.Engine, tokenizer: Any, chats: Sequence[Conversation]) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.chats = chats
        self.scripts: list[Script] = []
        self.make = engine.space.new_sampler

    def new_sampler(self, seed: int) -> Script:
        self.scripts.append(Script(self.make(seed)))
        return self.scripts[-1]

    def cases(self, replay: bool) -> dict[str, Callable[[], Tally]]:
        """What is measured, by name."""
        if replay:
            return {"talk at a counter, replayed": self.replay_talk, "a sentence again": self.replay_repeat}
        found: dict[str, Callable[[], Tally]] = {}
        for name, sampling in SAMPLINGS.items():
            found[f"talk at a counter, {name}"] = partial(self.talk, sampling)
            found[f"a sentence again, {name}"] = partial(self.repeat, sampling)
        return found

    def talk(self, sampling: edge.Sampling) -> Tally:
        """The conversations, in the model's own words."""
        tally = Tally()
        for chat in self.chats:
            with self.engine.session(next((m["content"] for m in chat if m["role"] == "system"), None)) as session:
                for message in chat:
                    if message["role"] == "user":
                        pieces = session.ask(message["content"], sampling=sampling, max_tokens=MOST)
                        tally.add(session, "".join(piece.text for piece in pieces))
        return tally

    def repeat(self, sampling: edge.Sampling) -> Tally:
        """A sentence that stands there eight times, and what comes then."""
        tally = Tally()
        with self.engine.session() as session:
            pieces = session.complete(SENTENCE * 8, sampling=sampling, max_tokens=MOST, ignore_eos=True)
            tally.add(session, "".join(piece.text for piece in pieces))
        return tally

    def _replayed(self, session: edge.Session, prompt: Sequence[int], ids: Sequence[int], tally: Tally) -> None:
        if session.state is None:
            session.state = self.engine.space.new_state(0)
        state = session.state
        script = state.sampler if isinstance(state.sampler, Script) else self.new_sampler(0)
        state.sampler, script.ids, script.at = script, ids, 0
        pieces = session.complete(prompt, sampling=SAMPLINGS["greedy"], max_tokens=len(ids), ignore_eos=True)
        tally.add(session, "".join(piece.text for piece in pieces))

    def replay_talk(self) -> Tally:
        """The conversations, in the words of the file."""
        tally, template = Tally(), self.engine.template
        for chat in self.chats:
            with self.engine.session() as session:
                for at, message in enumerate(chat):
                    if message["role"] == "assistant":
                        prompt = template.encode(self.tokenizer, chat[:at])
                        answer = self.tokenizer.encode(" " + message["content"])
                        self._replayed(session, prompt, answer, tally)
        return tally

    def replay_repeat(self) -> Tally:
        """The sentence goes on and on."""
        tally, ids = Tally(), self.tokenizer.encode(SENTENCE * 12)
        prompt = len(self.tokenizer.encode(SENTENCE * 8))
        with self.engine.session() as session:
            self._replayed(session, ids[:prompt], ids[prompt:], tally)
        return tally


def measure(bench: Bench, cases: dict[str, Callable[[], Tally]], modes: Sequence[str], rounds: int) -> list[str]:
    """Rows of the table.  Raises RuntimeError where the answers differ."""
    found: dict[tuple[str, str], list[Tally]] = {(case, mode): [] for case in cases for mode in modes}
    next(iter(cases.values()))()  # brings everything into memory
    for turn in range(rounds):
        for case, work in cases.items():
            for mode in reversed(modes) if turn % 2 else modes:
                bench.engine.space.drafting = Drafting.parse(mode)
                found[case, mode].append(work())
    lines = []
    for case in cases:
        first = found[case, modes[0]]
        for mode in modes:
            tallies = found[case, mode]
            if any(tally.said != first[0].said for tally in tallies):
                raise RuntimeError(f"{case}: --draft {mode} changed an answer")
            speeds = [tally.tokens / tally.seconds for tally in tallies]
            ratio = median(b.seconds / a.seconds for a, b in zip(tallies, first, strict=True))
            lines.append(
                f"| {case} | {mode} | {tallies[0].tokens} | {median(speeds):.1f} [{min(speeds):.1f}-{max(speeds):.1f}] "
                f"| {ratio:.3f} | {median(t.right for t in tallies):g} of {median(t.drafted for t in tallies):g} |"
            )
    return lines


def read(file: Path, chats: int, turns: int) -> list[Conversation]:
    """The first ``turns`` questions and answers of the first conversations."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines()[:chats]:
        messages = json.loads(line)["messages"]
        system = messages[0]["role"] == "system"
        found.append(messages[: 2 * turns + system])
    return found


def arguments_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="default: the bundled model")
    parser.add_argument("--replay", action="store_true", help="answers of the file instead of the model's own")
    parser.add_argument("--tokenizer", metavar="GGUF", help="whose words replayed texts are made of (default: MODEL's)")
    parser.add_argument("--text", type=Path, default=TEXT, metavar="FILE")
    parser.add_argument("--chats", type=int, default=4, help="conversations of the file")
    parser.add_argument("--turns", type=int, default=6, help="questions of each")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases with TEXT in their name")
    parser.add_argument("--threads", default="1,2", metavar="N,N")
    parser.add_argument("--modes", default="off,auto,7", metavar="MODE,MODE", help="settings, the baseline first")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--weights", default="huge", choices=["map", "huge"])
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    options = arguments_parser().parse_args(arguments)
    chats = read(options.text, options.chats, options.turns)
    for threads in map(int, options.threads.split(",")):
        with edge.load(options.model, threads=threads, weights=options.weights, draft="off", remember=False) as engine:
            own = options.tokenizer
            words = Tokenizer.build(gguf_tokenizer.read_tokenizer(own)) if own else engine.tokenizer
            bench = Bench(engine, words, chats)
            cases = {name: work for name, work in bench.cases(options.replay).items() if options.case in name}
            lines = measure(bench, cases, options.modes.split(","), options.rounds)
            print(f"{engine.config.name}, {threads} thread{'s' * (threads > 1)}, {options.rounds} rounds\n")
            print("| text | draft | tokens | tokens/s [least-most] | of the first | right |\n|---|---|--:|---|--:|---|")
            print("\n".join(lines) + "\n", flush=True)


if __name__ == "__main__":
    main()
