"""evaluate: how well a model predicts a text, and how much quality each KV cache costs.

Every mode reads the same tokens as a reference (by default F32 pages that keep everything), and their predictions are
compared token by token.  Perplexity alone is misleading: with a weak model a lossy cache can lower it.  The
Kullback-Leibler divergence (KL, in nats) of each prediction from the reference's, its 99.9th percentile, and how often
both choose the same next token cannot improve by chance.  They are never zero, however: activations of these models are
rounded to 8 bits, and the smallest change of a key changes some of these roundings.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import edge
from edge.amounts import count, human, median
from edge.cache.config import KVConfig, parse_kv_type
from edge.cache.plan import KVPlan
from edge.errors import EdgeError, MemoryRefused, UsageError
from edge.files import read_text
from edge.machine.memory import available_memory

if TYPE_CHECKING:
    from edge.engine import Engine

#: our own dialogues, used when no text is given
DIALOGUES = Path(edge.__file__).parent / "bundled" / "dialogues.jsonl"
DIALOGUES_NAME = "bundled/dialogues.jsonl"  # in reports
LOGIT_BYTES = 16 << 20  # of one block of logits; two are held
TIMED = 32  # tokens read one by one for the speed
Progress = Callable[[float, float], None]

# ---- text ------------------------------------------------------------------------------------------------------------


def read(engine: Engine, path: str | None = None) -> array[int]:
    """The tokens of a text file, or of all conversations in a .jsonl file, joined, without BOS.

    A line of .jsonl is an object whose ``messages`` are a conversation; it is written by the model's template.
    ``path`` None: the dialogues that ship with the program.  Raises UsageError for a file that cannot be read.
    """
    name = str(DIALOGUES) if path is None else path
    text, tokenizer = read_text(name), engine.tokenizer
    if not name.endswith(".jsonl"):
        return array("i", tokenizer.encode(text))
    tokens = array("i")
    for number, line in enumerate(filter(str.strip, text.splitlines()), 1):
        try:
            messages = json.loads(line)["messages"]
            ids = engine.template.encode(tokenizer, messages, add_generation_prompt=False)
        except (ValueError, TypeError, KeyError, EdgeError) as error:
            raise UsageError(f"{name}: line {number} is not a conversation ({type(error).__name__}: {error})") from None
        tokens.extend(ids[1:] if ids and ids[0] == tokenizer.bos_id else ids)
    return tokens


def segments(engine: Engine, tokens: Sequence[int], n: int) -> list[array[int]]:
    """Pieces of at most ``n`` tokens, each after the BOS with which prompts of this model begin.

    Raises UsageError if the context or the text has less than two tokens.
    """
    tokenizer = engine.tokenizer
    bos = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    room = n - len(bos)
    if room < 2:
        raise UsageError(f"{count(n, 'token')} {'is' if n == 1 else 'are'} too few to predict anything")
    pieces = [array("i", [*bos, *tokens[i : i + room]]) for i in range(0, len(tokens), room)]
    pieces = [piece for piece in pieces if len(piece) > len(bos) + 1]
    if not pieces:
        raise UsageError("the text has less than two tokens")
    return pieces


def _block(engine: Engine) -> int:
    """Number of tokens per step when the logits of all of them are needed."""
    return max(1, min(engine.model.chunk, LOGIT_BYTES // (4 * engine.config.n_vocab)))


# ---- perplexity ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text."""

    model: str
    text: str
    tokens: int  # predicted
    context: int  # tokens of a segment
    nats: float  # per token
    perplexity: float
    bits_per_byte: float
    seconds: float

    def line(self) -> str:
        """The result in one line."""
        return (
            f"{self.model}: perplexity {self.perplexity:.3f}, {self.nats:.4f} nats per token, "
            f"{self.bits_per_byte:.3f} bits per byte ({self.tokens} tokens of {self.text} in segments of "
            f"{self.context}, {self.tokens / self.seconds:.0f} t/s)"
        )


