"""T trained pytrees in, one softly shared tree out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np

import tnshare as tn
from tnshare.models import Roster, Setting, SharedModel, share_arrays

from ._constants import Constant, Fixed
from ._entries import Entry, TiedLeaf, entry_of
from ._leaves import Leaf, array_of, check_names, is_weight, read_leaves, tied, with_axes
from ._one_tree import refuse_one_tree
from ._shared_tree import Shared, assembled, one_if_alike


def share(
    trees: Sequence[Any] | dict[str, Any],
    method: str = "tucker",
    *,
    eps: float | None = None,
    ranks: int | Sequence[int] | None = None,
    max_parameters: int | None = None,
    relative_to: Literal["stack", "deviation"] = "stack",
    only: Sequence[str] = (),
    except_: Sequence[str] = (),
    layers: Mapping[str, Setting] | None = None,
    axes: Mapping[str, Sequence[int]] | None = None,
    state: Mapping[str, bool] | None = None,
) -> Shared:
    """One pytree for T pytrees of one structure: those of flax, equinox, haiku, or plain dicts and lists.

    Floating leaves of two or more dimensions whose last key is not bias or scale become factors, by
    ``method``: "laf", "tucker" or "tt", as close as ``eps``, ``ranks`` or ``max_parameters`` say (see
    `tnshare.decompose`; the last is for all together). The others, and whatever differs in shape between the
    trees, stay with each task; whole numbers, keys and what is no array are static. ``only`` and ``except_``
    are patterns of names, as "dense" or "dense.kernel", to share or to leave. ``layers`` says for patterns
    what is to be done instead: a method, "hard" (one weight for all tasks), "single" (one for each), or
    keywords: ``{"dense*": {"method": "tt", "eps": 0.05}}``.

    Weights are stacked as stored, which is (..., in, out) in flax and haiku; those of equinox are turned so.
    ``axes`` says otherwise, for patterns: ``{"mine": (1, 0)}``. Trees in a dict give tasks their names.

    What a network writes while it runs, as statistics of norms, is state and stays with each task; keys that
    it draws from are refused. Frameworks say what that is, or a rule: see `tnshare_jax.shared._state_leaves`.
    ``state`` says otherwise, for patterns of names: ``{"core.mean": False}``. A weight that is one array in
    two places of every tree stays one.
    """
    if not isinstance(trees, list | tuple | dict):
        raise tn.TnshareError(
            f"trees must be a list of pytrees, one for each task, or a dict: found {type(trees).__name__}"
        )
    roster = Roster.of(trees, "trees")
    given = list(trees.values() if isinstance(trees, dict) else trees)
    refuse_one_tree(trees, given)
    leaves = [read_leaves(tree, f"tree {number}", state) for number, tree in enumerate(given)]
    leaves[0] = with_axes(leaves[0], axes or {})
    treedefs = one_if_alike([jax.tree.structure(tree) for tree in given])
    _check_alike(leaves, treedefs)
    _refuse_streams(leaves[0])
    ties = tied(leaves)
    own = [[leaf for leaf in one if is_weight(leaf) and leaf.name not in ties] for one in leaves]
    weights = [{leaf.name: array_of(leaf.value) for leaf in one} for one in own]
    orders = {leaf.name: leaf.order for leaf in own[0] if leaf.order is not None}
    bounds: Any = {"eps": eps, "ranks": ranks, "max_parameters": max_parameters, "relative_to": relative_to}
    model = share_arrays(weights, orders, method, only, except_, layers, **bounds)
    made = [_entry(model, column, ties) for column in zip(*leaves, strict=True)]
    return assembled(made, treedefs, roster, model.report())


def _entry(
    model: SharedModel, column: Sequence[Leaf], ties: Mapping[str, str]
) -> tuple[Entry, dict[str, Any]]:
    """A leaf of all trees, as what became of it."""
    leaf, values = column[0], [own.value for own in column]
    if leaf.name in ties:
        return TiedLeaf(leaf.name, leaf.order, ties[leaf.name]), {}
    if not leaf.floating:
        return Constant(leaf.name, leaf.order, tuple(map(Fixed, values))), {}
    shared = model.soft.get(leaf.name, model.hard.get(leaf.name))
    return entry_of(leaf, list(map(np.asarray, values)) if shared is None else shared)


def _refuse_streams(leaves: Sequence[Leaf]) -> None:
    """Refuse keys that a network draws from: they would be static."""
    for leaf in leaves:
        if leaf.kind_of_state == "stream":
            raise tn.TnshareError(
                f"{leaf.name} is a key that the network draws from, or its count: it would be static, and "
                "every step would have the same mask; share the tree without it, as nnx.split(model, "
                f"nnx.Param, ...) gives it, or say that it does not matter: state={{{leaf.name!r}: False}}"
            )


def _check_alike(leaves: Sequence[Sequence[Leaf]], treedefs: Sequence[Any]) -> None:
    """Refuse trees of different structure; what is static may differ if shapes do, as sizes of heads."""
    first = leaves[0]
    for number, other in enumerate(leaves):
        called = f"tree {number}"
        check_names([leaf.name for leaf in first], other, called)
        for own, theirs in zip(first, other, strict=True):
            if own.kind != theirs.kind:
                raise tn.TnshareError(
                    f"trees must have one structure: {own.name} is {own.kind} in the first and {theirs.kind} "
                    f"in {called}"
                )
    if not any(map(is_weight, first)):
        raise tn.TnshareError(f"no floating leaf to share: found {len(first)} leaves of other kinds")
    shapes = [[getattr(leaf.value, "shape", None) for leaf in one] for one in leaves]
    weights = [n for n, leaf in enumerate(first) if leaf.order is not None]
    if weights and not any(len({own[n] for own in shapes}) == 1 for n in weights):
        name, found = first[weights[0]].name, tuple(dict.fromkeys(own[weights[0]] for own in shapes))
        raise tn.TnshareError(
            f"no weight has one shape in all trees, so nothing can be shared: {name} has the shapes "
            f"{found[:4]}; give T trees of one network, one for each task, not one tree"
        )
    if len(treedefs) > 1 and all(shape == shapes[0] for shape in shapes):
        number = next(n for n, treedef in enumerate(treedefs) if treedef != treedefs[0])
        raise tn.TnshareError(
            f"trees must have one structure: tree {number} differs from the first in what is static, such as "
            "sizes or functions; start all tasks from copies of one tree"
        )
