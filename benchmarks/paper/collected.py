"""Finished runs as the file of results that is published."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measuring.records import commit, machine
from benchmarks.measuring.whole_files import write_whole

from .finished_runs import Runs, key_of, locked, read


def collect(runs: Runs, protocol: Mapping[str, Any], digests: Collection[str]) -> None:
    """Write all runs of some settings, with these, and the commit and machine of now.

    A file that has them all already is left as it is: nothing was run on this machine at this commit.
    """
    with _alone(runs.results.parent):  # who reads first must also write first
        old = read(runs.results) if runs.results.exists() else {"runs": []}
        rows = [row for row in runs.rows() if row["protocol"] in digests]
        if {key_of(row) for row in rows} <= {key_of(row) for row in old["runs"]}:
            return
        rows.sort(key=lambda row: (row["fraction"], row["method"], row["seed"]))
        note = {"note": old["note"]} if "note" in old else {}
        found = {**commit(), "machine": machine(), **note, "protocol": protocol, "runs": rows}
        write_whole(runs.results, json.dumps(found, indent=1) + "\n")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A folder can be locked as a file can, which leaves no lock file among the results."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with locked(descriptor):
            yield
    finally:
        os.close(descriptor)
