"""What runs where all rows at once need too much memory, and how many rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from tnshare.errors import TnshareError
from tnshare.network import Network

from ._job import AnyOption
from ._steps import count
from .devices._profile import Profile

Option = TypeVar("Option", bound=AnyOption)


def fastest_within(
    options: Sequence[Option],
    rows: int,
    limit: int,
    peak_bytes: Callable[[Option, int], int],
    in_parts: Callable[[Option, int], float],
    what: str,
) -> tuple[Option, int]:
    """The fastest option that stays within ``limit`` bytes, and how many rows it takes at a time; 0 for all.

    ``peak_bytes`` gives what is alive at once for so many of the rows at a time, ``in_parts`` how many
    seconds all rows take then. ``what`` the rows are is told where nothing fits.
    """
    most = max(rows, 1)
    best: tuple[float, Option, int] | None = None
    for option in options:
        part = largest_part(most, partial(peak_bytes, option), limit)
        if not part:
            continue
        seconds = option.seconds if part == most else in_parts(option, part)
        if best is None or seconds < best[0]:
            best = seconds, option, part
    if best is None:
        smallest = min(peak_bytes(option, part) for option in options for part in (most, 1))
        raise TnshareError(
            f"memory_limit={limit} is too little for {rows} rows {what}: the smallest that works is "
            f"{smallest} bytes"
        )
    _, option, part = best
    return option, part % most


def largest_part(rows: int, needed: Callable[[int], int], limit: int) -> int:
    """As many rows at a time as the limit allows, so that parts are few; 0 if not even one row fits.

    All parts have about as many. Fewer rows must need no more than many: only all of them at once, which are
    no part, may need less.
    """
    if needed(rows) <= limit:
        return rows
    fits, fails = 0, rows
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if needed(middle) <= limit else (fits, middle)
    return fits and math.ceil(rows / math.ceil(rows / fits))


def seconds_in_parts(
    network: Network, profile: Profile, parts: int, training: bool, once: Callable[[bool], float]
) -> float:
    """Seconds of so many parts, of which ``once`` gives those of one, with its backward pass or without.

    When training, a part is computed forwards twice, and its gradients are added to those of the others.
    """
    seconds = once(training)
    if training:
        seconds += once(False)
        seconds += sum(profile.stream(count(node.axes, network.sizes)) for node in network.nodes)
    return seconds * parts
