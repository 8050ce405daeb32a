"""Lines and points: cost against tasks and rows, time against memory."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from .looks import LOOKS, OTHER, WAYS, Rows, legend, lines
from .measure import median
from .summary import OURS, held


def scaling(rows: Rows) -> Figure:
    """Forwards and backwards, the cost of a row against the number of tasks."""
    methods = list(dict.fromkeys(row["case"]["method"] for row in rows))
    figure = Figure(figsize=(11, 4.2 * len(methods)), layout="constrained")
    grid = figure.subplots(len(methods), 2, squeeze=False, sharex=True, sharey=True)
    for line, method in zip(grid, methods, strict=True):
        own = [row for row in rows if row["case"]["method"] == method and row["case"]["training"]]
        own = own or [row for row in rows if row["case"]["method"] == method]
        for axis, part in zip(line, ("forward", "backward"), strict=True):
            lines(axis, own, "tasks", part, lambda row: row["case"]["batch"])
            axis.set_title(f"{method}, {part}")
            axis.set_xlabel("tasks")
            axis.set_ylabel("time of a row (us)")
    legend(figure, grid.flat)
    return figure


def growing(rows: Rows) -> Figure:
    """The cost of a row of mixed tasks against the number of rows, for each number of tasks."""
    method = rows[0]["case"]["method"]
    own = [row for row in rows if row["case"]["training"] and row["case"]["method"] == method]
    counts = sorted({row["case"]["tasks"] for row in own})
    figure = Figure(figsize=(3.8 * len(counts), 4.8), layout="constrained")
    grid = figure.subplots(1, len(counts), squeeze=False, sharey=True)[0]
    for axis, tasks in zip(grid, counts, strict=True):
        at = [row for row in own if row["case"]["tasks"] == tasks]
        lines(axis, at, "batch", "total", lambda row: row["case"]["batch"])
        axis.set_title(f"{method}, {tasks:,} tasks")
        axis.set_xlabel("rows")
    grid[0].set_ylabel("time of a row, training (us)")
    legend(figure, grid)
    return figure


def time_and_memory(rows: Rows) -> Figure:
    """A point for each program, in a panel for each way."""
    method = rows[0]["case"]["method"]
    figure = Figure(figsize=(11, 8.4), layout="constrained")
    grid = figure.subplots(2, 2)
    for axis, (way, title) in zip(grid.flat, WAYS.items(), strict=True):
        for row in rows:
            case = row["case"]
            if (case["way"], case["method"], case["training"]) != (way, method, True):
                continue
            limited = [n for n in (OURS, *row["programs"]) if n == OURS or " within " in n]
            limited = [n for n in dict.fromkeys(limited) if n in row["programs"]]
            path = [(median(row, n) * 1e3, held(row["programs"][n]) / 1e6) for n in limited]
            axis.plot(
                *zip(*path, strict=True),
                color=LOOKS[OURS][0],
                linewidth=1,
                zorder=1,
                label="with a memory_limit",
            )
            for name, entry in row["programs"].items():
                colour, marker = LOOKS.get(name, OTHER)
                label = name if name in LOOKS else None
                spot = entry["total"][0] * 1e3, held(entry) / 1e6
                axis.plot(*spot, marker, color=colour, markersize=9, label=label, linestyle="")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("time of a training step (ms)")
        axis.set_ylabel("memory at the peak (MB)")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    case = rows[0]["case"]
    figure.suptitle(f"{method}, {case['i']} -> {case['o']}, {case['tasks']} tasks")
    legend(figure, grid.flat)
    return figure
