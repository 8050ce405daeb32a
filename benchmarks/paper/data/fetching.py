"""Where official files lie, and how they get there: fetched once, checked by md5, never half there."""

from __future__ import annotations

import hashlib
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

import tnshare as tn
from benchmarks.measuring.whole_files import beside


@dataclass(frozen=True)
class Official:
    """A file as its authors hand it out: its name, its md5, and addresses to try in turn."""

    name: str
    md5: str
    urls: Sequence[str]


def folder(given: str | None = None) -> Path:
    """What ``--data`` says, or the variable TNSHARE_DATA, or a folder in the user's cache."""
    chosen = given or os.environ.get("TNSHARE_DATA")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("tnshare")) / "data"


def official(where: Path, file: Official) -> Path:
    """The path of a file in a folder, which is fetched and checked if it is not there."""
    path = where / file.name
    if path.exists():
        return path
    reasons = []
    for url in file.urls:
        try:
            return _fetch(url, path, file.md5)
        except (OSError, urllib.error.URLError, tn.TnshareError) as error:
            reasons.append(f"{url}: {error}")
    raise tn.TnshareError(
        f"{file.name} is not in the data folder and could not be fetched ({'; '.join(reasons)}): give the "
        "folder that holds it with --data or TNSHARE_DATA"
    )


def md5_of(path: Path) -> str:
    """The md5 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _fetch(url: str, path: Path, md5: str) -> Path:
    """Into a file beside ``path``, which takes its place once the md5 is right."""
    with beside(path) as part:
        with urllib.request.urlopen(url, timeout=30) as answer, part.open("wb") as stream:
            shutil.copyfileobj(answer, stream)
        found = md5_of(part)
        if found != md5:
            raise tn.TnshareError(f"the md5 of what was fetched is {found}, expected {md5}")
    return path
