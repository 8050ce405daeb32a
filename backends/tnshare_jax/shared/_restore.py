"""From a file to a shared tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.files import task_count, translated, unstacked
from tnshare.models import Roster, SharedModel
from tnshare.ops import NDArray

from ._constants import restored_constant
from ._entries import Entry, RaggedLeaf, SoftLeaf, TiedLeaf, entry_of
from ._leaves import Leaf, check_names, leaves_of, may_know_sizes, tied, with_axes
from ._shared_tree import Shared, assembled, one_if_alike

_Column = tuple[Leaf, ...]  # a leaf of the one tree that was given, or of each task's


def restore(
    tree: Any,
    state: tn.State,
    *,
    axes: Mapping[str, Sequence[int]] | None = None,
    kinds: Mapping[str, bool] | None = None,
) -> Shared:
    """The shared tree that a state was taken from, given one tree of its structure.

    ``shared = tnj.restore(tree, tn.load(path))``, whichever framework saved it: ``dense.weight`` is found for
    ``dense.kernel``. Dtypes, and of what is static what a file cannot hold, are those of ``tree``, whose
    numbers do not matter, so it may come from `jax.eval_shape`; ``axes`` are those of `share`, ``kinds`` its
    ``state``. A weight that is one array in two places of the tree is saved once. Where trees
    differ in what is static, as modules with heads of different sizes do, give one for each task, in a list
    or a dict as `share` takes them.
    """
    tasks = task_count(state)
    trees = _trees(tree, state, tasks)
    leaves = [_leaves(one, kinds) for one in trees]
    leaves[0] = with_axes(leaves[0], axes or {})
    for number, other in enumerate(leaves):
        check_names([leaf.name for leaf in leaves[0]], other, f"tree {number}")
    here = _in_own_words(state, leaves[0])
    _check_all_there(leaves[0], here)
    ties = {name: to for name, to in tied(leaves).items() if name not in here}
    made = [
        (TiedLeaf(column[0].name, column[0].order, ties[column[0].name]), {})
        if column[0].name in ties
        else _entry(column, here, tasks)
        for column in zip(*leaves, strict=True)
    ]
    treedefs = one_if_alike([jax.tree.structure(one) for one in trees])
    if len(trees) == 1:
        _check_heads([entry for entry, _ in made], treedefs[0])
    summary = SharedModel({}, {}, (), {}, (), ()).report()  # nobody knows any more what was lost
    return assembled(made, treedefs, Roster(tasks, state.names), summary)


def _trees(tree: Any, state: tn.State, tasks: int) -> list[Any]:
    """The tree, or those of all tasks: a list of trees is a tree too, but its leaves have other names."""
    if isinstance(tree, dict):
        several = [tree[name] for name in state.names] if set(tree) == set(state.names) else []
    else:
        several = list(tree) if isinstance(tree, list | tuple) else []
    fit = len(several) == tasks and all(_fits(one, state) for one in several)
    return several if fit and not _fits(tree, state) else [tree]


def _fits(tree: Any, state: tn.State) -> bool:
    leaves = _leaves(tree)
    return not any(_missing(leaves, _in_own_words(state, leaves)))


def _leaves(tree: Any, kinds: Mapping[str, bool] | None = None) -> list[Leaf]:
    return leaves_of(jax.tree.map(_with_numbers, tree), kinds)


def _with_numbers(leaf: Any) -> Any:
    """A shape as an array, which takes no memory; of what is static, numbers are not made up."""
    made = isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape) if made else leaf


def _in_own_words(state: tn.State, leaves: Sequence[Leaf]) -> dict[str, Any]:
    """All that is saved, by the names of the leaves; of each task, or of constants, as a list."""
    own = {name: [task[name] for task in state.tasks] for name in state.tasks[0]}
    saved = {**{name: list(values) for name, values in state.constants.items()}, **state.entries, **own}
    words = translated(saved, [leaf.name for leaf in leaves])
    names = {leaf.name for leaf in leaves}
    # Constants that a tree has no use for were another framework's.
    return {words[n]: v for n, v in saved.items() if words[n] in names or n not in state.constants}


def _missing(leaves: Sequence[Leaf], here: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The names that only the state has, and those that only the tree has."""
    ties, names = tied([leaves]), {leaf.name for leaf in leaves}
    trained = {leaf.name for leaf in leaves if leaf.floating and ties.get(leaf.name) not in here}
    return sorted(set(here) - names), sorted(trained - set(here))


def _entry(column: _Column, here: Mapping[str, Any], tasks: int) -> tuple[Entry, dict[str, Any]]:
    """An entry and its arrays, by field."""
    leaf = column[0]
    saved: Any = here.get(leaf.name)
    if not leaf.floating:
        return restored_constant(column, saved, tasks), {}
    if isinstance(saved, list):
        heads = len({value.shape for value in saved}) > 1
        several = column if len(column) == tasks else column * tasks
        check = not heads or len(column) > 1
        saved = [_placed(own, leaf.order, value, check) for own, value in zip(several, saved, strict=True)]
    elif isinstance(saved, np.ndarray):
        saved = _placed(leaf, leaf.order, saved)
    entry, arrays = entry_of(leaf, saved)
    if isinstance(entry, SoftLeaf):
        _check(leaf.name, entry.stored(entry.network.shape), leaf.value.shape)
    return entry, arrays


def _placed(leaf: Leaf, order: tuple[int, ...] | None, value: NDArray, check: bool = True) -> NDArray:
    """An array with the axes that the leaf has in its tree."""
    placed = unstacked(value, order, leaf.value.shape)
    if check:
        _check(leaf.name, placed.shape, leaf.value.shape)
    return placed


def _check_all_there(leaves: Sequence[Leaf], here: Mapping[str, Any]) -> None:
    saved, own = _missing(leaves, here)
    if saved or own:
        raise tn.TnshareError(
            f"the state is of trees of another structure: found {saved[:3]} only in it, {own[:3]} only in "
            "the tree"
        )


def _check_heads(entries: Sequence[Entry], treedef: Any) -> None:
    """Refuse one module for heads of several sizes: those of other tasks would have its size."""
    heads = [entry.name for entry in entries if isinstance(entry, RaggedLeaf)]
    if heads and may_know_sizes(treedef):
        raise tn.TnshareError(
            f"{heads[0]} differs in shape between tasks, and the tree has modules that may know its size: "
            "give one tree for each task, in a list or a dict as share takes them"
        )


def _check(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if found != expected:
        raise tn.TnshareError(f"{name} has shape {found} in the state, but {expected} in the tree")
