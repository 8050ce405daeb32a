"""Finished runs, on the disk at once: a run that is killed loses nothing but itself."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measuring import result_files
from benchmarks.measuring.records import commit
from tnshare.errors import TnshareError

KEY = ("method", "fraction", "seed", "protocol")


def read(path: Path) -> dict[str, Any]:
    """A file of results, with runs."""
    found = result_files.read(path)
    runs, needed = found.get("runs"), KEY[:3]
    if not isinstance(runs, list):
        raise TnshareError(
            f"{path.name} must be a file of results with 'runs': found {', '.join(found) or 'nothing'}"
        )
    if not all(isinstance(row, dict) and row.keys() >= {*needed} for row in runs):
        raise TnshareError(f"{path.name} must have runs with {', '.join(needed)}: found one without")
    return found


class Runs:
    """Lines of JSON in a file, one for each finished run; several processes may add to it.

    What the file of results has is finished too: results that were published need not be run again.
    """

    def __init__(self, path: Path, results: Path) -> None:
        self.path, self.results = path, results
        found = commit()  # of now: there may be another one when a run is finished
        self.about = found if found["dirty"] else {"commit": found["commit"]}

    def rows(self) -> list[dict[str, Any]]:
        """All runs of the results and of the store: the last of each method, fraction, seed and protocol."""
        stored = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        known = read(self.results)["runs"] if self.results.exists() else []
        return list({key_of(row): row for row in (*known, *_whole(stored))}.values())

    def has(self, **key: Any) -> bool:
        """Whether a run is finished."""
        return key_of(key) in {key_of(row) for row in self.rows()}

    def add(self, row: Mapping[str, Any]) -> None:
        """One more finished run and the commit it is of, on the disk before this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({**row, **self.about}, sort_keys=True, allow_nan=False)
        with self.path.open("ab+") as file, locked(file.fileno()):
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            torn = size > 0 and file.read(1) != b"\n"  # another process was killed while it wrote
            file.write((b"\n" if torn else b"") + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _whole(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The runs on lines that were not cut short."""
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict) and set(KEY) <= row.keys():
            yield row


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells runs apart."""
    return tuple(row[name] for name in KEY)


def digest(settings: Mapping[str, Any]) -> str:
    """A short name for settings: runs with other settings are other runs."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Other processes that ask for the same file or folder wait until this is done."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
