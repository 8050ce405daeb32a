"""Results that are kept while a long run goes on, and what they were measured on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .whole_files import write_whole

ROOT = Path(__file__).resolve().parents[2]
_MEASURED = ("tnshare", "backends", "benchmarks")
_RESULTS = "benchmarks/results"
RESULTS = ROOT / _RESULTS


class Records:
    """Lines of JSON in a file, one a measurement; one that was cut short is dropped, and measured again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(row, dict) and {"suite", "name"} <= row.keys():
                self.rows.append(row)
        if len(self.rows) < len(lines) or (lines and not path.read_bytes().endswith(b"\n")):
            self._write_all()

    def done(self, budget: float) -> set[tuple[str, str]]:
        """The suite and name of what was measured with that many seconds, and without an error."""
        good = (row for row in self.rows if "error" not in row and row["budget"] == budget)
        return {(row["suite"], row["name"]) for row in good}

    def add(self, row: Mapping[str, Any]) -> None:
        """One more measurement, on the disk before this returns; it takes the place of one that failed."""
        self.rows = [old for old in self.rows if _key(old) != _key(row)] + [dict(row)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, suite: str, budget: float) -> list[dict[str, Any]]:
        """What was measured of a suite with that many seconds: the last of each name."""
        own = (row for row in self.rows if (row["suite"], row.get("budget")) == (suite, budget))
        return list({row["name"]: row for row in own}.values())

    def _write_all(self) -> None:
        write_whole(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))


def kept_in(folder: Path, kind: str, at: Mapping[str, Any], under: Mapping[str, Any]) -> Records:
    """What was measured at a commit and under the same conditions, the date apart: they name the file."""
    told = json.dumps({name: value for name, value in under.items() if name != "date"}, sort_keys=True)
    digest = hashlib.sha256(told.encode()).hexdigest()[:8]
    return Records(folder / f"{kind}-{label(at)}-{digest}.jsonl")


def commit() -> dict[str, Any]:
    """The commit, whether what is measured differs from it, and if so a digest of what is measured.

    Outside of a repository, as in an archive of it, the commit is "unknown", and everything may differ.
    """
    head = _git("rev-parse", "HEAD")
    dirty = head is None or bool(_git("status", "--porcelain", "--", *_MEASURED, f":!{_RESULTS}"))
    found: dict[str, Any] = {"commit": head or "unknown", "dirty": dirty}
    if dirty:
        digest = hashlib.sha256()
        for folder in _MEASURED:
            for path in sorted((ROOT / folder).rglob("*.py")):
                digest.update(path.read_bytes())
        found["digest"] = digest.hexdigest()[:8]
    return found


def label(found: Mapping[str, Any]) -> str:
    """A short name of a commit, for files."""
    changes = f"-dirty-{found['digest']}" if found["dirty"] else ""
    return f"{found['commit'][:12]}{changes}"


def machine(device: str = "cpu", backend: str = "torch") -> dict[str, Any]:
    """What was measured on; nothing that says whose it is."""
    packages = ("numpy", "torch", "jax", "opt_einsum", "tensorly-torch", "peft", "tnshare")
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    gpus = {"torch": _gpu_of_torch, "jax": _gpu_of_jax}
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(pages * size / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        **({"gpu": gpus[backend](device)} if device.startswith("cuda") else {}),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _gpu_of_torch(device: str) -> dict[str, Any]:
    import torch

    found = torch.cuda.get_device_properties(device)
    return {
        "model": found.name,
        "memory_gib": round(found.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
    }


def _gpu_of_jax(device: str) -> dict[str, Any]:
    """Of the memory it says what JAX may use."""
    import jax

    found = jax.devices("gpu")[int(device.partition(":")[2] or 0)]
    size = (found.memory_stats() or {}).get("bytes_limit")
    return {"model": found.device_kind, "memory_gib": None if size is None else round(size / 2**30, 1)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        found = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):  # there is no git, or no repository
        return None
    return found.stdout.strip()


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["suite"], row["name"], row.get("budget")
