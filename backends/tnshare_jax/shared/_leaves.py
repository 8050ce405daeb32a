"""The leaves of any pytree by name: which of them are weights, and in which order their axes are stacked."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey, keystr, tree_flatten_with_path

import tnshare as tn
from tnshare.checks import by_name, check_numbers, fresh, is_whole
from tnshare.models import matches
from tnshare.ops import NDArray

from ._state_leaves import (
    Kind,
    by_rule,
    check_choice,
    chosen_by_user,
    is_collections,
    is_stream,
    said_by_frameworks,
)

_OWN = ("bias", "scale")
_OWN_VECTORS = ("b", "offset")  # what haiku calls them; a matrix of that name is a weight
_TURNED = ("Linear", "Conv", "ConvTranspose", "GRUCell", "LSTMCell")  # equinox: (out, in, ...kernel)
_NORMS = ("LayerNorm", "GroupNorm", "RMSNorm", "BatchNorm")
_Path = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Leaf:
    """A leaf of a tree; ``order`` brings a weight's axes to (..., in, out), None if it stays single.

    ``kind_of_state`` is what `._state_leaves` says of it.
    """

    name: str
    value: Any
    order: tuple[int, ...] | None = None
    kind_of_state: Kind = ""

    @property
    def is_state(self) -> bool:
        """Whether the network writes it while it runs: never factorised."""
        return self.kind_of_state == "state"

    @property
    def floating(self) -> bool:
        """Whether it is an array of floating numbers: what is trained."""
        return is_array(self.value) and jnp.issubdtype(self.value.dtype, jnp.inexact)

    @property
    def kind(self) -> str:
        """What must be the same in all trees, whatever the shape."""
        return str(self.value.dtype) if is_array(self.value) else type(self.value).__name__


def leaves_of(tree: Any, state: Mapping[str, bool] | None = None) -> list[Leaf]:
    """All leaves in the order of the tree, named by their keys with dots between: ``"dense.kernel"``.

    Weights are floating arrays of two or more dimensions whose last key is not bias or scale; those of norms
    in equinox are not among them, nor is state (see `._state_leaves`), of which ``state`` says otherwise.
    """
    owners, said, linen = _owners(tree), said_by_frameworks(tree), is_collections(tree)
    found: dict[str, Leaf] = {}
    for path, leaf_value in tree_flatten_with_path(tree)[0]:
        value = _native(leaf_value)
        owner = next((owners[path[:n]] for n in range(len(path) + 1) if path[:n] in owners), None)
        keys = path[:-1] if _is_variable(owner) and path[-1] == GetAttrKey("value") else path
        name = fresh(keystr(keys, simple=True, separator="."), found, "'")
        leaf = Leaf(name, value)
        if leaf.floating and value.ndim >= 2 and not _stays(keys, value.shape, owner):
            leaf = Leaf(name, value, _order(owner, value.ndim))
        kind: Kind = next((said[path[:n]] for n in range(len(path) + 1) if path[:n] in said), "")
        if linen and not kind:
            kind = "weight" if keystr(path[:1], simple=True) == "params" else "state"
        found[name] = replace(leaf, kind_of_state=kind)
    check_choice(state or {}, found)
    return [_with_kind(leaf, state or {}, found) for leaf in found.values()]


def _with_kind(leaf: Leaf, state: Mapping[str, bool], names: Collection[str]) -> Leaf:
    """A leaf as state or not: as the user says, else as its framework does, else by the rule."""
    chosen, kind = chosen_by_user(leaf.name, state), leaf.kind_of_state
    if chosen is not None:
        kind = "state" if chosen else "weight"
    elif kind in ("", "state") and is_stream(leaf.name, leaf.value):
        kind = "stream"
    elif not kind and leaf.floating and by_rule(leaf.name, names):
        kind = "state"
    return replace(leaf, kind_of_state=kind, order=None if kind == "state" else leaf.order)


def is_weight(leaf: Leaf) -> bool:
    """Whether it is trained: a floating array that is no state."""
    return leaf.floating and not leaf.is_state


def tied(leaves: Sequence[Sequence[Leaf]]) -> dict[str, str]:
    """Weights that are the same array as one before them, in every tree, and the name of that one."""
    found: dict[str, str] = {}
    first: dict[tuple[int, ...], str] = {}
    for column in zip(*leaves, strict=True):
        if column[0].order is not None and not column[0].is_state:
            there = first.setdefault(tuple(id(leaf.value) for leaf in column), column[0].name)
            found |= {} if there == column[0].name else {column[0].name: there}
    return found


def read_leaves(tree: Any, called: str, state: Mapping[str, bool] | None = None) -> list[Leaf]:
    """The leaves of a tree, which must have numbers."""
    leaves = leaves_of(tree, state)
    for leaf in leaves:
        if isinstance(leaf.value, jax.core.Tracer):
            raise tn.TnshareError(
                f"{leaf.name} of {called} has no numbers to look at while it is traced: share outside of jit"
            )
        if hasattr(leaf.value, "shape") and not is_array(leaf.value):
            kind = type(leaf.value).__name__
            raise tn.TnshareError(
                f"leaves must be arrays of JAX or NumPy: found {kind} as {leaf.name} of {called}"
            )
        check_numbers(f"{leaf.name} of {called}", leaf.value)
    return leaves


def with_axes(leaves: Sequence[Leaf], axes: Mapping[str, Sequence[int]]) -> list[Leaf]:
    """The same with the orders of axes that a user gives for patterns of names.

    The name of a module means its weights of that many dimensions; a leaf that is named itself is a weight.
    """
    for pattern, order in by_name("axes", axes, "of patterns and orders of axes").items():
        whole = isinstance(order, Sequence) and all(map(is_whole, order))
        if not whole or sorted(order) != list(range(len(order))):
            raise tn.TnshareError(
                f"axes[{pattern!r}] must be an order of a leaf's axes, as (1, 0): found {order!r}"
            )
        if not any(_is_meant(leaf, pattern, order) for leaf in leaves):
            names = tuple(leaf.name for leaf in leaves if leaf.floating and leaf.value.ndim == len(order))
            raise tn.TnshareError(
                f"axes: no weight of {len(order)} dimensions matches {pattern!r}: expected one of {names[:8]}"
            )
    return [_with_order(leaf, axes) for leaf in leaves]


def check_names(expected: Sequence[str], leaves: Sequence[Leaf], called: str) -> None:
    """Refuse a tree that has other leaves than the first."""
    names = [leaf.name for leaf in leaves]
    if names != list(expected):
        one, other = set(expected) - set(names), set(names) - set(expected)
        raise tn.TnshareError(
            f"trees must have one structure: {called} differs from the first in its leaves ({_some(one)} "
            f"only in the first, {_some(other)} only in {called})"
        )


def array_of(value: Any) -> NDArray:
    """A leaf in NumPy, in a dtype that it computes with."""
    if isinstance(value, jax.core.Tracer):
        raise tn.TnshareError("a traced array has no numbers to look at: do this outside of jit and grad")
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array


def as_leaf(array: NDArray, dtype: Any) -> jax.Array:
    """An array of NumPy as one of JAX, in this dtype or what JAX has of it without double precision."""
    return jnp.asarray(array.astype(dtype))


def is_array(value: Any) -> bool:
    """Whether a leaf is an array with numbers, or keys."""
    return isinstance(value, jax.Array | np.ndarray | np.generic)


def may_know_sizes(treedef: Any) -> bool:
    """Whether a tree has nodes that are no plain containers: modules, which may hold sizes."""
    node = treedef.node_data()
    if node is None:  # a leaf
        return False
    plain = issubclass(node[0], Mapping | list | tuple | type(None)) or issubclass(node[0], _variables())
    return not plain or any(map(may_know_sizes, treedef.children()))


def _native(value: Any) -> Any:
    """Arrays of NumPy in this machine's byte order, which JAX does not change itself."""
    turned = isinstance(value, np.ndarray) and not value.dtype.isnative
    return value.astype(value.dtype.newbyteorder("=")) if turned else value


