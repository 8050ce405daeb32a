"""Importing and using the core imports no framework; and the proof of it can fail."""

from __future__ import annotations

import importlib.util
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import tnshare as tn

FOREIGN = ("torch", "jax", "flax", "equinox", "tensorflow", "keras", "tensorly", "hypothesis")

WHERE = "import it in the function that uses it; `python -X importtime -c 'import tnshare'` shows who imports"
USE = """
import tempfile, os, numpy as np, tnshare as tn
stack = np.random.default_rng(0).standard_normal((4, 3, 5))
for method in ("laf", "tucker", "tt"):
    d = tn.decompose(stack, method, eps=0.3)
    tn.compose(d.network, d.factors, task=2)
with tempfile.TemporaryDirectory() as folder:
    tn.save(os.path.join(folder, "file"), d)
    tn.load(os.path.join(folder, "file"))
layer = tn.Linear(4, 3, tasks=5, spec=tn.LAF(2))
tn.apply(layer, layer.init(), stack[:, 0, :4], [0, 1, 2, 3])
tn.backends.names()
"""


SLOW = ("importlib.metadata", "safetensors", "platformdirs", "concurrent.futures", "email")


def loaded_by(code: str, asked: tuple[str, ...] = FOREIGN) -> set[str]:
    """Which of the modules that are asked for a program loads."""
    report = f"import sys; print(*(name for name in {asked} if name in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_importing_the_core_loads_no_framework():
    assert loaded_by("import tnshare") == set(), WHERE


def test_using_the_core_loads_no_framework():
    assert loaded_by(USE) == set(), WHERE


@pytest.mark.parametrize("package", ["torch", "jax", "hypothesis"])
def test_the_check_above_can_fail(package):
    pytest.importorskip(package)
    assert package in loaded_by(f"import tnshare, {package}")


def test_importing_the_core_loads_nothing_slow_that_only_some_calls_need():
    assert loaded_by("import numpy, tnshare", SLOW) == loaded_by("import numpy", SLOW)
    assert loaded_by("import tnshare; tnshare.backends.names()", SLOW) >= {"importlib.metadata"}


def test_every_public_name_exists():
    missing = [name for name in tn.__all__ if not hasattr(tn, name)]
    assert missing == [], "import them in tnshare/__init__.py, or take them from __all__"
    assert {*tn.__all__, "Spec", "Profile"} <= {*dir(tn)}


def test_a_public_function_hides_no_module_of_its_name():
    modules = {name for name in tn.__all__ if isinstance(getattr(tn, name), ModuleType)}
    assert modules == {"backends", "ops"}
    for name in set(tn.__all__) - modules:
        assert importlib.util.find_spec(f"tnshare.{name}") is None
    for package in pkgutil.iter_modules(tn.__path__):
        module = importlib.import_module(f"tnshare.{package.name}")
        assert getattr(tn, package.name) is module


def test_public_names_are_sorted_and_there_once():
    assert len(set(tn.__all__)) == len(tn.__all__)
    star: dict[str, object] = {}
    exec("from tnshare import *", star)
    assert set(tn.__all__) <= set(star)


def test_the_error_is_a_value_error():
    assert issubclass(tn.TnshareError, ValueError)
