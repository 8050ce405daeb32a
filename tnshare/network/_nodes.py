"""A factorisation as data: named tensors joined by named axes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import opt_einsum

from tnshare.checks import flag, fresh, identifier, listed, whole
from tnshare.errors import TnshareError


@dataclass(frozen=True, repr=False)
class Node:
    """One tensor: its name, the names of its axes and their sizes, in the order of storage.

    ``learnt`` is False for what training does not change: an input, or codes that are given and frozen.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    learnt: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", listed("the axes of a node", self.axes, "names"))
        object.__setattr__(self, "shape", listed("the shape of a node", self.shape, "sizes"))
        for what, name in (("a node", self.name), *(("an axis", axis) for axis in self.axes)):
            identifier(what, name)
        flag(f"learnt of node {self.name}", self.learnt)
        if len(self.axes) != len(self.shape):
            raise TnshareError(
                f"node {self.name} has {len(self.axes)} axes {self.axes} but shape {self.shape}"
            )
        if len(set(self.axes)) != len(self.axes):
            raise TnshareError(f"node {self.name} names an axis twice: {self.axes}")
        sizes = (
            whole(f"the size of axis {axis!r} of node {self.name}", size, least=0)
            for axis, size in zip(self.axes, self.shape, strict=True)
        )
        object.__setattr__(self, "shape", tuple(sizes))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{a}={n}' for a, n in zip(self.axes, self.shape, strict=True))})"


