"""A convolution as a chain: channels are mixed before a smaller convolution, and behind it.

The factors of a kernel fall into three parts. Those in the ``middle``, which have all spatial axes, are
composed to kernels. Those ``before`` hold the input channels and no space: they act on every place alike, so
they are contracted with the input first; those ``after`` likewise with the output of the smaller convolution.
With no factor before or after it is the ordinary convolution by composed kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

from tnshare.network import Network, Node
from tnshare.planning import GROUP_AXIS, IDS, Way

from ._conv import Conv

_BEFORE, _MIDDLE, _AFTER = range(3)


@dataclass(frozen=True)
class Chain:
    """Which factors act before and after the convolution; ``network`` calls the channels i and o."""

    network: Network
    space: tuple[str, ...]
    before: tuple[Node, ...]
    middle: tuple[Node, ...]
    after: tuple[Node, ...]

    @cached_property
    def late(self) -> bool:
        """Whether tasks enter behind the convolution, which then is the same for all of them."""
        return bool(_axes(self.after) & set(self.network.tasks))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The axes that are the input channels of the convolution."""
        return _joining(self.before, self.middle) if self.before else ("i",)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The axes that are its output channels."""
        own = ("o",) if "o" in _axes(self.middle) else ()
        return (*_joining(self.middle, self.after), *own)

    @property
    def name(self) -> str:
        """What is contracted with what."""
        kernels = " . ".join(node.name for node in self.middle)
        parts = [node.name for node in self.before], [node.name for node in self.after]
        return " then ".join([*parts[0], f"convolution by {kernels}", *parts[1]])

    def entering(self, rows: int, places: int) -> Network:
        """The input with the factors before."""
        x = self._signal(("b", "i", "m"), rows, places)
        return Network((*self.before, x), ("b", *self.inputs, "m"))

    def kernels(self, way: Way, groups: int) -> Network:
        """The kernels: of one task, of every one, or of those tasks, or rows, that are present."""
        tasks = () if self.late else self.network.tasks
        every = Network(self.middle, (*tasks, *self.outputs, *self.inputs, *self.space), tasks)
        if not tasks or way in ("each", "fan_out"):
            return every
        return every.drop(*tasks) if way == "one" else every.rename(tasks, GROUP_AXIS, groups)

    def leaving(self, way: Way, rows: int, places: int) -> Network:
        """The output of the convolution with the factors after."""
        tasks, own = (self.network.tasks if self.late else ()), ("b", *self.outputs, "m")
        signal = self._signal((*tasks, *own) if way == "each" else own, rows, places)
        if tasks and way == "mixed":
            ids = Node(IDS, (*tasks, "b"), (*self.network.task_shape, rows), learnt=False)
            return Network((*self.after, signal, ids), ("b", "o", "m"), tasks)
        every = Network((*self.after, signal), (*tasks, "b", "o", "m"), tasks)
        return every.drop(*tasks) if way == "one" else every

    def _signal(self, axes: Sequence[str], rows: int, places: int) -> Node:
        sizes = {**self.network.sizes, "b": rows, "m": places}
        return Node("x", tuple(axes), tuple(sizes[axis] for axis in axes), learnt=False)


@lru_cache(maxsize=1024)
def chains(layer: Conv) -> tuple[Chain, ...]:
    """All ways to divide the factors of a layer, the one with composed kernels first."""
    network = layer.network.rename("m", "o").rename("c", "i")
    found = []
    for labels in product((_MIDDLE, _BEFORE, _AFTER), repeat=len(network.nodes)):
        parts = [
            tuple(node for node, label in zip(network.nodes, labels, strict=True) if label == part)
            for part in (_BEFORE, _MIDDLE, _AFTER)
        ]
        chain = Chain(network, layer.space, *parts)
        if _works(chain, layer.groups):
            found.append(chain)
    return tuple(found)


def _works(chain: Chain, groups: int) -> bool:
    """Whether the parts follow one another, and tasks are in one of them, not before."""
    before, middle, after = _axes(chain.before), _axes(chain.middle), _axes(chain.after)
    tasks = set(chain.network.tasks)
    if not middle >= set(chain.space) or (before | after) & set(chain.space) or before & after:
        return False
    if before & {"o", *tasks} or "i" in after or (tasks & middle and tasks & after):
        return False
    if chain.before and ("i" not in before or not before & middle):
        return False
    if chain.after and (not after & {"o", *tasks} or not after & middle):
        return False
    if not _connected(chain.middle):
        return False  # kernels would be outer products of parts that only meet behind the convolution
    # With groups of channels, what mixes output channels would have to do so within each group.
    return groups == 1 or "o" in middle


def _axes(nodes: Sequence[Node]) -> set[str]:
    return {axis for node in nodes for axis in node.axes}


def _connected(nodes: Sequence[Node]) -> bool:
    """Whether every node can be reached from the first over the axes that they share."""
    reached, rest = set(nodes[0].axes), list(nodes[1:])
    while near := [node for node in rest if reached & set(node.axes)]:
        reached |= _axes(near)
        rest = [node for node in rest if node not in near]
    return not rest


def _joining(first: Sequence[Node], second: Sequence[Node]) -> tuple[str, ...]:
    """The axes that two parts share, in the order of the first's."""
    shared = _axes(first) & _axes(second)
    return tuple(dict.fromkeys(axis for node in first for axis in node.axes if axis in shared))
