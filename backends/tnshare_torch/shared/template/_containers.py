"""Tensors in containers at any depth: lists, dicts, dataclasses, and whatever torch knows to take apart."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import SUPPORTED_NODES, tree_flatten, tree_unflatten

import tnshare as tn

Rebuild = Callable[[Sequence[Any]], Any]


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """What a container holds at any depth, and the container without it. What is none holds itself."""
    if tree is None or isinstance(tree, torch.Tensor):
        return [tree], LEAF
    compiled = torch.compiler.is_compiling()  # which torch's own containers must do for
    if compiled or type(tree) in SUPPORTED_NODES or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        own, spec = tree_flatten(tree)
        if compiled and any(hasattr(part, "__dataclass_fields__") for part in own):
            raise tn.TnshareError(
                "in compiled code tensors can be in lists, tuples and dicts: found a dataclass; register it "
                "with torch.utils._pytree.register_dataclass"
            )
        if compiled or not any(_is_more(part) for part in own):
            return own, Structure(str(spec), None, (), spec)
        parts: list[Any] = own
        made: Any = spec
    elif _is_more(tree):
        fields = _fields(tree)
        parts, made = list(fields.values()), (tree, tuple(fields))
    else:
        return [tree], LEAF
    below = [flatten(part) for part in parts]
    kind = str(made) if not isinstance(made, tuple) else f"{type(tree).__qualname__}{made[1]}"
    return [leaf for leaves, _ in below for leaf in leaves], Structure(kind, made, tuple(s for _, s in below))


class Structure:
    """A container without what it holds. Two that look alike are equal."""

    def __init__(self, kind: str, made: Any, parts: tuple[Structure, ...], spec: Any = None) -> None:
        self.kind, self.made, self.parts, self.spec = kind, made, parts, spec
        self.count: int = 1 if not kind else sum(p.count for p in parts) if spec is None else spec.num_leaves

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and (self.kind, self.parts) == (other.kind, other.parts)

    def __hash__(self) -> int:
        return hash((self.kind, self.parts))

    def filled(self, leaves: Sequence[Any]) -> Any:
        """The container with other things in it."""
        if not self.kind:
            return leaves[0]
        if self.spec is not None:
            return tree_unflatten(list(leaves), self.spec)
        rest, held = list(leaves), []
        for part in self.parts:
            held.append(part.filled(rest[: part.count]))
            del rest[: part.count]
        if not isinstance(self.made, tuple):
            return tree_unflatten(held, self.made)
        like, names = self.made
        return _with(like, dict(zip(names, held, strict=True)))


LEAF = Structure("", None, ())


def mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    """A container with something done to everything that it holds."""
    leaves, structure = flatten(tree)
    return structure.filled([change(leaf) for leaf in leaves])


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """The tensors that a container holds."""
    return [leaf for leaf in flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def hidden_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors in an object that is no container: nobody knows how to split it."""
    for held in vars(value).values() if hasattr(value, "__dict__") and not isinstance(value, type) else ():
        for leaf in flatten(held)[0]:
            if isinstance(leaf, torch.Tensor):
                yield leaf


def _is_more(value: Any) -> bool:
    """Whether something is a container that torch does not know."""
    if type(value) in SUPPORTED_NODES:
        return False
    return isinstance(value, UserDict | dict | list) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def _fields(value: Any) -> dict[Any, Any]:
    if isinstance(value, UserDict | dict):
        return dict(value.items())
    if isinstance(value, list):
        return dict(enumerate(value))
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}


def _with(like: Any, held: dict[Any, Any]) -> Any:
    """A copy that holds something else."""
    made = copy.copy(like)
    if isinstance(made, UserDict | dict | list):
        for key, value in held.items():
            made[key] = value
    else:
        for name, value in held.items():
            object.__setattr__(made, name, value)
    return made
