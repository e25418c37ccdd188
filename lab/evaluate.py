"""evaluate: how well a model predicts a text, and how much quality each KV cache costs.

Every mode reads the same tokens as a reference (by default F32 pages that keep everything), and their predictions are
compared token by token.  Perplexity alone is misleading: with a weak model a lossy cache can lower it.  The
Kullback-Leibler divergence (KL, in nats) of each prediction from the reference's, its 99.9th percentile, and how often
both choose the same next token cannot improve by chance.  They are never zero, however: activations of these models are
rounded to 8 bits, and the smallest change of a key changes some of these roundings.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import edge
from edge.amounts import count, human
from edge.cache.plan import Plan
from edge.cache.planning import cache_plan
from edge.errors import EdgeError, MemoryRefused, UsageError
from edge.files import read_text
from edge.machine.memory import available_memory
from edge.options import Options, parse_kv_type

if TYPE_CHECKING:
    from edge.engine import Engine

#: our own dialogues, used when no text is given
DIALOGUES = Path(edge.__file__).parent / "bundled" / "dialogues.jsonl"
DIALOGUES_NAME = "bundled/dialogues.jsonl"  # in reports
LOGIT_BYTES = 16 << 20  # of one block of logits; two are held
SETTINGS_OF_A_MODE = ("ctx", "window", "sinks", "overflow", "kv_policy", "kv_budget", "kv_drop_layers", "kv_offload",
                      "kv_offload_size")

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


# ---- modes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mode:
    """One KV cache to compare, written ``int8`` or ``int8 window=508 sinks=4``."""

    name: str
    kv_config: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Mode:
        """A KV type, then settings of :class:`edge.options.Options` as name=value.  Raises UsageError."""
        known = set(SETTINGS_OF_A_MODE)
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
        Options(**kv_config)
        return cls(" ".join(words), kv_config)

    def plan(self, engine: Engine, n: int) -> Plan:
        """The plan for segments of ``n`` tokens; everything is kept unless the mode limits it.

        Raises UsageError if the mode does not suit the model.
        """
        plan = cache_plan(engine.config, Options(**{"ctx": n, "overflow": "stop", **self.kv_config}))
        if plan.n_ctx < n and not plan.window:
            problem = f"{self.name!r}: ctx {plan.n_ctx} without a window is shorter than segments of {n}"
            raise UsageError(problem, argument="mode")
        return plan


def default_modes(n: int) -> list[Mode]:
    """Every type, then windows of a quarter of the text with and without sinks."""
    from edge.tools.fit import TYPES

    window = max(1, n // 4 - 4)
    windows = [f"int8 window={window + 4} sinks=0", f"int8 window={window} sinks=4"]
    return [Mode.parse(text) for text in (*TYPES, *windows) if text != "f32"]


# ---- predictions -----------------------------------------------------------------------------------------------------


def perplexity(engine: Engine, tokens: Sequence[int], mode: Mode) -> dict[str, Any]:
    """The perplexity in segments as long as the context, with the cache of ``mode``."""
    run = Run(engine, mode)
    for piece in segments(engine, tokens, engine.plan.n_ctx):
        run.kv.reset()
        for ids, following in _steps(engine, piece):
            run.predicted(_log_probabilities(run.step(ids)), following)
    nats = -np.array(run.likelihood)
    n_byte = sum(len(engine.tokenizer.token_bytes(token)) for token in run.read)
    return {"mode": mode.name, "context": engine.plan.n_ctx, "tokens": len(nats), "nats": float(nats.mean()),
            "perplexity": math.exp(nats.mean()), "bits_per_byte": float(nats.sum()) / math.log(2) / n_byte}


def kv_quality(
    engine: Engine, tokens: Sequence[int], modes: Sequence[Mode] = (), against: Mode | None = None
) -> dict[str, Any]:
    """Read the text once per mode, all modes side by side, in segments as long as the engine's context, and compare.

    ``against``: the reference, whose row comes first; None: F32 pages that keep everything.

    Raises MemoryRefused if the caches of all modes together do not fit; fewer modes or a smaller context may.
    """
    from pyx.step import attention_rows

    n, against = engine.plan.n_ctx, against or Mode("f32", {"kv": "f32"})
    modes = [against, *(modes or default_modes(n))]
    size, available = sum(mode.plan(engine, n).kv_bytes for mode in modes), available_memory()
    if available is not None and size > available:
        raise MemoryRefused(f"the KV caches of all modes take {human(size)}, {human(available)} are available; use "
                            "fewer modes or a smaller context")
    runs = [Run(engine, mode) for mode in modes]
    queries = engine.model.transformer.keep_queries()
    for piece in segments(engine, tokens, n):
        for run in runs:
            run.kv.reset()
        for ids, following in _steps(engine, piece):
            expected, looks = np.empty(0), []
            for i, run in enumerate(runs):
                given = _log_probabilities(run.step(ids))
                if i == 0:
                    expected = given
                    looks = [attention_rows(run.kv, layer, queries) for layer in range(len(engine.config.attention))]
                run.compared(expected, given, following)
                run.mass.append(_mass_kept(run.kv, looks, engine.config.n_head, engine.config.n_kv_head))
    return {"reference": against.name, "tokens": len(runs[0].kl), "context": n, "fingerprint": engine.fingerprint,
            "rows": [run.row(runs[0]) for run in runs]}


def _steps(engine: Engine, piece: array[int]) -> Iterator[tuple[array[int], array[int]]]:
    """(tokens, the tokens that follow them), as many at a time as a step takes and room for logits allows."""
    block = max(1, min(engine.model.chunk, LOGIT_BYTES // (4 * engine.config.n_vocab)))
    for at in range(0, len(piece) - 1, block):
        following = piece[at + 1 : at + 1 + block]
        yield piece[at : at + len(following)], following


def _log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Of rows of logits, float64.  Raises EdgeError if one is not finite."""
    if not np.isfinite(logits).all():
        raise EdgeError("the model returned an invalid prediction; its file may be damaged")
    x = logits.astype(np.float64) - logits.max(1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(1, keepdims=True)))


