"""What all figures have in common: colours, dashes, markers, names, axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.measuring.rounds import spread


class Look(NamedTuple):
    """How a program is drawn: a line of which colour and dashes, with which marker, filled or hollow."""

    colour: str
    marker: str
    dashes: str = "-"
    fill: str = "full"

    @property
    def point(self) -> dict[str, Any]:
        """What matplotlib is told of the marker."""
        return {"marker": self.marker, "color": self.colour, "fillstyle": self.fill, "markeredgewidth": 1.4}


# tnshare and paths of contractions have Okabe and Ito's colours, which people who see colours differently can
# tell apart; every other family has dashes of its own, and no two programs the same marker.
LOOKS: dict[str, Look] = {
    "tnshare": Look("#0072B2", "o"),
    "tnshare factored": Look("#56B4E9", "s"),
    "tnshare materialised": Look("#E69F00", "^"),
    "dense": Look("#000000", "D", "-."),
    "dense, loop over tasks": Look("#666666", "v", "-."),
    "dense, weight per row": Look("#A6A6A6", "<", "-."),
    "opt_einsum": Look("#009E73", "P"),
    "einsum": Look("#CC79A7", "X"),
    "authors": Look("#D55E00", "*"),
    "tltorch factorized": Look("#6E6400", "^", ":", "none"),
    "tltorch reconstructed": Look("#503206", "v", ":", "none"),
    "LoRA, batched": Look("#8205FF", "o", "--", "none"),
    "LoRA, loop": Look("#A86CFF", "s", "--", "none"),
    "PEFT": Look("#2B0C4A", "D", "--", "none"),
}
OTHER = Look("#0072B2", ".")
WAYS = {
    "one": "all rows of one task",
    "mixed": "rows of mixed tasks",
    "each": "each task on its own rows",
    "fan_out": "the same rows through every task",
}
Rows = Sequence[Mapping[str, Any]]


def lines(axis: Any, rows: Rows, along: str, part: str, share: Callable[[Any], int]) -> None:
    """A line for each program, with the quartiles."""
    for name, look in LOOKS.items():
        points = [
            (row["case"][along], *(s / share(row) * 1e6 for s in spread(row, name, part)))
            for row in sorted(rows, key=lambda row: int(row["case"][along]))
            if name in row["programs"] and row["programs"][name][part][0] > 0
        ]
        if points:
            x, middle, low, high = zip(*points, strict=True)
            ends = [np.subtract(middle, low), np.subtract(high, middle)]
            axis.errorbar(
                x, middle, ends, label=name, linestyle=look.dashes, elinewidth=0.8, capsize=2, **look.point
            )
    axis.set_xscale("log")
    ticks = sorted({row["case"][along] for row in rows})
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.minorticks_off()
    axis.set_yscale("log")
    numbered(axis.yaxis)
    axis.grid(alpha=0.3)


def kind_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """The factorisation and the mode of a row."""
    return row["case"]["method"], "training" if row["case"]["training"] else "inference"


def numbered(axis: Any, steps: Sequence[int] = (1,)) -> None:
    """Plain numbers along a logarithmic axis, at so many times the powers of ten."""
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(lambda value, _: f"{value:,.4g}")
    axis.set_minor_formatter(NullFormatter())


def legend(figure: Figure, axes: Any) -> None:
    """One for all panels, below them."""
    entries: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    names = [*(name for name in LOOKS if name in entries), *(name for name in entries if name not in LOOKS)]
    figure.legend([entries[name] for name in names], names, loc="outside lower center", ncols=5)


def short(value: float) -> str:
    """Two digits, without powers of ten."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
