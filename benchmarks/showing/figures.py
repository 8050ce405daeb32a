"""Figures of a result, each with its caption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from .bars import roofline, ways
from .break_even_maps import PAIRS, break_even, drawn
from .cells import memory
from .curves import growing, scaling, time_and_memory
from .looks import WAYS, Rows, kind_of


@dataclass(frozen=True)
class Picture:
    """A figure on disk."""

    path: Path
    title: str
    caption: str


@dataclass(frozen=True)
class Plot:
    """A figure that can be drawn: of which rows, by what."""

    name: str
    make: Callable[[Rows], Figure]
    rows: Rows
    title: str
    caption: str


def draw(result: Mapping[str, Any], folder: Path, stem: str) -> list[Picture]:
    """All figures that the result has numbers for."""
    suites = {name: [row for row in rows if "error" not in row] for name, rows in result["suites"].items()}
    machine, settings = result["machine"], result["settings"]
    device = machine["gpu"]["model"] if "gpu" in machine else machine["cpu"]
    size = memory(settings["limit"])
    threads, framework = settings["threads"], settings["backend"]
    where = f"Measured on {device}, {threads} thread(s), {framework}, float32; programs of up to {size}."
    found = []
    for plot in _plots(suites):
        if plot.rows:
            with matplotlib.rc_context({"font.size": 10, "axes.titlesize": 11, "svg.hashsalt": "tnshare"}):
                figure = plot.make(plot.rows)
            path = folder / f"{stem}-{plot.name}.png"
            figure.savefig(path, dpi=130)
            found.append(Picture(path, plot.title, f"{plot.title}. {plot.caption} {where}"))
    return found


def _plots(suites: Mapping[str, Rows]) -> Iterator[Plot]:
    def of(suite: str, kind: str) -> Rows:
        return [row for row in suites.get(suite, []) if row["kind"] == kind]

    yield from _maps(of("apply", "map"))
    yield Plot(
        "ways",
        ways,
        of("apply", "way"),
        "What one would use instead, by way of choosing tasks",
        "Geometric means over all factorisations, shapes and batches that were measured; above 1 (bars to "
        "the right) tnshare is faster. Plain bars: training, hatched ones: inference.",
    )
    yield from _each(
        "scale",
        scaling,
        of("scale", "scale"),
        "Cost against the number of tasks",
        "Medians and quartiles, 1,024 rows of different tasks. Lines end where weights need more memory than "
        "a program may use.",
    )
    yield from _each(
        "memory",
        time_and_memory,
        of("memory", "memory"),
        "Time against memory",
        "Parameters, gradients, what is kept and all else but input and output; down and left is better. The "
        "line is of limits between the least that works and the peak.",
    )
    yield from _each(
        "mixed",
        growing,
        of("mixed", "mixed"),
        "Rows of mixed tasks, as rows and tasks grow",
        "Medians and quartiles of a call divided by its rows.",
    )
    yield Plot(
        "roofline",
        roofline,
        suites.get("roofline", []),
        "How far from what the machine allows",
        "1 is what the flops take at the speed of a large product, or the bytes, whichever is longer.",
    )


def _each(name: str, make: Callable[[Rows], Figure], rows: Rows, title: str, caption: str) -> Iterator[Plot]:
    """One for each factorisation and mode."""
    for kind in dict.fromkeys(map(kind_of, rows)):
        own = [row for row in rows if kind_of(row) == kind]
        yield Plot("-".join((name, *kind)), make, own, f"{title}: {', '.join(kind)}", caption)


def _maps(rows: Rows) -> Iterator[Plot]:
    """One for each factorisation, way and mode that has numbers."""
    for way, title in WAYS.items():
        found = [row for row in rows if row["case"]["way"] == way and drawn([row])]
        for method, mode in dict.fromkeys(map(kind_of, found)):
            own = [row for row in found if kind_of(row) == (method, mode)]
            said = "; ".join(
                f"{above} / {below} above 1: {PAIRS[above, below]}" for above, below in drawn(own)
            )
            yield Plot(
                f"map-{method}-{way}-{mode}",
                break_even,
                own,
                f"Contract or materialise: {method}, {title}, {mode}",
                f"Ratios of times. {said}. Thick lines are where they break even.",
            )
