"""AdienceFaces, from the published fold files and the aligned faces; its authors hand them out on request."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import tnshare as tn

AGES = ((0, 2), (4, 6), (8, 13), (15, 20), (25, 32), (38, 43), (48, 53), (60, 100))
GENDERS = ("f", "m")
UNKNOWN = -1
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Face:
    """A face of a fold: its file, its age group (0 to 7) and gender (0, 1), or -1 where not labelled."""

    path: Path
    age: int
    gender: int


def adience(where: Path, folds: Sequence[int]) -> list[Face]:
    """The faces of some of the five folds in ``where``/adience: fold_<k>_data.txt, aligned/<user>/..."""
    home = where / "adience"
    return [face for fold in folds for face in _fold(home, fold)]


def pixels(face: Face, size: int) -> Array:
    """A face as size x size x 3 bytes: scaled to 256 / 227 of that, as Levi and Hassner do, then cropped."""
    larger = round(size * 256 / 227)
    with Image.open(face.path) as image:
        scaled = image.convert("RGB").resize((larger, larger), Image.Resampling.BILINEAR)
    edge = (larger - size) // 2
    return np.asarray(scaled)[edge : edge + size, edge : edge + size]


def age_group(text: str) -> int:
    """The group of a label such as "(25, 32)" or "35".

    The files have misprints, as "(8, 23)" and "(38, 48)", and single years. The first number decides; one
    between two groups has none.
    """
    number = re.search(r"\d+", text)
    years = int(number[0]) if number else UNKNOWN
    return next((k for k, (low, high) in enumerate(AGES) if low <= years <= high), UNKNOWN)


def _fold(home: Path, fold: int) -> list[Face]:
    table = home / f"fold_{fold}_data.txt"
    if not table.exists():
        raise tn.TnshareError(
            f"{table.name} is not in the folder adience of the data folder: AdienceFaces is handed out by "
            "its authors on request; put the fold files there, and the aligned faces below adience/aligned"
        )
    faces = []
    with table.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            name = f"landmark_aligned_face.{row['face_id']}.{row['original_image']}"
            path = home / "aligned" / row["user_id"] / name
            gender = GENDERS.index(row["gender"]) if row["gender"] in GENDERS else UNKNOWN
            faces.append(Face(path, age_group(row["age"]), gender))
    return faces
