"""Tasks by their codes alone: those of a shared tree, fitted to another tree, or from what describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

import tnshare as tn
from tnshare.decomposition import CodePart, code_parts

from ._entries import SoftLeaf
from ._leaves import Leaf

if TYPE_CHECKING:
    from ._shared_tree import Shared

Codes = dict[str, dict[str, jax.Array]]  # by the names of weights and of their factors


class Fit(NamedTuple):
    """The code with which a shared tree comes closest to a given one, and how close, weight by weight.

    Errors are relative, ``||W - W'|| / ||W||``; also those of weights that all tasks have in common, in which
    a task has no say.
    """

    code: jax.Array
    errors: dict[str, float]


def parts_of(shared: Shared) -> tuple[CodePart, ...]:
    """The parts of a task's code, in the order of the tree's leaves."""
    soft = (entry for entry in shared.structure.entries if isinstance(entry, SoftLeaf))
    return code_parts({entry.name: entry.network for entry in soft})


def size_of(shared: Shared) -> int:
    """How many numbers a code has."""
    parts = parts_of(shared)
    return parts[-1].stop if parts else 0


def joined(shared: Shared, codes: Mapping[str, Mapping[str, Any]]) -> jax.Array:
    """Codes by name as rows (..., code_size)."""
    rows = [
        jnp.reshape(value, (*value.shape[: value.ndim - len(part.shape)], math.prod(part.shape)))
        for part in parts_of(shared)
        for value in (jnp.asarray(codes[part.weight][part.factor]),)
    ]
    return jnp.concatenate(rows, axis=-1) if rows else jnp.zeros((shared.tasks, 0))


def split(shared: Shared, code: jax.Array) -> Codes:
    """Rows (..., code_size) as codes by name, in the dtypes that those of the tree have."""
    found: Codes = {}
    for part in parts_of(shared):
        values = code[..., part.start : part.stop].reshape(*code.shape[:-1], *part.shape)
        dtype = shared.codes[part.weight][part.factor].dtype
        real = values if jnp.issubdtype(dtype, jnp.complexfloating) else values.real
        found[part.weight] = {part.factor: real.astype(dtype)}
    return found


def checked_code(shared: Shared, code: Any) -> jax.Array:
    """Codes that were given, (code_size,) or (tasks, code_size), as an array; refuses any other."""
    size = size_of(shared)
    shape = getattr(code, "shape", None)
    if shape is None or len(shape) not in (1, 2) or shape[-1] != size:
        found = type(code).__name__ if shape is None else tuple(shape)
        raise tn.TnshareError(
            f"code must be an array (code_size,) or (tasks, code_size), code_size={size}: found {found}"
        )
    return jnp.asarray(code)


def fitted(shared: Shared, leaves: Mapping[str, Leaf]) -> Fit:
    """Least squares of a tree's weights onto the shared factors."""
    codes: Codes = {}
    errors: dict[str, float] = {}
    for entry in shared.structure.entries:
        fit = entry.fit(shared, leaves[entry.name].value)
        if fit is not None:
            codes[entry.name], errors[entry.name] = fit
    return Fit(joined(shared, codes) if size_of(shared) else jnp.zeros(0), errors)
