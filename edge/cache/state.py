"""KVState: the tokens of one conversation, the KV cache that holds the first of them, and the sampler that continues
from there.

A new prompt is compared with these tokens: the common beginning stays, the rest is cropped and evaluated.

Nothing here runs a step.  Tokens to evaluate are returned as a :class:`pyx.step.Segment`, and the caller
has them evaluated, together with the segments of other answers (edge/session/scheduler.py).
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pyx.step
from edge.cache.plan import PAGE
from edge.model.model import Model

# A chunk is the time within which cancel() and a timeout act.  Measured on a 2B model, one thread: chunks of 8, 16, 32,
# 64, 128 tokens reach 73, 86, 93, 97, 100 % of the speed, so slow boards get 16 and fast ones more.
FIRST_CHUNK = 32  # tokens of prompt in the first step, before its speed is known
LEAST_CHUNK = 16
CHUNK_SECONDS = 1.0
#: rows of a step beyond which one more costs as much as the first: forced tokens of all answers together stay below,
#: and a state has room for the logits of so many
FEW_ROWS = 8

#: called with (tokens done, tokens in total, tokens cached)
OnPrefill = Callable[[int, int, int], None]


def common(a: array[int], b: array[int]) -> int:
    """Length of the common beginning of two token lists."""
    n = high = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low = 0  # so many are equal; within the first ``high`` are not
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _same_bytes(held: array[int], i: int, ids: array[int], j: int, model: Model) -> tuple[int, int] | None:
    """The indices up to which both have spelled the same bytes with ordinary tokens; None if they have not."""
    token_bytes, special = model.tokenizer.token_bytes, model.special
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


class Segment(pyx.step.Segment):
    """Tokens of an answer for a step, and what counts when several answers share one.

    ``part``: of a prompt, of which a step may evaluate fewer (:meth:`cut`).  ``patient``: nobody waits for the token
    that follows, as in a batch.  ``n_in_step``: segments of the latest step.  ``error``: what that step raised.
    """

    part = patient = False
    n_in_step = 1
    error: BaseException | None = None


class KVState:
    """The tokens of one conversation, their KV cache, and the sampler that continues from there.  Made by
    :meth:`edge.cache.space.KVSpace.new_state`, which gives it memory while it is used.  Used by one thread at a time.

    ``tokens``: those known, in order.  The cache holds the first :attr:`n_tokens` of them; the others are to be read:
    the last one of an answer, or those of a cache that was freed.  ``logits``: float32 [n_vocab], those after the last
    token of an evaluated prompt.
    """

    def __init__(self, model: Model) -> None:
        self.kv: Any = None  # None: it has no memory now
        self.tokens = array("i")
        self.asked = 0  # tokens up to the end of the latest question of a conversation; 0: it is none
        self.typed: int | None = None  # tokens before those of a question that was read ahead and not asked
        self.patient = False  # nobody waits for the next token
        self.busy = False  # in use; the memory of an idle state may be freed
        self.reading_seconds = 0.0  # that reading all of what is held takes, as far as known
        self.used = 0.0  # when it was last given free (time.monotonic)
        self._model = model

    def fill(self, kv: Any, sampler: Any, rows: memoryview) -> None:
        """Take memory: an empty cache, the tables of a sampler, and room for the logits of FEW_ROWS tokens."""
        n_vocab = self._model.config.n_vocab
        self._all_rows = rows
        self._rows = [rows[at : at + n_vocab] for at in range(0, len(rows), n_vocab)]
        self.logits = self._rows[0]
        self._n_in_step = 1  # segments of the latest step
        self._one: Segment | None = None  # of a single token
        self._ahead: list[int] = []  # forced tokens that were evaluated and are not chosen yet
        self._row = 0  # where the logits of the token at hand are
        self.kv, self.sampler = kv, sampler

    def free(self) -> None:
        """Give the memory back.  The tokens stay."""
        if self.kv is not None:
            self.kv = self.sampler = self._one = self._all_rows = self._rows = self.logits = None  # type: ignore[assignment]

    @property
    def n_tokens(self) -> int:
        """The number of tokens that the cache has seen."""
        kv = self.kv  # another thread may free it
        return 0 if kv is None else int(kv.n_tokens)

    @property
    def nbytes(self) -> int:
        """Bytes allocated for the cache now."""
        kv = self.kv
        return 0 if kv is None else int(kv.nbytes)

    @property
    def evicted(self) -> int:
        """The number of tokens seen that are no longer attended to."""
        kv = self.kv
        return 0 if kv is None else int(kv.evicted)

    @property
    def offload_error(self) -> str | None:
        """The reason why pages that leave the window can no longer be stored; None if they can."""
        spill = getattr(self.kv, "spill", None)
        return None if spill is None else spill.error

    def reseed(self, seed: int | None) -> None:
        """Begin the random numbers of ``seed``; None: of a random one."""
        self.sampler.reseed(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def rows(self, n: int) -> memoryview:
        """Memory for the logits of ``n`` tokens, at most FEW_ROWS; the first row is that of :attr:`logits`."""
        return self._all_rows[: n * len(self.logits)]

    # ---- what is known -----------------------------------------------------------------------------------------------

    def keep(self, ids: array[int]) -> int:
        """Forget what differs from ``ids``.  Returns the number of tokens that the cache still holds; a sealed page can
        only be removed as a whole.
        """
        n = common(self.tokens, ids)
        del self.tokens[n:]
        if n < self.n_tokens:
            self.kv.crop(n)
        return self.n_tokens

    def untype(self) -> None:
        """Forget what was read of a question that was never asked."""
        if self.typed is not None:
            self.keep(self.tokens[: self.typed])
            self.typed = None

    def continued_by(self, ids: array[int]) -> int:
        """The number of tokens in common with a prompt that continues this conversation; 0: it does not."""
        n = common(self.tokens, ids) if self.asked else 0
        return n if n >= min(self.asked, len(self.tokens)) else 0

    def splice(self, ids: array[int]) -> array[int]:
        """``ids``, with the tokens that the model wrote where the tokenizer would split the same bytes differently.

        Otherwise every such answer would have to be evaluated again, and a cache that has evicted tokens would have to
        start from the beginning.  Special tokens are equal only to themselves: a text with the same bytes is not such a
        token.
        """
        held = self.tokens
        i = j = common(held, ids)
        while i < len(held) and j < len(ids):
            if held[i] == ids[j]:
                i, j = i + 1, j + 1
            elif not (step := _same_bytes(held, i, ids, j, self._model)):
                break
            else:
                i, j = step
        return held[:i] + ids[j:]

    # ---- one token of an answer --------------------------------------------------------------------------------------

    def advance(
        self, token: int, winners: int, most: int, forced: Callable[[], Sequence[int]] | None = None
    ) -> Segment | None:
        """The tokens to evaluate for the logits after ``token``, the latest of ``tokens``; None if the logits are there
        already.  Call :meth:`take` afterwards.

        ``forced`` gives the tokens that a grammar makes certain, or that are usual.  They may be evaluated with it, as
        long as at most ``most`` tokens are held and no page becomes full: a full page is sealed and could not be
        cropped.  Those that are chosen then are held like other tokens; see :meth:`drop_ahead`.
        """
        if self._ahead and self._ahead[0] == token:
            del self._ahead[0]
            self._row += 1
            return None
        self.drop_ahead()
        given = forced() if forced is not None else ()
        if not given:
            return self._alone(token, winners)
        held = len(self.tokens)
        in_page = PAGE - 1 - held % PAGE if held % PAGE else 0
        n = max(0, min(most - held, in_page, FEW_ROWS // self._n_in_step - 1, len(given)))
        several = Segment(self.kv, array("i", [token, *given[:n]]), self.rows(n + 1), True, winners)
        several.patient = self.patient
        return several

    def _alone(self, token: int, winners: int) -> Segment:
        """A segment of this token only; reuses the last one where possible."""
        one = self._one
        if one is None or one.kv is not self.kv or one.winners != winners:
            one = self._one = Segment(self.kv, array("i", [token]), self.logits, False, winners)
        one.ids[0] = token
        one.patient = self.patient
        one.n_in_step = 1
        return one

    def take(self, segment: Segment | None) -> memoryview:
        """The logits after the latest token.  ``segment``: the tokens that were evaluated for it, or None."""
        if segment is not None:
            self._n_in_step = segment.n_in_step
            if len(segment.ids) > 1:
                self._ahead = list(segment.ids[1:])
        return self._rows[self._row]

    def drop_ahead(self) -> None:
        """Remove forced tokens that were evaluated and not chosen."""
        held = self.kv.n_tokens
        n = min(held - len(self._ahead), len(self.tokens))
        self._ahead, self._row = [], 0
        if n < held:
            self.kv.crop(n)

    def _marks(self, ids: array[int], cached: int) -> set[int]:
        """Where states of gated delta layers are kept, so that a conversation that goes on differently is not read
        again from its beginning: as far as is cached, after the end of each message (of many, the last ones), and at
        the end.  A state is that at the beginning of its page, as long as no token after the page was read.
        """
        if not self._model.config.recurrent:
            return set()
        if cached:
            self.kv.mark()
        ends = [i + 1 for i in range(cached, len(ids)) if ids[i] in self._model.stop_ids]
        kept = ends[:1] + ends[1:][-2:] if not cached else ends[-2:]
        return {(end // PAGE + 1) * PAGE for end in kept} | {len(ids)}

    # ---- a prompt ----------------------------------------------------------------------------------------------------

    def prefill(
        self,
        ids: array[int],
        interrupted: Callable[[], str | None],
        report: OnPrefill | None = None,
        logits: bool = True,
        share: int = 0,
        winners: int = 0,
        shared: Callable[[KVState], object] | None = None,
        ahead: bool = False,
    ) -> Generator[Segment, None, tuple[int, str | None]]:
        """Make the state hold exactly ``ids``, with the logits after the last; yields the segments to evaluate.

        Returns (number of tokens reused, reason of the interruption or None).  With ``logits`` at least the last token
        is evaluated, even if all are held, because its logits are needed; of these the ``winners`` largest suffice (0:
        all).  ``shared`` is called when exactly the first ``share`` tokens are held: a prefix for other sessions.
        ``ahead``: they end in a question that may never be asked, and are read in the smallest steps.
        """
        n, limit = len(ids), LEAST_CHUNK if ahead else self._model.chunk
        cached = self.keep(ids[:-1] if logits else ids)
        known = len(self.tokens)  # an interruption leaves these, read or not
        self.typed = min(cached, n if self.typed is None else self.typed) if ahead else None
        chunk = min(FIRST_CHUNK, limit)
        marks = self._marks(ids, cached)
        if report:
            report(cached, n, cached)
        started = time.perf_counter()
        self.tokens = ids[:]
        try:
            while (begin := self.n_tokens) < n:
                if reason := interrupted():
                    return cached, reason
                stop = min((begin + chunk, n, *(place for place in (share, *marks) if place > begin)))
                begun = time.perf_counter()
                segment = Segment(
                    self.kv, ids[begin:stop], self.logits if logits and stop == n else None, False, winners)
                segment.part = True
                yield segment
                done = self.n_tokens  # as many as there was room for, if something else is running
                if done in marks:
                    self.kv.mark()
                if done == share and shared is not None:
                    self.reading_seconds = (time.perf_counter() - started) * share / (share - cached)
                    shared(self)
                if report:
                    report(done, n, cached)
                if segment.n_in_step == 1:
                    seconds = max(time.perf_counter() - begun, 1e-9)
                    speed = (done - begin) / seconds * CHUNK_SECONDS
                    chunk = min(limit, max(LEAST_CHUNK, int(speed) // LEAST_CHUNK * LEAST_CHUNK))
            return cached, None
        finally:
            if self.kv is not None:
                del self.tokens[max(self.n_tokens, known) :]