def perplexity(
    engine: Engine, tokens: Sequence[int], progress: Progress | None = None, text: str = "a text"
) -> Perplexity:
    """Measure the perplexity in segments as long as the context, with the engine's own KV cache.

    ``text``: its name.
    """
    from pyx.tokens.compare import log_likelihoods

    n, kv, block, n_vocab = engine.plan.n_ctx, engine.space.new_cache(), _block(engine), engine.config.n_vocab
    logits = memoryview(array("f", bytes(4 * block * n_vocab)))
    total, count, n_byte, seconds = 0.0, 0, 0, 0.0
    pieces = segments(engine, tokens, n)
    for piece in pieces:
        kv.reset()
        for ids, following in _steps(piece, 0, len(piece) - 1, block):
            rows = logits[: len(ids) * n_vocab]
            seconds += _step(engine, kv, ids, rows)
            total -= sum(_checked(log_likelihoods, rows, following, n_vocab))
            count += len(following)
            n_byte += sum(len(engine.tokenizer.token_bytes(token)) for token in following)
            if progress:
                progress(count, sum(map(len, pieces)))
    bits = total / math.log(2) / n_byte if n_byte else math.nan
    return Perplexity(engine.config.name, text, count, n, total / count, math.exp(total / count), bits, seconds)


def _steps(piece: array[int], start: int, stop: int, block: int) -> Iterator[tuple[array[int], array[int]]]:
    """(tokens, the tokens that follow them), ``block`` at a time."""
    for at in range(start, stop, block):
        ids = piece[at : min(at + block, stop)]
        yield ids, piece[at + 1 : at + 1 + len(ids)]


def _step(engine: Engine, kv: Any, ids: array[int], logits: memoryview) -> float:
    """Evaluate ``ids``.  Returns the seconds that the step took."""
    from pyx.step.transformer import Segment

    begun = time.perf_counter()
    with engine.model.alone() as transformer:
        transformer.step([Segment(kv, ids, logits, all_logits=True)])
    return time.perf_counter() - begun


def _checked(compare: Callable[..., Any], *rows: Any) -> Any:
    try:
        return compare(*rows)
    except ValueError as error:
        raise EdgeError(f"the model returned an invalid prediction ({error}); its file may be damaged") from None


# ---- the quality of KV caches ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mode:
    """One KV cache to compare, written ``int8`` or ``int8 window=508 sinks=4``."""

    name: str
    kv_config: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Mode:
        """A KV type, then settings of :class:`edge.cache.config.KVConfig` as name=value.  Raises UsageError."""
        known = {f.name for f in dataclasses.fields(KVConfig)} - {"memory", "force_memory", "kv"}
        words = text.split()
        if not words:
            raise UsageError("a mode is a KV type and settings, such as 'int8 window=508 sinks=4'")
        kv_config: dict[str, Any] = {"kv": parse_kv_type(words[0])}
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if not equals or name not in known:
                settings = ", ".join(sorted(known))
                raise UsageError(f"{text!r}: unknown setting {word!r}; known: {settings}", argument="mode")
            kv_config[name] = int(value) if value.isdecimal() else value
        KVConfig(**kv_config)
        return cls(" ".join(words), kv_config)

    def plan(self, engine: Engine, n: int) -> KVPlan:
        """The plan for segments of ``n`` tokens; everything is kept unless the mode limits it.

        Raises UsageError if the mode does not suit the model.
        """
        kv_config = {"ctx": n, "overflow": "stop", **self.kv_config}
        plan = KVConfig(**kv_config).plan(engine.config)
        if plan.n_ctx < n and not plan.window:
            problem = f"{self.name!r}: ctx {plan.n_ctx} without a window is shorter than segments of {n}"
            raise UsageError(problem, argument="mode")
        return plan


