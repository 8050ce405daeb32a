"""Settings of all tests: how many examples hypothesis tries, and one thread for every framework."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

# TNSHARE_EXAMPLES=10000 is the deep profile (`make test-deep`).
hypothesis.settings.register_profile(
    "tnshare",
    deadline=None,  # the machine may be busy; nothing here is a test of speed
    max_examples=int(os.environ.get("TNSHARE_EXAMPLES", "60")),
    derandomize="TNSHARE_EXAMPLES" not in os.environ,  # the default run is the same every time
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tnshare")


@pytest.fixture(autouse=True)
def tensorly_of_numpy() -> None:
    """TensorLy is an oracle in NumPy, whichever test ran before: TensorLy-Torch makes torch its backend."""
    if "tensorly" in sys.modules:
        sys.modules["tensorly"].set_backend("numpy")
