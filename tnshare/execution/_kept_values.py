"""What depends on factors alone, kept between calls for as long as no factor changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tnshare.planning import MOST_KEPT_NUMBERS


@dataclass(frozen=True)
class _Entry:
    """What was prepared, and the marks of the arrays that it was prepared from.

    The aliases own the memory that the arrays had then: as long as they live, no other array can come to lie
    at the same address. The arrays themselves are not held, since torch swaps only what nobody else holds.
    """

    marks: tuple[Any, ...]
    aliases: tuple[Any, ...]
    value: Any
    numbers: int

    def agrees(self, other: _Entry) -> bool:
        """Whether the arrays that both were prepared from are the same; one may have the bias in addition."""
        return all(a == b for a, b in zip(self.marks, other.marks, strict=False))


class Kept:
    """A keeper: prepared values by key, each valid while its factors are the same arrays with the same marks.

    ``mark`` gives something that differs whenever an array's numbers do, or None where that cannot be told;
    ``alias`` an array that owns the same memory. When more than ``most`` numbers are kept, the oldest go.
    Threads may use it at the same time: an entry is never changed, and marks are read before values.
    """

    def __init__(
        self, mark: Callable[[Any], Any], alias: Callable[[Any], Any], most: int = MOST_KEPT_NUMBERS
    ) -> None:
        self.mark, self.alias, self.most = mark, alias, most
        self._entries: dict[Any, _Entry] = {}

    def __call__(self, key: Any, factors: Sequence[Any], prepare: Callable[[], Any]) -> Any:
        """What is kept under the key, or else what ``prepare`` makes, which is kept then."""
        marks = self._marks(factors)
        entry = self._entries.get(key)
        if entry is not None and entry.marks == marks:
            return entry.value
        value = self._made(prepare)
        if all(known is not None for _, known in marks):
            aliases = tuple(self.alias(factor) for factor in factors)
            self._keep(key, _Entry(marks, aliases, value, _numbers(value)))
        return value

    def _marks(self, factors: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
        mark = self.mark
        return tuple([(id(factor), mark(factor)) for factor in factors])

    def _made(self, prepare: Callable[[], Any]) -> Any:
        return prepare()

    def empty(self) -> Kept:
        """Another one of the same kind, with nothing in it."""
        return type(self)(self.mark, self.alias, self.most)

    def drop(self) -> None:
        """Forget everything."""
        self._entries = {}

    def __len__(self) -> int:
        return len(self._entries)

    def _keep(self, key: Any, entry: _Entry) -> None:
        if entry.numbers > self.most:
            return
        # What was prepared from arrays that have changed since would be of no use, and hold their memory.
        entries = {k: e for k, e in list(self._entries.items()) if k != key and e.agrees(entry)}
        total = entry.numbers + sum(e.numbers for e in entries.values())
        for old in list(entries):
            if total <= self.most:
                break
            total -= entries.pop(old).numbers
        entries[key] = entry
        self._entries = entries

    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        return self.empty()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.mark, self.alias, self.most)


def _numbers(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(map(_numbers, value))
    return 0 if value is None else math.prod(value.shape)
