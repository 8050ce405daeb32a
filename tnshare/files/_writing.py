"""What a file says of its numbers, format 2: the arrays, their sums, and what they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from tnshare.checks import printable
from tnshare.decomposition import Decomposition
from tnshare.errors import TnshareError
from tnshare.network import LAF, METHODS
from tnshare.ops import NDArray

from ._container import NATIVE, block_count, block_rows
from ._state import Constant, Keys, Saved, State

# What NumPy has beyond what safetensors stores, ml_dtypes' kinds among it.
STORED_AS_BYTES = re.compile(r"complex(64|128|192|256)|(b?float|u?int)[0-9][0-9a-z_]*")


@dataclass
class Arrays:
    """The arrays of a file that is being written, each under a running number."""

    stored: dict[str, NDArray] = field(default_factory=dict)
    described: list[dict[str, Any]] = field(default_factory=list)

    def put(self, name: str, array: Any) -> int:
        """Store an array; returns its number."""
        plain, dtype = _plain(name, array)
        rows = block_rows(plain.shape, plain.dtype.itemsize)
        sums = _sums(plain, rows)
        shape = plain.shape if dtype in NATIVE else plain.shape[:-1]
        self.described.append({"dtype": dtype, "shape": shape, "rows": rows, "sums": sums})
        self.stored[str(len(self.stored))] = plain
        return len(self.stored) - 1


def described(given: Any, arrays: Arrays) -> dict[str, Any]:
    """What is written about a state, an entry, or a dict of entries; its arrays are put among the others."""
    if isinstance(given, State):
        content = {
            "holds": "state",
            "entries": _describe_all(given.entries, arrays),
            "tasks": len(given.tasks),
            "own": _describe_own(given.tasks, arrays),
            "names": [printable("names", name) for name in given.names],
            "constants": [
                {"name": printable("names", name), **_describe_constant(name, values, arrays)}
                for name, values in given.constants.items()
            ],
        }
    else:
        single = not isinstance(given, Mapping)
        entries = {"": given} if single else given
        content = {"holds": "entry" if single else "dict", "entries": _describe_all(entries, arrays)}
    return {"format": 2, **content, "arrays": arrays.described}


def _describe_all(entries: Mapping[str, Saved], arrays: Arrays) -> list[dict[str, Any]]:
    return [_describe(printable("names", name), value, arrays) for name, value in entries.items()]


def _describe(name: str, value: Saved, arrays: Arrays) -> dict[str, Any]:
    if not isinstance(value, Decomposition):
        return {"name": name, "kind": "array", "array": arrays.put(name, value)}
    spec, network = value.spec, value.network
    if METHODS.get(spec.method) is not type(spec):
        raise TnshareError(f"a factorisation of one's own cannot be saved: found {type(spec).__name__}")
    factors = {key: arrays.put(f"{name}/{key}", array) for key, array in value.factors.items()}
    found = {key: np.shape(array) for key, array in value.factors.items()}
    if found != network.shapes:
        raise TnshareError(
            f"factors of the shapes {network.shapes} were expected under {name!r}: found {found}"
        )
    entry: dict[str, Any] = {
        "name": name,
        "kind": "decomposition",
        "method": spec.method,
        "ranks": spec.ranks,
        "output": network.output,
        "tasks": network.tasks,
        "error": repr(float(value.error)),
        "deviation_error": repr(float(value.deviation_error)),
        "factors": [
            {"name": node.name, "axes": node.axes, "shape": node.shape, "array": factors[node.name]}
            for node in network.nodes
        ],
    }
    codes = spec.codes if isinstance(spec, LAF) else None
    if codes is not None:
        given = np.frombuffer(codes.data)
        entry["codes"] = {"kind": codes.kind, "array": arrays.put(f"{name}/codes", given)}
    return entry


def _describe_own(tasks: Sequence[Mapping[str, Saved]], arrays: Arrays) -> dict[str, Any]:
    """What tasks have of their own: stacked, task axis first, where they have the same; else task by task."""
    names = list(tasks[0]) if tasks else []
    if any(list(task) != names for task in tasks):
        return {"apart": [_describe_all(task, arrays) for task in tasks]}
    found = []
    for name in names:
        values = [task[name] for task in tasks]
        if _alike(values):
            found.append({"name": printable("names", name), "array": arrays.put(name, np.stack(values))})
        else:
            found.append(
                {"name": printable("names", name), "each": [_describe("", v, arrays) for v in values]}
            )
    return {"stacked": found}


def _alike(values: Sequence[Any]) -> TypeGuard[Sequence[NDArray]]:
    """Whether these are arrays of one shape and dtype."""
    first = values[0]
    return all(
        type(v) in (np.ndarray, np.memmap) and (v.shape, v.dtype) == (first.shape, first.dtype)
        for v in values
    )


def _describe_constant(name: str, values: Sequence[Constant], arrays: Arrays) -> dict[str, Any]:
    """What JSON holds itself as it is, arrays and keys by where their numbers are."""
    keys = {value.implementation if isinstance(value, Keys) else None for value in values}
    numbers = [value.numbers if isinstance(value, Keys) else value for value in values]
    if len(keys) == 1 and len(values) > 1 and _alike(numbers):
        (implementation,) = keys
        kept = {} if implementation is None else {"keys": implementation}
        return {"array": arrays.put(name, np.stack(numbers)), **kept}

    def one(value: Constant) -> dict[str, Any]:
        if isinstance(value, bool | int | float | str):
            return {"value": value}
        if isinstance(value, Keys):
            return {"keys": value.implementation, "array": arrays.put(name, value.numbers)}
        return {"array": arrays.put(name, value)}

    return {"values": [one(value) for value in values]}


def _plain(name: str, array: Any) -> tuple[NDArray, str]:
    """A copy of the numbers alone, in order, in this machine's byte order; and the name of their dtype."""
    under = f" under {name!r}" if name else ""
    if type(array) not in (np.ndarray, np.memmap):  # a mask or units of another kind of array would be lost
        kind = type(array).__name__
        raise TnshareError(
            f"save takes a Decomposition, a NumPy array, a dict of them, or a state: found {kind}{under}"
        )
    dtype = array.dtype.newbyteorder("=")
    native = dtype.name in NATIVE
    if not native and not STORED_AS_BYTES.fullmatch(dtype.name):
        raise TnshareError(f"arrays of dtype {array.dtype} cannot be saved: found one{under}")
    plain = np.array(array, dtype=dtype, order="C", subok=False)
    if not native:
        plain = np.frombuffer(plain.tobytes(), np.uint8).reshape(*plain.shape, dtype.itemsize)
    return plain, dtype.name


def _sums(array: NDArray, rows: int) -> list[str]:
    from hashlib import sha256  # here, as `import tnshare` is to be quick

    table, count = np.atleast_1d(array), block_count(array.shape, rows)
    return [
        sha256(table[n * rows : (n + 1) * rows].reshape(-1).view(np.uint8).data).hexdigest()
        for n in range(count)
    ]
