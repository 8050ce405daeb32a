"""Finished runs, on the disk at once: a run that is killed loses nothing but itself."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEY = ("method", "fraction", "seed", "protocol")


class Runs:
    """Lines of JSON in a file, one for each finished run; several processes may add to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[dict[str, Any]]:
        """All runs, the last of each method, fraction, seed and protocol; a line cut short is no run."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(row, dict) and set(KEY) <= row.keys():
                found[key_of(row)] = row
        return list(found.values())

    def has(self, **key: Any) -> bool:
        """Whether a run is finished."""
        return key_of(key) in {key_of(row) for row in self.rows()}

    def add(self, row: Mapping[str, Any]) -> None:
        """One more finished run, on the disk before this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(row, sort_keys=True, allow_nan=False)
        with self.path.open("ab+") as file, _locked(file):
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            torn = size > 0 and file.read(1) != b"\n"  # another process was killed while it wrote
            file.write((b"\n" if torn else b"") + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells runs apart."""
    return tuple(row[name] for name in KEY)


def digest(settings: Mapping[str, Any]) -> str:
    """A short name for settings: runs with other settings are other runs."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def write_whole(path: Path, text: str) -> None:
    """A file that is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


@contextmanager
def _locked(file: Any) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
