"""A shared tree as what every framework can load, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.exchange import same_names
from tnshare.ops import NDArray
from tnshare.roster import Roster
from tnshare.tasks import Choice

from .entries import Entry, Hard, Own, Ragged, Soft
from .shared import Shared, Structure

Restored = tuple[Entry, dict[str, Any]]  # an entry and its arrays, by field


def state_of(shared: Shared) -> tn.State:
    """What a shared tree is, its weights with the axes that they have in a stack."""
    entries: dict[str, Any] = {}
    own: list[dict[str, Any]] = [{} for _ in range(shared.tasks)]
    for entry in shared.structure.entries:
        saved = entry.saved(shared)
        if isinstance(saved, list):
            for found, value in zip(own, saved, strict=True):
                found[entry.name] = value
        elif saved is not None:
            entries[entry.name] = saved
    return tn.State(entries, tuple(own), shared.names)


def with_state(shared: Shared, state: tn.State) -> Shared:
    """A shared tree with other numbers, ranks and tasks; what is static stays."""
    old, tasks = shared.structure, _count(state)
    saved = {**state.entries, **{name: [own[name] for own in state.tasks] for name in state.tasks[0]}}
    here = same_names([entry.name for entry in old.entries if not entry.static], saved)
    if tasks != shared.tasks and len(old.treedefs) > 1:
        raise tn.TnshareError(
            f"the state has {tasks} tasks, and their trees differ in what is static: found {shared.tasks}"
        )
    parts: dict[str, dict[str, Any]] = {"common": {}, "codes": {}, "own": {}}
    entries = []
    for entry in old.entries:
        made, fields = (
            (entry.for_tasks(tasks), {})
            if entry.static
            else _restored(entry, saved[here[entry.name]], shared)
        )
        entries.append(made)
        for field, arrays in fields.items():
            parts[field][entry.name] = arrays
    structure = Structure(old.treedefs, tuple(entries), Roster(tasks, state.names), old.summary)
    return Shared(**parts, structure=structure)


def _restored(entry: Entry, saved: Any, shared: Shared) -> Restored:
    if isinstance(saved, tn.Decomposition):
        return _soft(entry, saved, shared)
    if not isinstance(saved, list):
        return Hard(entry.name, entry.order), {"common": {"weight": _leaf(entry, saved, shared)}}
    rows = [_leaf(entry, value, shared) for value in saved]
    if len({row.shape for row in rows}) == 1:
        return Own(entry.name, entry.order), {"own": jnp.stack(rows)}
    return Ragged(entry.name, entry.order), {"own": tuple(rows)}


def _soft(entry: Entry, d: tn.Decomposition, shared: Shared) -> Restored:
    like = _like(entry, shared)
    made = Soft(entry.name, entry.order or tuple(range(len(like.shape))), d.spec, d.network)
    _check(entry, made.stored(d.network.shape), like.shape)
    common, codes = Soft.parts(d, like.dtype)
    return made, {"common": common, "codes": codes}


def _count(state: tn.State) -> int:
    """The number of tasks, which all parts of a state have."""
    if not isinstance(state, tn.State) or not state.tasks:
        kind = "of a layer" if isinstance(state, tn.State) else type(state).__name__
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


def _leaf(entry: Entry, value: NDArray, shared: Shared) -> jax.Array:
    """An array with the axes that the leaf has in its tree."""
    like = _like(entry, shared)
    if entry.order is not None and value.ndim == len(entry.order):
        value = value.transpose(np.argsort(entry.order))
    elif entry.order is None and value.size == np.prod(like.shape):
        value = value.reshape(like.shape)  # a bias (out,) or (out, 1, 1), as libraries have it
    if not isinstance(entry, Ragged):
        _check(entry, value.shape, like.shape)
    return jnp.asarray(value, like.dtype)


def _like(entry: Entry, shared: Shared) -> jax.ShapeDtypeStruct:
    """The shape and dtype of a leaf of the first task."""
    found: jax.ShapeDtypeStruct = jax.eval_shape(lambda s: entry.compose(s, Choice((0,), None)), shared)
    return found


def _check(entry: Entry, found: Sequence[int], expected: Sequence[int]) -> None:
    if tuple(found) != tuple(expected):
        raise tn.TnshareError(f"{entry.name} must have shape {tuple(expected)}: the state has {tuple(found)}")
