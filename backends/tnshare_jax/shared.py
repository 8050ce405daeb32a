"""T pytrees of one structure as one: factors for all tasks, codes and leaves of each, and how to go back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax

import tnshare as tn
from tnshare.model import layer_name
from tnshare.ops import NDArray
from tnshare.roster import Roster

from .entries import Entry, Soft, number
from .ops import ops
from .trees import Leaf, check_names, read_leaves

Treedef = Any  # jax has no public name for the class that types check


@dataclass(frozen=True)
class Structure:
    """What of a shared tree is no array to train; hashable, so that jit can tell when to trace again.

    ``treedefs`` is one for all tasks, or one for each where trees differ in what is static.
    """

    treedefs: tuple[Treedef, ...]
    entries: tuple[Entry, ...]
    roster: Roster
    summary: str  # compared too: what jit returns has the structure that it was traced with

    def __hash__(self) -> int:
        return self._hash  # asked for at every call of a jitted function

    @cached_property
    def _hash(self) -> int:
        return hash((self.treedefs, self.entries, self.roster, self.summary))

    def treedef(self, task: int | None) -> Treedef:
        """The structure of the tree of a task, or that of all."""
        if len(self.treedefs) == 1:
            return self.treedefs[0]
        if task is None:
            raise tn.TnshareError(
                "the trees differ in what is static, so they cannot be stacked, nor chosen by a traced "
                "number: compose one task at a time, by a whole number"
            )
        return self.treedefs[task]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Shared:
    """What `share` makes of T trees: itself a pytree, whose leaves are floating arrays to train.

    ``common`` holds, for each weight, the factors of all tasks; ``codes`` its codes (T, ...); ``own`` what is
    not shared, (T, ...), or a tuple of T arrays where shapes differ. What changes a Shared gives a new one.
    """

    common: dict[str, dict[str, Any]]
    codes: dict[str, dict[str, Any]]
    own: dict[str, Any]
    structure: Structure = field(metadata={"static": True})

    @property
    def tasks(self) -> int:
        """How many there are."""
        return self.structure.roster.count

    @property
    def names(self) -> tuple[str, ...]:
        """What tasks are called, if they have names."""
        return self.structure.roster.names

    def compose(self, task: Any = None) -> Any:
        """The tree of one task, as the user's own functions take it.

        A task is a number, which may be traced, or a name. For all tasks (None), or those of ids (rows,), the
        leaves are stacked with the task axis first, ready for `jax.vmap`. A traced number that is out of
        range gives NaN.
        """
        choice = None if task is None else self.structure.roster.choice(task, ops)
        treedef = self.structure.treedef(number(choice))
        leaves = [entry.compose(self, choice) for entry in self.structure.entries]
        return jax.tree.unflatten(treedef, leaves)

    def unshare(self) -> list[Any]:
        """T plain trees."""
        return [self.compose(task) for task in range(self.tasks)]

    def labels(self) -> Shared:
        """The same tree with words for arrays, as `optax.multi_transform` takes them.

        They are ``"shared"`` (factors and weights of all tasks), ``"codes"`` and ``"own"``.
        """
        parts = {"shared": self.common, "codes": self.codes, "own": self.own}
        words = {word: jax.tree.map(lambda _, word=word: word, part) for word, part in parts.items()}
        return Shared(words["shared"], words["codes"], words["own"], self.structure)

    def sharing(self, normalise: bool = True) -> dict[str, float]:
        """The paper's sharing strength of every softly shared weight."""
        strengths = {
            name: tn.sharing_strength(tn.codes(*d), normalise=normalise)
            for name, d in self.decompositions().items()
        }
        return {layer_name(name, strengths): value for name, value in strengths.items()}

    def similarity(self) -> dict[str, NDArray]:
        """T x T cosines of the tasks' weights, for every softly shared weight."""
        cosines = {name: tn.task_similarity(*d) for name, d in self.decompositions().items()}
        return {layer_name(name, cosines): value for name, value in cosines.items()}

    def report(self) -> str:
        """What `share` did, as a table."""
        return self.structure.summary

    def add_task(self, tree: Any = None, name: str | None = None) -> Shared:
        """One more task, whose codes come as close to a tree's weights as the factors allow.

        Without a tree it starts from the mean of the others. What others have stays bit by bit the same.
        """
        roster = self.structure.roster.grown(name)
        leaves = None if tree is None else self._leaves(tree)
        treedefs = self._treedefs() if tree is None else [*self._treedefs(), jax.tree.structure(tree)]

        def grown(entry: Entry) -> tuple[Entry, Any]:
            return entry.grown(self, None if leaves is None else leaves[entry.name].value)

        return self._changed(treedefs, roster, grown)

    def remove_task(self, task: int | str) -> Shared:
        """One task less; those behind it move up by one."""
        gone = self.structure.roster.index(task, ops)
        treedefs = self._treedefs()
        del treedefs[gone]
        return self._changed(treedefs, self.structure.roster.without(gone), lambda e: e.without(self, gone))

    def state(self) -> tn.State:
        """All that is trained, for `tnshare.save`; weights have the axes of a stack, (..., in, out)."""
        entries: dict[str, Any] = {}
        own: list[dict[str, Any]] = [{} for _ in range(self.tasks)]
        for entry in self.structure.entries:
            saved = entry.saved(self)
            if isinstance(saved, list):
                for found, value in zip(own, saved, strict=True):
                    found[entry.name] = value
            elif saved is not None:
                entries[entry.name] = saved
        return tn.State(entries, tuple(own), self.names)

    def decompositions(self) -> dict[str, tuple[tn.Network, dict[str, NDArray]]]:
        """Network and factors of every soft weight, in NumPy."""
        return {e.name: e.decomposed(self) for e in self.structure.entries if isinstance(e, Soft)}

    def __repr__(self) -> str:
        soft = sum(isinstance(entry, Soft) for entry in self.structure.entries)
        return f"Shared(tasks={self.tasks}, {soft} of {len(self.structure.entries)} leaves as factors)"

    def _leaves(self, tree: Any) -> dict[str, Leaf]:
        """The leaves of a tree that is to be one more task, by name."""
        leaves = read_leaves(tree, "the new one")
        check_names([entry.name for entry in self.structure.entries], leaves, "the new one")
        for entry, leaf in zip(self.structure.entries, leaves, strict=True):
            if entry.trained != leaf.floating:
                wanted = "a floating array" if entry.trained else "static"
                raise tn.TnshareError(f"{leaf.name} must be {wanted}: found {leaf.kind} in the new one")
        return {leaf.name: leaf for leaf in leaves}

    def _treedefs(self) -> list[Treedef]:
        """The structure of each task's tree."""
        found = self.structure.treedefs
        return list(found if len(found) > 1 else found * self.tasks)

    def _changed(
        self, treedefs: Sequence[Treedef], roster: Roster, change: Callable[[Entry], tuple[Entry, Any]]
    ) -> Shared:
        parts: dict[str | None, dict[str, Any]] = {"codes": {}, "own": {}, None: {}}
        entries = []
        for entry in self.structure.entries:
            new, parts[entry.field][entry.name] = change(entry)
            entries.append(new)
        structure = Structure(distinct(treedefs), tuple(entries), roster, self.structure.summary)
        return Shared(self.common, parts["codes"], parts["own"], structure)


def distinct(treedefs: Sequence[Treedef]) -> tuple[Treedef, ...]:
    """One structure if all are the same, else all."""
    return tuple(treedefs[:1] if all(t == treedefs[0] for t in treedefs) else treedefs)
