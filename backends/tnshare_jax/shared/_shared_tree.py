"""T pytrees of one structure as one: factors for all tasks, codes and leaves of each, and how to go back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.decomposition import CodeLayout, Fit
from tnshare.models import Roster, added_task, sharing_of_layers, similarity_of_layers
from tnshare.ops import NDArray
from tnshare_jax._ops import ops

from ._codes import checked_code, fitted, joined, split
from ._entries import Entry, SoftLeaf, TaskLeaf, TiedLeaf, known_task
from ._leaves import Leaf, check_names, read_leaves

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

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_hash"}  # one for each process

    @cached_property
    def _hash(self) -> int:
        return hash((self.treedefs, self.entries, self.roster, self.summary))

    @cached_property
    def layout(self) -> CodeLayout:
        """Where the codes of each weight are in a task's code: in the order of the tree's leaves."""
        return CodeLayout({e.name: e.network for e in self.entries if isinstance(e, SoftLeaf)})

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

    def compose(self, task: Any = None, *, code: Any = None) -> Any:
        """The tree of one task, as the user's own functions take it.

        A task is a number, which may be traced, or a name. For all tasks (None), or those of ids (rows,), the
        leaves are stacked with the task axis first, ready for `jax.vmap`. A traced number that is out of
        range gives NaN. Tasks may be given by their codes instead of being among those of the tree: ``code``
        is one, (code_size,), or several, (tasks, code_size), which ``task`` then counts; what is not shared
        they have as the mean of the tree's own tasks.
        """
        if code is not None:
            given = self._described(code)
            return given.compose(0 if task is None and jnp.ndim(code) == 1 else task)
        choice = None if task is None else self.structure.roster.choice(task, ops)
        treedef = self.structure.treedef(known_task(choice))
        leaves: dict[str, Any] = {}
        for entry in self.structure.entries:
            one = leaves[entry.to] if isinstance(entry, TiedLeaf) else entry.compose(self, choice)
            leaves[entry.name] = one
        return jax.tree.unflatten(treedef, leaves.values())

    def unshare(self) -> list[Any]:
        """T plain trees."""
        return [self.compose(task) for task in range(self.tasks)]

    def labels(self) -> Shared:
        """The same tree with words for arrays, as `optax.multi_transform` takes them.

        They are ``"shared"`` (factors and weights of all tasks), ``"codes"``, ``"own"``, and ``"state"``:
        what networks write while they run, as statistics of norms, which nothing should train or decay.
        """
        state = {
            entry.name for entry in self.structure.entries if isinstance(entry, TaskLeaf) and entry.is_state
        }
        parts = {"shared": self.common, "codes": self.codes}
        words = {word: jax.tree.map(lambda _, word=word: word, part) for word, part in parts.items()}
        own = {
            name: jax.tree.map(lambda _, name=name: "state" if name in state else "own", part)
            for name, part in self.own.items()
        }
        return Shared(words["shared"], words["codes"], own, self.structure)

    def sharing(self, normalise: bool = True) -> dict[str, float]:
        """The paper's sharing strength of every softly shared weight."""
        return sharing_of_layers(self.decompositions(), normalise)

    def similarity(self) -> dict[str, NDArray]:
        """T x T cosines of the tasks' weights, for every softly shared weight."""
        return similarity_of_layers(self.decompositions())

    def report(self) -> str:
        """What `share` did, as a table."""
        return self.structure.summary

    @property
    def code_size(self) -> int:
        """How many numbers tell a task from others: the codes of all softly shared weights together."""
        return self.structure.layout.size

    def code(self, task: Any = None) -> jax.Array:
        """The codes of a task, in a row (code_size,): what ``code=`` takes; of all tasks, or ids, as rows."""
        if task is None:
            return joined(self, self.codes)
        ids = self.structure.roster.choice(task, ops).ids
        return ops.take(joined(self, self.codes), ids)

    def fit_code(self, tree: Any) -> Fit[jax.Array]:
        """The code that comes closest to a tree's weights, by least squares, and the errors."""
        return fitted(self, self._leaves(tree))

    def add_task(self, tree: Any = None, name: str | None = None, *, code: Any = None) -> Shared:
        """One more task, whose codes come as close to a tree's weights as the factors allow.

        Or with a code that is given; without either it starts from the mean of the others. What others have
        stays bit by bit the same, also weights that all tasks have in common: the report says how far off
        the tree's own are.
        """
        if tree is not None and code is not None:
            raise tn.TnshareError("give add_task a tree or a code, not both")
        roster, summary = self.structure.roster.grown(name), self.structure.summary
        leaves: dict[str, Any] = {}
        treedefs = self._treedefs()
        if tree is not None:
            read = self._leaves(tree)
            fit = fitted(self, read)
            code, leaves = fit.code, {leaf.name: leaf.value for leaf in read.values()}
            treedefs.append(jax.tree.structure(tree))
            summary += added_task(self.tasks, fit.errors)
        elif code is not None and jnp.ndim(code) == 2:
            raise tn.TnshareError(f"add_task takes the code of one task: found {len(code)} codes")
        row = self.code().mean(0) if code is None else checked_code(self, code)
        if not isinstance(row, jax.core.Tracer) and not bool(jnp.isfinite(row).all()):
            raise tn.TnshareError("a code must be finite: found NaN or infinity")
        leaves |= split(self, row)
        return self._changed(treedefs, roster, summary, lambda e: e.grown(self, leaves.get(e.name)))

    def remove_task(self, task: int | str) -> Shared:
        """One task less; those behind it move up by one."""
        gone = self.structure.roster.index(task, ops)
        treedefs = self._treedefs()
        del treedefs[gone]
        roster = self.structure.roster.without(gone)
        return self._changed(treedefs, roster, self.structure.summary, lambda e: e.without(self, gone))

    def state(self) -> tn.State:
        """All that is trained, for `tnshare.save`; weights have the axes of a stack, (..., in, out).

        And what is static, as far as a file can hold it: numbers, keys and words, but no functions.
        """
        entries: dict[str, Any] = {}
        constants: dict[str, tuple[Any, ...]] = {}
        own: list[dict[str, Any]] = [{} for _ in range(self.tasks)]
        for entry in self.structure.entries:
            saved = entry.saved(self)
            if isinstance(saved, tuple):
                constants[entry.name] = saved
            elif isinstance(saved, list):
                for found, value in zip(own, saved, strict=True):
                    found[entry.name] = value
            elif saved is not None:
                entries[entry.name] = saved
        return tn.State(entries, tuple(own), self.names, constants)

    def decompositions(self) -> dict[str, tuple[tn.Network, dict[str, NDArray]]]:
        """Network and factors of every soft weight, in NumPy."""
        return {e.name: e.in_common(self) for e in self.structure.entries if isinstance(e, SoftLeaf)}

    def __repr__(self) -> str:
        soft = sum(isinstance(entry, SoftLeaf) for entry in self.structure.entries)
        return f"Shared(tasks={self.tasks}, {soft} of {len(self.structure.entries)} leaves as factors)"

    def _leaves(self, tree: Any) -> dict[str, Leaf]:
        """The leaves of a tree that is to be one more task, by name."""
        leaves = read_leaves(tree, "the new one")
        check_names([entry.name for entry in self.structure.entries], leaves, "the new one")
        for entry, leaf in zip(self.structure.entries, leaves, strict=True):
            if entry.trained != leaf.floating:
                wanted = "a floating array" if entry.trained else "static"
                raise tn.TnshareError(f"{leaf.name} must be {wanted}: found {leaf.kind} in the new one")
        found = {leaf.name: leaf for leaf in leaves}
        for entry in self.structure.entries:
            if isinstance(entry, TiedLeaf):
                _check_tie(found[entry.name], found[entry.to])
        return found

    def _treedefs(self) -> list[Treedef]:
        """The structure of each task's tree."""
        found = self.structure.treedefs
        return list(found if len(found) > 1 else found * self.tasks)

    def _described(self, code: Any) -> Shared:
        """The tasks of codes, in the place of its own."""
        given = checked_code(self, code)
        rows = given if given.ndim == 2 else given[None]
        parts, count = split(self, rows), len(rows)
        return self._changed(
            self.structure.treedefs,
            Roster(count),
            self.structure.summary,
            lambda entry: entry.described(self, count, parts.get(entry.name)),
        )

    def _changed(
        self,
        treedefs: Sequence[Treedef],
        roster: Roster,
        summary: str,
        change: Callable[[Entry], tuple[Entry, Any]],
    ) -> Shared:
        parts: dict[str | None, dict[str, Any]] = {"codes": {}, "own": {}, None: {}}
        entries = []
        for entry in self.structure.entries:
            new, parts[entry.field][entry.name] = change(entry)
            entries.append(new)
        structure = Structure(one_if_alike(treedefs), tuple(entries), roster, summary)
        return Shared(self.common, parts["codes"], parts["own"], structure)


def _check_tie(leaf: Leaf, other: Leaf) -> None:
    """Refuse a tree in which what is one weight here is two."""
    if leaf.value is not other.value and not np.array_equal(leaf.value, other.value):
        raise tn.TnshareError(
            f"{leaf.name} and {other.name} are one weight here: found other numbers in the new one"
        )


def assembled(
    made: Iterable[tuple[Entry, dict[str, Any]]], treedefs: tuple[Treedef, ...], roster: Roster, summary: str
) -> Shared:
    """The shared tree of entries and their arrays, by field."""
    parts: dict[str, dict[str, Any]] = {"common": {}, "codes": {}, "own": {}}
    entries: list[Entry] = []
    for entry, fields in made:
        entries.append(entry)
        for name, arrays in fields.items():
            parts[name][entry.name] = arrays
    return Shared(**parts, structure=Structure(treedefs, tuple(entries), roster, summary))


def one_if_alike(treedefs: Sequence[Treedef]) -> tuple[Treedef, ...]:
    """One structure if all are the same, else all."""
    return tuple(treedefs[:1] if all(t == treedefs[0] for t in treedefs) else treedefs)
