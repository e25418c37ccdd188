"""pictures: the diagrams of measurements and plans (``--plot FILE.svg``), drawn by :mod:`edge.tools.plot`.

Every value in a picture is also printed by the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edge.amounts import count
from edge.tools.plot import Bar, Column, Point, Series, bars, lines, scatter

if TYPE_CHECKING:
    from edge.kv.table import Table

#: the columns by which rows of bench differ
_NAMED = ("isa", "threads", "weights", "head", "kv", "depth", "parallel")
LEAST_KL = 1e-9  # nats; a cache that changes nothing has 0, which has no logarithm


def of_bench(facts: Mapping[str, Any]) -> str:
    """The speed of each measurement, and the limits of the time per token: reading its bytes, and multiplying.

    ``facts``: :meth:`edge.tools.bench.Report.to_dict`.
    """
    rows = facts["rows"]
    same = {key for key in _NAMED if len({row.get(key) for row in rows}) == 1}
    first = rows[0]
    cells = [
        [
            Bar(milliseconds, f"{milliseconds:.3g}", colour)
            for colour, milliseconds in enumerate(
                (1e3 / row["tg"], 1e3 * row["token_bytes"] / row["read_rate"], 1e3 / row["pp"])
            )
        ]
        for row in rows
    ]
    return bars(
        [_measurement(row, same) for row in rows],
        [
            Column("generation, tokens/s", [[_speed(row["tg"], row["tg_samples"])] for row in rows]),
            Column("prompt, tokens/s", [[_speed(row["pp"], row["pp_samples"])] for row in rows]),
            Column("time of a token, ms", cells),
        ],
        f"Speed of {facts['model']} on {facts['board'] or facts['cpu']}",
        f"{_measurement(first, set(_NAMED) - same)}{'; ' if same else ''}medians of {facts['repeats']}, with the least "
        f"and the most. A generated token reads {min(row['token_bytes'] for row in rows) / 1e6:.1f} MB or more, so it "
        "takes about as long as reading them or, if that is longer, as a token of a prompt, which is bound by "
        "arithmetic.",
        ("a generated token, measured", "reading its bytes, at the speed of the memory", "a token of the prompt"),
    )


def _speed(value: float, samples: Sequence[float]) -> Bar:
    return Bar(value, f"{value:.1f}", 0, (min(samples), max(samples)))


def _measurement(row: Mapping[str, Any], without: set[str]) -> str:
    """The settings of a measurement, without those that are the same in all: "2 threads, int8 KV, depth 128"."""
    words = {
        "isa": str(row["isa"]),
        "threads": count(row["threads"], "thread"),
        "weights": f"weights {row['weights']}",
        "head": f"{row['head']} head",
        "kv": f"{row['kv']} KV",
        "depth": f"depth {row['depth']}",
    }
    if row.get("parallel", 1) > 1:
        words["parallel"] = f"{row['parallel']} at once"
    return ", ".join(text for key, text in words.items() if key not in without)


def of_plan(table: Table) -> str:
    """Size of the KV cache over the context length, one line per KV type; types of equal size share a line.

    It shows the cache that stops when it is full, and each window and budget (dashed); one that slides has one page
    more per head.
    """
    types = list(dict.fromkeys(row.type for row in table.rows))
    found: dict[tuple[str, tuple[tuple[float, float], ...]], list[str]] = {}
    for row in table.rows:
        way = row.full.partition(",")[0]
        if way != "slide":
            points = tuple((float(n), size / 1e6) for n, size in row.bytes.items() if size is not None)
            found.setdefault((way, points), []).append(row.type)
    series = [
        Series(" and ".join(same) + ("" if way == "stop" else f", {way}"), points, types.index(same[0]), way != "stop")
        for (way, points), same in found.items()
    ]
    c = table.config
    return lines(
        series,
        f"Memory of the KV cache of {c.name}",
        f"{count(c.n_layer, 'layer')}, {count(c.n_kv_head, 'key/value head')} of {c.head_dim}; allocated once, when "
        f"the model is loaded. Besides, a token reads {table.weights.read / 1e6:.1f} MB of weights.",
        "context length, tokens",
        "KV cache, MB (1e6 bytes)",
    )


def of_quality(facts: Mapping[str, Any]) -> str:
    """KL divergence over memory, for all rows but the reference.

    ``facts``: :meth:`edge.tools.evaluate.Report.to_dict`.
    """
    points = [Point(row["mode"], row["bytes_per_token"], max(row["kl_mean"], LEAST_KL)) for row in facts["rows"][1:]]
    return scatter(
        points,
        "What each KV cache costs: quality over memory",
        f"{facts['model']}, {facts['tokens']} tokens of {facts['text']} in segments of {facts['context']}. Lower is "
        f"closer to the predictions with {facts['reference']}; further left is smaller.",
        "KV cache, bytes per token of context",
        f"mean KL divergence from {facts['reference']}, nats",
    )
