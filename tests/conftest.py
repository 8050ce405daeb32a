"""Settings of all tests: how many examples hypothesis tries, one thread for all, a mark for every room."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

CACHE = tempfile.TemporaryDirectory(prefix="tnshare-tests-")  # what was measured here before decides no test
os.environ["TNSHARE_CACHE"] = CACHE.name

TESTS = Path(__file__).parent
ROOMS = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")})

# TNSHARE_EXAMPLES=10000 is the deep profile (`make test-deep`); `make quick` has TNSHARE_QUICK=1.
EXAMPLES = int(os.environ.get("TNSHARE_EXAMPLES", "15" if "TNSHARE_QUICK" in os.environ else "60"))
hypothesis.settings.register_profile(
    "tnshare",
    deadline=None,  # the machine may be busy; nothing here is a test of speed
    max_examples=EXAMPLES,
    derandomize="TNSHARE_EXAMPLES" not in os.environ,  # the default run is the same every time
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tnshare")


def pytest_configure(config: pytest.Config) -> None:
    """A mark for every folder: `pytest -m planning`, `pytest -m "not torch_share"`."""
    for room in ROOMS:
        config.addinivalue_line("markers", f"{room}: the tests in tests/{room}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test is marked by its folder."""
    for item in items:
        (room, *_) = item.path.relative_to(TESTS).parts
        item.add_marker(room)


@pytest.fixture(autouse=True)
def tensorly_of_numpy() -> None:
    """TensorLy is an oracle in NumPy, whichever test ran before: TensorLy-Torch makes torch its backend."""
    if "tensorly" in sys.modules:
        sys.modules["tensorly"].set_backend("numpy")
