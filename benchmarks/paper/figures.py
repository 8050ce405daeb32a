"""The paper's figures, drawn from results; each gives a picture as PNG bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .stats import Estimate, Row, mean_of

# Okabe and Ito's colours, which colour-blind readers tell apart; one for each family of methods.
_COLOURS = {
    "STL": "#555555",
    "UD-MTL": "#0072B2",
    "DMTRL-LAF": "#E69F00",
    "DMTRL-Tucker": "#009E73",
    "DMTRL-TT": "#D55E00",
    "codes only": "#D55E00",
    "from scratch": "#555555",
    "fine-tuned": "#0072B2",
}
_MARKERS = "osD^vP"


def curves(
    rows: Sequence[Row],
    methods: Mapping[str, str],
    measures: Mapping[str, str],
    axis: str,
    values: Mapping[float, float] | None = None,
) -> bytes:
    """Error against the fraction of images; ``methods`` and ``measures``: names in results and in print."""
    figure = Figure(figsize=(4.6 * len(measures), 3.6), layout="constrained")
    fractions = sorted({row["fraction"] for row in rows})
    places = {fraction: (values or {}).get(fraction, 100 * fraction) for fraction in fractions}
    for number, (measure, title) in enumerate(measures.items(), start=1):
        axes = figure.add_subplot(1, len(measures), number)
        for n, (method, label) in enumerate(methods.items()):
            found = {f: e for f in fractions if (e := mean_of(rows, method, f, measure))}
            if found:
                beside = {f: place * 1.02 ** (n - len(methods) // 2) for f, place in places.items()}
                _curve(axes, beside, found, label, _MARKERS[n % len(_MARKERS)])
        axes.set_xscale("log")
        axes.set_xticks(list(places.values()), [f"{place:g}" for place in places.values()])
        axes.minorticks_off()
        axes.set_xlabel(axis)
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if number == 1 and axes.has_data():
            axes.legend(frameon=False, fontsize=8)
    return _png(figure)


def sharing_bars(
    rows: Sequence[Row],
    methods: Sequence[str],
    layers: Sequence[str],
    fraction: float,
    measure: str,
    title: str,
) -> bytes:
    """How much each layer shares, mean over seeds, a group of bars for each layer."""
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(methods)
    for n, method in enumerate(methods):
        found = [
            r[measure] for r in rows if r["method"] == method and r["fraction"] == fraction and measure in r
        ]
        if found:
            heights = [float(np.mean([each[layer] for each in found])) for layer in layers]
            places = np.arange(len(layers)) + (n - (len(methods) - 1) / 2) * width
            axes.bar(places, heights, width, label=method, color=_COLOURS[method])
    axes.set_xticks(range(len(layers)), layers)
    axes.set_ylabel(title)
    axes.set_ylim(0, 1.05)
    if axes.has_data():
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return _png(figure)


def characters(pairs: Mapping[str, Sequence[tuple[str, Any]]]) -> bytes:
    """Sample characters of pairs of alphabets: ``{title: [(name, images (n, 105, 105)), ...]}``."""
    figure = Figure(figsize=(4.4 * len(pairs), 2.6), layout="constrained")
    for column, (title, alphabets) in enumerate(pairs.items()):
        for line, (name, images) in enumerate(alphabets):
            axes = figure.add_subplot(2, len(pairs), line * len(pairs) + column + 1)
            axes.imshow(np.hstack(list(1 - images)), cmap="gray", vmin=0, vmax=1)
            axes.set_title(f"{title}: {name}" if line == 0 else name, fontsize=8)
            axes.set_axis_off()
    return _png(figure)


def _curve(
    axes: Any, places: Mapping[float, float], found: Mapping[float, Estimate], label: str, marker: str
) -> None:
    x = [places[fraction] for fraction in found]
    halves = [0.0 if np.isnan(e.half) else e.half for e in found.values()]
    colour = next((c for name, c in _COLOURS.items() if label.startswith(name)), None)
    means = [e.mean for e in found.values()]
    axes.errorbar(x, means, halves, label=label, marker=marker, markersize=4, capsize=2, lw=1.3, color=colour)


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    return stream.getvalue()
