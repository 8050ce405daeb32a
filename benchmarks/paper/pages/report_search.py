"""The part of the page that is about settings: what was tried, on which images, and what was the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import html
from .sections import MULTI
from .stats import Row, best_setting, mean_of

SEARCHES = ("-validation", "-search")  # by --folds, and by hand
_HELD_OUT = {
    "mnist-search": "error on 3,000 other training images",
    "omniglot-search": "error on training drawings of seed 0 that were held out, by hand",
    "omniglot-validation": "cross-validation on the training drawings of seed 100",
    "new-tasks-search": "error on the test drawings of seed 100, a split that no final run has",
}
_USUAL = "cross-validation on training images of draws that no final run has"


def searched(name: str, found: Mapping[str, Any]) -> str:
    """Every setting that was tried, rates and eps in columns of their own, the best of each method bold."""
    rows: Sequence[Row] = found["runs"]
    fractions = sorted({row["fraction"] for row in rows})
    names = sorted({row["method"] for row in rows}, key=lambda n: _order(n, found))
    best = {
        (_parts(n, found)[0], f): best_setting(rows, n.partition(", ")[0], f, MULTI)
        for n in names
        for f in fractions
    }
    lines: list[list[str | html.Cell]] = []
    for each in names:
        method, rate, eps, others = _parts(each, found)
        means = [mean_of(rows, each, fraction, MULTI) for fraction in fractions]
        cells: list[str | html.Cell] = [
            html.Cell(f"{mean.mean:.2f}", "best" if best[method, fraction] == each else "")
            if mean
            else html.Cell("", "")
            for fraction, mean in zip(fractions, means, strict=True)
        ]
        draws = str(max(mean.count for mean in means if mean))
        lines.append([method, rate, eps, others, draws, *cells])
    titles = ["method", "rate", "eps", "besides", "draws", *(f"{100 * f:g} %" for f in fractions)]
    return html.table(f"{name}: {_HELD_OUT.get(name, _USUAL)}; bold: the lowest of a method", titles, lines)


def _parts(name: str, found: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Of "method, rate 0.001, eps 0.2, more": all four; an eps that is not in the name is in the settings."""
    method, *settings = name.split(", ")
    known = {
        word: s.removeprefix(f"{word} ") for word in ("rate", "eps") for s in settings if s.startswith(word)
    }
    others = ", ".join(s for s in settings if not s.startswith(("rate ", "eps ")))
    about = found.get("protocol", {}).get(name)
    share = about.get("method", {}).get("share", {}) if isinstance(about, Mapping) else {}
    eps = known.get("eps") or (f"{share['eps']:g}" if "eps" in share else "")
    return method, known.get("rate", ""), eps, others


def _order(name: str, found: Mapping[str, Any]) -> tuple[str, str, float, float]:
    method, rate, eps, others = _parts(name, found)
    return method, others, float(eps or 0), float(rate or 0)
