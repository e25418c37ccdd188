"""KVState: one KV cache, the tokens whose keys and values it holds, in order, and the sampler that continues from
there.

Everything here keeps the cache and the list of tokens consistent.  A new prompt is compared with these tokens: the
common beginning stays, the rest is cropped and evaluated.

Nothing here runs a step.  Tokens to evaluate are returned as a :class:`pyx.step.Segment`, and the caller
has them evaluated, together with the segments of other answers (edge/session/scheduler.py).
"""

from __future__ import annotations

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


def splice(held: array[int], ids: array[int], n: int, model: Model) -> tuple[int, int]:
    """How many tokens of each spell the same bytes, if the first ``n`` are equal: (i, j) for ``held[:i]`` and
    ``ids[:j]``.

    Special tokens are equal only to themselves: a text with the same bytes is not such a token.
    """
    i = j = n
    while i < len(held) and j < len(ids):
        if held[i] == ids[j]:
            i, j = i + 1, j + 1
        elif not (step := _same_bytes(held, i, ids, j, model)):
            break
        else:
            i, j = step
    return i, j


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
    """The KV cache of one session.  Made by :meth:`edge.cache.space.KVSpace.new_state`.  Used by one thread at a time.

    ``tokens``: the tokens held.  ``sampled``: the last token of an answer, if it was not evaluated.  ``lost``: the
    tokens that followed these two until the cache was freed or cropped; they are to be read again.  ``logits``: float32
    [n_vocab], those after the last token of an evaluated prompt.  ``dropped`` > 0: so many tokens before
    ``tokens`` are no longer known (:meth:`drop`); an answer can continue, but the next prompt is read from its
    beginning.
    """

    def __init__(self, kv: Any, sampler: Any, rows: memoryview, model: Model) -> None:
        self.kv = kv
        self.sampler = sampler
        self.tokens = array("i")
        self.sampled = array("i")
        self.lost = array("i")
        self.dropped = 0
        n_vocab = model.config.n_vocab
        self._all_rows = rows
        self._rows = [rows[at : at + n_vocab] for at in range(0, len(rows), n_vocab)]
        self._n_in_step = 1  # segments of the latest step
        self._one: Segment | None = None  # of a single token
        self._ahead: list[int] = []  # forced tokens that were evaluated and are not chosen yet
        self._row = 0  # where the logits of the token at hand are
        self.logits = self._rows[0]
        self.patient = False  # nobody waits for the next token
        self.busy = True  # in use; the memory of an idle state may be freed
        self.reading_seconds = 0.0  # that reading all of what is held takes, as far as known
        self.used = 0  # when it was last given free, counted by its space
        self._model = model

    def check(self) -> None:
        """Clear the state if its first tokens are unknown, or if an interrupt came between a step and its
        bookkeeping.
        """
        if self.kv.n_tokens != len(self.tokens):
            self.kv.reset()
            self.dropped = 0
            self.tokens, self.sampled, self.lost = array("i"), array("i"), array("i")

    @property
    def n_tokens(self) -> int:
        """Number of tokens seen."""
        return self.dropped + len(self.tokens)

    @property
    def nbytes(self) -> int:
        """Bytes allocated for the cache now."""
        kv = self.kv
        return 0 if kv is None else int(kv.nbytes)

    @property
    def evicted(self) -> int:
        """Number of tokens seen that are no longer attended to."""
        kv = self.kv
        return 0 if kv is None else int(kv.evicted)

    @property
    def offload_error(self) -> str | None:
        """The reason why pages that leave the window can no longer be stored; None if they can."""
        spill = getattr(self.kv, "spill", None)
        return None if spill is None else spill.error

    def free(self) -> None:
        """Free the cache, the logits and the tables of the sampler; the state cannot be used afterwards, but another
        can take its place (:meth:`follow`).
        """
        self._random = self.random
        self.kv = self.sampler = self._one = self._all_rows = self._rows = self.logits = None  # type: ignore[assignment]
        self.lost = array("i") if self.dropped else self.written
        self.tokens, self.sampled = array("i"), array("i")

    def follow(self, freed: KVState) -> None:
        """Take the place of a freed state: what is read again has the same tokens, and the random numbers go on."""
        self.lost, self.sampler.state = freed.lost, freed.random

    @property
    def random(self) -> Sequence[int]:
        """The state of the random numbers, of a freed state, too."""
        return self._random if self.sampler is None else self.sampler.state

    def rows(self, n: int) -> memoryview:
        """Memory for the logits of ``n`` tokens, at most FEW_ROWS; the first row is that of :attr:`logits`."""
        return self._all_rows[: n * len(self.logits)]

    def drop(self, n: int) -> None:
        """Forget which tokens were seen, except the last ``n`` and those in the same page as the first of these."""
        gone = (len(self.tokens) - n) // PAGE * PAGE
        if gone > 0:
            del self.tokens[:gone]
            self.dropped += gone

    # ---- what is held ------------------------------------------------------------------------------------------------

    def keep(self, ids: array[int]) -> int:
        """Crop to the common beginning with ``ids``.  Returns its length."""
        n = common(self.tokens, ids)
        if n < len(self.tokens):
            self.crop(n)
            self.lost = ids[len(self.tokens) : n]
        return len(self.tokens)

    def crop(self, n: int) -> None:
        """Remove tokens from the end, so that at most ``n`` stay; a sealed page can only be removed as a whole."""
        del self.tokens[self.kv.crop(n) :]
        self.sampled, self.lost = array("i"), array("i")

    def adopt(self, tokens: array[int], kv: Any, sampled: array[int]) -> None:
        """Replace the tokens, the cache and the last token of an answer."""
        written, n = self.written, len(tokens) + len(sampled)
        self.lost = written[n:] if written[:n] == tokens + sampled else array("i")
        self.tokens, self.kv, self.dropped, self.sampled = tokens, kv, 0, sampled

    def fork(self) -> Any:
        """A second cache with the same content; pages are shared until one of the two writes to them."""
        return self.kv.fork()

    @property
    def written(self) -> array[int]:
        """The tokens of the conversation as far as they are known, whether the cache holds them or not."""
        return self.tokens + self.sampled + self.lost

    def splice(self, ids: array[int]) -> array[int]:
        """``ids``, with the tokens that the model wrote where the tokenizer would split the same bytes differently.

        Otherwise every such answer would have to be evaluated again, and a cache that has evicted tokens would have to
        start from the beginning.
        """
        written = self.written
        i, j = splice(written, ids, common(written, ids), self._model)
        return written[:i] + ids[j:]

    # ---- one token of an answer --------------------------------------------------------------------------------------

    def advance(
        self, token: int, winners: int, most: int, forced: Callable[[], Sequence[int]] | None = None
    ) -> Segment | None:
        """The tokens to evaluate for the logits after ``token``; None if the logits are there already.  Call
        :meth:`take` afterwards.

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
        held = len(self.tokens) + 1
        in_page = PAGE - 1 - held % PAGE if held % PAGE else 0
        n = max(0, min(most - self.dropped - held, in_page, FEW_ROWS // self._n_in_step - 1, len(given)))
        self._ahead = list(given[:n])
        ids = array("i", [token, *self._ahead])
        several = Segment(self.kv, ids, self.rows(n + 1), True, winners)
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

    def take(self, token: int, segment: Segment | None) -> memoryview:
        """The logits after ``token``, which is now held.  ``segment``: what was evaluated for it, or None."""
        self.tokens.append(token)
        if segment is not None:
            self._n_in_step = segment.n_in_step
        return self._rows[self._row]

    def drop_ahead(self) -> None:
        """Remove forced tokens that were evaluated and not chosen."""
        self._ahead, self._row = [], 0
        if self.n_tokens < self.kv.n_tokens:
            self.kv.crop(self.n_tokens)

    def _marks(self, ids: array[int], cached: int) -> set[int]:
        """Where states of gated delta layers are kept, so that a conversation that goes on differently is not read
        again from its beginning: as far as is cached, behind the end of each message (of many, the last ones), and at
        the end.  A state is that at the beginning of its page, as long as no token behind the page was read.
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
        chunk: int = 0,
    ) -> Generator[Segment, None, tuple[int, str | None]]:
        """Make the state hold exactly ``ids``, with the logits after the last; yields the segments to evaluate.

        Returns (number of tokens reused, reason of the interruption or None).  With ``logits`` at least the last token
        is evaluated, even if all are held, because its logits are needed; of these the ``winners`` largest suffice (0:
        all).  ``shared`` is called when exactly the first ``share`` tokens are held: a prefix for other sessions.
        ``chunk``: most tokens of a step; 0: as many as the machine reads in a second.
        """
        tokens, n = self.tokens, len(ids)
        limit = chunk or self._model.chunk
        cached = self.keep(ids[:-1] if logits else ids)
        known = cached + common(self.sampled + self.lost, ids[cached:])  # an interruption leaves these, read or not
        self.sampled, self.lost = array("i"), ids[cached:known]
        chunk = min(FIRST_CHUNK, limit)
        marks = self._marks(ids, cached)
        if report:
            report(cached, n, cached)
        started = time.perf_counter()
        while len(tokens) < n:
            if reason := interrupted():
                return cached, reason
            begin = len(tokens)
            stop = min((begin + chunk, *(place for place in (share, *marks) if place > begin)))
            part = ids[begin:stop]
            begun = time.perf_counter()
            segment = Segment(self.kv, part, self.logits if logits and begin + len(part) == n else None, False, winners)
            segment.part = True
            yield segment
            done = self.kv.n_tokens - begin  # all of it, if nothing else is running
            tokens.extend(part[:done])
            if len(tokens) in marks:
                self.kv.mark()
            self.lost = ids[len(tokens) : known]
            if len(tokens) == share and shared is not None:
                self.reading_seconds = (time.perf_counter() - started) * share / (share - cached)
                shared(self)
            if report:
                report(len(tokens), n, cached)
            if segment.n_in_step == 1:
                seconds = max(time.perf_counter() - begun, 1e-9)
                chunk = min(limit, max(LEAST_CHUNK, int(done / seconds * CHUNK_SECONDS) // LEAST_CHUNK * LEAST_CHUNK))
        return cached, None
