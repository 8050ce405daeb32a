"""Break-even maps over rank and batch: when to contract, and when to materialise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from .looks import WAYS, Rows, short
from .measure import median
from .summary import OURS


def break_even(rows: Rows) -> Figure:
    """Two maps over rank and batch: materialised / factored, and dense / tnshare."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    axes = figure.subplots(1, 2)
    ranks = sorted({row["case"]["ranks"][0] for row in rows})
    batches = sorted({row["case"]["batch"] for row in rows})
    pairs = (("tnshare materialised", "tnshare factored"), ("dense", OURS))
    for axis, (above, below) in zip(axes, pairs, strict=True):
        values = np.full((len(ranks), len(batches)), np.nan)
        for row in rows:
            if {above, below} <= row["programs"].keys():
                place = ranks.index(row["case"]["ranks"][0]), batches.index(row["case"]["batch"])
                values[place] = median(row, above) / median(row, below)
        image = axis.imshow(
            np.clip(values, 1 / 16, 16), norm=LogNorm(1 / 16, 16), cmap="PuOr", origin="lower", aspect="auto"
        )
        for (r, b), value in np.ndenumerate(values):
            if not np.isnan(value):
                ink = "white" if value > 5 or value < 0.2 else "black"
                axis.text(b, r, short(value), ha="center", va="center", color=ink)
        axis.set_xticks(range(len(batches)), [f"{b:,}" for b in batches])
        axis.set_yticks(range(len(ranks)), [str(r) for r in ranks])
        axis.set_xlabel(f"rows{' of each task' if rows[0]['case']['way'] == 'each' else ''}")
        axis.set_ylabel("rank of input and output" if rows[0]["case"]["method"] != "laf" else "rank")
        axis.set_title(f"time of {above} / {below}")
    bar = figure.colorbar(image, ax=axes, ticks=[1 / 16, 1 / 4, 1, 4, 16])
    bar.ax.set_yticklabels(["1/16", "1/4", "1", "4", "16"])
    bar.ax.minorticks_off()
    case = rows[0]["case"]
    figure.suptitle(
        f"{case['method']}, {case['i']} -> {case['o']}, {case['tasks']} tasks: {title_of(rows[0])}"
    )
    return figure


def kind_of(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """The factorisation, the way and the mode of a row."""
    case = row["case"]
    return case["method"], case["way"], "training" if case["training"] else "inference"


def title_of(row: Mapping[str, Any]) -> str:
    """The way and the mode in words."""
    _, way, mode = kind_of(row)
    return f"{WAYS[way]}, {mode}"
