"""Leaves that are not trained: whole numbers, keys, functions; they are static, as a tree's structure is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.files import Keys
from tnshare.planning import Choice
from tnshare_jax._ops import is_key

from ._entries import Entry, known_task, repeated
from ._leaves import Leaf, is_array

if TYPE_CHECKING:
    from ._shared_tree import Shared


@dataclass(frozen=True)
class Constant(Entry):
    """A leaf that is static: its value in every task."""

    values: tuple[Fixed, ...]
    trained = False

    def compose(self, shared: Shared, choice: Choice | None) -> Any:
        task, first = known_task(choice), self.values[0]
        if task is not None:
            return self.values[task].value
        if not self.differs:
            return repeated(first.value, shared, choice) if first.stacks else first.value
        if not first.stacks or len({value.shape for value in self.values}) > 1:
            raise tn.TnshareError(
                f"{self.name} is static and differs between tasks, so they cannot be stacked, nor chosen by "
                "a traced number: compose one task at a time, by a whole number"
            )
        stack = jnp.stack([value.value for value in self.values])
        return stack if choice is None else jnp.take(stack, choice.ids[0], axis=0, mode="clip")

    def grown(self, shared: Shared, value: Any) -> tuple[Constant, Any]:
        new = self.values[0] if value is None else Fixed(value)
        return replace(self, values=(*self.values, new)), None

    def saved(self, shared: Shared) -> tuple[Any, ...] | None:
        values = tuple(value.saved for value in (self.values if self.differs else self.values[:1]))
        if len(values) > 1 and any(value is None for value in values):
            raise tn.TnshareError(
                f"{self.name} is static and differs between tasks, and a file cannot hold it, which is no "
                "number, key or word: all tasks would have one when it is read, so give them the same"
            )
        return None if any(value is None for value in values) else values

    @property
    def differs(self) -> bool:
        """Whether it is not the same in all tasks."""
        return any(value != self.values[0] for value in self.values)

    def described(self, shared: Shared, count: int, code: Any) -> tuple[Constant, Any]:
        return replace(self, values=self.values[:1] * count), None

    def without(self, shared: Shared, task: int) -> tuple[Constant, Any]:
        return replace(self, values=self.values[:task] + self.values[task + 1 :]), None


def restored_constant(column: Sequence[Leaf], saved: Sequence[Any] | None, tasks: int) -> Constant:
    """A static leaf from its saved values, of all tasks or of each, or as it is in the tree or trees."""
    leaf = column[0]
    given = [leaf.value for leaf in column] if saved is None else [_like(leaf, value) for value in saved]
    if any(isinstance(value, jax.ShapeDtypeStruct) for value in given):
        raise tn.TnshareError(
            f"{leaf.name} is static, and its numbers are not in the state: give a tree that has them"
        )
    return Constant(leaf.name, None, tuple(map(Fixed, given * (1 if len(given) == tasks else tasks))))


def _like(leaf: Leaf, value: Any) -> Any:
    """A saved value as what the leaf is in its tree."""
    own = leaf.value
    keys = hasattr(own, "dtype") and is_key(own)
    if isinstance(value, Keys) and keys:
        try:
            return jax.random.wrap_key_data(jnp.asarray(value.numbers), impl=value.implementation)
        except (TypeError, ValueError) as error:
            raise tn.TnshareError(
                f"{leaf.name} has keys in the state that JAX cannot make, {value.implementation[:40]!r} "
                f"{value.numbers.dtype} {value.numbers.shape}"
            ) from error
    if hasattr(own, "dtype") and not keys and not isinstance(value, Keys | str):
        return np.asarray(value).astype(own.dtype)
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if type(value) is not type(own):
        found = type(value).__name__
        raise tn.TnshareError(f"{leaf.name} is {leaf.kind} in the tree, but {found} in the state")
    return value


class Fixed:
    """Anything as a hashable value: arrays and keys by their numbers, objects by their own equality."""

    def __init__(self, value: Any) -> None:
        self.stacks = is_array(value)
        self.shape = tuple(np.shape(value)) if self.stacks else ()
        self._implementation = str(jax.random.key_impl(value)) if self.stacks and is_key(value) else None
        if self._implementation is not None:
            value = jax.random.key_data(value)
        self._value = np.array(value) if self.stacks else value

    @property
    def value(self) -> Any:
        """The leaf again."""
        if not self.stacks:
            return self._value
        if self._implementation is None:
            return jnp.asarray(self._value)
        return jax.random.wrap_key_data(jnp.asarray(self._value), impl=self._implementation)

    @property
    def saved(self) -> Any:
        """The leaf as a file can hold it: numbers, keys, words; None of a function, say."""
        if self.stacks:
            return self._value if self._implementation is None else Keys(self._implementation, self._value)
        return self._value if type(self._value) in (bool, int, float, str) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Fixed({self._value!r})"

    @cached_property
    def _identity(self) -> Any:
        if self.stacks:
            return self._implementation, self._value.dtype, self._value.shape, self._value.tobytes()
        try:
            hash(self._value)
        except TypeError:
            return id(self._value)
        return type(self._value), self._value
