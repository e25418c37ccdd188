"""A tiny stand-in for tokenizer, template, KV cache and transformer: exact, instant, and suspicious.

The transformer's next token is a function of the whole history its KV cache claims to hold, so a session that keeps
the wrong prefix gets another answer than one that starts afresh.  One token is one byte, except a few joined ones that
the tokenizer prefers and the transformer never writes.  tests/fake_engine.py makes a program of the same parts.
"""

from __future__ import annotations

import copy
import threading
import zlib
from collections.abc import Callable
from types import SimpleNamespace

from edge.cache.plan import Plan
from edge.cache.space import KVSpace
from edge.engine import Engine
from edge.model.model import Model
from tests.configs import uniform

BOS, EOT, SYSTEM, USER, ASSISTANT = 256, 257, 258, 259, 260
JOINED = [b"he", b"ll", b"th", b"er", b"ing "]
N_VOCAB = 261 + len(JOINED)
MARKS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}


class Tokenizer:
    bos_id, eos_ids, add_bos, n_vocab = BOS, (EOT,), True, N_VOCAB
    special = markers = {"<bos>": BOS, "<eot>": EOT, "<system>": SYSTEM, "<user>": USER, "<assistant>": ASSISTANT}
    unused = ()
    strips_blank = False
    joined = JOINED  #: bytes of the ids from 261 on

    def encode(self, text: str, special: bool = False) -> list[int]:
        data, ids = text.encode(), []
        while data:
            n, token = next(((len(j), 261 + i) for i, j in enumerate(self.joined) if data.startswith(j)), (1, data[0]))
            ids.append(token)
            data = data[n:]
        return ids

    def token_bytes(self, token: int) -> bytes:
        return bytes((token,)) if token < 256 else b"" if token < 261 else self.joined[token - 261]

    def decode(self, ids, start: bool = True) -> str:
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")


class Template:
    think, switches, name = None, False, "fake"

    def encode(self, tokenizer: Tokenizer, messages, add_generation_prompt: bool = True) -> list[int]:
        ids = [BOS]
        for message in messages:
            ids += [MARKS[message["role"]], *tokenizer.encode(message["content"]), EOT]
        return [*ids, ASSISTANT] if add_generation_prompt else ids

    def stop_ids(self, tokenizer: Tokenizer) -> set[int]:
        return {EOT}

    def answer_lead(self) -> str:
        return ""


class KV:
    """Behaves as pyx.kv.KVCache with 8 tokens a page; remembers the ids it was given.

    ``snapshots`` > 0: it can only go back to a multiple of so many tokens, as a mixer with a recurrent state could.
    """

    PAGE = 8
    extra_bytes = 0

    def __init__(self, n_ctx: int = 4096, window: int = 0, sealed: bool = True, snapshots: int = 0) -> None:
        self.n_ctx, self.window, self.sealed, self.nbytes = n_ctx, window, sealed, 1000
        self.snapshots = snapshots
        self.ids: list[int] = []
        self.lost = 0  # positions below are overwritten

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def stats(self) -> dict[str, int]:
        return {"bytes": self.nbytes}

    def fork(self) -> KV:
        other = copy.copy(self)
        other.ids = self.ids[:]
        return other

    @property
    def evicted(self) -> int:
        return max(0, len(self.ids) - self.window) if self.window else 0

    @property
    def room(self) -> int:
        return 1 << 62 if self.window else self.n_ctx - len(self.ids)

    def append(self, ids) -> None:
        self.ids += ids
        if self.window:
            self.lost = max(self.lost, len(self.ids) - self.window - self.PAGE)

    def crop(self, n: int) -> int:
        assert 0 <= n
        if n >= len(self.ids):
            return len(self.ids)
        if self.sealed and n // self.PAGE != len(self.ids) // self.PAGE:
            n = n // self.PAGE * self.PAGE
        if self.snapshots:
            n = n // self.snapshots * self.snapshots
        if self.window and n - self.window < self.lost and self.lost:
            n = 0
        del self.ids[n:]
        self.lost = self.lost if n else 0
        return n

    def reset(self) -> None:
        self.ids, self.lost = [], 0


def by_hash(history: list[int]) -> int:
    """A capital, of which none is in a joined token, that depends on every token of the history."""
    return 65 + zlib.crc32(repr(history).encode()) % 26


def script(*answers: str | bytes) -> Callable[[list[int]], int]:
    """Turn i is answered with answers[i], then the turn ends."""

    def next_token(history: list[int]) -> int:
        starts = [i for i, token in enumerate(history) if token == ASSISTANT]
        answer = answers[min(len(starts), len(answers)) - 1]
        data = answer.encode() if isinstance(answer, str) else answer
        at = len(history) - starts[-1] - 1
        at = len(b"".join(map(Tokenizer().token_bytes, history[starts[-1] + 1 :]))) if at else 0
        return data[at] if at < len(data) else EOT

    return next_token


class Transformer:
    n_threads, chunk = 1, 64
    certainty = 20.0  #: logit of the next token; the others have 0

    def __init__(self, next_token: Callable[[list[int]], int] = by_hash) -> None:
        self.next_token = next_token
        self.evaluated: list[int] = []  # length of each step
        self.hook: Callable[[], None] | None = None
        self.running = threading.Lock()
        self.head = SimpleNamespace()

    def step(self, batch) -> None:
        assert self.running.acquire(blocking=False), "two steps at once"
        try:
            if self.hook:
                self.hook()
            assert 1 <= sum(len(segment.ids) for segment in batch) <= self.chunk
            assert len({id(segment.kv) for segment in batch}) == len(batch)
            for segment in batch:
                kv, ids, logits = segment.kv, segment.ids, segment.logits
                assert 1 <= len(ids) <= kv.room
                kv.append(list(ids))
                self.evaluated.append(len(ids))
                if logits is not None:
                    for i in range(len(logits)):
                        logits[i] = 0.0
                    n = len(ids) if segment.all_logits else 1
                    for row in range(n):
                        seen = kv.ids[: len(kv.ids) - n + 1 + row]
                        logits[row * len(logits) // n + self.next_token(seen)] = self.certainty
        finally:
            self.running.release()


CONFIG = uniform(
    arch="fake", name="fake", n_layer=1, hidden=4, ffn=4, n_head=1, n_kv_head=1, head_dim=4, n_vocab=N_VOCAB,
    n_ctx_train=4096, activation="relu2")


def engine(
    next_token: Callable[[list[int]], int] = by_hash, n_ctx: int = 4096, overflow: str = "stop", sealed: bool = True,
    snapshots: int = 0,
) -> Engine:
    """An engine of fakes; overflow "slide" gives a ring of n_ctx tokens."""
    window = n_ctx if overflow == "slide" else 0
    plan = Plan(n_ctx, "int8", window, kv_bytes=81_000_000, overflow=overflow)
    model = Model(CONFIG, Transformer(next_token), Tokenizer(), Template())
    return Engine(model, KVSpace(model, plan, new_cache=lambda: KV(n_ctx, window, sealed, snapshots)))
