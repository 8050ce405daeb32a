"""How many rows are computed at a time where all of them at once need too much memory."""

from __future__ import annotations

import math
from collections.abc import Callable


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
