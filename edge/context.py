"""Context: the KV cache of one session and the tokens whose keys and values it holds, in order.

That the two agree is the invariant everything here keeps.  A new prompt is compared token by token with what is held:
the common beginning stays, the rest is cropped and evaluated.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from edge.errors import MemoryRefused
from edge.kv_config import PAGE

if TYPE_CHECKING:
    from edge.engine import Engine

# A chunk is the time within which cancel() and a timeout act.  Measured on a 2B model, one thread: chunks of 8, 16, 32,
# 64, 128 tokens reach 73, 86, 93, 97, 100 % of the speed, so slow boards get 16 and fast ones more.
FIRST_CHUNK = 32  # tokens of prompt in the first step, before its speed is known
LEAST_CHUNK = 16
CHUNK_SECONDS = 1.0

#: called with (tokens done, tokens in all, tokens that were held already)
OnPrefill = Callable[[int, int, int], None]


def common(a: array[int], b: array[int]) -> int:
    """Length of the common beginning."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])


class Context:
    """What one session has in memory.  ``logits`` are those behind the last token once a prompt was evaluated."""

    def __init__(self, engine: Engine, seed: int) -> None:
        n_vocab, n_row = engine.config.n_vocab, engine.drafting.most + 1
        try:
            self.kv = engine.new_kv()
            self.sampler = engine.new_sampler(seed)
            rows = memoryview(array("f", bytes(4 * n_vocab * n_row)))
        except MemoryError as error:
            raise MemoryRefused(f"no memory for a session: {error}") from None
        self.engine = engine
        self.tokens = array("i")
        self.sampled = array("i")  # an answer's last token, not evaluated yet
        self.draft = engine.drafting.new()
        one = array("i", [0]) if self.draft is None else self.draft.ids
        self._ids = [memoryview(one)[: n + 1] for n in range(n_row)]
        self._rows = [rows[i * n_vocab : (i + 1) * n_vocab] for i in range(n_row)]
        self._many = [rows[: (n + 1) * n_vocab] for n in range(n_row)]
        self.logits = self._rows[0]
        self._special = frozenset(engine.tokenizer.special.values())

    def check(self) -> None:
        """Start afresh when an interrupt came between a step and its bookkeeping."""
        if self.kv.n_tokens != len(self.tokens):
            self.kv.reset()
            del self.tokens[:]

    @property
    def offload_error(self) -> str | None:
        """Why pages that left the window can no longer be kept."""
        spill = getattr(self.kv, "spill", None)
        return None if spill is None else spill.error

    def keep(self, ids: array[int]) -> int:
        """Crop to what is in common with the beginning of ids; returns how much that is."""
        n = common(self.tokens, ids)
        if n < len(self.tokens):
            del self.tokens[self.kv.crop(n) :]
            self.sampled = array("i")
        return len(self.tokens)

    def splice(self, ids: array[int]) -> array[int]:
        """Keep answers in the tokens the model wrote where the tokenizer would cut the same bytes differently.

        Otherwise every such answer would have to be evaluated again, and a ring that has moved on could not even go
        back to its beginning.  Special tokens are never exchanged: equal bytes do not make a text one of them.
        """
        held = self.tokens + self.sampled
        i = j = common(held, ids)
        while i < len(held) and j < len(ids):
            if held[i] == ids[j]:
                i, j = i + 1, j + 1
            elif not (step := self._same_bytes(held, i, ids, j)):
                break
            else:
                i, j = step
        return held[:i] + ids[j:]

    def _same_bytes(self, held: array[int], i: int, ids: array[int], j: int) -> tuple[int, int] | None:
        """Where both next have spelled the same bytes with ordinary tokens, None if they do not."""
        token_bytes, special = self.engine.tokenizer.token_bytes, self._special
        a = b = b""
        while not a or a != b:
            if len(a) <= len(b):
                if i == len(held) or held[i] in special:
                    return None
                a += token_bytes(held[i])
                i += 1
            else:
                if j == len(ids) or ids[j] in special:
                    return None
                b += token_bytes(ids[j])
                j += 1
            if not a.startswith(b) and not b.startswith(a):
                return None
        return i, j

    def borrow(self, ids: array[int]) -> None:
        """Go on from the engine's copy of a beginning of ids, if that is longer than what is held here."""
        store = self.engine.prefixes
        if store is not None and (found := store.find(ids, common(self.tokens, ids))):
            self.tokens, self.kv = found
            self.sampled = array("i")

    def evaluate(self, token: int, winners: int, most: int) -> memoryview:
        """One token of an answer; returns the logits behind it.

        Further tokens may be evaluated with it that are likely to come next, at most so many that ``most`` tokens are
        held then, and none that would fill a page: a full page is sealed, and could not be cropped.  Once they have
        come they are held as any other; see :meth:`settle`.
        """
        tokens, draft = self.tokens, self.draft
        row = -1 if draft is None else draft.follow(token)
        if row < 0:
            self.settle()
            row = 0
            if draft is None or draft.idle:
                self._ids[0][0] = token
                self.step(self._ids[0], self.logits, winners)
            else:
                held = len(tokens) + 1
                n = draft.propose(tokens, token, min(most - held, PAGE - 1 - held % PAGE if held % PAGE else 0))
                begun = time.perf_counter()
                self.step(self._ids[n], self._many[n], winners, all_logits=True)
                draft.took(n + 1, time.perf_counter() - begun)
        tokens.append(token)
        return self._rows[row]

    @property
    def drafts(self) -> tuple[int, int]:
        """Tokens drafted since the last prompt, and of these right."""
        return (self.draft.drafted, self.draft.accepted) if self.draft else (0, 0)

    def settle(self) -> None:
        """Take back what was drafted and has not come."""
        if self.draft is not None:
            self.draft.stop()
            if len(self.tokens) < self.kv.n_tokens:
                self.kv.crop(len(self.tokens))

    def step(
        self, ids: array[int] | memoryview, logits: memoryview | None, winners: int = 0, all_logits: bool = False
    ) -> None:
        """Evaluate tokens behind those held; the caller keeps the books.

        logits: those behind the last token, or behind each, of which only the ``winners`` largest have to be there (0:
        all).  Raises MemoryRefused at the memory limit.
        """
        engine = self.engine
        with engine.lock:
            engine.check_open()
            while True:
                try:
                    return engine.transformer.step(self.kv, ids, logits, all_logits, winners)
                except MemoryError as error:
                    if engine.prefixes is None or not engine.prefixes.shrink(engine.prefixes.nbytes - 1):
                        raise MemoryRefused(f"the memory limit is reached: {error}") from None

    def prefill(
        self,
        ids: array[int],
        interrupted: Callable[[], str | None],
        report: OnPrefill | None,
        logits: bool = True,
        share: int = 0,
        winners: int = 0,
    ) -> tuple[int, str | None]:
        """Hold exactly ids, with the logits behind the last; returns (tokens reused, what interrupted or None).

        With ``logits`` at least the last token is evaluated, even if all are held: its logits are needed, of which
        only the ``winners`` largest have to be there (0: all).  The first ``share`` tokens are what other sessions
        begin with, too: they go to the engine's store on the way.
        """
        self.borrow(ids)
        engine, tokens, n = self.engine, self.tokens, len(ids)
        limit = engine.transformer.chunk
        cached = self.keep(ids[:-1] if logits else ids)
        self.sampled = array("i")
        chunk = min(FIRST_CHUNK, limit)
        if self.draft is not None:
            self.draft.begin()
        if report:
            report(cached, n, cached)
        while len(tokens) < n:
            if reason := interrupted():
                return cached, reason
            stop = len(tokens) + chunk
            part = ids[len(tokens) : min(stop, share) if len(tokens) < share else stop]
            begun = time.perf_counter()
            self.step(part, self.logits if logits and len(tokens) + len(part) == n else None, winners)
            tokens.extend(part)
            if len(tokens) == share and engine.prefixes is not None:
                engine.prefixes.add(self)
            if report:
                report(len(tokens), n, cached)
            seconds = max(time.perf_counter() - begun, 1e-9)
            if self.draft is not None and len(part) >= LEAST_CHUNK:
                self.draft.took(len(part), seconds)
            speed = len(part) / seconds
            chunk = min(limit, max(LEAST_CHUNK, int(speed * CHUNK_SECONDS) // LEAST_CHUNK * LEAST_CHUNK))
        return cached, None
