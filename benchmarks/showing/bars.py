"""Bars: what one would use instead, and how far from what the machine allows."""

from __future__ import annotations

from matplotlib.figure import Figure

from benchmarks.measuring.rounds import median

from .comparison import OURS, mean
from .looks import LOOKS, WAYS, Rows, legend, numbered, short


def ways(rows: Rows) -> Figure:
    """For each way, how many times as long as tnshare the others take."""
    figure = Figure(figsize=(11, 10.5), layout="constrained")
    grid = figure.subplots(2, 2)
    for axis, (way, title) in zip(grid.flat, WAYS.items(), strict=True):
        own = [row for row in rows if row["case"]["way"] == way]
        names = [n for n in LOOKS if n != OURS and any(n in row["programs"] for row in own)]
        for offset, training, hatch in ((-0.2, True, ""), (0.2, False, "///")):
            for place, name in enumerate(names):
                points = [r for r in own if name in r["programs"] and r["case"]["training"] == training]
                value = mean(median(r, name) / median(r, OURS) for r in points)
                if value is not None:
                    drawn = {"color": LOOKS[name].colour, "hatch": hatch, "edgecolor": "white"}
                    axis.barh(place + offset, value - 1, 0.38, left=1, **drawn)
                    spot = max(value, 1) * 1.06  # not on the line at 1
                    axis.text(spot, place + offset, short(value), va="center", fontsize=8)
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.axvline(1, color="black", linewidth=1)
        low, high = axis.get_xlim()
        axis.set_xlim(min(low, 0.9), high * 2)
        numbered(axis.xaxis)
        axis.set_title(title)
        axis.set_xlabel("time / time of tnshare")
    figure.suptitle("plain: training, hatched: inference")
    return figure


def roofline(rows: Rows) -> Figure:
    """Bars: times the least."""
    figure = Figure(figsize=(11, 0.36 * len(rows) + 2.0), layout="constrained")
    axis = figure.subplots()
    names = [row["name"] for row in rows]
    values = [row["facts"]["times the least"][OURS] for row in rows]
    colours = [LOOKS["authors" if row["facts"]["bound by"] == "bytes" else OURS].colour for row in rows]
    axis.barh(range(len(rows)), values, color=colours)
    for place, value in enumerate(values):
        axis.text(value + 0.03, place, f"{value:.2f}", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.invert_yaxis()
    axis.axvline(1, color="black", linewidth=1)
    axis.set_xlim(0, max(values) * 1.12)
    axis.set_xlabel("time of tnshare / least time")
    axis.plot([], [], "s", color=LOOKS[OURS].colour, label="bound by flops")
    axis.plot([], [], "s", color=LOOKS["authors"].colour, label="bound by bytes")
    legend(figure, [axis])
    return figure
