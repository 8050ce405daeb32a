"""The file itself, a safetensors: what is in it is known and checked before a number is read."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from tnshare.errors import TnshareError
from tnshare.ops import NDArray

from ._foreign_json import LONGEST, DamagedError, check_form, parsed, shown

BLOCK = 1 << 20  # bytes for which there is one sum, in whole rows
MOST_AXES = 64  # which is what NumPy's arrays can have

_DTYPES = {"BOOL": "bool", "F16": "float16", "F32": "float32", "F64": "float64"}
_DTYPES |= {f"{a}{bits}": f"{b}int{bits}" for a, b in (("I", ""), ("U", "u")) for bits in (8, 16, 32, 64)}
NATIVE = frozenset(_DTYPES.values())  # what is stored as it is; anything else as bytes

# How files of other makers begin that one may take for ours.
_MAKERS = {
    b"PK\x03\x04": "a zip archive, as torch.save and numpy.savez write",
    b"\x93NUMPY": "an array of numpy.save",
    b"\x89HDF": "an HDF5 file",
    b"GGUF": "a GGUF file",
    b"\x80": "a pickle",
}


@dataclass(frozen=True)
class Stored:
    """Where an array is: its dtype and shape as stored, and the bytes of the file from ``start``."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def read(self, file: BinaryIO, rows: int, sums: Sequence[str]) -> NDArray:
        """Its numbers; every ``rows`` of them along the first axis must have their sum, if it has any."""
        from hashlib import sha256  # here, as `import tnshare` is to be quick

        array = np.empty(self.shape, self.dtype)
        flat = array.reshape(-1).view(np.uint8).data
        file.seek(self.start)
        step = rows * (self.size // max(self.shape[0], 1)) if self.shape else self.size
        for number in range(block_count(self.shape, rows)):
            block = flat[number * step : (number + 1) * step]
            if file.readinto(block) != len(block):  # type: ignore[attr-defined]
                raise DamagedError("it ends too early")
            if sums and sha256(block).hexdigest() != sums[number]:
                raise DamagedError("its checksum does not fit")
        if self.dtype == "bool" and flat.nbytes and array.view(np.uint8).max() > 1:
            raise DamagedError("an array of True and False has other values")
        return array


@dataclass(frozen=True)
class Container:
    """The header of a file: text by name, and where its arrays are."""

    file: BinaryIO
    metadata: dict[str, str]
    stored: dict[str, Stored]

    @staticmethod
    def of(name: str, file: BinaryIO) -> Container:
        """Read and check the header; the numbers are not touched."""
        size, first = os.fstat(file.fileno()).st_size, file.read(8)
        length = int.from_bytes(first, "little")
        maker = next((what for start, what in _MAKERS.items() if first.startswith(start)), "")
        if len(first) < 8 or length > min(size - 8, LONGEST) or file.read(1) != b"{":
            detail = maker or "it has no header of a safetensors file"
            raise TnshareError(f"{name!r} is damaged or not a tnshare file: {detail}")
        try:
            header = parsed(b"{" + file.read(length - 1))
            metadata = header.pop("__metadata__", {})
            check_form(metadata, dict, ((), "__metadata__"))
            if not isinstance(metadata.get("tnshare"), str):
                raise TnshareError(
                    f"{name!r} is a safetensors file, but not one that tnshare.save wrote: it may be "
                    "somebody else's checkpoint, which safetensors itself loads"
                )
            return Container(file, metadata, _table(header, 8 + length, size))
        except DamagedError as error:
            raise TnshareError(f"{name!r} is damaged or not a tnshare file: {error}") from None

    def read(self, key: str, dtype: str, rows: int, sums: Sequence[str]) -> NDArray:
        """An array in its own dtype, which may be one that is stored as bytes."""
        stored = self.stored[key].read(self.file, rows, sums)
        if dtype in NATIVE:
            return stored
        return stored.view(np.dtype(dtype)).reshape(stored.shape[:-1])


_ENTRY = {"dtype": str, "shape": [int], "data_offsets": [int]}


def _table(header: dict[str, Any], start: int, size: int) -> dict[str, Stored]:
    """Where each array is; they follow one another without a gap, and fill the file."""
    found, ends = {}, []
    for key, entry in header.items():
        check_form(entry, _ENTRY, ((), key))
        dtype, shape = _DTYPES.get(entry["dtype"]), tuple(entry["shape"])
        if dtype is None or len(shape) > MOST_AXES:
            raise DamagedError(
                f"an array of {shown(entry['dtype'])} with {len(shape)} axes is none of NumPy's"
            )
        begin, end = entry["data_offsets"] if len(entry["data_offsets"]) == 2 else (0, -1)
        found[key] = Stored(dtype, shape, start + begin)
        if end - begin != found[key].size:
            raise DamagedError(f"array {shown(key)} takes another number of bytes than its shape")
        ends.append((begin, end))
    ends.sort()
    if [end for _, end in ends[:-1]] != [begin for begin, _ in ends[1:]] or (
        (ends[0][0], start + ends[-1][1]) != (0, size) if ends else start != size
    ):
        raise DamagedError("its arrays overlap, or do not fill it")
    return found


def block_rows(shape: tuple[int, ...], itemsize: int) -> int:
    """The rows along the first axis that take about 1 MB."""
    row = math.prod(shape[1:]) * itemsize
    return max(1, min(shape[0] if shape else 1, BLOCK // max(row, 1)))


def block_count(shape: tuple[int, ...], rows: int) -> int:
    """How many blocks of rows an array has."""
    return -(-shape[0] // rows) if shape else 1
