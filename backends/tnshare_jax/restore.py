"""From a file to a shared tree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.exchange import translated
from tnshare.model import SharedModel
from tnshare.ops import NDArray
from tnshare.roster import Roster

from .constants import Constant, Fixed
from .entries import Entry, Hard, Own, Ragged, Soft
from .shared import Shared, Structure
from .trees import Leaf, as_leaf, leaves_of, with_axes


def restore(tree: Any, state: tn.State, *, axes: Mapping[str, Sequence[int]] | None = None) -> Shared:
    """The shared tree that a state was taken from, given one tree of its structure.

    ``shared = tnj.restore(tree, tn.load(path))``, whichever framework saved it: ``dense.weight`` is found for
    ``dense.kernel``. Dtypes and what is static are those of ``tree``, whose numbers do not matter, so it may
    come from `jax.eval_shape`; ``axes`` are those of `share`.
    """
    tasks = _count(state)
    leaves = with_axes(leaves_of(jax.tree.map(_with_numbers, tree)), axes or {})
    saved = {**state.entries, **{name: [own[name] for own in state.tasks] for name in state.tasks[0]}}
    names = [leaf.name for leaf in leaves if leaf.floating]
    words = translated(saved, names)
    here = {words[name]: value for name, value in saved.items()}
    _check_names(set(names), set(here))
    parts: dict[str, dict[str, Any]] = {"common": {}, "codes": {}, "own": {}}
    entries: list[Entry] = []
    for leaf in leaves:
        if not leaf.floating:
            entries.append(Constant(leaf.name, None, (Fixed(leaf.value),) * tasks))
            continue
        entry, fields = _restored(leaf, here[leaf.name])
        entries.append(entry)
        for field, arrays in fields.items():
            parts[field][leaf.name] = arrays
    summary = SharedModel({}, {}, (), {}, (), ()).report()  # nobody knows any more what was lost
    structure = Structure((jax.tree.structure(tree),), tuple(entries), Roster(tasks, state.names), summary)
    return Shared(**parts, structure=structure)


def _with_numbers(leaf: Any) -> Any:
    """A shape as an array, which takes no memory."""
    shape = isinstance(leaf, jax.ShapeDtypeStruct)
    return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape) if shape else leaf


def _restored(leaf: Leaf, saved: Any) -> tuple[Entry, dict[str, Any]]:
    """An entry and its arrays, by field."""
    name, order, shape = leaf.name, leaf.order, tuple(leaf.value.shape)
    if isinstance(saved, tn.Decomposition):
        soft = Soft(name, order or tuple(range(len(shape))), saved.spec, saved.network)
        _check(name, soft.stored(saved.network.shape), shape)
        return soft, dict(zip(("common", "codes"), Soft.parts(saved, leaf.value.dtype), strict=True))
    if not isinstance(saved, list):
        return Hard(name, order), {"common": {"weight": _placed(leaf, saved)}}
    if len({value.shape for value in saved}) > 1:  # heads
        return Ragged(name, order), {"own": tuple(_placed(leaf, value, check=False) for value in saved)}
    return Own(name, order), {"own": jnp.stack([_placed(leaf, value) for value in saved])}


def _count(state: tn.State) -> int:
    """The number of tasks, which all parts of a state have."""
    if not isinstance(state, tn.State) or not state.tasks:
        kind = "that of a layer" if isinstance(state, tn.State) else type(state).__name__
        raise tn.TnshareError(
            f"the state of a shared model was expected, as tnshare.load gives it: found {kind}"
        )
    soft = [d for d in state.entries.values() if isinstance(d, tn.Decomposition)]
    counts = {len(state.tasks), *(d.network.task_shape[0] for d in soft)}
    if len(counts) > 1 or len(state.names) not in (0, len(state.tasks)):
        raise tn.TnshareError(
            f"a state has one number of tasks: found {sorted(counts)}, and {len(state.names)} names"
        )
    if any(own.keys() != state.tasks[0].keys() for own in state.tasks):
        raise tn.TnshareError("all tasks of a state must have the same names of their own")
    return len(state.tasks)


def _placed(leaf: Leaf, value: NDArray, check: bool = True) -> jax.Array:
    """An array with the axes that the leaf has in its tree."""
    shape = tuple(leaf.value.shape)
    if leaf.order is not None and value.ndim == len(leaf.order):
        value = value.transpose(np.argsort(leaf.order))
    elif leaf.order is None and value.size == math.prod(shape):
        value = value.reshape(shape)  # a bias (out,) or (out, 1, 1), as libraries have it
    if check:
        _check(leaf.name, value.shape, shape)
    return as_leaf(value, leaf.value.dtype)


def _check_names(own: set[str], saved: set[str]) -> None:
    if own != saved:
        raise tn.TnshareError(
            "the state is of trees of another structure: found "
            f"{sorted(saved - own)[:3]} only in it, {sorted(own - saved)[:3]} only in the tree"
        )


def _check(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if found != expected:
        raise tn.TnshareError(f"{name} has shape {found} in the state, but {expected} in the tree")
