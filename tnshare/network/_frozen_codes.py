"""Task codes that are given and frozen rather than learnt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tnshare.checks import check_numbers, whole
from tnshare.errors import TnshareError

_KINDS = ("identity", "ones", "ones_and_identity", "given")


@dataclass(frozen=True, repr=False)
class FrozenCodes:
    """Codes ``S`` (K x T) that training leaves alone, kept as a rule, or as bytes if they are given."""

    kind: str
    rank: int
    data: bytes = field(default=b"")

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise TnshareError(
                f"frozen codes of the kind {self.kind!r} are not known: expected one of {_KINDS}"
            )
        whole("the rank of frozen codes", self.rank)
        if not isinstance(self.data, bytes) or len(self.data) % (8 * self.rank):
            raise TnshareError(
                f"frozen codes of {self.rank} rows must be whole numbers of float64 in bytes, as "
                f"FrozenCodes.given makes them: found {self.data!r:.60}"
            )

    @classmethod
    def identity(cls, tasks: int) -> FrozenCodes:
        """``S = I``."""
        return cls("identity", whole("tasks", tasks))

    @classmethod
    def ones(cls) -> FrozenCodes:
        """``S = [1 ... 1]``."""
        return cls("ones", 1)

    @classmethod
    def ones_and_identity(cls, tasks: int) -> FrozenCodes:
        """``S = [1; I]``."""
        return cls("ones_and_identity", whole("tasks", tasks) + 1)

    @classmethod
    def given(cls, codes: np.ndarray[Any, Any]) -> FrozenCodes:
        """Any real codes (K x T)."""
        if isinstance(codes, np.ma.MaskedArray):
            check_numbers("frozen codes", codes)
        try:
            array = np.asarray(codes)
        except ValueError:  # rows of different lengths
            array = np.empty((), object)
        if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "fiu":
            raise TnshareError(f"frozen codes must be a real K x T matrix: found {array.dtype} {array.shape}")
        values = np.ascontiguousarray(array, np.float64)
        if not np.isfinite(values).all():
            raise TnshareError("frozen codes must be finite: found NaN or infinity")
        return cls("given", len(values), values.tobytes())

    @property
    def groups(self) -> dict[str, slice]:
        """The rows that all tasks use, and those that single tasks use."""
        return {
            "identity": {"specific": slice(0, None)},
            "ones": {"shared": slice(0, 1)},
            "ones_and_identity": {"shared": slice(0, 1), "specific": slice(1, None)},
        }.get(self.kind, {})

    def check_tasks(self, tasks: int) -> None:
        """Refuse a number of tasks that these codes are not made for."""
        made_for = {"identity": self.rank, "ones": tasks, "ones_and_identity": self.rank - 1}
        expected = made_for.get(self.kind, len(self.data) // (8 * self.rank))
        if tasks != expected:
            raise TnshareError(
                f"frozen codes ({self.kind}) of {expected} tasks cannot serve {tasks} tasks: "
                "make them for the number of tasks of the network"
            )

    def array(self, tasks: int) -> np.ndarray[Any, Any]:
        """The codes of that many tasks, K x T."""
        self.check_tasks(tasks)
        if self.kind == "identity":
            return np.eye(tasks)
        if self.kind == "ones":
            return np.ones((1, tasks))
        if self.kind == "ones_and_identity":
            return np.vstack([np.ones((1, tasks)), np.eye(tasks)])
        return np.frombuffer(self.data).reshape(self.rank, tasks)

    def __repr__(self) -> str:
        return self.kind
