"""The paper's figures, drawn from results; each gives a picture as PNG bytes."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .stats import Estimate, Row, by_layer, estimate, mean_of, paired

# Okabe and Ito's colours, which colour-blind readers tell apart.
_COLOURS = {
    "STL": "#555555",
    "UD-MTL-Large": "#56B4E9",
    "UD-MTL-1": "#000000",
    "UD-MTL-2": "#CC79A7",
    "UD-MTL": "#0072B2",
    "DMTRL-LAF": "#E69F00",
    "DMTRL-Tucker": "#009E73",
    "DMTRL-TT": "#D55E00",
    "codes only": "#D55E00",
    "from scratch": "#555555",
    "fine-tuned": "#0072B2",
}
_MARKERS = "osD^vP"
BARS = "Bars are 95 % intervals; means over fewer than three seeds have none."
_FEWEST = 3  # seeds: with two, Student's t gives 9 standard deviations, and the bar hides all others


def curves(
    rows: Sequence[Row],
    methods: Mapping[str, str],
    measures: Mapping[str, str],
    axis: str,
    values: Mapping[float, float] | None = None,
    base: str = "",
) -> bytes:
    """Error against the fraction of images; ``methods`` and ``measures``: names in results and in print.

    With ``base`` there is one panel more: paired differences from that method, by the first measure.
    """
    fractions = sorted({row["fraction"] for row in rows})
    places = {fraction: (values or {}).get(fraction, 100 * fraction) for fraction in fractions}
    panels = [(title, _means(rows, list(methods), fractions, measure)) for measure, title in measures.items()]
    if base:
        others = [name for name in methods if name != base]
        title = f"points below {base} (more is better)"
        panels.append((title, _differences(rows, others, fractions, next(iter(measures)), base)))
    figure = Figure(figsize=(4.6 * len(panels), 3.8), layout="constrained")
    for number, (title, found) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), number)
        for n, (method, label) in enumerate(methods.items()):
            beside = {f: place * 1.02 ** (n - len(methods) // 2) for f, place in places.items()}
            if found.get(method):
                _curve(axes, beside, found[method], label, _MARKERS[n % len(_MARKERS)])
        _dress(axes, places, axis, title)
        if base and number == len(panels):
            axes.axhline(0, color=_COLOURS.get(base, "#555555"), lw=1)
    _legend(figure)
    return _png(figure)


def _means(
    rows: Sequence[Row], methods: Sequence[str], fractions: Sequence[float], measure: str
) -> dict[str, dict[float, Estimate]]:
    return {m: {f: e for f in fractions if (e := mean_of(rows, m, f, measure))} for m in methods}


def _differences(
    rows: Sequence[Row], methods: Sequence[str], fractions: Sequence[float], measure: str, base: str
) -> dict[str, dict[float, Estimate]]:
    return {m: {f: e for f in fractions if (e := paired(rows, m, base, f, measure))} for m in methods}


def sharing_bars(
    rows: Sequence[Row], methods: Sequence[str], fraction: float, measure: str, title: str
) -> bytes:
    """How much each layer shares, mean over seeds and its interval, a group of bars for each layer."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(methods)
    names: list[str] = []
    for n, method in enumerate(methods):
        layers = {k: e for k, v in by_layer(rows, method, fraction, measure).items() if (e := estimate(v))}
        names = list(layers) or names
        places = np.arange(len(layers)) + (n - (len(methods) - 1) / 2) * width
        heights = [found.mean for found in layers.values()]
        axes.bar(places, heights, width, label=method, color=_COLOURS[method])
        axes.errorbar(places, heights, _halves(layers.values()), fmt="none", ecolor="black", capsize=2, lw=1)
        for place, found in zip(places, layers.values(), strict=True):
            top = found.mean if math.isnan(found.half) else found.high
            axes.annotate(
                f"{found.mean:.3f}", (place, top), (0, 2), textcoords="offset points", ha="center", fontsize=7
            )
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel(title)
    axes.set_ylim(0, 1.1)
    _legend(figure)
    return _png(figure)


def characters(titles: Sequence[str], lines: Mapping[str, Sequence[tuple[str, Any]]]) -> bytes:
    """Sample characters of pairs of alphabets: ``{line: [(name, images (n, 105, 105)), ...]}``.

    Each of the titles stands above two of a line's alphabets.
    """
    figure = Figure(figsize=(5.2 * len(titles), 0.6 * len(lines) + 0.4), layout="constrained")
    for column, (title, part) in enumerate(
        zip(titles, figure.subfigures(1, len(titles), squeeze=False)[0], strict=True)
    ):
        part.suptitle(title, fontsize=10)
        grid = part.subplots(len(lines), 2, squeeze=False)
        for (line, alphabets), cells in zip(lines.items(), grid, strict=True):
            pair = alphabets[2 * column : 2 * column + 2]
            for axes, (name, images) in zip(cells, pair, strict=True):
                axes.imshow(np.hstack(list(1 - images)), cmap="gray", vmin=0, vmax=1)
                axes.set_title(name, fontsize=7, pad=2)
                axes.set(xticks=[], yticks=[], frame_on=False)
            if column == 0:
                cells[0].set_ylabel(line, fontsize=8, rotation=0, ha="right", va="center")
    return _png(figure)


def _curve(
    axes: Any, places: Mapping[float, float], found: Mapping[float, Estimate], label: str, marker: str
) -> None:
    x = [places[fraction] for fraction in found]
    means = [e.mean for e in found.values()]
    colour = next((c for name, c in _COLOURS.items() if label.startswith(name)), None)
    style = {"marker": marker, "markersize": 4, "capsize": 2, "lw": 1.3, "color": colour}
    axes.errorbar(x, means, _halves(found.values()), label=label, **style)


def _halves(found: Iterable[Estimate]) -> list[float]:
    """Half the lengths of bars; what is not a number is not drawn."""
    return [e.half if e.count >= _FEWEST else math.nan for e in found]


def _dress(axes: Any, places: Mapping[float, float], axis: str, title: str) -> None:
    axes.set_xscale("log")
    axes.set_xticks(list(places.values()), [f"{place:g}" for place in places.values()])
    axes.minorticks_off()
    axes.set_xlabel(axis)
    axes.set_ylabel(title)
    axes.grid(alpha=0.3)


def _legend(figure: Figure) -> None:
    """One for all panels, above them, so that it covers nothing."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, frameon=False, fontsize=8, ncols=3, loc="outside upper center")


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    return stream.getvalue()