def _with_order(leaf: Leaf, axes: Mapping[str, Sequence[int]]) -> Leaf:
    meant = (tuple(order) for pattern, order in axes.items() if _is_meant(leaf, pattern, order))
    return replace(leaf, order=next(meant, leaf.order))


def _is_meant(leaf: Leaf, pattern: str, order: Sequence[int]) -> bool:
    weight = leaf.order is not None or fnmatchcase(leaf.name, pattern)
    fits = leaf.floating and not leaf.is_state and leaf.value.ndim == len(order) >= 2
    return weight and fits and matches(leaf.name, pattern)


def _stays(keys: _Path, shape: tuple[int, ...], owner: Any) -> bool:
    """Whether a floating array stays with its task by default."""
    last = keystr(keys[-1:], simple=True) if keys else ""
    vector = sum(size > 1 for size in shape) <= 1
    return last in _OWN or (last in _OWN_VECTORS and vector) or isinstance(owner, _of_equinox(_NORMS))


def _order(owner: Any, ndim: int) -> tuple[int, ...]:
    if isinstance(owner, _of_equinox(_TURNED)):
        return (*range(2, ndim), 1, 0)
    return tuple(range(ndim))


def _owners(tree: Any) -> dict[_Path, Any]:
    """The modules and variables whose kind says something about their leaves, by path."""
    known = (*_of_equinox(_TURNED + _NORMS), *_variables())
    if not known:
        return {}
    nodes = tree_flatten_with_path(tree, is_leaf=lambda node: isinstance(node, known))[0]
    return {path: node for path, node in nodes if isinstance(node, known)}


def _is_variable(owner: Any) -> bool:
    return isinstance(owner, _variables())


# A tree that holds modules of a library was made with it: nothing is imported here that is not there already.
def _of_equinox(names: Sequence[str]) -> tuple[type, ...]:
    library = sys.modules.get("equinox")
    return () if library is None else tuple(getattr(library.nn, name) for name in names)


def _variables() -> tuple[type, ...]:
    library = sys.modules.get("flax.nnx")
    return () if library is None else (library.Variable,)


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)[:3]) or "none"
