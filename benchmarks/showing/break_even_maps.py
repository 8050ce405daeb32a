"""Break-even maps over rank and batch: when to contract, and when to materialise."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from benchmarks.measuring.rounds import median

from .comparison import OURS
from .looks import WAYS, Rows, kind_of, short

# What is divided by what, and what it means when that is above 1.
PAIRS = {
    ("tnshare materialised", "tnshare factored"): "contracting the input with the factors is faster than "
    "composing the weights first",
    ("dense", OURS): "tnshare is faster than a dense weight for each task",
}
_MOST = 16  # times, at which colours end
_TICKS = {1 / 16: "1/16", 1 / 4: "1/4", 1: "1", 4: "4", 16: "16"}


def break_even(rows: Rows) -> Figure:
    """Maps over rank and batch of what was measured: materialised / factored, and dense / tnshare."""
    pairs = drawn(rows)
    figure = Figure(figsize=(1.2 + 4.9 * len(pairs), 4.6), layout="constrained")
    axes = figure.subplots(1, len(pairs), squeeze=False)[0]
    for axis, pair in zip(axes, pairs, strict=True):
        image = _map(axis, rows, pair)
    bar = figure.colorbar(image, ax=axes, ticks=list(_TICKS), extend="both")
    bar.ax.set_yticklabels(list(_TICKS.values()))
    bar.ax.minorticks_off()
    bar.set_label("ratio of times")
    case, (method, mode) = rows[0]["case"], kind_of(rows[0])
    figure.suptitle(
        f"{method}, {case['i']} -> {case['o']}, {case['tasks']} tasks: {WAYS[case['way']]}, {mode}"
    )
    return figure


def drawn(rows: Rows) -> list[tuple[str, str]]:
    """The pairs of programs that there is a number for."""
    return [pair for pair in PAIRS if any(set(pair) <= row["programs"].keys() for row in rows)]


def _map(axis: Any, rows: Rows, pair: tuple[str, str]) -> Any:
    """One map; a thick line is where neither is faster."""
    above, below = pair
    case = rows[0]["case"]
    ranks = sorted({row["case"]["ranks"][0] for row in rows})
    batches = sorted({row["case"]["batch"] for row in rows})
    values = np.full((len(ranks), len(batches)), np.nan)
    for row in rows:
        if set(pair) <= row["programs"].keys():
            place = ranks.index(row["case"]["ranks"][0]), batches.index(row["case"]["batch"])
            values[place] = median(row, above) / median(row, below)
    image = axis.imshow(values, norm=LogNorm(1 / _MOST, _MOST), cmap="PuOr", origin="lower", aspect="auto")
    for (r, b), value in np.ndenumerate(values):
        if not np.isnan(value):
            ink = "white" if value > 5 or value < 0.2 else "black"
            axis.text(b, r, short(value), ha="center", va="center", color=ink)
    _frontier(axis, values)
    axis.set_xticks(range(len(batches)), [f"{b:,}" for b in batches])
    axis.set_yticks(range(len(ranks)), [str(r) for r in ranks])
    axis.set_xlabel(f"rows{' of each task' if case['way'] == 'each' else ''}")
    axis.set_ylabel("rank of input and output" if case["method"] != "laf" else "rank")
    axis.set_title(f"time of {above} / {below}")
    return image


def _frontier(axis: Any, values: np.ndarray[Any, Any]) -> None:
    """The edges between cells above 1 and cells below."""
    style: dict[str, Any] = {"color": "black", "linewidth": 2.5}
    for (r, b), value in np.ndenumerate(values):
        for r2, b2 in ((r + 1, b), (r, b + 1)):
            if r2 < values.shape[0] and b2 < values.shape[1] and (value - 1) * (values[r2, b2] - 1) < 0:
                along = ((b - 0.5, b + 0.5), (r + 0.5, r + 0.5)) if b2 == b else None
                axis.plot(*(along or ((b + 0.5, b + 0.5), (r - 0.5, r + 0.5))), **style)
