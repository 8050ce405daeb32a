"""A cache folder of its own for what a benchmark calibrates and tunes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_NAME = "TNSHARE_CACHE"


@contextmanager
def own_cache() -> Iterator[None]:
    """Meanwhile nothing is read that was calibrated or tuned before, and nothing of it stays."""
    before = os.environ.get(_NAME)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_NAME] = folder
        try:
            yield
        finally:
            os.environ.pop(_NAME)
            if before is not None:
                os.environ[_NAME] = before
