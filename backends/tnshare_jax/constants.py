"""Leaves that are not trained: whole numbers, keys, functions; they are static, as a tree's structure is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.tasks import Choice

from .entries import Entry, number, repeated
from .trees import is_array, is_key

if TYPE_CHECKING:
    from .shared import Shared


@dataclass(frozen=True)
class Constant(Entry):
    """A leaf that is static: its value in every task."""

    values: tuple[Fixed, ...]
    trained = False

    def compose(self, shared: Shared, choice: Choice | None) -> Any:
        task, first = number(choice), self.values[0]
        if task is not None:
            return self.values[task].value
        if all(value == first for value in self.values):
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

    def without(self, shared: Shared, task: int) -> tuple[Constant, Any]:
        return replace(self, values=self.values[:task] + self.values[task + 1 :]), None


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
