"""What all figures have in common: colours, shapes, names, axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .measure import spread

# Okabe and Ito's colours, which people who see colours differently can tell apart; shapes differ as well.
LOOKS: dict[str, tuple[str, str]] = {
    "tnshare": ("#0072B2", "o"),
    "tnshare factored": ("#56B4E9", "s"),
    "tnshare materialised": ("#E69F00", "^"),
    "dense": ("#000000", "D"),
    "dense, loop over tasks": ("#666666", "v"),
    "dense, weight per row": ("#999999", "<"),
    "opt_einsum": ("#009E73", "P"),
    "einsum": ("#CC79A7", "X"),
    "authors": ("#D55E00", "*"),
    "tltorch factorized": ("#F0E442", "h"),
    "tltorch reconstructed": ("#B8A800", "H"),
    "LoRA, batched": ("#7A3E9D", "p"),
    "LoRA, loop": ("#A98BC0", "8"),
    "PEFT": ("#4B0082", "d"),
}
OTHER = ("#0072B2", ".")
WAYS = {
    "one": "all rows of one task",
    "mixed": "rows of mixed tasks",
    "each": "each task on its own rows",
    "fan_out": "the same rows through every task",
}
Rows = Sequence[Mapping[str, Any]]


def lines(axis: Any, rows: Rows, along: str, part: str, share: Callable[[Any], int]) -> None:
    """A line for each program, with the quartiles."""
    for name, (colour, marker) in LOOKS.items():
        points = [
            (row["case"][along], *(s / share(row) * 1e6 for s in spread(row, name, part)))
            for row in sorted(rows, key=lambda row: int(row["case"][along]))
            if name in row["programs"] and row["programs"][name][part][0] > 0
        ]
        if points:
            x, middle, low, high = zip(*points, strict=True)
            ends = [np.subtract(middle, low), np.subtract(high, middle)]
            axis.errorbar(x, middle, ends, marker=marker, color=colour, label=name, elinewidth=0.8, capsize=2)
    axis.set_xscale("log")
    ticks = sorted({row["case"][along] for row in rows})
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.minorticks_off()
    axis.set_yscale("log")
    axis.grid(alpha=0.3)


def legend(figure: Figure, axes: Any) -> None:
    """One for all panels, below them."""
    entries: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=5)


def short(value: float) -> str:
    """Two digits, without powers of ten."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
