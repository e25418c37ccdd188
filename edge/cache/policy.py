"""Budgets of a KV cache: the tokens that each head keeps, from a file.

A budget file is JSON:

    {"version": 1, "n_layer": L, "n_kv_head": H, "sinks": S, "keep": [[tokens per head] per layer]}

and, if it was made by calibration, the ``fingerprint`` of its model.  A head keeps ``keep`` tokens: the first S and the
latest others; if ``keep`` is at most S, only the latest.  Other keys are ignored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from edge.config import ModelConfig
from edge.errors import InvalidFile, UsageError, shown

#: tokens that a head keeps where no budget limits it: more than a context has
UNLIMITED = 1 << 20
LIMIT = 4 << 20  # bytes of a budget file; thousands of layers
VERSION = 1


class Budget(NamedTuple):
    """Tokens that each head keeps, ``keep[layer][KV head]``, including the ``sinks``."""

    keep: tuple[tuple[int, ...], ...]
    sinks: int
    fingerprint: str | None = None


def read_budget(path: str, config: ModelConfig) -> Budget:
    """The budgets in a file, for this model.  Raises UsageError if it cannot be read, InvalidFile if it is wrong."""
    import json

    try:
        with open(path, "rb") as file:
            text = file.read(LIMIT + 1)
        if len(text) > LIMIT:
            raise InvalidFile(f"it has more than {LIMIT} bytes")
        return _budget(json.loads(text), config)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except InvalidFile as error:
        raise InvalidFile(f"KV budget {path}: {error}") from None
    except (ValueError, RecursionError):
        raise InvalidFile(f"KV budget {path}: it is not JSON") from None


def _budget(facts: Any, config: ModelConfig) -> Budget:
    """The budget in the parsed file, with every value checked against the model's shape."""
    if not isinstance(facts, dict) or facts.get("version") != VERSION:
        raise InvalidFile(f"it is not a budget of version {VERSION}")
    n_layer, n_kv_head = config.kv_shape[:2]
    for name, n in (("n_layer", n_layer), ("n_kv_head", n_kv_head)):
        if facts.get(name) != n:
            raise InvalidFile(f"{name} is {shown(facts.get(name))}, that of the model {n}")
    keep, sinks, fingerprint = facts.get("keep"), facts.get("sinks", 0), facts.get("fingerprint")
    rows = keep if isinstance(keep, list) and len(keep) == n_layer else [None]
    if not all(isinstance(row, list) and len(row) == n_kv_head and all(map(_whole, row)) for row in rows):
        raise InvalidFile("keep is not a list of whole numbers from 1 for each layer and KV head")
    if not _whole(sinks + 1 if type(sinks) is int else None):
        raise InvalidFile("sinks is not a whole number from 0")
    if not isinstance(fingerprint, str | None):
        raise InvalidFile("fingerprint is not a text")
    return Budget(tuple(map(tuple, rows)), sinks, fingerprint)


def _whole(value: Any) -> bool:
    return type(value) is int and 1 <= value <= UNLIMITED