def default_modes(n: int) -> list[Mode]:
    """Every type, then windows of a quarter of the text with and without sinks."""
    from pyx.kv.page import NAMES

    types = [each for each in (*NAMES, "int8:int4") if each != "f32" and set(each.split(":")) <= set(NAMES)]
    window = max(1, n // 4 - 4)
    texts = [*types, f"int8 window={window + 4} sinks=0", f"int8 window={window} sinks=4"]
    return [Mode.parse(text) for text in texts]


@dataclass(frozen=True)
class Quality:
    """The quality of one mode compared with the reference, over the same tokens."""

    mode: str
    type: str
    window: int
    sinks: int
    kv_bytes: int  # allocated
    bytes_per_token: float  # allocated, per token of the segment
    perplexity: float
    change: float  # of the perplexity, relative
    error: float  # 1.96 standard errors of that change (paired, tokens taken as independent)
    kl_mean: float  # nats
    kl_p999: float  # 99.9th percentile
    kl_max: float
    top1: float  # share of tokens for which both would choose the same next one
    mass: float  # share of the reference's attention that falls on tokens this mode has in sight, mean over queries
    tokens_per_second: float  # read one by one at the end of the longest segment


@dataclass(frozen=True)
class Report:
    """A finished comparison; the first row is the reference itself."""

    header: dict[str, Any]
    rows: list[Quality]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**self.header, "rows": [asdict(row) for row in self.rows]}

    def lines(self) -> Iterator[str]:
        """The report as text."""
        head = self.header
        yield (
            f"{head['model']}: {head['tokens']} tokens of {head['text']} in segments of {head['context']}, against "
            f"{head['reference']}; {head['isa']}, {count(head['threads'], 'thread')}"
        )
        yield ""
        wide = max(len("mode"), *(len(row.mode) for row in self.rows))
        yield (
            f"{'mode':<{wide}}{'KV MB':>8}{'B/token':>9}{'ppl':>9}{'change':>10}{'+-':>8}{'KL mean':>10}"
            f"{'KL 99.9%':>10}{'top-1':>9}{'mass':>8}{'t/s':>8}"
        )
        for row in self.rows:
            yield (
                f"{row.mode:<{wide}}{row.kv_bytes / 1e6:>8.2f}{row.bytes_per_token:>9.0f}{row.perplexity:>9.3f}"
                f"{row.change:>+10.3%}{row.error:>8.3%}{row.kl_mean:>10.2e}{row.kl_p999:>10.2e}{row.top1:>9.2%}"
                f"{row.mass:>8.2%}{row.tokens_per_second:>8.1f}"
            )
        yield ""
        yield "mode: KV type and settings; the first row is the reference, with which the others are compared"
        yield "KV MB: memory of the cache; B/token: the same in bytes per token of a segment"
        yield "ppl: perplexity (lower is better); change: relative to the reference, +-: its 95% confidence interval"
        yield "KL: divergence of the predictions from the reference's in nats (0: equal), mean and 99.9th percentile"
        yield "top-1: share of tokens where both predict the same next token"
        yield "mass: share of the reference's attention that goes to tokens this cache has kept"
        yield "t/s: tokens per second, read one by one"


@dataclass
class _Run:
    """The state of one cache while it reads the text."""

    mode: Mode
    plan: KVPlan
    kv: Any
    kl: array[float] = field(default_factory=lambda: array("d"))
    likelihood: array[float] = field(default_factory=lambda: array("d"))
    same: int = 0
    steps: list[float] = field(default_factory=list)  # seconds of single tokens
    mass: list[float] = field(default_factory=list)  # of single queries


