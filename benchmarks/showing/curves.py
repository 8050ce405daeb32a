"""Lines and points: cost against tasks and rows, time against memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from .comparison import OURS, held
from .looks import LOOKS, OTHER, WAYS, Rows, kind_of, legend, lines, numbered


def scaling(rows: Rows) -> Figure:
    """Of one factorisation and mode: forwards and, in training, backwards, a row's cost against the tasks."""
    method, mode = kind_of(rows[0])
    parts = ("forward", "backward") if mode == "training" else ("forward",)
    figure = Figure(figsize=(1 + 5 * len(parts), 5.2), layout="constrained")
    grid = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    for axis, part in zip(grid, parts, strict=True):
        lines(axis, rows, "tasks", part, lambda row: row["case"]["batch"])
        axis.set_title(part)
        axis.set_xlabel("tasks")
    grid[0].set_ylabel("time of a row (us)")
    case = rows[0]["case"]
    figure.suptitle(f"{method}, {case['i']} -> {case['o']}, {case['batch']:,} rows of mixed tasks, {mode}")
    legend(figure, grid)
    return figure


def growing(rows: Rows) -> Figure:
    """Of one factorisation and mode: the cost of a row of mixed tasks against the number of rows."""
    method, mode = kind_of(rows[0])
    counts = sorted({row["case"]["tasks"] for row in rows})
    figure = Figure(figsize=(max(3.8 * len(counts), 7), 5.2), layout="constrained")
    grid = figure.subplots(1, len(counts), squeeze=False, sharey=True)[0]
    for axis, tasks in zip(grid, counts, strict=True):
        at = [row for row in rows if row["case"]["tasks"] == tasks]
        lines(axis, at, "batch", "total", lambda row: row["case"]["batch"])
        axis.set_title(f"{tasks:,} tasks")
        axis.set_xlabel("rows")
    grid[0].set_ylabel(f"time of a row, {mode} (us)")
    case = rows[0]["case"]
    figure.suptitle(f"{method}, {case['i']} -> {case['o']}, {mode}")
    legend(figure, grid)
    return figure


def time_and_memory(rows: Rows) -> Figure:
    """Of one factorisation and mode: a point for each program, in a panel for each way."""
    method, mode = kind_of(rows[0])
    figure = Figure(figsize=(11, 8.4), layout="constrained")
    grid = figure.subplots(2, 2)
    for axis, (way, title) in zip(grid.flat, WAYS.items(), strict=True):
        for row in (row for row in rows if row["case"]["way"] == way):
            _points(axis, row["programs"])
        axis.set_xscale("log")
        numbered(axis.xaxis, (1, 2, 5))
        axis.set_yscale("log")
        numbered(axis.yaxis, (1, 2, 5))
        axis.set_xlabel(f"time, {mode} (ms)")
        axis.set_ylabel("memory at the peak (MB)")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    case = rows[0]["case"]
    figure.suptitle(f"{method}, {case['i']} -> {case['o']}, {case['tasks']} tasks, {mode}")
    legend(figure, grid.flat)
    return figure


def _points(axis: Any, programs: Mapping[str, Any]) -> None:
    """All programs, and a line through tnshare within limits of memory."""
    spots = {name: (entry["total"][0] * 1e3, held(entry) / 1e6) for name, entry in programs.items()}
    limited = [spot for name, spot in spots.items() if name == OURS or " within " in name]
    path = sorted(limited, key=lambda spot: -spot[1])
    axis.plot(
        *zip(*path, strict=True), color=OTHER.colour, linewidth=1, zorder=1, label="with a memory_limit"
    )
    for name, spot in reversed(spots.items()):  # tnshare on top
        label = name if name in LOOKS else None
        axis.plot(*spot, **LOOKS.get(name, OTHER).point, markersize=9, label=label, linestyle="")
