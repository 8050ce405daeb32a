"""Tasks by their codes alone: those of a shared tree, fitted to another tree, or from what describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from tnshare.checks import check_numbers
from tnshare.decomposition import Fit, fit_codes
from tnshare.errors import TnshareError

from ._leaves import Leaf, array_of

if TYPE_CHECKING:
    from ._shared_tree import Shared

Codes = dict[str, dict[str, jax.Array]]  # by the names of weights and of their factors


def joined(shared: Shared, codes: Mapping[str, Mapping[str, Any]]) -> jax.Array:
    """Codes by name as rows (..., code_size)."""
    rows = [
        jnp.reshape(value, (*value.shape[: value.ndim - len(part.shape)], -1))
        for part in shared.structure.layout.parts
        for value in (jnp.asarray(codes[part.weight][part.factor]),)
    ]
    return jnp.concatenate(rows, axis=-1) if rows else jnp.zeros((shared.tasks, 0))


def split(shared: Shared, code: jax.Array) -> Codes:
    """Rows (..., code_size) as codes by name, in the dtypes that those of the tree have."""
    found: Codes = {}
    for part, values in shared.structure.layout.split(code):
        dtype = shared.codes[part.weight][part.factor].dtype
        real = values if jnp.issubdtype(dtype, jnp.complexfloating) else values.real
        found[part.weight] = {part.factor: real.astype(dtype)}
    return found


def checked_code(shared: Shared, code: Any) -> jax.Array:
    """Codes that were given, (code_size,) or (tasks, code_size), as an array; refuses any other."""
    check_numbers("code", code)
    shared.structure.layout.check(code)
    found = jnp.asarray(code)
    held = [array.dtype for codes in shared.codes.values() for array in codes.values()]
    if jnp.iscomplexobj(found) and not any(jnp.issubdtype(kind, jnp.complexfloating) for kind in held):
        raise TnshareError(f"code must be of real numbers, as the tree's are: found {found.dtype}")
    return found


def fitted(shared: Shared, leaves: Mapping[str, Leaf]) -> Fit[jax.Array]:
    """Least squares of a tree's weights onto the shared factors."""
    common = {entry.name: entry.in_common(shared) for entry in shared.structure.entries}
    weights = {name: value for name, value in common.items() if value is not None}
    orders = {entry.name: entry.order for entry in shared.structure.entries}
    codes, errors = fit_codes(weights, orders, {name: array_of(leaves[name].value) for name in weights})
    return Fit(joined(shared, codes) if shared.code_size else jnp.zeros(0), errors)
