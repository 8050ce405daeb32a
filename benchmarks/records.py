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

ROOT = Path(__file__).resolve().parents[1]
_MEASURED = ("tnshare", "backends")


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
        key = (row["suite"], row["name"])
        self.rows = [old for old in self.rows if (old["suite"], old["name"]) != key] + [dict(row)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, suite: str) -> list[dict[str, Any]]:
        """What was measured of a suite: the last of each name."""
        latest = {row["name"]: row for row in self.rows if row["suite"] == suite}
        return list(latest.values())

    def _write_all(self) -> None:
        whole = self.path.with_suffix(".part")
        whole.write_text("".join(json.dumps(row) + "\n" for row in self.rows), encoding="utf-8")
        whole.replace(self.path)


def commit() -> dict[str, Any]:
    """The commit, whether what is measured differs from it, and if so a digest of what is measured."""
    head = _git("rev-parse", "HEAD")
    dirty = bool(_git("status", "--porcelain", "--", *_MEASURED))
    found: dict[str, Any] = {"commit": head, "dirty": dirty}
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


def machine(device: str = "cpu") -> dict[str, Any]:
    """What was measured on; nothing that says whose it is."""
    packages = ("numpy", "torch", "jax", "opt_einsum", "tensorly-torch", "peft", "tnshare")
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(pages * size / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        **({"gpu": _gpu(device)} if device.startswith("cuda") else {}),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _gpu(device: str) -> dict[str, Any]:
    import torch

    found = torch.cuda.get_device_properties(device)
    return {
        "model": found.name,
        "memory_gib": round(found.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return found.stdout.strip()