def _mass_kept(kv: Any, looks: Sequence[array[float]], n_head: int, n_kv_head: int) -> float:
    """The share of the last token's attention [layer][n_head, n_tokens] that falls on tokens in the cache: the mean of
    all layers and heads.
    """
    from pyx.step import attention_kept

    n = kv.n_tokens
    return float(np.mean([attention_kept(kv, layer, head * n_kv_head // n_head, rows[head * n : (head + 1) * n])
                          for layer, rows in enumerate(looks) for head in range(n_head)]))


@dataclass
class Run:
    """One cache while it reads the text, and what it predicted."""

    engine: Engine
    mode: Mode
    kl: list[float] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    likelihood: list[float] = field(default_factory=list)
    mass: list[float] = field(default_factory=list)  # at the end of each step
    read: list[int] = field(default_factory=list)  # the tokens that were predicted

    def __post_init__(self) -> None:
        self.plan = self.mode.plan(self.engine, self.engine.plan.n_ctx)
        self.kv = self.engine.space.new_cache(self.plan)

    def step(self, ids: array[int]) -> np.ndarray:
        """Evaluate ``ids``.  Returns the logits [n][n_vocab]."""
        from pyx.step import Segment

        logits = np.empty((len(ids), self.engine.config.n_vocab), np.float32)
        with self.engine.model.alone() as transformer:
            transformer.step([Segment(self.kv, ids, logits.reshape(-1), all_logits=True)])
        return logits

    def predicted(self, given: np.ndarray, following: array[int]) -> None:
        """Record log probabilities [n][n_vocab]."""
        self.likelihood += given[np.arange(len(following)), following].tolist()
        self.read += following

    def compared(self, expected: np.ndarray, given: np.ndarray, following: array[int]) -> None:
        """Record them beside those of the reference."""
        self.kl += np.maximum((np.exp(expected) * (expected - given)).sum(1), 0).tolist()
        self.same += (expected.argmax(1) == given.argmax(1)).tolist()
        self.predicted(given, following)

    def row(self, reference: Run) -> dict[str, Any]:
        """The quality of this cache, over all tokens."""
        worse = np.array(reference.likelihood) - self.likelihood  # nats more for each token
        change = math.expm1(worse.mean())
        return {
            "mode": self.mode.name,
            "kv_bytes": self.plan.kv_bytes,
            "bytes_per_token": self.plan.kv_bytes / self.engine.plan.n_ctx,
            "perplexity": math.exp(-np.mean(self.likelihood)),
            "change": change,
            # 1.96 standard errors of that change (paired, tokens taken as independent)
            "error": 1.96 * float(worse.std(ddof=1)) / len(worse) ** 0.5 * (1 + change) if len(worse) > 1 else math.inf,
            "kl_mean": float(np.mean(self.kl)),
            "kl_p999": float(np.quantile(self.kl, 0.999, method="inverted_cdf")),
            "top1": float(np.mean(self.same)),
            "mass": float(np.mean(self.mass)),
        }
