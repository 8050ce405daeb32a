"""The kinds of leaves of a shared tree: how each is put together for a task, and how tasks come and go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.decomposition import chosen_arrays, chosen_network
from tnshare.files import stacked
from tnshare.ops import NDArray
from tnshare.planning import Choice, Plan
from tnshare_jax._ops import ops

from ._leaves import Leaf, array_of, as_leaf

if TYPE_CHECKING:
    from ._shared_tree import Shared


@dataclass(frozen=True)
class Entry(ABC):
    """A leaf of T trees of one structure: static, hashable; its arrays are in the shared tree, by its name.

    ``order`` brings a weight's axes to those of a stack, (..., in, out); None if it is no weight. Under
    ``field`` it has what is a task's own, its part: arrays whose first axis is that of tasks.
    """

    name: str
    order: tuple[int, ...] | None
    field: ClassVar[Literal["codes", "own"] | None] = None
    trained: ClassVar[bool] = True

    @abstractmethod
    def compose(self, shared: Shared, choice: Choice | None) -> Any:
        """The leaf of the chosen task; of several, or of all (None), stacked with the task axis first."""

    @abstractmethod
    def grown(self, shared: Shared, value: Any) -> tuple[Entry, Any]:
        """Itself and its part with one more task: from its code if it has any, else from its leaf or, without
        one, the mean of the others."""

    @abstractmethod
    def without(self, shared: Shared, task: int) -> tuple[Entry, Any]:
        """Itself and its part with one task less."""

    @abstractmethod
    def described(self, shared: Shared, count: int, code: Any) -> tuple[Entry, Any]:
        """Itself and its part for ``count`` tasks of these codes; what is not shared is the mean of all."""

    def in_common(self, shared: Shared) -> tuple[tn.Network, dict[str, NDArray]] | NDArray | None:
        """What all tasks have a part in, in NumPy: a network and its factors, or one weight."""
        return None

    def saved(self, shared: Shared) -> Any:
        """What is saved: a decomposition or an array of all tasks, a list of each one's, or nothing.

        Of what is static, a tuple: of one for all tasks, or of each one's.
        """
        return None


@dataclass(frozen=True)
class SoftLeaf(Entry):
    """A weight that is kept as factors."""

    order: tuple[int, ...]
    spec: tn.Spec
    network: tn.Network
    field = "codes"

    def compose(self, shared: Shared, choice: Choice | None) -> jax.Array:
        network, factors = self.network, self._factors(shared)
        arrays = [factors[node.name] for node in network.nodes]
        weights = self.stored(network.weight_axes)
        if choice is not None:
            arrays = chosen_arrays(network, arrays, choice, ops)
            network = chosen_network(network, choice)
        rows = tuple(axis for axis in network.output if axis not in weights)
        composed: jax.Array = Plan.flop_optimal(network.to(*rows, *weights)).run(ops, arrays)
        return composed

    def grown(self, shared: Shared, value: Any) -> tuple[SoftLeaf, Any]:
        part = {node: _with_row(code, value[node]) for node, code in shared.codes[self.name].items()}
        return self._for_tasks(shared.tasks + 1), part

    def described(self, shared: Shared, count: int, code: Any) -> tuple[SoftLeaf, Any]:
        return self._for_tasks(count), code

    def without(self, shared: Shared, task: int) -> tuple[SoftLeaf, Any]:
        part = {node: jnp.delete(code, task, axis=0) for node, code in shared.codes[self.name].items()}
        return self._for_tasks(shared.tasks - 1), part

    def saved(self, shared: Shared) -> tn.Decomposition:
        factors = {name: np.asarray(value) for name, value in self._factors(shared).items()}
        ordered = {node.name: factors[node.name] for node in self.network.nodes}
        return tn.Decomposition(self.spec, self.network, ordered)

    def in_common(self, shared: Shared) -> tuple[tn.Network, dict[str, NDArray]]:
        factors = self._factors(shared)
        return self.network, {node.name: array_of(factors[node.name]) for node in self.network.nodes}

    def stored(self, of_stack: tuple[Any, ...]) -> tuple[Any, ...]:
        """What belongs to the axes of the stack, in the order that the leaf has them in."""
        return tuple(of_stack[self.order.index(n)] for n in range(len(self.order)))

    def _factors(self, shared: Shared) -> dict[str, Any]:
        return {**shared.common[self.name], **shared.codes[self.name]}

    def _for_tasks(self, tasks: int) -> SoftLeaf:
        return replace(self, network=self.network.for_tasks(tasks))


@dataclass(frozen=True)
class HardLeaf(Entry):
    """A weight that is the same for all tasks."""

    def compose(self, shared: Shared, choice: Choice | None) -> jax.Array:
        value: jax.Array = repeated(shared.common[self.name]["weight"], shared, choice)
        return value

    def saved(self, shared: Shared) -> NDArray:
        return stacked(np.asarray(shared.common[self.name]["weight"]), self.order)

    def grown(self, shared: Shared, value: Any) -> tuple[HardLeaf, Any]:
        return self, None

    def described(self, shared: Shared, count: int, code: Any) -> tuple[HardLeaf, Any]:
        return self, None

    def in_common(self, shared: Shared) -> NDArray:
        return array_of(shared.common[self.name]["weight"])

    def without(self, shared: Shared, task: int) -> tuple[HardLeaf, Any]:
        return self, None


@dataclass(frozen=True)
class TaskLeaf(Entry):
    """A weight that every task has for itself: one array, stacked; or state of each."""

    is_state: bool = False
    field = "own"

    def compose(self, shared: Shared, choice: Choice | None) -> jax.Array:
        value: jax.Array = shared.own[self.name]
        return value if choice is None else ops.take(value, choice.ids)

    def grown(self, shared: Shared, value: Any) -> tuple[Entry, Any]:
        stack: jax.Array = shared.own[self.name]
        if value is not None and tuple(value.shape) != stack.shape[1:]:
            return RaggedLeaf(self.name, self.order, self.is_state), (*stack, jnp.asarray(value, stack.dtype))
        return self, _with_row(stack, stack.mean(0) if value is None else value)

    def described(self, shared: Shared, count: int, code: Any) -> tuple[TaskLeaf, Any]:
        mean = shared.own[self.name].mean(0)
        return self, jnp.broadcast_to(mean, (count, *mean.shape))

    def saved(self, shared: Shared) -> list[NDArray]:
        return [stacked(np.asarray(value), self.order) for value in shared.own[self.name]]

    def without(self, shared: Shared, task: int) -> tuple[TaskLeaf, Any]:
        return self, jnp.delete(shared.own[self.name], task, axis=0)


@dataclass(frozen=True)
class RaggedLeaf(TaskLeaf):
    """A weight that every task has for itself, in a shape of its own: a tuple of arrays."""

    def compose(self, shared: Shared, choice: Choice | None) -> jax.Array:
        task = known_task(choice)
        if task is None:
            raise tn.TnshareError(
                f"{self.name} differs in shape between tasks, so they cannot be stacked, nor chosen by a "
                "traced number: compose one task at a time, by a whole number"
            )
        value: jax.Array = shared.own[self.name][task]
        return value

    def grown(self, shared: Shared, value: Any) -> tuple[RaggedLeaf, Any]:
        if value is None:
            raise self._no_mean()
        arrays: tuple[jax.Array, ...] = shared.own[self.name]
        return self, (*arrays, jnp.asarray(value, arrays[0].dtype))

    def described(self, shared: Shared, count: int, code: Any) -> tuple[RaggedLeaf, Any]:
        raise self._no_mean()

    def _no_mean(self) -> tn.TnshareError:
        return tn.TnshareError(
            f"{self.name} has another shape in every task, so there is no mean: give add_task a tree"
        )

    def without(self, shared: Shared, task: int) -> tuple[RaggedLeaf, Any]:
        arrays: tuple[jax.Array, ...] = shared.own[self.name]
        return self, arrays[:task] + arrays[task + 1 :]


@dataclass(frozen=True)
class TiedLeaf(Entry):
    """A weight that is another one: one array in two places of a tree."""

    to: str

    def compose(self, shared: Shared, choice: Choice | None) -> Any:
        (other,) = (entry for entry in shared.structure.entries if entry.name == self.to)
        return other.compose(shared, choice)

    def grown(self, shared: Shared, value: Any) -> tuple[TiedLeaf, Any]:
        return self, None

    def described(self, shared: Shared, count: int, code: Any) -> tuple[TiedLeaf, Any]:
        return self, None

    def without(self, shared: Shared, task: int) -> tuple[TiedLeaf, Any]:
        return self, None


def entry_of(
    leaf: Leaf, value: tn.Decomposition | NDArray | Sequence[NDArray]
) -> tuple[Entry, dict[str, Any]]:
    """A leaf that is a decomposition, one array for all tasks, or one for each; and its arrays, by field."""
    name, order, dtype = leaf.name, leaf.order, leaf.value.dtype
    if isinstance(value, tn.Decomposition):
        parts: tuple[dict[str, jax.Array], dict[str, jax.Array]] = {}, {}
        for node in value.network.nodes:
            parts[value.network.is_coded(node)][node.name] = as_leaf(value.factors[node.name], dtype)
        own = order or tuple(range(len(value.network.weight_axes)))
        return SoftLeaf(name, own, value.spec, value.network), {"common": parts[0], "codes": parts[1]}
    if isinstance(value, np.ndarray):
        return HardLeaf(name, order), {"common": {"weight": as_leaf(value, dtype)}}
    if len({one.shape for one in value}) > 1:
        return RaggedLeaf(name, order, leaf.is_state), {"own": tuple(as_leaf(one, dtype) for one in value)}
    return TaskLeaf(name, order, leaf.is_state), {"own": as_leaf(np.stack(value), dtype)}


def known_task(choice: Choice | None) -> int | None:
    """The number of the chosen task, if it is one, and known while tracing."""
    value = None if choice is None or choice.rows is not None else ops.values(choice.ids[0])
    return None if value is None else int(value)


def repeated(value: Any, shared: Shared, choice: Choice | None) -> Any:
    """What all tasks have in common, as often as tasks are chosen."""
    rows = shared.tasks if choice is None else choice.rows
    return value if rows is None else jnp.broadcast_to(value, (rows, *np.shape(value)))


def _with_row(stack: jax.Array, row: Any) -> jax.Array:
    return jnp.concatenate([stack, jnp.asarray(row, stack.dtype)[None]])
