"""One tree, or a stack of all, where a tree for each task is meant."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tnshare as tn

from ._leaves import is_array

# What flax and haiku call collections and modules; nobody calls tasks so.
_MODULES = re.compile(
    r"params|batch_stats|.*/~/.*|(linear|mlp|embed|layer_norm|batch_norm|conv[123]_d)(_[0-9]+)?"
    r"|(Dense|Conv|ConvTranspose|Embed|LayerNorm|RMSNorm|GroupNorm|BatchNorm|[A-Z]\w*Cell|[A-Z]\w*Block)_[0-9]+"
    r"|(layers|blocks)(_[0-9]+)?"
)


def refuse_one_tree(trees: Mapping[str, Any] | Sequence[Any], given: Sequence[Any]) -> None:
    """Refuse what looks like one tree, whose parts would be taken for tasks."""
    how = (
        "expected one tree for each task, in a list, or in a dict by the names of tasks; of a stack, whose "
        "leaves have the task axis first, jax.tree.map(lambda leaf: leaf[t], stack) is that of task t"
    )
    for number, tree in enumerate(given):
        if is_array(tree):
            raise tn.TnshareError(f"tree {number} is an array {tuple(tree.shape)}, not a tree: {how}")
    if isinstance(trees, Mapping) and all(map(_MODULES.fullmatch, trees)):
        raise tn.TnshareError(f"the names {tuple(trees)[:4]} are those of parts of one network: {how}")
