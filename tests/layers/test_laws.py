"""The laws of tnshare.testing over every backend, a toy of a third party's and its broken twins."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import Phase, settings

import tnshare as tn
from tnshare.testing import LAWS, check_backend, check_law

TOY = Path(__file__).parents[1] / "toy"

CASES = {
    "numpy": ("float32", "float64", "complex64", "complex128"),
    "torch": ("float32", "float64", "complex64"),
    "jax": ("float32", "complex64"),
    "toy": ("float32", "float64"),
}
# JAX compiles every operation anew for every shape, a thousand times slower than running it: fewer examples
# in the quick run, as many as everybody else in the deep one.
EXAMPLES = (60, 12) if "TNSHARE_EXAMPLES" not in os.environ else (int(os.environ["TNSHARE_EXAMPLES"]),) * 2
NAMES = {law: law.__name__ for law in LAWS}


def ops_of(name):
    return tn.ops.numpy_ops if name == "numpy" else tn.backends.load(name).ops


@pytest.fixture(autouse=True)
def toy_installed(monkeypatch):
    monkeypatch.syspath_prepend(str(TOY))
    yield
    for module in ("tnshare_toy", "tnshare_broken"):
        sys.modules.pop(module, None)


@pytest.fixture
def as_found():
    """Cases that fail are not made smaller: most of the time of a test that wants them to fail."""
    phases = set(settings.get_profile("tnshare").phases) - {Phase.shrink, Phase.explain}
    settings.register_profile("as found", settings.get_profile("tnshare"), phases=phases)
    settings.load_profile("as found")
    yield
    settings.load_profile("tnshare")


@pytest.mark.parametrize("law", LAWS, ids=NAMES.get)
@pytest.mark.parametrize("name", CASES)
def test_law(name, law):
    if law.__name__.startswith("gradients"):
        dtypes = tuple(dtype for dtype in CASES[name] if dtype.startswith("float"))
    else:
        dtypes = CASES[name]
    check_law(ops_of(name), law, dtypes=dtypes, max_examples=EXAMPLES[name == "jax"])


@pytest.mark.parametrize("law", LAWS, ids=NAMES.get)
def test_law_in_jax_with_double_precision(law):
    with jax.enable_x64(True):
        check_law(ops_of("jax"), law, dtypes=("float64",), max_examples=EXAMPLES[True])


def test_a_third_partys_backend_is_found_by_its_entry_point():
    assert {"torch", "jax", "toy", "broken"} <= set(tn.backends.names())
    check_backend(ops_of("toy"), max_examples=20)


@pytest.mark.usefixtures("as_found")
def test_a_broken_twin_fails_the_laws():
    with pytest.raises(AssertionError):
        check_backend(ops_of("broken"), max_examples=20)


class WrongWhenCompiled(type(tn.ops.numpy_ops)):
    """What is compiled gives twice the value, or gradients of twice the value."""

    def jit(self, function):
        def doubled(*operands):
            y = function(*operands)
            return [2 * part for part in y] if isinstance(y, list) else 2 * y

        return doubled

    def gradients(self, function, arrays, weights):
        """Exact for what is affine in every operand: the difference along each unit."""
        found = [np.zeros_like(array) for array in arrays]
        for n, array in enumerate(arrays):
            for at in np.ndindex(array.shape):
                moved, still = ([*arrays] for _ in range(2))
                moved[n], still[n] = np.zeros_like(array), np.zeros_like(array)
                moved[n][at] = 1
                found[n][at] = np.sum(weights * (function(*moved) - function(*still)))
        return found


@pytest.mark.usefixtures("as_found")
@pytest.mark.parametrize("law", [law for law in LAWS if "operation" not in NAMES[law]], ids=NAMES.get)
def test_laws_hold_for_what_a_backend_compiles_too(law):
    class Right(WrongWhenCompiled):
        def jit(self, function):
            return function

    check_law(Right(), law, dtypes=("float64",), max_examples=5)
    with pytest.raises(AssertionError):
        check_law(WrongWhenCompiled(), law, dtypes=("float64",), max_examples=20)


def mistakes():
    sys.path.insert(0, str(TOY))
    try:
        from tnshare_broken import MISTAKES
    finally:
        sys.path.remove(str(TOY))
    return MISTAKES


@pytest.mark.usefixtures("as_found")
@pytest.mark.parametrize("mistake", mistakes(), ids=lambda m: m.__name__)
def test_every_single_mistake_is_found(mistake):
    with pytest.raises(AssertionError):
        check_backend(mistake(), max_examples=20)
