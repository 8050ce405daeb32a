"""What an operation costs on a device: a profile of it, measured here or named."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache, partial
from typing import Any, Literal

from tnshare.errors import TnshareError

# Rows, inner axis and columns of the products that a profile knows the speed of; others lie in between.
GRID = (1, 2, 8, 32, 128, 512)
# Bytes read and written by the passes over arrays that a profile knows the speed of: caches, then memory.
SIZES = tuple(2**power for power in (12, 15, 18, 20, 22, 24, 26))
_SIDE, _CUBE = len(GRID), len(GRID) ** 3
# Whether the left, the right operand is a transposed view, in the order of a profile's tables.
_LAYOUTS = ((False, False), (False, True), (True, False), (True, True))
_BYTES = 4  # of a number: profiles are of single precision


@dataclass(frozen=True)
class Profile:
    """How fast a device is: what a call costs and a view, a byte by the size of arrays, a flop by shape.

    ``bandwidth`` is bytes a second, read and written, in passes over ``SIZES`` bytes in order; ``turning``
    the same of copies into another order. ``single`` are flops a second of the products of two matrices,
    ``GRID`` x ``GRID`` x ``GRID`` (rows, inner, columns), and ``stacked`` of two stacks of matrices. Either
    may have four such tables: for both operands in order, the right one turned (a transposed view), the left
    one, and both.
    """

    name: str
    source: str
    call: float
    view: float
    bandwidth: tuple[float, ...]
    turning: tuple[float, ...]
    single: tuple[float, ...]
    stacked: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, counts in _COUNTS.items():
            numbers = getattr(self, name)
            fits = isinstance(numbers, tuple) and len(numbers) in counts and all(map(_is_real, numbers))
            if not fits or not all(0 < number < math.inf for number in numbers):
                expected = " or ".join(map(str, counts))
                raise TnshareError(
                    f"{name} of the profile {self.name!r} must be {expected} positive numbers: "
                    f"found {_shortened(numbers)}"
                )
        times = self.call, self.view
        if not all(map(_is_real, times)) or not (0 < self.call < math.inf and 0 <= self.view < math.inf):
            raise TnshareError(
                f"call of the profile {self.name!r} must be positive, view not negative: "
                f"found call={self.call!r}, view={self.view!r}"
            )

    def __hash__(self) -> int:
        return hash((self.name, self.call, self.bandwidth))  # plans are looked up by profile at every call

    @classmethod
    def roofline(
        cls, name: str, *, peak: float, bandwidth: float, call: float, source: str, view: float = 1.5e-6
    ) -> Profile:
        """A device known by its published figures alone: thin products are bound by what they read."""
        passes, rates = (bandwidth,) * len(SIZES), (peak,) * _CUBE
        return cls(name, source, call, view, passes, passes, rates, rates)

    def product(
        self,
        batch: int,
        rows: int,
        inner: int,
        columns: int,
        spread: bool | Literal["left", "right"] = False,
        turned: tuple[bool, bool] = (False, False),
    ) -> float:
        """Seconds for a batch of products (rows x inner) (inner x columns); a batch of 1 is two matrices.

        ``spread``: this operand is the same for all items and is read once (True: it is not known which, and
        the smaller one is assumed). ``turned``: the left, the right operand is a transposed view.
        """
        logs = self._logs[batch > 1]
        layout = (2 * turned[0] + turned[1]) * _CUBE if len(logs) > _CUBE else 0
        flops = 2 * batch * rows * inner * columns
        computed = flops / math.exp(_between(logs, layout, rows, inner, columns))
        left, right, result = rows * inner, inner * columns, rows * columns
        moved = batch * (left + right + result)
        if spread:
            once = left if spread == "left" else right if spread == "right" else min(left, right)
            moved -= (batch - 1) * once
        return self.call + max(computed, self._seconds(self._passes[0], _BYTES * moved))

    def outer(self, batch: int, rows: int, columns: int) -> float:
        """Seconds for a batch of outer products, entry by entry."""
        return self.call + self._seconds(self._passes[0], _BYTES * batch * (rows + columns + rows * columns))

    def stream(self, elements: int) -> float:
        """Seconds for an elementwise pass in order, say the sum of two arrays of so many elements."""
        return self.call + self._seconds(self._passes[0], 3 * _BYTES * elements)

    def copy(self, elements: int) -> float:
        """Seconds for turning an array into another order, in which another axis is the innermost."""
        return self.call + self._seconds(self._passes[1], 2 * _BYTES * elements)

    def to_json(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, value: Any) -> Profile:
        """The profile that ``to_json`` made this of."""
        names = {field.name for field in fields(cls)}
        if not isinstance(value, Mapping) or set(value) != names:
            raise TnshareError(f"a profile has the entries {sorted(names)}: found {_shortened(value)}")
        texts = [value[name] for name in ("name", "source")]
        numbers = [[value["call"], value["view"]], *(value[name] for name in _COUNTS)]
        if not all(isinstance(text, str) for text in texts) or not all(map(_is_numbers, numbers)):
            raise TnshareError(
                f"a profile has a name and a source, and numbers otherwise: found {_shortened(value)}"
            )
        return cls(*texts, *map(float, numbers[0]), *(tuple(map(float, table)) for table in numbers[1:]))

    @cached_property
    def _logs(self) -> tuple[list[float], list[float]]:
        return [math.log(rate) for rate in self.single], [math.log(rate) for rate in self.stacked]

    @cached_property
    def _passes(self) -> tuple[list[float], list[float]]:
        return [math.log(speed) for speed in self.bandwidth], [math.log(speed) for speed in self.turning]

    @staticmethod
    def _seconds(speeds: list[float], moved: int) -> float:
        low, part = _among_sizes(moved)
        return moved / math.exp(speeds[low] + part * (speeds[low + 1] - speeds[low]))


def check_profile(value: Any) -> Profile:
    """Refuse what is no profile, such as the name of one."""
    if not isinstance(value, Profile):
        raise TnshareError(
            f"a device must be a tnshare.Profile, as tnshare.planning.PROFILES[name]: found {value!r}"
        )
    return value


_COUNTS = {
    "bandwidth": (len(SIZES),),
    "turning": (len(SIZES),),
    "single": (_CUBE, 4 * _CUBE),
    "stacked": (_CUBE, 4 * _CUBE),
}


def _is_numbers(values: Any) -> bool:
    """Whether these are numbers that fit into a float: JSON has whole numbers of any length."""
    return isinstance(values, list) and all(
        type(value) is float or (type(value) is int and abs(value) < 10**300) for value in values
    )


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _grid_position(points: tuple[int, ...], size: int) -> tuple[int, float]:
    """The place of a size among the points: the one below it, and how far it is on the way to the next."""
    low = min(max(bisect_right(points, size) - 1, 0), len(points) - 2)
    part = math.log(max(size, 1) / points[low]) / math.log(points[low + 1] / points[low])
    return low, min(max(part, 0.0), 1.0)


_on_grid = lru_cache(maxsize=4096)(partial(_grid_position, GRID))
_among_sizes = lru_cache(maxsize=4096)(partial(_grid_position, SIZES))


def _between(logs: list[float], start: int, rows: int, inner: int, columns: int) -> float:
    """The logarithm at a place of the grid, between those of the eight points around it."""
    (i, up), (j, right), (k, back) = _on_grid(rows), _on_grid(inner), _on_grid(columns)
    n = start + (i * _SIDE + j) * _SIDE + k
    m = n + _SIDE * _SIDE
    a, b = logs[n], logs[n + _SIDE]
    c, d = logs[m], logs[m + _SIDE]
    a, b = a + back * (logs[n + 1] - a), b + back * (logs[n + _SIDE + 1] - b)
    c, d = c + back * (logs[m + 1] - c), d + back * (logs[m + _SIDE + 1] - d)
    low, high = a + right * (b - a), c + right * (d - c)
    return low + up * (high - low)
