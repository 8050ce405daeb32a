"""Figures of a result, each with its caption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from .bars import roofline, ways
from .curves import growing, scaling, time_and_memory
from .looks import WAYS, Rows
from .maps import break_even, kind_of
from .text import memory


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
    apply = suites.get("apply", [])
    yield from _maps([row for row in apply if row["kind"] == "map"])
    yield Plot(
        "ways",
        ways,
        [row for row in apply if row["kind"] == "way"],
        "What one would use instead, by way of choosing tasks",
        "Geometric means over the factorisations; above 1 tnshare is faster.",
    )
    yield Plot(
        "scale",
        scaling,
        [row for row in suites.get("scale", []) if row["kind"] == "scale"],
        "Cost against the number of tasks",
        "1,024 rows of different tasks. Lines end where weights need more memory than a program may use.",
    )
    yield Plot(
        "memory",
        time_and_memory,
        [row for row in suites.get("memory", []) if row["kind"] == "memory"],
        "Time against memory",
        "Parameters, gradients, what is kept and all else but input and output; down and left is better.",
    )
    yield Plot(
        "mixed",
        growing,
        suites.get("mixed", []),
        "Rows of mixed tasks, as rows and tasks grow",
        "A training step divided by its rows.",
    )
    yield Plot(
        "roofline",
        roofline,
        suites.get("roofline", []),
        "How far from what the machine allows",
        "1 is what the flops take at the speed of a large product, or the bytes, whichever is longer.",
    )


def _maps(rows: Rows) -> Iterator[Plot]:
    """One for each factorisation, way and mode."""
    for kind in dict.fromkeys(map(kind_of, rows)):
        method, way, mode = kind
        yield Plot(
            f"map-{method}-{way}-{mode}",
            break_even,
            [row for row in rows if kind_of(row) == kind],
            f"Contract or materialise: {method}, {WAYS[way]}, {mode}",
            "Above 1 contracting the input with the factors is faster; below 1 composing the weights is.",
        )
