"""A small engine for tests of the command line: the real Engine and Session over a transformer that follows a script.

The vocabulary is the 256 bytes and three control tokens.  What the "model" answers depends on the last question alone,
see :func:`reply`.  Run as a program (``python tests/fake_engine.py run hello``) it is ``bitnet-edge`` with this engine;
``FAKE_DELAY`` is the pause per step in seconds, ``FAKE_LOAD`` the time loading takes, ``FAKE_MARK`` a file that is made
when it begins, ``FAKE_HOLD`` one that must go before it ends, ``FAKE_STEPS`` one that gets a dot for each step; with
``FAKE_THINKS`` it is a model that may think before it answers; ``FAKE_SCRIPT`` has other answers, a JSON list of
pairs: a pattern of the question, and its answer.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

from edge.cache.planning import cache_plan  # noqa: E402
from edge.cache.space import KVSpace  # noqa: E402
from edge.engine import Engine  # noqa: E402
from edge.errors import UnsupportedCPU  # noqa: E402
from edge.model.footprint import Footprint  # noqa: E402
from edge.model.model import Model  # noqa: E402
from edge.options import Options  # noqa: E402
from edge.registry.library import DEMO  # noqa: E402
from tests import fakes  # noqa: E402
from tests.configs import uniform  # noqa: E402

BOS, ASK, ANSWER, END = 256, 257, 258, 259
N_VOCAB = 260

CONFIG = uniform(
    arch="fake", name="fake-1k", n_layer=1, hidden=8, ffn=8, n_head=1, n_kv_head=1, head_dim=8, n_vocab=N_VOCAB,
    n_ctx_train=4096, activation="relu2", sub_norm=True)


#: the last word of a question -> the answer
SAID = {
    "long": "all work and no play makes a dull day " * 200, "lines": "one\n\ntwo\n\n\n", "nothing": "",
    "escape": "\x1b[31mred\x1b[0m\x07.", "snow": "Schnee: ❄, Öl.", "two": "First sentence. Second one.",
    "think": "<think>\nhm, so\n</think>\n\nYes.",
}


def reply(question: str) -> str:
    """The scripted answer.  Its last word decides, so that appended text can be seen, too."""
    for pattern, said in json.loads(os.environ.get("FAKE_SCRIPT", "[]")):
        if re.search(pattern, question):
            return said
    word = question.split()[-1] if question.split() else ""
    if word == "crash":
        raise RuntimeError("the fake crashed as it was told")
    return SAID.get(word, f"You said: {question}")


def answer(history: list[int]) -> int:
    """The next byte of the script for the last question; a raw prompt is continued with dots."""
    if ANSWER not in history:
        return ord(".")
    at = len(history) - history[::-1].index(ANSWER)
    asked = len(history) - history[::-1].index(ASK)
    script = reply(bytes(history[asked : at - 1]).decode()).encode()
    said = sum(token < 256 for token in history[at:])
    return script[said] if said < len(script) else END


class FakeTransformer(fakes.Transformer):
    """Follows the script; takes FAKE_DELAY seconds for each step."""

    n_threads = 2
    certainty = 1e4

    def __init__(self) -> None:
        super().__init__(answer)
        self.delay = float(os.environ.get("FAKE_DELAY", "0"))

    def step(self, batch: Any) -> None:
        time.sleep(self.delay)
        super().step(batch)
        if path := os.environ.get("FAKE_STEPS"):
            with open(path, "a") as file:
                file.write(".")


class FakeTokenizer(fakes.Tokenizer):
    """One token per byte."""

    n_vocab, bos_id, eos_ids = N_VOCAB, BOS, (END,)
    special = markers = {"<bos>": BOS, "<ask>": ASK, "<answer>": ANSWER, "<end>": END}  # noqa: RUF012
    joined = ()
    strips_blank = opens_with_blank = False


class FakeTemplate(fakes.Template):
    """bos, system, then <ask>question<answer>answer<end> for each turn."""

    def encode(self, tokenizer: FakeTokenizer, messages: Any, add_generation_prompt: bool = True) -> list[int]:
        ids = [BOS]
        for message in messages:
            mark = {"user": [ASK], "assistant": [ANSWER], "system": []}[message["role"]]
            ids += [*mark, *message["content"].encode(), *([END] if message["role"] == "assistant" else [])]
        return [*ids, ANSWER] if add_generation_prompt else ids

    def stop_ids(self, tokenizer: FakeTokenizer) -> set[int]:
        return {END}


class FakeKV(fakes.KV):
    """Never full: these tests ask what the command line does, not what the cache holds."""

    nbytes = 4096

    def __init__(self) -> None:
        super().__init__(n_ctx=1 << 40, sealed=False)


def load(
    model: str | None = None,
    *,
    ctx: int | None = None,
    kv: str = "int8",
    window: int = 0,
    sinks: int | None = None,
    memory: str | int | None = None,
    force_memory: bool = False,
    overflow: str = "slide",
    isa: str | None = None,
    progress: Any = None,
    on_plan: Any = None,
    parallel: int | None = None,
    system: str | None = None,
    **_rest: Any,
) -> Engine:
    """As edge.load; a path is opened by the real reader, so that its errors are the real ones."""
    if isa == "lacking":
        raise UnsupportedCPU("the instruction set 'lacking' is lacking")
    if model not in (None, DEMO):
        from edge.formats import open_checkpoint

        open_checkpoint(model)
    if mark := os.environ.get("FAKE_MARK"):
        Path(mark).touch()
    while os.path.exists(os.environ.get("FAKE_HOLD", "")):
        time.sleep(0.01)
    seconds = float(os.environ.get("FAKE_LOAD", "0"))
    for done in range(10):
        time.sleep(seconds / 10)
        if progress:
            progress(done + 1, 10)
    options = Options(ctx, kv, window, sinks, memory, overflow, force_memory, parallel=parallel)
    plan = cache_plan(CONFIG, options, Footprint(allocated=1000))
    if on_plan:
        on_plan(plan)
    model = Model(CONFIG, FakeTransformer(), FakeTokenizer(), FakeTemplate(), path="fake")
    model.thinks = "FAKE_THINKS" in os.environ
    return Engine(model, KVSpace(model, plan, new_cache=FakeKV), system=system, notes=["this is a fake"])


def install() -> None:
    """Put the fake in the place where the command line looks for an engine; without -m it is the model."""
    import edge

    edge.load = load  # type: ignore[attr-defined]
    os.environ.setdefault("BITNET_EDGE_MODEL", DEMO)


if __name__ == "__main__":
    install()
    from edge.cli.main import main

    main()