@dataclass(frozen=True, repr=False)
class Network:
    """Tensors joined by the axes they share, and the axes of what their contraction gives.

    An axis in several nodes joins them. It is summed over unless it is in ``output``. ``tasks`` are the axes
    that tell tasks apart; they come first in the storage order of every node that has them, so that choosing
    a task is choosing rows.
    """

    nodes: tuple[Node, ...]
    output: tuple[str, ...]
    tasks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, what in (("nodes", "tnshare.Node"), ("output", "axes"), ("tasks", "axes")):
            object.__setattr__(self, name, listed(f"{name} of a network", getattr(self, name), what))
        _check_nodes(self.nodes)
        _check_unique(node.name for node in self.nodes)
        _check_unique(self.output)
        _check_unique(self.tasks)
        counts = Counter(axis for node in self.nodes for axis in node.axes)
        for axis in (*self.output, *self.tasks):
            if axis not in counts:
                raise TnshareError(f"no node has the axis {axis!r}: expected one of {tuple(counts)}")
        for axis, count in counts.items():
            if count == 1 and axis not in self.output:
                raise TnshareError(f"axis {axis!r} is in one node only and not in the output {self.output}")
        for node in self.nodes:
            for axis, size in zip(node.axes, node.shape, strict=True):
                if self._sizes[axis] != size:
                    raise TnshareError(f"axis {axis!r} has size {self._sizes[axis]} and, in {node}, {size}")
            own = [axis in self.tasks for axis in node.axes]
            if own != sorted(own, reverse=True):
                raise TnshareError(f"the task axes {self.tasks} must come first in {node}")

    def __hash__(self) -> int:
        return self._hash  # plans are looked up by network at every call

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_hash"}  # one for each process

    @cached_property
    def _hash(self) -> int:
        return hash((self.nodes, self.output, self.tasks))

    @property
    def sizes(self) -> dict[str, int]:
        """The size of every axis."""
        return dict(self._sizes)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for node in self.nodes:
            for axis, size in zip(node.axes, node.shape, strict=True):
                sizes.setdefault(axis, size)
        return sizes

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape in which each tensor is stored, by name."""
        return {node.name: node.shape for node in self.nodes}

    @property
    def parameters(self) -> int:
        """How many numbers training learns."""
        return sum(math.prod(node.shape) for node in self.nodes if node.learnt)

    @cached_property
    def task_shape(self) -> tuple[int, ...]:
        """The sizes of the task axes."""
        return tuple(self._sizes[axis] for axis in self.tasks)

    @property
    def weight_axes(self) -> tuple[str, ...]:
        """The axes of the output that are not task axes."""
        return tuple(axis for axis in self.output if axis not in self.tasks)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what the contraction gives."""
        return tuple(self._sizes[axis] for axis in self.output)

    @cached_property
    def equation(self) -> str:
        """The contraction as an einsum equation; the operands are in the order of ``shapes``.

        Past 52 axes the symbols go on into Unicode, which opt_einsum understands and NumPy does not.
        """
        symbol = {axis: opt_einsum.get_symbol(n) for n, axis in enumerate(self._sizes)}
        operands = ",".join("".join(symbol[axis] for axis in node.axes) for node in self.nodes)
        return f"{operands}->{''.join(symbol[axis] for axis in self.output)}"

    @property
    def bonds(self) -> dict[str, tuple[str, ...]]:
        """The axes that join nodes, with the names of the nodes they join."""
        holders = {axis: tuple(n.name for n in self.nodes if axis in n.axes) for axis in self._sizes}
        return {axis: names for axis, names in holders.items() if len(names) > 1}

    def node(self, name: str) -> Node:
        """The node of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise TnshareError(f"no node is called {name!r}: expected one of {tuple(self.shapes)}")

    def is_coded(self, node: Node) -> bool:
        """Whether a node holds codes: numbers of single tasks."""
        return bool(self.task_columns(node))

    def task_columns(self, node: Node) -> tuple[int, ...]:
        """The numbers of a node's task axes among ``tasks``: the columns of ids that choose its rows."""
        return tuple(self.tasks.index(axis) for axis in node.axes if axis in self.tasks)

    def side(self, name: str, bond: str) -> tuple[Node, ...]:
        """The nodes that hang together with the named one when the bond is cut."""
        if bond not in self.node(name).axes or bond not in self.bonds:
            raise TnshareError(f"{bond!r} is no bond of node {name!r}: expected one of {tuple(self.bonds)}")
        found, grown = {self.node(name)}, True
        while grown:
            reached = {axis for node in found for axis in node.axes} - {bond, *self.output}
            more = {node for node in self.nodes if reached & set(node.axes)} - found
            found, grown = found | more, bool(more)
        return tuple(node for node in self.nodes if node in found)

    def rename(self, old: str | Sequence[str], new: str, size: int | None = None) -> Network:
        """Call an axis something else, with another size if one is given.

        Several axes may become one: in a node that has more than one of them they are a single axis then.
        Renamed task axes are task axes no longer: ``rename("task", "b", rows)`` is a batch of rows, each with
        a task of its own.
        """
        olds = (old,) if isinstance(old, str) else tuple(old)
        self._check_known(olds)
        if not olds or (new in self.sizes and new not in olds):
            raise TnshareError(f"cannot rename {olds} to {new!r}: name an axis, and a new one")
        if size is None and len(olds) > 1:
            raise TnshareError(f"axes {olds} become one axis {new!r}: say its size")
        target = self._sizes[olds[0]] if size is None else whole(f"the size of axis {new!r}", size, least=0)
        sizes = {**self._sizes, new: target}

        def renamed(axes: Iterable[str]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(new if axis in olds else axis for axis in axes))

        nodes = []
        for node in self.nodes:
            axes = renamed(node.axes)
            nodes.append(replace(node, axes=axes, shape=tuple(sizes[axis] for axis in axes)))
        return Network(tuple(nodes), renamed(self.output), _without(self.tasks, olds))

    def drop(self, *axes: str) -> Network:
        """Take one index of each of these axes: they are gone from every node and from the output."""
        self._check_known(axes)
        nodes = []
        for node in self.nodes:
            kept = [(a, n) for a, n in zip(node.axes, node.shape, strict=True) if a not in axes]
            nodes.append(replace(node, axes=tuple(a for a, _ in kept), shape=tuple(n for _, n in kept)))
        return Network(tuple(nodes), _without(self.output, axes), _without(self.tasks, axes))

    def feed(self, name: str, axes: Sequence[str], output: Sequence[str], /, **sizes: int) -> Network:
        """Join an input as one more node and contract to ``output``; ``sizes`` are those of new axes."""
        for axis in sizes.keys() - set(axes):
            raise TnshareError(f"{name!r} has the axes {tuple(axes)}: found a size for {axis!r}")
        known = {**self._sizes, **sizes}
        for axis in axes:
            if axis not in known:
                raise TnshareError(f"the size of axis {axis!r} of {name!r} is not known: say {axis}=...")
        node = Node(name, tuple(axes), tuple(known[axis] for axis in axes), learnt=False)
        return Network((*self.nodes, node), tuple(output), self.tasks)

    def for_tasks(self, tasks: int) -> Network:
        """The same network for another number of tasks."""
        (axis,), tasks = self.tasks, whole("tasks", tasks)
        other = fresh(axis, self._sizes)
        renamed = self.rename(axis, other, tasks).rename(other, axis)
        return Network(renamed.nodes, renamed.output, (axis,))

    def to(self, *output: str) -> Network:
        """The same network with the axes of its result in this order."""
        if sorted(output) != sorted(self.output):
            raise TnshareError(f"expected the axes {self.output} in any order, found {output}")
        return replace(self, output=output)

    def __repr__(self) -> str:
        return f"Network({', '.join(map(repr, self.nodes))} -> {', '.join(self.output)})"

    def describe(self) -> str:
        """The contraction graph as text: a line a tensor, then a line a bond."""
        lines = [f"{node!r}{'' if node.learnt else '  (not learnt)'}" for node in self.nodes]
        lines += [f"  {axis}: {' -- '.join(names)}" for axis, names in self.bonds.items()]
        return "\n".join([*lines, f"gives ({', '.join(f'{a}={self._sizes[a]}' for a in self.output)})"])

    def _check_known(self, axes: Iterable[str]) -> None:
        for axis in axes:
            if axis not in self._sizes:
                raise TnshareError(f"no axis is called {axis!r}: expected one of {tuple(self._sizes)}")


def _without(axes: tuple[str, ...], gone: Iterable[str]) -> tuple[str, ...]:
    return tuple(axis for axis in axes if axis not in tuple(gone))


def _check_nodes(nodes: tuple[Node, ...]) -> None:
    if not nodes or not all(isinstance(node, Node) for node in nodes):
        raise TnshareError(
            f"a network needs at least one node, and all its nodes must be tnshare.Node: found {nodes!r:.80}"
        )


def _check_unique(names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise TnshareError(f"the name {name!r} is used {count} times: expected it once")