def kv_quality(
    engine: Engine,
    tokens: Sequence[int],
    modes: Sequence[Mode] = (),
    text: str = "a text",
    progress: Progress | None = None,
    against: Mode | None = None,
) -> Report:
    """Read the text once per mode, all modes side by side, in segments as long as the engine's context, and compare.

    ``against``: the reference; None: F32 pages that keep everything.

    Raises MemoryRefused if the caches of all modes together do not fit; fewer modes or a smaller context may.
    """
    from pyx.step import probe
    from pyx.tokens.compare import divergences

    n = engine.plan.n_ctx
    modes = list(modes) or default_modes(n)
    against = against or Mode("f32", {"kv": "f32"})
    planned = [(mode, mode.plan(engine, n)) for mode in (against, *modes)]
    _room_for(sum(plan.kv_bytes for _, plan in planned))
    reference, *runs = [_Run(mode, plan, engine.space.new_cache(plan)) for mode, plan in planned]
    block, n_vocab = _block(engine), engine.config.n_vocab
    queries = engine.model.transformer.keep_queries()
    expected, given = (memoryview(array("f", bytes(4 * block * n_vocab))) for _ in range(2))
    pieces = segments(engine, tokens, n)
    longest = max(range(len(pieces)), key=lambda i: len(pieces[i]))
    done, todo = 0, sum(len(piece) - 1 for piece in pieces)
    for index, piece in enumerate(pieces):
        for run in (reference, *runs):
            run.kv.reset()
        stop = len(piece) - 1
        timed = min(TIMED, stop) if index == longest else 0
        steps = (*_steps(piece, 0, stop - timed, block), *_steps(piece, stop - timed, stop, 1))
        for ids, following in steps:
            one_by_one = timed > 0 and len(ids) == 1
            rows, others = expected[: len(ids) * n_vocab], given[: len(ids) * n_vocab]
            for run in (reference, *runs):
                into = rows if run is reference else others
                seconds = _step(engine, run.kv, ids, into)
                if one_by_one:
                    run.steps.append(seconds)
                kl, likelihood, same = _checked(divergences, rows, into, following, n_vocab)
                run.kl.extend(kl)
                run.likelihood.extend(likelihood)
                run.same += sum(same)
                if run is reference and len(ids) > 1:
                    looks = [memoryview(probe.rows(run.kv, i, queries)) for i in range(len(engine.config.attention))]
            if len(ids) > 1:
                for run in (reference, *runs):
                    run.mass.append(_mass_kept(run.kv, looks, engine.config.n_head, engine.config.n_kv_head))
            done += len(ids)
            if progress:
                progress(done, todo)
    return Report(_header(engine, n, done, text, against), [_quality(run, reference, n) for run in (reference, *runs)])


def _mass_kept(kv: Any, looks: Sequence[memoryview], n_head: int, n_kv_head: int) -> float:
    """The share of the attention [n_layer, n_head, n_tokens] that falls on tokens in the cache, averaged over layers
    and heads.

    Measured at the end of each block of tokens: the attention of its last token.
    """
    from pyx.step import probe

    n = kv.n_tokens
    total = 0.0
    for layer, rows in enumerate(looks):
        for head in range(n_head):
            total += probe.kept(kv, layer, head * n_kv_head // n_head, rows[head * n : (head + 1) * n])
    return total / (len(looks) * n_head)


def _room_for(n: int) -> None:
    available = available_memory()
    if available is not None and n > available:
        raise MemoryRefused(
            f"the KV caches of all modes take {human(n)}, {human(available)} are available; use fewer modes or a "
            "smaller context"
        )


def _header(engine: Engine, n: int, done: int, text: str, against: Mode) -> dict[str, Any]:
    import edge
    from pyx.machine import cpu

    return {
        "version": edge.__version__,
        "model": engine.config.name,
        "fingerprint": engine.fingerprint,
        "text": text,
        "reference": against.name,
        "tokens": done,
        "context": n,
        "isa": cpu.isa(),
        "threads": engine.n_threads,
    }


def _quality(run: _Run, reference: _Run, n: int) -> Quality:
    count, plan = len(run.kl), run.plan
    worse = [a - b for a, b in zip(reference.likelihood, run.likelihood)]  # nats more for each token
    mean = sum(worse) / count
    variance = sum((each - mean) ** 2 for each in worse) / max(1, count - 1)
    change = math.expm1(mean)
    ordered = sorted(run.kl)
    return Quality(
        mode=run.mode.name,
        type=plan.kv_type,
        window=plan.window,
        sinks=plan.sinks,
        kv_bytes=plan.kv_bytes,
        bytes_per_token=plan.kv_bytes / n,
        perplexity=math.exp(-sum(run.likelihood) / count),
        change=change,
        error=1.96 * math.sqrt(variance / count) * (1 + change),
        kl_mean=sum(ordered) / count,
        kl_p999=percentile(ordered, 0.999),
        kl_max=ordered[-1],
        top1=run.same / count,
        mass=sum(run.mass) / len(run.mass) if run.mass else 1.0,
        tokens_per_second=1 / median(run.steps),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value such that at least this share of all values is not larger."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
