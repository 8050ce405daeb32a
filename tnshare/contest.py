"""The candidates of a call that a framework traces, and which of them runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .runners import Runner
from .tune import measured


@dataclass(frozen=True)
class Contest:
    """The candidates that are worth timing, by name, the best prediction first.

    Their times are kept under ``key``; ``make`` gives the function of a candidate, ``text`` its code.
    """

    key: dict[str, Any]
    candidates: Mapping[str, Any]
    make: Callable[[Any], Runner]
    text: Callable[[Any], str]

    @property
    def chosen(self) -> Any:
        """The fastest by what was measured before, or else by the profile."""
        seconds = measured(self.key, self.candidates)
        name = min(seconds, key=seconds.__getitem__) if seconds else next(iter(self.candidates))
        return self.candidates[name]
