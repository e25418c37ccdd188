"""benchmarks/drafts.py: the answers that are counted are the model's own, or those of the text, and the same."""

from __future__ import annotations

import json

import pytest

import edge
from benchmarks import drafts
from edge.model.drafting import Drafting


@pytest.fixture
def bench(tmp_path):
    chat = [
        {"role": "system", "content": "A cafe. Tea: $2.00."},
        {"role": "user", "content": "two teas please"},
        {"role": "assistant", "content": "Two teas. Anything else?"},
        {"role": "user", "content": "two teas please"},
        {"role": "assistant", "content": "Two teas. Anything else?"},
        {"role": "user", "content": "no"},
        {"role": "assistant", "content": "Thank you."},
    ]
    path = tmp_path / "talk.jsonl"
    path.write_text(json.dumps({"messages": chat}) + "\n")
    chats = drafts.read(path, 3, 2)
    assert chats == [chat[:5]]
    with edge.load(ctx=256, threads=1, draft="off") as engine:
        yield drafts.Bench(engine, engine.tokenizer, chats)


def test_replayed_answers_are_those_of_the_text(bench):
    bench.engine.space.drafting = Drafting.parse(7)
    tally = bench.replay_talk()
    assert tally.said == [" Two teas. Anything else?"] * 2
    each = len(bench.tokenizer.encode(" Two teas. Anything else?"))
    assert tally.tokens == 2 * (each - 1) and tally.seconds > 0
    assert tally.right >= each - 4  # the second answer stands in the first
    again = bench.replay_repeat()
    assert (drafts.SENTENCE * 12).endswith(again.said[0]) and len(again.said[0]) >= 3 * len(drafts.SENTENCE)
    assert again.right > again.tokens // 2


def test_every_setting_is_measured(bench):
    lines = drafts.measure(bench, bench.cases(replay=False), ["off", "7"], 1)
    assert [line.split(" | ")[1] for line in lines] == ["off", "7"] * 4
    assert lines[0].startswith("| talk at a counter, greedy | off |") and lines[0].endswith("| 1.000 | 0 of 0 |")


def test_an_answer_that_changes_ends_it(bench):
    said = iter(("one", "one", "two"))

    def work() -> drafts.Tally:
        return drafts.Tally(2, 1.0, said=[next(said)])

    with pytest.raises(RuntimeError, match="--draft auto changed an answer"):
        drafts.measure(bench, {"talk": work}, ["off", "auto"], 1)
