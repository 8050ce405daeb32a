"""Rows sorted by task, so that each task multiplies its rows at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tnshare.ops import NDArray


@dataclass(frozen=True)
class RowGroups:
    """Rows sorted by task: ``order`` brings them together, ``counts`` are how many each group has.

    ``present`` are the ids of the groups, one array for each task axis.
    """

    present: tuple[NDArray, ...]
    counts: NDArray
    order: NDArray

    @classmethod
    def of(cls, ids: Sequence[NDArray], task_shape: tuple[int, ...], everyone: bool = False) -> RowGroups:
        """The groups of the tasks that have rows; with ``everyone``, of all."""
        if any(v.size and (v.min() < 0 or v.max() >= n) for v, n in zip(ids, task_shape, strict=True)):
            raise IndexError("a task id is out of range")  # the caller finds out which
        flat = ids[0].astype(np.intp) if len(ids) == 1 else np.ravel_multi_index(tuple(ids), task_shape)
        counts = np.bincount(flat, minlength=math.prod(task_shape) if everyone else 0)
        present = np.arange(len(counts)) if everyone else np.flatnonzero(counts)
        own = np.unravel_index(present, task_shape) if len(task_shape) > 1 else (present,)
        return cls(tuple(own), counts[present], np.argsort(flat, kind="stable"))

    @cached_property
    def places(self) -> NDArray:
        """Where each row is among the sorted ones."""
        places = np.empty(len(self.order), np.int64)
        places[self.order] = np.arange(len(self.order))
        return places


@dataclass(frozen=True)
class Groups:
    """Groups of one length: group ``g`` is the rows ``rows[g * longest : (g + 1) * longest]``.

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
    found = RowGroups.of(ids, task_shape, everyone)
    counts, order = found.counts, found.order
    longest = int(counts.max())
    if mostly_padding(longest * len(counts), len(order)):
        return None
    starts = np.cumsum(counts) - counts
    within = np.arange(longest)
    places = starts[:, None] + np.where(within < counts[:, None], within, 0)  # (groups, longest)
    places[counts == 0] = 0
    shifts = np.arange(len(counts)) * longest - starts  # of a group, by the padding before it
    back = found.places + np.repeat(shifts, counts)[found.places]
    return Groups(found.present, order[places].reshape(-1), back, longest)


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
