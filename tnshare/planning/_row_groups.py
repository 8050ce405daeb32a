"""Rows sorted by task, so that each task multiplies its rows at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tnshare.ops import NDArray


@dataclass(frozen=True)
class Groups:
    """Where rows go: group ``g`` is the rows ``rows[g * longest : (g + 1) * longest]``.

    Short groups are filled up with their own first row, so that no number of one task, not even a NaN, meets
    another. ``back`` is the place of each row among all groups. ``present`` are the ids of the groups, one
    array for each task axis.
    """

    present: tuple[NDArray, ...]
    rows: NDArray
    back: NDArray
    longest: int


def group(ids: Sequence[NDArray], task_shape: tuple[int, ...], everyone: bool = False) -> Groups | None:
    """Sort rows by task; with ``everyone``, tasks without a row are groups of some row.

    None if that is mostly padding: rows are better left as they come.
    """
    flat = ids[0] if len(ids) == 1 else np.ravel_multi_index(tuple(ids), task_shape)
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat, minlength=int(np.prod(task_shape)) if everyone else 0)
    present = np.arange(len(counts)) if everyone else np.flatnonzero(counts)
    counts = counts[present]
    longest = int(counts.max())
    if mostly_padding(longest * len(present), len(flat)):
        return None
    starts = np.cumsum(counts) - counts
    within = np.arange(longest)
    places = starts[:, None] + np.where(within < counts[:, None], within, 0)  # (groups, longest)
    places[counts == 0] = 0
    back = np.empty(len(flat), np.int64)
    sizes = np.repeat(starts, counts)
    positions = np.repeat(np.arange(len(present)) * longest, counts) + np.arange(len(flat)) - sizes
    back[order] = positions
    own = np.unravel_index(present, task_shape) if len(task_shape) > 1 else (present,)
    return Groups(tuple(own), order[places].reshape(-1), back, longest)


def padded(rows: int, groups: int) -> int:
    """About how many places groups of one length have, if tasks come at random."""
    return groups * longest_group(rows, groups)


def longest_group(rows: int, groups: int) -> int:
    """About how many rows the task with the most has, if tasks come at random."""
    mean = rows / groups
    return min(rows, math.ceil(mean + 2 * math.sqrt(mean)))


def mostly_padding(places: int, rows: int) -> bool:
    """Whether so many places are too many for so few rows."""
    return places > 4 * rows + 64
