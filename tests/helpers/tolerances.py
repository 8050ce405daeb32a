"""How far two computations of the same numbers may lie apart: derived, so that it holds on all processors.

Processors sum in different orders and fuse different products, so results differ by rounding. By how much
follows from three things, and from nothing else:

    error <= SLACK * eps(dtype) * sqrt(terms) * scale

- ``eps(dtype)``: one rounding is at most eps/2 of the value.
- ``terms``: the lengths of all sums that follow one another on the way to a number, added up. Roundings have
  either sign, so they grow as the root of their number: beyond ``a * sqrt(n) * u * (|x| . |y|)`` with a
  probability of at most 2 exp(-a^2 / 2), for sums in any order (Higham and Mary, SIAM J. Sci. Comput. 41,
  2019). Products in half precision add up in float32 and round once: there, a term is a product.
- ``scale``: the size of what is added: where it is known, the same sum over absolute values, ``|x| . |y|``;
  else the largest value of the array. Not each value: beside gradients of 100, one of 0.01 is a difference
  of large terms, and its error is theirs.

SLACK: both sides round, so twice u = eps/2; and a = 4 leaves 7 numbers in 10,000 in the worst case, where
all partial sums are as large as ``scale``. Sums of mixed signs stay ten times below (`test_tolerances`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tnshare.network import Network

SLACK = 4
_EPS = {"bfloat16": 2.0**-7}  # which NumPy does not know


def eps(dtype: Any) -> float:
    """The distance from one to the next number."""
    name = str(dtype).removeprefix("torch.")
    return _EPS[name] if name in _EPS else float(np.finfo(name).eps)


def rounding(dtype: Any, terms: int, scale: Any) -> Any:
    """How far apart two sums of so many terms of this size may be."""
    return SLACK * eps(dtype) * math.sqrt(terms) * scale


def terms_of(network: Network, *sums: int) -> int:
    """The terms of composing by this network: one for each factor, all its bonds, and what more is summed."""
    return len(network.nodes) + sum(network.sizes[bond] for bond in network.bonds) + sum(sums)


def close(
    found: Any, wanted: Any, terms: int, *, scale: Any = None, dtype: Any = None, what: str = ""
) -> None:
    """Equal shapes, and numbers within rounding, of arrays of any framework or of trees of them.

    Sums are of ``dtype``, unless given the coarser of the two. Arrays of torch must have the same dtype.
    """
    ours, theirs = _leaves(found), _leaves(wanted)
    assert len(ours) == len(theirs), f"{what or 'found'}: {len(ours)} arrays, not {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None and (wrong := _difference(a, b, terms, scale, dtype)):
            raise AssertionError(f"{what}: {wrong}" if what else wrong)


def is_close(found: Any, wanted: Any, terms: int, **options: Any) -> bool:
    """Whether `close` finds nothing."""
    try:
        close(found, wanted, terms, **options)
    except AssertionError:
        return False
    return True


def _difference(found: Any, wanted: Any, terms: int, scale: Any, dtype: Any) -> str:
    """What is wrong with one array; nothing if it is close."""
    kinds = [getattr(value, "dtype", np.dtype(np.float64)) for value in (found, wanted)]
    if kinds[0] != kinds[1] and all(str(kind).startswith("torch.") for kind in kinds):
        return f"dtype {kinds[0]}, not {kinds[1]}"
    a, b = _wide(found), _wide(wanted)
    if a.shape != b.shape or not a.size:
        return "" if a.shape == b.shape else f"shape {a.shape}, not {b.shape}"
    rounded = [kind for kind in kinds if "float" in str(kind) or "complex" in str(kind)]
    size = np.abs(b[np.isfinite(b)]).max(initial=0) if scale is None else _wide(scale)
    unit = max((rounding(kind, terms, 1.0) for kind in (rounded if dtype is None else [dtype])), default=0.0)
    bound = np.broadcast_to(unit * size, a.shape)
    with np.errstate(invalid="ignore"):
        error = np.where(a == b, 0, np.abs(a - b))
    wrong = ~(error <= bound)  # NaN is wrong
    if not wrong.any():
        return ""
    worst = np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1))
    at = tuple(int(n) for n in np.unravel_index(worst, a.shape))
    return (
        f"{wrong.sum()} of {a.size} numbers are off by more than sums of {terms} terms round, at {at} by "
        f"{error[at]:.3g}: {a[at]} instead of {b[at]}, where {bound[at]:.3g} is allowed"
    )


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, Mapping):
        return [leaf for key in sorted(tree, key=str) for leaf in _leaves(tree[key])]
    if isinstance(tree, Iterable) and not hasattr(tree, "dtype"):
        return [leaf for item in tree for leaf in _leaves(item)]
    return [tree]


def _wide(value: Any) -> np.ndarray:
    """The numbers in double precision."""
    if hasattr(value, "detach"):  # of torch, which gives NumPy no bfloat16
        value = value.detach().cpu().resolve_conj().resolve_neg()
        value = value.to(dtype=_torch_double(value)).numpy()
    array = np.asarray(value)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _torch_double(tensor: Any) -> Any:
    import torch

    return torch.complex128 if tensor.is_complex() else torch.float64
