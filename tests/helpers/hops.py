"""Which files of this project a call passes through: what a reader must open to follow it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
_OURS = (f"{ROOT / 'tnshare'}/", f"{ROOT / 'backends'}/")


def files_of(call: Callable[[], Any]) -> set[str]:
    """The files of the core and the adapters that have a function which runs during a call."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return {str(Path(name).relative_to(ROOT)) for name in seen if name.startswith(_OURS)}


def later(call: Callable[[], Any]) -> set[str]:
    """The same for a call that was made before, often enough that all is planned and probed."""
    for _ in range(3):
        call()
    return files_of(call)
