"""Settings: what can be set about a model, its context and its answers, all in one table.

:func:`edge.load` and ``ask`` check their arguments with it; the command line makes its options from it, and the names
of ``--set NAME=VALUE``, which experiments need; batch and the server take types and ranges from it.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from reprlib import repr as short
from typing import Any, NamedTuple

from edge.amounts import parse_size
from edge.errors import UsageError, check_path, check_text, plain


class Setting(NamedTuple):
    """One setting.

    ``of``: what it is about; a command has the settings of some of these, programs alone those of "program".
    ``kind``: "choice", "whole", "number", "seconds", "threads", "switch", "size", "path" or "text".  ``default`` None:
    something else decides.  ``names``: of its option; without them it is set with ``--set``.
    """

    of: str
    kind: str
    help: str
    default: Any = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    metavar: str | None = None

    @property
    def values(self) -> str:
        """The values in short, for a help page."""
        if self.kind in ("choice", "switch"):
            return "|".join(self.choices or ("on", "off"))
        return self.metavar or {"whole": "N", "number": "X", "seconds": "SEC", "threads": "N"}.get(self.kind, "TEXT")

    @property
    def line(self) -> str:
        """The help with the default in its first sentence."""
        if self.default is None or "efault" in self.help:  # it says so itself
            return self.help
        usual = {True: "on", False: "off"}[self.default] if self.kind == "switch" else self.default
        usual = f"{usual:g}" if isinstance(usual, float) else usual
        usual = f": the model's own, else {usual}" if self.of == "sampling" else f" {usual}"
        first, dot, rest = self.help.partition(". ")
        return f"{first.removesuffix('.')} (default{usual}){dot or '.'}{rest}"


SETTINGS = {
    # what a file does not say
    "i2s_layout": Setting(
        "file", "choice", "How the weights are arranged in an I2_S file; auto tries each on a short text.", "auto",
        choices=("auto", "128", "64", "1x4")),
    "activation": Setting(
        "file", "choice", "Activation function of a model whose file does not name it. Default: tried on a short text.",
        choices=("relu2", "silu")),
    # loading
    "threads": Setting(
        "model", "threads", "Number of threads (default: one for each core). Where some cores are slower, the default "
        "is one for each fast core; -N leaves N of them free. Fewer work while other programs need the cores.",
        least=-256, most=256, names=("-t", "--threads"), metavar="N"),
    "think": Setting(
        "model", "switch", "Let the model think before it answers, or not, if it can (Ternary-Bonsai). Default: the "
        "model decides. A terminal shows thoughts dimmed; JSON has them in a field of their own.",
        names=("--think/--no-think",)),
    "template": Setting("model", "text", "Use this chat template instead of the model's own.", metavar="NAME"),
    "isa": Setting(
        "model", "text", "Use this instruction set (bitnet-edge doctor lists them); exit 6 if the processor has not.",
        metavar="NAME"),
    # those of pyx.step.KINDS that can be asked for; native: exactly the numbers of the file
    "head": Setting(
        "model", "choice", "Type of the output head in memory (docs/models.md).", "auto",
        choices=("auto", "two-stage", "int8", "native")),
    "weights": Setting(
        "model", "choice", "Where the weights are read from: the mapped file, a copy in 2 MiB pages, or first one, "
        "then the other.", "auto", choices=("auto", "map", "huge")),
    "tune": Setting(
        "model", "switch", "Compare, in the first tokens, the ways to read weights, and use the fastest.", True),
    "cache": Setting(
        "model", "switch", "Keep the KV cache of system prompts on the disk and use what was kept. Default: on, unless "
        "BITNET_EDGE_NO_CACHE is set."),
    # context and memory
    "ctx": Setting(
        "context", "whole", "Context length: how many tokens of question and answer the model sees (default 2048). "
        "Default for models trained on less: their training length.",
        least=1, most=1 << 24, names=("-c", "--ctx", "--ctx-size"), metavar="N"),
    "kv": Setting(
        "context", "text", "Type of the numbers in the KV cache, which holds the context: int8 (default), f16, f32, "
        "int4 or int4c. int4c is int4 with a scale for each channel: often more exact for keys, slightly larger. "
        "KEYS:VALUES, such as int8:int4, sets both.",
        "int8", names=("--kv",), metavar="TYPE"),
    "memory": Setting(
        "context", "size", "Memory limit of the whole process, such as 1500M or 2G. To stay within it, experts are "
        "left on disk, then the context is made shorter (if --ctx is not given), then a smaller KV type is used; exit "
        "5 if nothing fits. M and G are powers of ten; MiB and GiB also work.", names=("--memory", "--mem"),
        metavar="SIZE"),
    "window": Setting(
        "context", "whole", "Let the model see only the last N tokens. 0 (default): the whole context.", 0, 0, 1 << 24,
        names=("--window",), metavar="N"),
    "sinks": Setting(
        "context", "whole", "Keep the first N tokens when older text leaves the context. Default: the length of the "
        "system prompt, or 4.",
        least=0, most=1 << 20, names=("--sinks", "--keep"), metavar="N"),
    "overflow": Setting(
        "context", "choice", "When the context is full: slide drops the oldest tokens; stop ends the answer, exit 7. "
        "serve: stop, unless this is set; a request that is too long gets status 400.", "slide",
        choices=("slide", "stop")),
    "force_memory": Setting(
        "context", "switch", "Run even if the plan needs more memory than is free.", False),
    "kv_policy": Setting(
        "context", "choice", "Drop the oldest tokens first; quarter, for comparisons: keep the newest quarter of the "
        "text, at most 128 tokens.", "recent", choices=("recent", "quarter")),
    "kv_budget": Setting(
        "context", "path", "Number of tokens to keep for each head, from the JSON file that python -m lab calibrate "
        "writes.", metavar="FILE"),
    "kv_offload": Setting(
        "context", "path", "Save tokens that leave the window to a temporary file in DIR, so that /undo and /regen "
        "need not read them again.", metavar="DIR"),
    "kv_offload_size": Setting(
        "context", "size", "Maximum size of that file, per conversation.", "256M", metavar="SIZE"),
    "kv_drop_layers": Setting(
        "context", "text", "These layers see only the current token, to measure what they contribute.", metavar="N,N"),
    # an answer
    "max_tokens": Setting(
        "answer", "whole", "Maximum length of the answer in tokens.", 512, 0,
        names=("-n", "--max-tokens", "--n-predict"), metavar="N"),
    "timeout": Setting(
        "answer", "seconds", "End an answer after SEC seconds. What was written until then is kept. For run, the time "
        "includes loading, and the exit code is 124.", most=1e9, names=("--timeout",), metavar="SEC"),
    "by": Setting(
        "print", "choice", "Size of the pieces in which the answer is printed. clause and sentence suit text to "
        "speech; with clause the first piece is shorter, so that speech begins earlier.", "token",
        choices=("token", "word", "clause", "sentence", "all"), names=("--by",)),
    "thinking_budget": Setting(
        "answer", "whole", "End the thoughts of a model that thinks after N tokens. Default: it ends them itself.",
        least=0),
    "ignore_eos": Setting("answer", "switch", "Do not end the answer at the model's end token, only at -n.", False),
    # sampling
    "temperature": Setting(
        "sampling", "number", "Randomness of the answer; 0: none.", 0.7, 0.0, 5.0,
        names=("--temp", "--temperature"), metavar="T"),
    "seed": Setting(
        "sampling", "whole", "Seed of the random choice: the same seed gives the same answer. -1: another one each "
        "time (default).", names=("-s", "--seed"), metavar="N"),
    "top_k": Setting("sampling", "whole", "Choose from the N likeliest tokens; 0: all.", 40, -1, 1 << 31),
    "top_p": Setting(
        "sampling", "number", "Choose from the likeliest tokens whose probabilities add up to X; 1: all.", 0.95, 0.0,
        1.0),
    "min_p": Setting(
        "sampling", "number", "Choose from tokens at least X times as likely as the likeliest; 0: all.", 0.05, 0.0,
        1.0),
    "repeat_penalty": Setting(
        "sampling", "number", "Make tokens that were already used less likely; 1: off.", 1.0, 0.01, 100.0),
    "repeat_last_n": Setting(
        "sampling", "whole", "Number of recent tokens that the penalties consider; -1: all.", 64, -1, 1 << 20),
    "presence_penalty": Setting(
        "sampling", "number", "Lower the score of tokens that were already used by X.", 0.0, -100.0, 100.0),
    "frequency_penalty": Setting(
        "sampling", "number", "Lower the score of a token by X for each time it was already used.", 0.0, -100.0,
        100.0),
    # commands
    "thoughts": Setting(
        "print", "switch", "Print what the model thinks before it answers. Default: on a terminal with --by token, "
        "dimmed."),
    "history": Setting("chat", "switch", "Read and write the history of typed lines.", True),
    "read_ahead": Setting(
        "typing", "switch", "Read a message while it is being typed, so that the answer begins earlier.", True),
    "queue": Setting(
        "service", "whole", "Maximum number of waiting requests; further ones receive status 429.", 64, 0, 100_000),
    "state_size": Setting("service", "size", "Maximum size of the folder of --state.", "1G", metavar="SIZE"),
    "metrics": Setting("service", "switch", "Serve Prometheus metrics at /metrics.", False),
    # arguments of edge.load, which commands set by themselves, or some have as an option
    "parallel": Setting(
        "program", "whole", "Number of answers at the same time.", least=1, most=1 << 10, names=("--parallel",),
        metavar="N"),
    "spare_contexts": Setting("program", "whole", "Number of contexts for conversations that wait.", 0, 0, 1 << 10),
    "exact": Setting("program", "switch", "Never choose a smaller KV type.", False),
    "system": Setting("program", "text", "System prompt."),
    "constrained": Setting("program", "switch", "Plan the memory of answers that have a form.", False),
    "reserve": Setting("program", "whole", "Bytes that the program itself needs.", 0, 0),
    # arguments of an answer
    "logprobs": Setting("program", "whole", "Number of likeliest tokens to report.", least=0, most=100),
    "echo": Setting("program", "switch", "Report the log probabilities of the prompt, too.", False),
    "partial": Setting("program", "switch", "Read a message that is still being written.", False),
    "shared": Setting("program", "whole", "Characters of a question with which others begin, too.", 0, 0, 1 << 30),
}
#: the settings of commands
COMMON = {name: row for name, row in SETTINGS.items() if row.of != "program"}


def check(name: str, value: Any) -> Any:
    """The value of a setting, from a program.  Raises UsageError unless the setting may have it; None is always one
    where something else decides.
    """
    setting, value = SETTINGS[name], plain(value)
    if value is None and setting.default is None:
        return None
    if setting.kind == "choice":
        valid, hint = isinstance(value, str) and value in setting.choices, f"one of {', '.join(setting.choices)}"
    elif setting.kind == "switch":
        valid, hint = isinstance(value, bool), "True or False"
    elif setting.kind == "text":
        return check_text(value, name)
    elif setting.kind == "path":
        return os.path.expanduser(check_path(value, name))
    elif setting.kind == "size":
        parse_size(value, name)
        return value
    else:
        valid, hint = _is_in_range(setting, value), _range(setting)
    if not valid:
        raise UsageError(f"is {short(value)}", argument=name, hint=f"it must be {hint}")
    return value


def _is_in_range(setting: Setting, value: Any) -> bool:
    """True if ``value`` is a number that a setting of numbers may have."""
    whole = setting.kind not in ("number", "seconds")
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or value != value:
        return False
    if setting.kind == "seconds" and value <= 0 or setting.kind == "threads" and value == 0:
        return False
    return (setting.least is None or value >= setting.least) and (setting.most is None or value <= setting.most)


def _range(setting: Setting) -> str:
    """The numbers that a setting may have, in words."""
    least, most = setting.least, setting.most
    if setting.kind == "threads":
        return "a whole number from 1 to 256, or -N to leave N fast cores free"
    if setting.kind == "seconds":
        return f"a number of seconds, above 0 to {most:g}"
    hint = "a number" if setting.kind == "number" else "a whole number"
    hint += "" if least is None else f" from {least:.10g}"
    if most is not None:
        return hint + f" to {most:.10g}"
    return hint if least is None else hint + " on; a large number sets no limit"


def with_options(message: str) -> str:
    """A message of the library, which names settings as Python has them (``ctx=512``, ``a larger ctx``), with the
    options of the command line in their place.
    """
    import re

    def option(match: re.Match[str]) -> str:
        name, value = match[1] or match[3], match[2]
        long = next((each for each in SETTINGS[name].names if each.startswith("--")), "")
        if value is None:
            return long
        value = {"True": "on", "False": "off"}.get(value, value.strip('"'))
        return f"{long} {value}" if long else f"--set {name}={value}"

    names = "|".join(COMMON)
    return re.sub(
        rf'(?<![\w=-])(?<!--set )({names})=("[^" ]*"|[^\s",;:]+)|(?<=a larger )(ctx)\b', option, message)


def names_of(*of: str) -> Collection[str]:
    """The settings about these things that have no option, in the order of the table."""
    return [name for name, setting in SETTINGS.items() if setting.of in of and not setting.names]
