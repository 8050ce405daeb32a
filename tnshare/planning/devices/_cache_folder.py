"""Small values kept in the user's cache folder: what was measured once need not be measured again.

A cache may be lost, damaged or forbidden at any time, so nothing here fails: what cannot be read is not
there, and what cannot be written is not kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tnshare._atomic_write import write_whole

FORMAT = 1
_MOST = 4 << 20  # bytes; whatever is kept is far smaller


def folder() -> Path:
    """Where values are kept: the environment variable TNSHARE_CACHE, or the user's cache folder."""
    chosen = os.environ.get("TNSHARE_CACHE")
    if chosen:
        return Path(chosen)
    from platformdirs import user_cache_path  # imported only where it is used

    return user_cache_path("tnshare")


def read(kind: str, key: Mapping[str, Any]) -> Any | None:
    """The value last written under this key, as JSON gives it back; None if there is none to be trusted."""
    text = _canonical(key)
    try:
        found = json.loads(_text_of(_file_of(kind, text)))
        # The key is compared as text: to JSON 1 and 1.0 and True differ, to Python they are equal.
        known = isinstance(found, dict) and found.get("format") == FORMAT
        return found["value"] if known and _canonical(found["key"]) == text else None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, RecursionError):
        return None  # RuntimeError: no home folder


def write(kind: str, key: Mapping[str, Any], value: Any) -> None:
    """Keep a value that JSON can express, in the place of what was there under this key."""
    text = _canonical(key)
    data = json.dumps({"format": FORMAT, "key": json.loads(text), "value": value}, allow_nan=False).encode()
    with suppress(OSError, RuntimeError):
        place = _file_of(kind, text)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, data)


def _text_of(place: Path) -> str:
    """What is in a file, unless it is none: opening a pipe would wait for ever."""
    if not place.is_file():
        raise FileNotFoundError(place)
    with place.open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise ValueError("not one of ours")
    return data.decode("utf-8")


def _canonical(key: Any) -> str:
    """One text for equal keys: whatever the order of their entries, lists and tuples alike."""
    return json.dumps(key, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _file_of(kind: str, text: str) -> Path:
    from hashlib import sha256  # imported only where it is used

    return folder() / kind / f"{sha256(text.encode()).hexdigest()}.json"
