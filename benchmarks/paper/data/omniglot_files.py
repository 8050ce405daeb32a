"""Omniglot, from the two official archives or from one packed file, a bit a pixel."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

import tnshare as tn
from benchmarks.measuring.whole_files import beside

from .fetching import Official, official

_MIRROR = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
_MD5 = {
    "images_background.zip": "68d2efa1b9178cc56df9314c21c6e718",
    "images_evaluation.zip": "6b91aef0f799c5bb55b94e3f2daec811",
}
_PACKED = "omniglot_105_packed.npz"
SIZE = 105
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Alphabets:
    """Drawings of characters, one row each: packed pixels (1 is ink), and what is drawn by whom."""

    packed: Array  # (n, 1379) bytes of eight pixels
    alphabet: Array
    character: Array  # within its alphabet, from 0
    drawer: Array
    names: tuple[str, ...]

    def images(self, rows: Array) -> Array:
        """Pixels (rows, 105, 105), 0 or 1."""
        pixels = np.unpackbits(self.packed[rows], axis=1, count=SIZE * SIZE)
        return pixels.reshape(-1, SIZE, SIZE)

    def characters(self, alphabet: int) -> int:
        """How many characters an alphabet has."""
        return int(self.character[self.alphabet == alphabet].max()) + 1


def omniglot(where: Path) -> Alphabets:
    """Omniglot from ``where``/omniglot; the packed file is written there once the archives were read."""
    home = where / "omniglot"
    if not (home / _PACKED).exists():
        archives = [official(home, Official(name, md5, (_MIRROR + name,))) for name, md5 in _MD5.items()]
        _save(home / _PACKED, pack(archives))
    with np.load(home / _PACKED) as stored:
        names = tuple(str(name) for name in stored["alphabet_names"])
        columns = [stored[key] for key in ("images_packed", "alphabet", "character", "drawer")]
        return Alphabets(columns[0], columns[1], columns[2], columns[3], names)


def pack(archives: list[Path]) -> Alphabets:
    """The drawings of official archives: alphabets by name, those of the first archive first."""
    rows, names, packed = [], [], []
    for archive in archives:
        with zipfile.ZipFile(archive) as stored:
            for alphabet, character, drawer, name in sorted(_entries(stored)):
                if alphabet not in names:
                    names.append(alphabet)
                image = Image.open(io.BytesIO(stored.read(name))).convert("L")
                if image.size != (SIZE, SIZE):
                    raise tn.TnshareError(f"{name} is an image of {image.size}: expected 105 x 105")
                packed.append(np.packbits(np.asarray(image).reshape(-1) < 128))  # 0 is ink in these files
                rows.append((names.index(alphabet), character - 1, drawer - 1))
    alphabet, character, drawer = np.asarray(rows, dtype=np.uint8).T
    return Alphabets(np.stack(packed), alphabet, character, drawer, tuple(names))


def _entries(stored: zipfile.ZipFile) -> Iterator[tuple[str, int, int, str]]:
    """Alphabet, character and drawer of each drawing: .../Greek/character07/0394_12.png."""
    for name in stored.namelist():
        path = PurePosixPath(name)
        if path.suffix == ".png":
            character = int(path.parent.name.removeprefix("character"))
            yield path.parent.parent.name, character, int(path.stem.split("_")[1]), name


def _save(path: Path, data: Alphabets) -> None:
    with beside(path) as part, part.open("wb") as stream:
        np.savez(
            stream,
            images_packed=data.packed,
            alphabet=data.alphabet,
            character=data.character,
            drawer=data.drawer,
            alphabet_names=np.asarray(data.names),
        )
