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
        return f"{self.mean:.2f}" + ("" if math.isnan(self.half) else f" ± {self.half:.2f}")


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


def best_of(rows: Sequence[Row], methods: Sequence[str], fraction: float, measure: str) -> str | None:
    """The method with the lowest mean, of those that have runs."""
    means = {name: found.mean for name in methods if (found := mean_of(rows, name, fraction, measure))}
    return min(means, key=means.__getitem__) if means else None
