"""Figures of a result: break-even maps over rank and batch, cost against tasks, time against memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from .measure import median
from .summary import OURS, mean

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
_OTHER = ("#0072B2", ".")
_NOTHING = 0.1  # MB, where no memory at all is drawn
_WAYS = {
    "one": "all rows of one task",
    "mixed": "rows of mixed tasks",
    "each": "each task on its own rows",
    "fan_out": "the same rows through every task",
}
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Picture:
    """A figure on disk."""

    path: Path
    title: str
    caption: str


def draw(result: Mapping[str, Any], folder: Path, stem: str) -> list[Picture]:
    """All figures that the result has numbers for."""
    suites = {name: [row for row in rows if "error" not in row] for name, rows in result["suites"].items()}
    machine, settings = result["machine"], result["settings"]
    device = machine["gpu"]["model"] if "gpu" in machine else machine["cpu"]
    where = f"Measured on {device}, {settings['threads']} thread(s), {settings['backend']}, float32."
    found = []
    for name, make, rows, title, caption in _wanted(suites):
        if rows:
            with matplotlib.rc_context({"font.size": 10, "axes.titlesize": 11, "svg.hashsalt": "tnshare"}):
                figure = make(rows)
            path = folder / f"{stem}-{name}.png"
            figure.savefig(path, dpi=130)
            found.append(Picture(path, title, f"{title}. {caption} {where}"))
    return found


def _wanted(
    suites: Mapping[str, Rows],
) -> list[tuple[str, Callable[[Rows], Figure], Rows, str, str]]:
    apply = suites.get("apply", [])
    maps = [row for row in apply if row["kind"] == "map"]
    kinds = dict.fromkeys(_map_kind(row) for row in maps)
    found: list[tuple[str, Callable[[Rows], Figure], Rows, str, str]] = []
    for kind in kinds:
        method, way, mode = kind
        rows = [row for row in maps if _map_kind(row) == kind]
        title = f"Contract or materialise: {method}, {_WAYS[way]}, {mode}"
        caption = (
            "Above 1 contracting the input with the factors is faster; below 1 composing the weights is."
        )
        found.append((f"map-{method}-{way}-{mode}", break_even, rows, title, caption))
    scale = [row for row in suites.get("scale", []) if row["kind"] == "scale"]
    found += [
        (
            "ways",
            ways,
            [row for row in apply if row["kind"] == "way"],
            "What one would use instead, by way of choosing tasks",
            "Geometric means over the factorisations; above 1 tnshare is faster.",
        ),
        (
            "scale",
            scaling,
            scale,
            "Cost against the number of tasks",
            "1,024 rows of different tasks. Lines end where weights need more memory than a program may use.",
        ),
        (
            "memory",
            time_and_memory,
            [row for row in suites.get("memory", []) if row["kind"] == "memory"],
            "Time against memory",
            "Peaks beyond input, output, parameters, gradients (none: at 0.1 MB); down and left is better.",
        ),
        (
            "mixed",
            growing,
            suites.get("mixed", []),
            "Rows of mixed tasks, as rows and tasks grow",
            "A training step divided by its rows.",
        ),
        (
            "roofline",
            roofline,
            suites.get("roofline", []),
            "How far from what the machine allows",
            "1 is what the flops take at the speed of a large product, or the bytes, whichever is longer.",
        ),
    ]
    return found


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
                axis.text(b, r, _short(value), ha="center", va="center", color=ink)
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
        f"{case['method']}, {case['i']} -> {case['o']}, {case['tasks']} tasks: {_map_title(rows[0])}"
    )
    return figure


def ways(rows: Rows) -> Figure:
    """For each way, how many times as long as tnshare the others take."""
    figure = Figure(figsize=(11, 9), layout="constrained")
    grid = figure.subplots(2, 2)
    for axis, (way, title) in zip(grid.flat, _WAYS.items(), strict=True):
        own = [row for row in rows if row["case"]["way"] == way]
        names = [n for n in LOOKS if n != OURS and any(n in row["programs"] for row in own)]
        for offset, training, hatch in ((-0.2, True, ""), (0.2, False, "///")):
            for place, name in enumerate(names):
                points = [r for r in own if name in r["programs"] and r["case"]["training"] == training]
                value = mean(median(r, name) / median(r, OURS) for r in points)
                if value is not None:
                    axis.barh(
                        place + offset, value, 0.38, color=LOOKS[name][0], hatch=hatch, edgecolor="white"
                    )
                    spot = max(value, 1) * 1.06  # not on the line at 1
                    axis.text(spot, place + offset, _short(value), va="center", fontsize=8)
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.axvline(1, color="black", linewidth=1)
        low, high = axis.get_xlim()
        axis.set_xlim(min(low, 0.5), high * 2)
        axis.set_title(title)
        axis.set_xlabel("time / time of tnshare")
    figure.suptitle("plain: training, hatched: inference")
    return figure


def scaling(rows: Rows) -> Figure:
    """Forwards and backwards, the cost of a row against the number of tasks."""
    methods = list(dict.fromkeys(row["case"]["method"] for row in rows))
    figure = Figure(figsize=(11, 4.2 * len(methods)), layout="constrained")
    grid = figure.subplots(len(methods), 2, squeeze=False, sharex=True, sharey=True)
    for line, method in zip(grid, methods, strict=True):
        own = [row for row in rows if row["case"]["method"] == method and row["case"]["training"]]
        own = own or [row for row in rows if row["case"]["method"] == method]
        for axis, part in zip(line, ("forward", "backward"), strict=True):
            _lines(axis, own, "tasks", part, lambda row: row["case"]["batch"])
            axis.set_title(f"{method}, {part}")
            axis.set_xlabel("tasks")
            axis.set_ylabel("time of a row (us)")
    _legend(figure, grid.flat)
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
        _lines(axis, at, "batch", "total", lambda row: row["case"]["batch"])
        axis.set_title(f"{method}, {tasks:,} tasks")
        axis.set_xlabel("rows")
    grid[0].set_ylabel("time of a row, training (us)")
    _legend(figure, grid)
    return figure


def time_and_memory(rows: Rows) -> Figure:
    """A point for each program, in a panel for each way."""
    method = rows[0]["case"]["method"]
    figure = Figure(figsize=(11, 8.4), layout="constrained")
    grid = figure.subplots(2, 2)
    for axis, (way, title) in zip(grid.flat, _WAYS.items(), strict=True):
        for row in rows:
            case = row["case"]
            if (case["way"], case["method"], case["training"]) != (way, method, True):
                continue
            limited = [n for n in (OURS, *row["programs"]) if n == OURS or " within " in n]
            limited = [n for n in dict.fromkeys(limited) if n in row["programs"]]
            path = [(median(row, n) * 1e3, row["programs"][n]["peak"] / 1e6) for n in limited]
            axis.plot(
                *zip(*path, strict=True),
                color=LOOKS[OURS][0],
                linewidth=1,
                zorder=1,
                label="with a memory_limit",
            )
            for name, entry in row["programs"].items():
                colour, marker = LOOKS.get(name, _OTHER)
                label = name if name in LOOKS else None
                spot = entry["total"][0] * 1e3, max(entry["peak"] / 1e6, _NOTHING)
                axis.plot(*spot, marker, color=colour, markersize=9, label=label, linestyle="")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("time of a training step (ms)")
        axis.set_ylabel("peak memory (MB)")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    case = rows[0]["case"]
    figure.suptitle(f"{method}, {case['i']} -> {case['o']}, {case['tasks']} tasks")
    _legend(figure, grid.flat)
    return figure


def roofline(rows: Rows) -> Figure:
    """Bars: times the least."""
    figure = Figure(figsize=(11, 0.36 * len(rows) + 1.6), layout="constrained")
    axis = figure.subplots()
    names = [row["name"] for row in rows]
    values = [row["facts"]["times the least"][OURS] for row in rows]
    colours = [LOOKS["authors" if row["facts"]["bound by"] == "bytes" else OURS][0] for row in rows]
    axis.barh(range(len(rows)), values, color=colours)
    for place, value in enumerate(values):
        axis.text(value + 0.03, place, f"{value:.2f}", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.invert_yaxis()
    axis.axvline(1, color="black", linewidth=1)
    axis.set_xlim(0, max(values) * 1.12)
    axis.set_xlabel("time of tnshare / least time")
    axis.plot([], [], "s", color=LOOKS[OURS][0], label="bound by flops")
    axis.plot([], [], "s", color=LOOKS["authors"][0], label="bound by bytes")
    axis.legend(loc="lower right")
    return figure


def _lines(axis: Any, rows: Rows, along: str, part: str, share: Callable[[Any], int]) -> None:
    """A line for each program, with the quartiles."""
    for name, (colour, marker) in LOOKS.items():
        points = [
            (row["case"][along], *(s / share(row) * 1e6 for s in row["programs"][name][part]))
            for row in sorted(rows, key=lambda row: int(row["case"][along]))
            if name in row["programs"] and row["programs"][name][part][0] > 0
        ]
        if points:
            x, middle, low, high = zip(*points, strict=True)
            spread = [np.subtract(middle, low), np.subtract(high, middle)]
            axis.errorbar(
                x, middle, spread, marker=marker, color=colour, label=name, elinewidth=0.8, capsize=2
            )
    axis.set_xscale("log")
    ticks = sorted({row["case"][along] for row in rows})
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.minorticks_off()
    axis.set_yscale("log")
    axis.grid(alpha=0.3)


def _legend(figure: Figure, axes: Any) -> None:
    """One for all panels, below them."""
    entries: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=5)


def _short(value: float) -> str:
    """Two digits, without powers of ten."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _map_kind(row: Mapping[str, Any]) -> tuple[str, str, str]:
    case = row["case"]
    return case["method"], case["way"], "training" if case["training"] else "inference"


def _map_title(row: Mapping[str, Any]) -> str:
    _, way, mode = _map_kind(row)
    return f"{_WAYS[way]}, {mode}"
