"""Result files: what was measured, on what, at which commit. Every run has a name of its own.

Those that documents cite are copies under a short name, which only people make: see CONTRIBUTING.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tnshare.errors import TnshareError

from . import records
from .whole_files import write_whole

Result = dict[str, Any]
_ABOUT: dict[str, Sequence[str]] = {
    "commit": ("commit", "dirty"),
    "machine": ("date", "cpu", "cores", "memory_gib", "python", "versions"),
}


def write(folder: Path, stem: str, result: Mapping[str, Any]) -> Path:
    """Write ``<stem>-<commit>.json``, or with a number after it where another run has that name."""
    text = as_json(result)
    path = _free(folder, f"{stem}-{records.label(result['commit'])}", text)
    write_whole(path, text)
    return path


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


def read_suites(path: Path, settings: Sequence[str] = ("threads",)) -> Result:
    """A result file that has suites, and says what they were measured on, and by which ``settings``."""
    found = read(path)
    for part, names in {**_ABOUT, "settings": settings, "suites": ()}.items():
        known = found.get(part)
        if not isinstance(known, dict):
            raise TnshareError(
                f"{path.name} must be a file of results with {part!r}: found {', '.join(found) or 'nothing'}"
            )
        missing = [name for name in names if name not in known]
        if missing:
            raise TnshareError(
                f"{path.name} must be a file of results of this command, with {missing[0]!r} in {part!r}: "
                f"found {', '.join(known) or 'nothing'}"
            )
    return found


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


def _free(folder: Path, name: str, text: str) -> Path:
    """A file that is not there yet, or has that very text."""
    paths = (folder / f"{name}{end}.json" for end in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(path for path in paths if not path.exists() or path.read_bytes() == text.encode())
