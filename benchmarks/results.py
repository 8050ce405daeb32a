"""Result files: what was measured, on what, at which commit. None is ever overwritten by another run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tnshare.errors import TnshareError

from . import records

Result = dict[str, Any]


def write(folder: Path, stem: str, result: Mapping[str, Any]) -> tuple[Path, str]:
    """Write ``<stem>.json``; what is there of another run is kept under the name of its commit."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.json"
    text = as_json(result)
    note = ""
    if path.exists() and path.read_bytes() != text.encode():
        kept = _free(folder, f"{stem}-{label_of(path)}")
        path.rename(kept)
        note = f"; the results that were there are kept as {kept.name}"
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return path, note


def read(path: Path) -> Result:
    """A result file, of any benchmark."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TnshareError(f"{path.name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TnshareError(f"{path.name} must be a file of results, in JSON: {error}") from None
    if not isinstance(found, dict):
        raise TnshareError(f"{path.name} must be a file of results: found a {type(found).__name__} in it")
    return found


def read_suites(path: Path) -> Result:
    """A result file that has suites, and says what they were measured on."""
    found = read(path)
    for part in ("commit", "machine", "settings", "suites"):
        if not isinstance(found.get(part), dict):
            raise TnshareError(
                f"{path.name} must be a file of results with {part!r}: found {', '.join(found) or 'nothing'}"
            )
    return found


def label_of(path: Path) -> str:
    """The commit of a result file, as in names of files."""
    try:
        return records.label(read_suites(path)["commit"])
    except TnshareError:
        return "damaged"


def as_json(result: Mapping[str, Any]) -> str:
    """Readable, a line for each measurement, numbers to four digits, which is more than is known."""
    parts = []
    for name, rows in result["suites"].items():
        lines = ",\n".join("   " + json.dumps(rounded(row)) for row in rows)
        parts.append(f"  {json.dumps(name)}: [\n{lines}\n  ]")
    head = json.dumps({k: v for k, v in result.items() if k != "suites"}, indent=1)[:-2]
    return f'{head},\n "suites": {{\n' + ",\n".join(parts) + "\n }\n}\n"


def rounded(value: Any) -> Any:
    """Numbers to four digits, at any depth."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value


def _free(folder: Path, name: str) -> Path:
    """A name that no file has."""
    names = [f"{name}.json", *(f"{name}-{n}.json" for n in range(2, 1000))]
    return next(folder / free for free in names if not (folder / free).exists())
