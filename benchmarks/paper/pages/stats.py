"""Means over seeds, and paired differences with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student  # type: ignore[import-untyped]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Estimate:
    """A mean over ``count`` seeds, and half the width of its 95 % interval: NaN for a single seed."""

    mean: float
    half: float
    count: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.half

    def __str__(self) -> str:
        return format(self, ".2f")

    def __format__(self, spec: str) -> str:
        """Both numbers by a format such as ``.3f``, by that of `str` if it is empty."""
        spec = spec or ".2f"
        return format(self.mean, spec) + ("" if math.isnan(self.half) else f" ± {self.half:{spec}}")

    @property
    def beyond_chance(self) -> bool | None:
        """Whether the interval leaves 0 out; None with one seed."""
        return None if math.isnan(self.half) else self.low > 0 or self.high < 0


def estimate(values: Sequence[float]) -> Estimate | None:
    """By Student's t: with five seeds the half width is 1.24 standard deviations."""
    if not values:
        return None
    count = len(values)
    if count == 1:
        return Estimate(float(values[0]), math.nan, 1)
    spread = float(np.std(values, ddof=1)) / math.sqrt(count)
    return Estimate(float(np.mean(values)), float(student.ppf(0.975, count - 1)) * spread, count)


def by_seed(rows: Sequence[Row], method: str, fraction: float, measure: str) -> dict[int, float]:
    """What was measured of a method, for each seed."""
    return {
        row["seed"]: row[measure]
        for row in rows
        if row["method"] == method and row["fraction"] == fraction and measure in row
    }


def mean_of(rows: Sequence[Row], method: str, fraction: float, measure: str) -> Estimate | None:
    """The mean over seeds; None where there is no run."""
    return estimate(list(by_seed(rows, method, fraction, measure).values()))


def paired(rows: Sequence[Row], ours: str, other: str, fraction: float, measure: str) -> Estimate | None:
    """The mean of ``other - ours`` over the seeds that both have: above zero, ours is better."""
    mine, theirs = (by_seed(rows, name, fraction, measure) for name in (ours, other))
    return estimate([theirs[seed] - mine[seed] for seed in mine if seed in theirs])


def by_layer(rows: Sequence[Row], method: str, fraction: float, measure: str) -> dict[str, list[float]]:
    """What was measured of each layer, run by run in the order of the rows."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["method"] == method and row["fraction"] == fraction:
            for layer, value in row.get(measure, {}).items():
                found.setdefault(layer, []).append(value)
    return found


def fall(rows: Sequence[Row], method: str, fraction: float, measure: str) -> Estimate | None:
    """The mean of the first layer's value minus the last one's, paired: those of the same run."""
    layers = list(by_layer(rows, method, fraction, measure).values())
    return estimate([a - b for a, b in zip(layers[0], layers[-1], strict=True)]) if layers else None


def best_setting(rows: Sequence[Row], method: str, fraction: float, measure: str) -> str | None:
    """Of runs called "method" or "method, setting": the name with the lowest mean."""
    tried = dict.fromkeys(r["method"] for r in rows if r["method"].partition(", ")[0] == method)
    return best_of(rows, list(tried), fraction, measure)


def chosen_by(rows: Sequence[Row], methods: Sequence[str], fraction: float, measure: str) -> str | None:
    """The method that cross-validation prefers: the one whose best setting has the lowest mean."""
    tried = [name for method in methods if (name := best_setting(rows, method, fraction, measure))]
    best = best_of(rows, tried, fraction, measure)
    return best.partition(", ")[0] if best else None


def best_of(rows: Sequence[Row], methods: Sequence[str], fraction: float, measure: str) -> str | None:
    """The method with the lowest mean, of those that have runs."""
    means = {name: found.mean for name in methods if (found := mean_of(rows, name, fraction, measure))}
    return min(means, key=means.__getitem__) if means else None
