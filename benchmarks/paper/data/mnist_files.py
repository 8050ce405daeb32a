"""MNIST, from the four official idx files."""

from __future__ import annotations

import gzip
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tnshare as tn

from .fetching import Official, official

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Digits:
    """Images (n, 28, 28) of bytes with labels (n,), for training and for the test."""

    images: Array
    labels: Array
    test_images: Array
    test_labels: Array


def mnist(where: Path) -> Digits:
    """MNIST from ``where``/mnist, fetched if need be; files may be unpacked already."""
    read = [_read(where / "mnist", name, md5) for name, md5 in _MD5.items()]
    for images, labels in (read[:2], read[2:]):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise tn.TnshareError(f"images {images.shape} and labels {labels.shape} do not belong together")
    return Digits(*read)


def read_idx(data: bytes) -> Array:
    """The array in an idx file of bytes: 0, 0, type 8, rank, sizes of four bytes, values."""
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise tn.TnshareError(f"this is no idx file of bytes: it starts with {data[:4].hex()}")
    rank = data[3]
    sizes = struct.unpack_from(f">{rank}I", data, 4) if len(data) >= 4 + 4 * rank else ()
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * len(sizes))
    if len(sizes) != rank or values.size != math.prod(sizes):
        raise tn.TnshareError(f"an idx file of sizes {sizes} has {values.size} values: it is cut short")
    return values.reshape(sizes)


def _read(where: Path, name: str, md5: str) -> Array:
    plain = where / name.removesuffix(".gz")
    if plain.exists():
        return read_idx(plain.read_bytes())
    path = official(where, Official(name, md5, [mirror + name for mirror in _MIRRORS]))
    return read_idx(gzip.decompress(path.read_bytes()))
