"""Log probabilities of the tokens of an answer, and of given texts."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple

from edge.cache.state import FEW_ROWS, KVState, Segment
from edge.errors import EdgeError


class Logprob(NamedTuple):
    """A token and its log probability in nats, from the model's logits: before penalties, temperature and filters."""

    id: int
    bytes: bytes  # may be a part of a character
    logprob: float  # NaN for the first token of a prompt
    top: tuple[Logprob, ...] = ()  # the likeliest tokens at this place, the likeliest first

    @property
    def text(self) -> str:
        """The bytes as text; incomplete characters as U+FFFD."""
        return self.bytes.decode("utf-8", "replace")


class Scored(NamedTuple):
    """The probability of a text as the whole answer.  ``share``: divided by that of all compared texts."""

    text: str
    logprob: float  # nats, of all its tokens and of an end after them
    n_tokens: int
    share: float = 1.0

    @property
    def probability(self) -> float:
        """The probability of the text, from 0 to 1."""
        return math.exp(self.logprob)


def top_logprobs(
    logits: memoryview, n: int, sampler: Any, token_bytes: Callable[[int], bytes]
) -> Callable[[int], Logprob]:
    """Record a row of logits [n_vocab] before a token is sampled from it.  Returns a function: chosen token ->
    Logprob.

    Raises EdgeError if no logit is usable.
    """
    from pyx.tokens import log_likelihoods

    kept = array("f", logits)
    try:
        normal = kept[0] - log_likelihoods(kept, array("i", [0]), len(kept))[0]
        if math.isnan(normal):  # the first logit is -inf
            best = max(range(len(kept)), key=kept.__getitem__)
            normal = kept[best] - log_likelihoods(kept, array("i", [best]), len(kept))[0]
        ids = sampler.candidates(kept[:], 1.0, n)[0] if n else ()
    except ValueError as error:
        raise EdgeError(f"the model gave no usable answer ({error}); its file may be damaged") from None
    top = tuple(Logprob(id, token_bytes(id), kept[id] - normal) for id in ids)
    return lambda token: Logprob(token, token_bytes(token), kept[token] - normal, top)


def scored(
    state: KVState, ids: array[int], n: int, token_bytes: Callable[[int], bytes],
    interrupted: Callable[[], str | None], report: Callable[[int, int, int], None] | None, found: list[Logprob],
) -> Generator[Segment, None, str | None]:
    """Make the state hold exactly ``ids``, with the logits after the last, and append to ``found`` the log probability
    of each, with the ``n`` likeliest tokens at its place.  Nothing that is held is reused: its logits are gone.

    Yields the segments to evaluate, of few tokens: there is memory for so many logits.  Returns the reason of an
    interruption, or None.
    """
    state.keep(array("i"))
    n_vocab, total = len(state.logits), len(ids)
    found.append(Logprob(ids[0], token_bytes(ids[0]), math.nan))
    for begin in range(0, total, FEW_ROWS):
        if reason := interrupted():
            return reason
        part = ids[begin : begin + FEW_ROWS]
        rows = state.rows(len(part))
        state.tokens.extend(part)
        yield Segment(state.kv, part, rows, True)
        for i, next_ in enumerate(ids[begin + 1 : begin + len(part) + 1]):
            row = rows[i * n_vocab : (i + 1) * n_vocab]
            found.append(top_logprobs(row, n, state.sampler, token_bytes)(next_))
        state.logits[:] = rows[-n_vocab:]
        if report:
            report(len(state.tokens), total, 0)
    return None


def scores(
    state: KVState, texts: Sequence[str], ids: Sequence[array[int]], stop_ids: Iterable[int]
) -> Generator[Segment, None, list[Scored]]:
    """How likely each text (given as tokens) is to be all that follows what the state holds, whose logits must be
    present: the text, and then any of ``stop_ids``; without these, the text alone.

    Yields the segments to evaluate; the state is unchanged afterwards.
    """
    from pyx.tokens import log_likelihoods

    n_vocab = len(state.logits)
    ends = sorted(i for i in stop_ids if i < n_vocab)
    first = array("f", state.logits)
    found = []
    for text, tokens in zip(texts, ids, strict=True):
        logprobs = [*log_likelihoods(first, tokens[:1], n_vocab)]
        kv = state.kv.fork()
        for begin in range(0, len(tokens), FEW_ROWS):
            part, following = tokens[begin : begin + FEW_ROWS], tokens[begin + 1 : begin + FEW_ROWS + 1]
            rows = state.rows(len(part))
            yield Segment(kv, part, rows, True)
            logprobs += log_likelihoods(rows[: n_vocab * len(following)], following, n_vocab)
        if ends:
            likely = [log_likelihoods(rows[-n_vocab:], array("i", [end]), n_vocab)[0] for end in ends]
            logprobs.append(max(likely) + math.log(math.fsum(math.exp(each - max(likely)) for each in likely)))
        found.append(Scored(text, math.fsum(logprobs), len(tokens)))  # the same bits for every chunk
    state.logits[:] = first
    best = max(each.logprob for each in found)
    total = sum(math.exp(each.logprob - best) for each in found)
    return [each._replace(share=math.exp(each.logprob - best) / total) for each in found]
