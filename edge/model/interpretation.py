"""Interpretation: settings that a file does not store, determined by how well the model predicts a short text.

No file stores the arrangement of I2_S codes, converters disagree about the activation of BitNet models, and some wrote
the reciprocal of the weight scales.  A wrong reading gives fluent nonsense or garbage, and both predict worse: a
trained model predicts :data:`TEXT` at one to three nats per token, a wrongly read one at four or more.

So a file that leaves something open is scored once, on the beginning of the text.  If the usual reading predicts well,
it is used; otherwise the others are tried and the clear winner is used, with a note.  The result is stored under the
model's fingerprint.  The output head is the same in all readings and is made once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.errors import EdgeError
from edge.files import home, replacing
from edge.formats import open_checkpoint

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint
    from edge.prompt.tokenizer import Tokenizer
    from pyx.step import Head

#: a text that most models have seen often in training
TEXT = (
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday. The capital of France is Paris, and the capital "
    "of Italy is Rome. There are seven days in a week and twelve months in a year. One, two, three, four, five, six, "
    "seven, eight, nine, ten."
)
#: number of its tokens that are scored when a file is first opened: the week and the capitals
BEGINNING = 36
#: nats per token below which the usual reading is right
FLUENT = 2.5
#: nats per token by which another reading must be better
CLEAR = 0.75
#: nats per token above which a model has been read wrongly, or is damaged
GARBLED = 4.0
#: share of the cost of guessing (the logarithm of the vocabulary): a model that has learned something is below it
LEARNED = 0.8
#: number of its tokens that show whether another reading is worth scoring further: one step
FIRST = 9
#: tokens per step, each with its own logits: 4 MB for a vocabulary of 128 k
CHUNK = 8


class Interpretation(NamedTuple):
    """One way to read a file: options of open_checkpoint, and how well the model then predicts."""

    options: Mapping[str, Any]
    nats: float  # per token

    def words(self) -> str:
        """The reading as text: "layout 64, relu2"."""
        scales = {True: "scales inverted", False: "scales as stored"}
        words = (f"layout {value}" if name == "i2s_layout" else scales.get(value, value)
                 for name, value in self.options.items())
        return ", ".join(words) or "its own metadata"


def guess(checkpoint: Checkpoint) -> float:
    """Nats per token of a model that has learned nothing."""
    return math.log(checkpoint.config.n_vocab)


def tokens(checkpoint: Checkpoint, text: str = TEXT, tokenizer: Tokenizer | None = None) -> list[int]:
    """``text`` as the model's tokens.  ``tokenizer``: the model's, if it exists already.  Raises UsageError for a model
    without one.
    """
    from edge.machine import placement
    from edge.prompt.tokenizer import Tokenizer

    made = tokenizer or Tokenizer.of(checkpoint)
    ids = made.encode(text)
    if made.add_bos and made.bos_id is not None:
        ids.insert(0, made.bos_id)
    del made
    placement.release_pages(checkpoint)  # of its words
    return ids[: checkpoint.config.n_ctx_train]


def score(checkpoint: Checkpoint, ids: Sequence[int], n_threads: int = 1, head: str | Head = "auto") -> float:
    """Nats per token of a text given as tokens; infinite if the arithmetic overflows.  ``head``: see
    :func:`edge.model.weights.build`.  Raises InvalidFile.
    """
    from edge.model.weights import build
    from pyx.kv import KVCache
    from pyx.step import Segment
    from pyx.tokens import log_likelihoods

    c = checkpoint.config
    model = build(checkpoint, n_threads=n_threads, head=head, chunk=CHUNK)
    cache = KVCache(*c.kv_shape, len(ids), "f16", windows=c.windows, recurrent=c.recurrent_shape)
    logits = memoryview(array("f", bytes(4 * CHUNK * c.n_vocab)))
    total = 0.0
    for start in range(0, len(ids) - 1, CHUNK):
        part = array("i", ids[start : min(start + CHUNK, len(ids) - 1)])
        rows = logits[: len(part) * c.n_vocab]
        model.step([Segment(cache, part, rows, all_logits=True)])
        with contextlib.suppress(ValueError):  # logits that are not numbers
            total -= sum(log_likelihoods(rows, array("i", ids[start + 1 : start + 1 + len(part)]), c.n_vocab))
            continue
        return math.inf
    return total / (len(ids) - 1) if math.isfinite(total) else math.inf


def interpretations(
    checkpoint: Checkpoint,
    n_threads: int = 1,
    *,
    every: bool = False,
    most: int | None = BEGINNING,
    head: Head | None = None,
    tokenizer: Tokenizer | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Interpretation]:
    """How well each reading predicts, the usual one first.

    It stops at the first reading that predicts well.  ``most`` tokens of TEXT are enough for that, and fewer for
    readings that predict nothing.  ``every``: all readings.  ``head``, ``tokenizer``: if they exist already.
    ``progress``: called with (done, total) before each reading.
    """
    from edge.machine import placement
    from edge.model.weights import output_head
    from pyx.machine import trim

    names = list(checkpoint.open)
    found: list[Interpretation] = []
    choices = list(itertools.product(*checkpoint.open.values()))
    ids = tokens(checkpoint, TEXT, tokenizer)
    head = head or output_head(checkpoint, "auto", n_threads)
    for done, values in enumerate(choices):
        options = dict(zip(names, values, strict=True))
        if found and not _room(checkpoint):
            break  # a wrong reading is better than none
        if progress:
            progress(done, len(choices))
        opened = reopened(checkpoint, options) if found else checkpoint
        try:
            nats = score(opened, ids[:FIRST], n_threads, head) if found and not every else 0.0
            if nats <= LEARNED * guess(checkpoint):
                nats = score(opened, ids[:most], n_threads, head)
            found.append(Interpretation(options, nats))
        except EdgeError:
            if not found:
                raise
        placement.release_pages(opened)  # each of them has the file mapped for itself
        del opened
        trim()  # another reading may have taken memory for all codes
        if not every and found[-1].nats <= FLUENT:
            break
    return found


def _room(checkpoint: Checkpoint) -> bool:
    """True if there is memory to rearrange all matrices, as another reading may need."""
    from edge.machine.memory import available_memory

    available = available_memory()
    need = sum(len(view) for name, tensor in checkpoint.tensors.items() if name.startswith("blk.")
               for view in tensor.views)
    return available is None or 2 * need <= available


def winner(checkpoint: Checkpoint, found: list[Interpretation]) -> Interpretation:
    """The reading to use: the usual one, unless another predicts clearly better, and as well as a trained model."""
    best = min(found, key=lambda reading: reading.nats)
    if best.nats <= found[0].nats - CLEAR and best.nats <= LEARNED * guess(checkpoint):
        return best
    return found[0]


def reopened(checkpoint: Checkpoint, options: Mapping[str, Any]) -> Checkpoint:
    """The same file, opened with these ``options`` changed."""
    return open_checkpoint(checkpoint.path, **{**dataclasses.asdict(checkpoint.reading), **options})


def note(found: list[Interpretation], taken: Interpretation) -> str:
    """The result in one line."""
    return (f"read with {taken.words()}: a short text then scores {taken.nats:.1f} nats per token, and "
            f"{found[0].nats:.1f} with {found[0].words()} (lower is better)")


def interpreted(
    checkpoint: Checkpoint,
    n_threads: int = 1,
    place: str | None = None,
    head: Head | None = None,
    tokenizer: Tokenizer | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Checkpoint:
    """The checkpoint in its best reading; unchanged if its file leaves nothing open.

    The result is stored in the file ``place`` for later starts; None: see :func:`remembered_at`.  ``head``,
    ``tokenizer`` and ``progress``: see :func:`interpretations`.
    """
    if not checkpoint.open or checkpoint.tokenizer.kind == "none":
        return checkpoint
    place = place or remembered_at(checkpoint)
    kept = remembered(place, checkpoint)
    if kept is None:
        try:
            found = interpretations(checkpoint, n_threads, head=head, tokenizer=tokenizer, progress=progress)
        except EdgeError:  # the error will come again where the broken part is used
            return checkpoint
        taken = winner(checkpoint, found)
        kept = {"options": dict(taken.options), "note": note(found, taken) if taken is not found[0] else ""}
        _keep(place, kept)
    if not kept["note"]:
        return checkpoint
    chosen = reopened(checkpoint, kept["options"])
    chosen.notes.append(kept["note"])
    chosen.maps += checkpoint.maps  # a tokenizer that was made before reads these
    return chosen


def remembered_at(checkpoint: Checkpoint, fingerprints: str | None = None) -> str:
    """The path of the file that stores the result, named by the model's fingerprint.  ``fingerprints``: the folder that
    remembers it.
    """
    from edge.model import fingerprint

    found = fingerprint.remembered(checkpoint.config, checkpoint, fingerprints)
    state = home("BITNET_EDGE_STATE", "XDG_STATE_HOME", "~/.local/state")
    return os.path.join(state, "readings", found[:32] + ".json")


def remembered(place: str, checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The stored result; None if it cannot be read or is not valid."""
    import json

    try:
        with open(place, "rb") as file:
            kept = json.loads(file.read(4096))
        options, words = kept["options"], kept["note"]
        sound = isinstance(words, str) and len(words) < 400 and words.isprintable() and all(
            value in checkpoint.open[name] for name, value in options.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return {"options": options, "note": words} if sound else None


def _keep(place: str, kept: Mapping[str, Any]) -> None:
    """Store the result.  If it cannot be written, the next start determines it again."""
    import json

    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with replacing(place) as file:
            file.write(json.dumps(kept).encode())


def faults(checkpoint: Checkpoint) -> Iterator[str]:
    """Faults of the stored weights, all of which are read: codes that ternary weights never have, almost no
    zeros, numbers that are not finite.
    """
    from edge.formats import names
    from edge.formats.matrices import packed
    from edge.model.weights import build
    from edge.registry.encodings import GROUP_TYPES, TERNARY_TYPES

    try:
        build(checkpoint, head="native")
    except EdgeError as error:
        yield str(error)
        return
    for name, tensor in checkpoint.tensors.items():
        if len(tensor.shape) == 3 and tensor.type in GROUP_TYPES:
            try:  # building does not look at the experts
                packed(tensor)
            except ValueError as error:
                yield f"tensor {name}: {error}"
    for name, tensor in checkpoint.tensors.items():
        if tensor.type not in TERNARY_TYPES or not names.is_projection(name):
            continue
        try:
            if names.zero_fraction(tensor) < names.LEAST_ZEROS:
                yield (f"tensor {name} holds almost no zeros: it was quantised from weights that were not ternarised "
                       "first")
        except EdgeError as error:
            yield str(error)


def garbled(checkpoint: Checkpoint, n_threads: int = 1) -> str:
    """Why a model that should know English seems to be damaged or wrongly read; "" if it predicts a short text."""
    nats = score(checkpoint, tokens(checkpoint)[:BEGINNING], n_threads)
    return f"a short text scores {nats:.1f} nats per token, where 1 to 3 are usual" if nats > GARBLED else ""


def verdict(checkpoint: Checkpoint, found: list[Interpretation]) -> list[str]:
    """The problem that the scores of all readings show, if any."""
    if not found:
        return []
    taken = winner(checkpoint, found)
    if taken is not found[0]:
        return [f"the file is mislabelled: {note(found, taken)}"]
    if taken.nats > LEARNED * guess(checkpoint):
        return [f"a short text scores {taken.nats:.1f} nats per token, and guessing {guess(checkpoint):.1f}: "
                "damaged, or never a language model of English"]
    return []
