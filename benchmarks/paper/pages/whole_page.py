"""All results on one page, beside the paper's own figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring.whole_files import write_whole
from benchmarks.paper.finished_runs import read
from benchmarks.paper.training.methods import STL

from . import claims, html, paper_figures, published
from .report_alphabets import alphabets, new_alphabets
from .report_digits import digits, in_jax, kept
from .report_search import SEARCHES, searched
from .stats import Row, mean_of


def write(results: Path) -> Path:
    """The report on what is in a folder of results."""
    found = {path.stem: read(path) for path in sorted(results.glob("*.json"))}
    rows = {name: each["runs"] for name, each in found.items()}
    parts = [
        html.paragraph(
            "Errors in per cent, means over seeds with 95 % intervals (Student's t; of two seeds they are "
            "wide by themselves). Differences are paired: the same images, the same seed. All methods of an "
            "experiment take the same number of steps, and single-task networks are given those of the "
            "second stage too. Rates were chosen by cross-validation on the images of a fraction, of draws "
            "that no run here has (digits: at 1 % for all fractions but 1,000 images; alphabets: at 10 %); "
            "not every method was given as many settings, see the tables of searches. The best hard sharing "
            "is the best of these runs: it is favoured."
        ),
        *digits(found),
        in_jax(rows.get("mnist-jax", []), rows.get("mnist", [])),
        kept(rows.get("ratios", [])),
        *alphabets(rows.get("omniglot", []), rows.get("omniglot-validation", []), results),
        *new_alphabets(rows.get("new-tasks", [])),
        *_adience(rows.get("adience", [])),
        html.heading("What was searched"),
        *(searched(name, found[name]) for name in found if name.endswith(SEARCHES)),
        html.heading("Settings, commits and machines"),
        *(_protocol(name, each) for name, each in found.items()),
    ]
    path = results / "report.html"
    write_whole(path, html.page("The paper's experiments, run again with tnshare", parts))
    return path


def _adience(rows: Sequence[Row]) -> list[str]:
    """Errors of both tasks, as means over seeds."""
    heading = html.heading("AdienceFaces: age and gender")
    if not rows:
        text = (
            "The faces are handed out by their authors on request, and were not at hand: the loader and the "
            "network are tested on made images in the official layout, and nothing was measured."
        )
        return [heading, html.paragraph(text)]
    tasks = ("age", "gender")
    each = [{**row, **dict(zip(tasks, row["task_errors"], strict=True))} for row in rows]
    lines = []
    for name, part in dict.fromkeys((row["method"], row["fraction"]) for row in each):
        found = [mean_of(each, name, part, task) for task in tasks]
        seeds = str(found[0].count if found[0] else 0)
        lines.append([name, f"{100 * part:g} %", seeds, *map(str, found)])
    run = {row["method"] for row in each}
    shown = {name: name for name in (STL, published.HARD["adience"], *claims.SOFT) if name in run}
    picture = paper_figures.curves(each, shown, {t: f"error of {t}, %" for t in tasks}, "training images, %")
    return [
        heading,
        html.picture(f"Error against the part of the faces. {paper_figures.BARS}", picture),
        html.table("Error of each task", ["method", "images", "seeds", *tasks], lines),
    ]


def _protocol(name: str, found: Mapping[str, Any]) -> str:
    about = {key: found[key] for key in ("commit", "dirty", "note", "machine", "protocol") if key in found}
    runs = found["runs"]
    timed = [row["cpu_seconds"] for row in runs if "cpu_seconds" in row]
    hours = f"{sum(timed) / 3600:.2f} hours of one processor core" if timed else "hours not recorded"
    return html.details(f"{name}: {len(runs)} runs, {hours}", json.dumps(about, indent=1))
