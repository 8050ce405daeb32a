"""Finished runs as the file of results that is published."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from benchmarks.records import commit, machine

from .store import Runs, write_whole


def collect(runs: Runs, protocol: Mapping[str, Any], digests: Collection[str]) -> None:
    """Write all runs of some settings, with these, the commit and the machine."""
    rows = [row for row in runs.rows() if row["protocol"] in digests]
    rows.sort(key=lambda row: (row["fraction"], row["method"], row["seed"]))
    found = {**commit(), "machine": machine(), "protocol": protocol, "runs": rows}
    write_whole(runs.results, json.dumps(found, indent=1) + "\n")
