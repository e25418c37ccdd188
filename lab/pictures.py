"""The picture of what KV caches cost: quality over memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edge.tools.pictures import MARKERS, SERIES, STYLE, axes_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_KL = 1e-9  # nats; a cache that changes nothing has 0, which has no logarithm


def of_quality(facts: Mapping[str, Any]) -> Figure:
    """KL divergence over memory, for all rows but the reference.

    ``facts``: :meth:`lab.evaluate.Report.to_dict`.
    """
    import matplotlib

    rows = sorted(facts["rows"][1:], key=lambda row: -row["kl_mean"])
    with matplotlib.rc_context(STYLE):
        figure, (ax,) = axes_of(
            "What each KV cache costs: quality over memory",
            f"{facts['model']}, {facts['tokens']} tokens of {facts['text']} in segments of {facts['context']}. Lower "
            f"is closer to the predictions with {facts['reference']}; further left is smaller.",
            4.8,
        )
        for i, row in enumerate(rows):
            ax.plot(
                row["bytes_per_token"],
                max(row["kl_mean"], LEAST_KL),
                color=SERIES[i % len(SERIES)][0],
                linestyle="",
                marker=MARKERS[i % len(MARKERS)],
                label=row["mode"],
            )
        divergences = [max(row["kl_mean"], LEAST_KL) for row in rows]
        low = math.floor(math.log10(min(divergences)))
        high = max(math.ceil(math.log10(max(divergences))), low + 1)
        ax.set_yscale("log")
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set(
            xlabel="KV cache, bytes per token of context",
            ylabel=f"mean KL divergence from {facts['reference']}, nats",
            xlim=(0, None),
            ylim=(10.0**low, 10.0**high),
        )
        figure.legend(loc="outside right center")
    return figure
