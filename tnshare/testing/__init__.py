"""The laws that a backend must obey: for tnshare's own adapters, and for anybody else's.

    from tnshare.testing import check_backend

    check_backend(my_ops)  # an AssertionError names the law that fails and shows a small example

A law compares a backend with plain NumPy that knows nothing of plans: `np.einsum` over all operands at once,
and loops over rows and tasks. A backend that also has ``gradients(function, arrays, weights)`` has its
derivatives compared too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    from hypothesis import given, note, settings
except ModuleNotFoundError:
    raise ImportError('tnshare.testing needs hypothesis: pip install "tnshare[testing]"') from None

from tnshare.checks import patterns, whole
from tnshare.errors import TnshareError
from tnshare.ops import Ops, check_ops

from .cases import DTYPES, axis_sizes, linear_cases, network_cases, specs
from .laws import LAWS, Law

__all__ = [
    "LAWS",
    "Law",
    "axis_sizes",
    "check_backend",
    "check_law",
    "linear_cases",
    "network_cases",
    "specs",
]


_KNOWN = ("float16", "float32", "float64", "complex64", "complex128")


def check_backend(ops: Ops[Any], *, dtypes: Sequence[str] = DTYPES, max_examples: int = 100) -> None:
    """Try every law on random cases; raises AssertionError at the first that does not hold."""
    if max_examples is None:
        raise TnshareError("max_examples must be a whole number of at least 1: found None")
    for law in LAWS:
        check_law(ops, law, dtypes=dtypes, max_examples=max_examples)


def check_law(
    ops: Ops[Any], law: Law, *, dtypes: Sequence[str] = DTYPES, max_examples: int | None = None
) -> None:
    """Try one law; the number of examples is that of the hypothesis profile unless given."""
    check_ops(ops)
    if law not in tuple(LAWS):
        raise TnshareError(f"law must be one of tnshare.testing.LAWS: found {law!r}")
    names = patterns("dtypes", dtypes)
    if not names or not set(names) <= set(_KNOWN):
        raise TnshareError(f"dtypes must be some of {_KNOWN}: found {dtypes!r}")
    options: dict[str, Any] = {}
    if max_examples is not None:
        options["max_examples"] = whole("max_examples", max_examples)

    @settings(deadline=None, report_multiple_bugs=False, **options)
    @given(LAWS[law](names))
    def holds(case: Any) -> None:
        note(f"law: {law.__name__.replace('_', ' ')}")
        law(ops, case)

    holds()
