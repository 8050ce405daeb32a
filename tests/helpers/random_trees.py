"""Small random pytrees, and whether a shared one is what the trees given are, or says what it cannot.

``outcome(seed)`` draws trees, of containers or of a framework's modules, shares them at eps = 0, and compares
in all ways: one task, several, all, by traced numbers; values, gradients, saved and restored, tasks added and
gone. The same seed is the same trees.
"""

from __future__ import annotations

import dataclasses
import random
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tnshare_jax as tnj
from random_tree_modules import MODULES, Made

import tnshare as tn

jnp = jax.numpy
SHAPES = ((), (3,), (4, 3), (4, 3), (2, 2, 3), (1, 1), (2, 0))  # few: JAX compiles each anew
METHODS = ("laf", "tucker", "tt")
CLOSE = {"float32": 2e-4, "float16": 2e-2, "bfloat16": 2e-1}
WRONG = ("structure", "stack", "stream", "missing", "kind")  # what share must refuse
DIFFER = ("whole number", "function", "head", "key")  # what one task may have otherwise


class Pair(NamedTuple):
    one: Any
    two: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Record:
    w: Any
    rest: Any
    name: str = dataclasses.field(default="record", metadata={"static": True})


@dataclass
class Outcome:
    """What became of a seed: "equal", "refused" or "failed", and why."""

    kind: str
    text: str = ""
    checks: int = 0


@dataclass
class Case:
    """What a seed says: trees, how they are run and shared, and what is wrong with them."""

    seed: int
    trees: list[Any]
    run: Callable[[Any, Any], Any]
    options: dict[str, Any]
    text: str
    wrong: str = ""
    differs: str = ""
    tied: tuple[str, str] | None = None


def drawn(seed: int) -> Case:
    """The trees of a seed."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    tasks = rng.choice([1, 3, 3, 3])
    options: dict[str, Any] = {"method": rng.choice(METHODS)}
    if rng.random() < 0.4:
        made = rng.choice(MODULES)(rng)
        return Case(
            seed, _varied(made, tasks, numbers), made.run, options, f"{made.text} for {tasks}; {options}"
        )
    tied = rng.random() < 0.2
    root, leaves = _nested(rng, numbers, 0), {"w": numbers.normal(size=(4, 3)).astype(np.float32)}
    first: dict[str, Any] = {"body": root, **leaves}
    wrong = rng.choice(WRONG) if tasks > 1 and rng.random() < 0.2 else ""
    differs = rng.choice(DIFFER) if tasks > 1 and not wrong and rng.random() < 0.3 else ""
    trees = _varied(Made(first, values_of, ""), tasks, numbers)
    for number, tree in enumerate(trees):
        if tied:
            tree["again"] = {"w": tree["w"]}
        _differ(tree, number, differs)
        _spoil(tree, number, wrong)
    said = f"{options}; tied {tied}; differs {differs}; wrong {wrong}"
    text = f"{jax.tree.structure(trees[0])} for {tasks}; {said}"
    if wrong == "stack":
        trees = jax.tree.map(lambda *own: np.stack(own) if floats(own[0]) else own[0], *trees)
    return Case(seed, trees, values_of, options, text, wrong, differs, ("w", "again.w") if tied else None)


def values_of(tree: Any, x: Any) -> Any:
    """Rows of numbers in which every floating leaf has a part."""
    total = jnp.zeros(len(x))
    for n, leaf in enumerate(jax.tree.leaves(tree)):
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size:
            flat = jnp.ravel(leaf).astype(jnp.float32)
            total += jnp.sin(x[:, :1] * flat + jnp.arange(flat.size) + n).sum(1) / flat.size
    return total


def _nested(rng: random.Random, numbers: np.random.Generator, depth: int) -> Any:
    kind = rng.choice(["dict", "tuple", "list", "pair", "record", "leaf", "leaf"]) if depth < 2 else "leaf"
    if kind == "leaf":
        return _leaf(rng, numbers)
    parts = [_nested(rng, numbers, depth + 1) for _ in range(rng.choice([1, 2, 3]))]
    match kind:
        case "dict":
            names = rng.sample(
                ["kernel", "bias", "scale", "b", "weight", "mean", "var", "x.y", "a/b", ""], len(parts)
            )
            return dict(zip(names, parts, strict=True))
        case "tuple":
            return tuple(parts)
        case "list":
            return parts
        case "pair":
            return Pair(parts[0], parts[-1] if len(parts) > 1 else None)
        case _:
            return Record(parts[0], parts[1:])


def _leaf(rng: random.Random, numbers: np.random.Generator) -> Any:
    sizes = rng.choice(SHAPES)
    kind = rng.choice(
        ["float32"] * 7 + ["bfloat16", "float16", "int", "bool", "number", "word", "key", "none"]
    )
    match kind:
        case "int":
            return numbers.integers(0, 9, sizes).astype(np.int32)
        case "bool":
            return numbers.integers(0, 2, sizes).astype(bool)
        case "number":
            return rng.choice([3, True, 2.5])
        case "word":
            return rng.choice(["relu", "same"])
        case "key":
            return jax.random.key(rng.randrange(99))
        case "none":
            return None
    return (jnp if rng.random() < 0.5 else np).asarray(numbers.normal(size=sizes), kind)


def _varied(made: Made, tasks: int, numbers: np.random.Generator) -> list[Any]:
    """Trees that differ in their floating leaves."""

    def changed(leaf: Any) -> Any:
        if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        away = 0.3 * np.abs(numbers.normal(size=leaf.shape))  # variances stay positive
        return jnp.asarray(np.asarray(leaf, np.float32) + away, leaf.dtype)

    return [jax.tree.map(changed, made.tree) for _ in range(tasks)]


def _differ(tree: Any, number: int, how: str) -> None:
    """Put something in that is not the same in all tasks."""
    match how:
        case "whole number":
            tree["count"] = np.int32(number)
        case "function":
            tree["act"] = (jnp.tanh, jnp.sin)[number % 2]
        case "head":
            tree["head"] = {"kernel": np.full((3, 2 + number % 2), 0.1 * number + 1, np.float32)}
        case "key":
            tree["noise"] = jax.random.key(number)


def _spoil(tree: Any, number: int, how: str) -> None:
    """Put something in that `share` must refuse."""
    match how:
        case "structure" if number == 1:
            tree["more"] = np.ones(2, np.float32)
        case "missing" if number == 1:
            del tree["body"]
        case "stream":
            tree["dropout"] = {"rngs": jax.random.key(number)}
        case "kind":
            tree["odd"] = np.ones(2, np.int32 if number == 1 else np.float32)


def outcome(seed: int) -> Outcome:
    """What becomes of the trees of a seed."""
    case = drawn(seed)
    walk = _Walk(case)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tn.TnshareWarning)
            walk.go()
    except Refused as error:
        return Outcome("refused", str(error), walk.checks)
    except AssertionError as error:
        return Outcome("failed", f"{walk.now}: {error}", walk.checks)
    except Exception:  # whatever else is raised is no refusal
        return Outcome("failed", f"{walk.now}: {traceback.format_exc(limit=-3)}", walk.checks)
    return Outcome("equal", "", walk.checks)


class Refused(Exception):  # noqa: N818 it is no error
    """`share` said that it cannot."""


class _Walk:
    def __init__(self, case: Case) -> None:
        self.case, self.checks, self.now = case, 0, "share"
        self.x = np.random.default_rng(case.seed).normal(size=(3, 4)).astype(np.float32)

    def go(self) -> None:
        case = self.case
        try:
            self.shared = tnj.share(case.trees, eps=0, **case.options)
        except tn.TnshareError as error:
            if case.wrong or "no floating leaf" in str(error) or "draws from" in str(error):
                raise Refused(str(error)) from None
            raise
        assert not case.wrong, f"{case.wrong} was not refused"
        steps = [self.one, self.several, self.gradients, self.ties, self.saved, self.roster, self.coarse]
        for step in steps[:-1] if case.seed % 4 else steps:
            self.now = step.__name__
            step()
            self.checks += 1

    def one(self) -> None:
        for task, (tree, back) in enumerate(zip(self.case.trees, self.shared.unshare(), strict=True)):
            alike(back, tree)
            alike(self.shared.compose(jnp.int32(task)), tree)
        y = self.case.run(self.shared.compose(0), self.x)
        near(y, self.case.run(self.case.trees[0], self.x), 0.2 if self._coarse() else 1e-3)

    def several(self) -> None:
        """All, some, and traced numbers: stacked leaves, or an error that says which leaf cannot be."""
        trees, ids = self.case.trees, [0, len(self.case.trees) - 1, 0]
        for chosen, how in ((range(len(trees)), None), (ids, ids), (ids, jnp.asarray(ids))):
            try:
                found = self.shared.compose(how)
            except tn.TnshareError:
                if not self.case.differs:
                    raise
                continue
            parts = [jax.tree.leaves(trees[t]) for t in chosen]
            for leaf, *given in zip(jax.tree.leaves(found), *parts, strict=True):
                if hasattr(given[0], "shape") and not is_key(given[0]):
                    near(leaf, np.stack(given), tolerance(given[0]))
        traced = jax.jit(lambda shared, t: arrays(shared.compose(t)))
        try:
            found = traced(self.shared, len(trees) - 1)
        except tn.TnshareError:
            if not self.case.differs:
                raise
            return
        for leaf, given in zip(found, arrays(trees[-1]), strict=True):
            near(leaf, given, tolerance(given))

    def gradients(self) -> None:
        """Along any direction a loss of the shared tree changes as that of the plain one."""
        numbers, task = np.random.default_rng(self.case.seed), len(self.case.trees) - 1
        way = jax.tree.map(lambda v: jnp.asarray(numbers.normal(size=v.shape), v.dtype), self.shared)

        def loss(leaves: list[Any], treedef: Any, rest: list[Any]) -> Any:
            tree = jax.tree.unflatten(treedef, merged(leaves, rest))
            return jnp.square(self.case.run(tree, self.x)).sum()

        leaves, treedef = jax.tree.flatten(self.case.trees[task])
        learnt = [leaf for leaf in leaves if floats(leaf)]
        slopes = jax.grad(loss)(list(map(jnp.asarray, learnt)), treedef, leaves)
        compose = lambda shared: [v for v in jax.tree.leaves(shared.compose(task)) if floats(v)]  # noqa: E731
        _, moved = jax.jvp(compose, (self.shared,), (way,))
        ours = jax.grad(lambda s: jnp.square(self.case.run(s.compose(task), self.x)).sum())(self.shared)
        near(inner(ours, way), inner(slopes, moved), 0.05 if self._coarse() else 5e-3)

    def ties(self) -> None:
        if self.case.tied:
            one, other = self.case.tied
            kept = {*self.shared.common, *self.shared.codes, *self.shared.own}
            assert not {one, other} <= kept, "a weight in two places came apart"

    def saved(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            try:
                tn.save(Path(folder) / "tree", self.shared)
            except tn.TnshareError:
                if self.case.differs != "function":
                    raise
                return
            state = tn.load(Path(folder) / "tree")
        whole = self.case.differs == "head"
        back = tnj.restore(self.case.trees if whole else self.case.trees[0], state)
        assert back.structure.entries == self.shared.structure.entries, "other entries after restore"
        for task, tree in enumerate(self.case.trees):
            alike(back.compose(task), tree)

    def roster(self) -> None:
        trees = self.case.trees
        grown = self.shared.add_task(trees[-1])
        alike(grown.compose(len(trees)), trees[-1])
        less = grown.remove_task(0)
        for task, tree in enumerate([*trees[1:], trees[-1]]):
            alike(less.compose(task), tree)
        labels = self.shared.labels()
        assert jax.tree.structure(labels) == jax.tree.structure(self.shared)

    def coarse(self) -> None:
        """With an error allowed nothing grows, and every weight is within it."""
        shared = tnj.share(self.case.trees, eps=0.3, **self.case.options)
        size = sum(leaf.size for leaf in jax.tree.leaves(shared))
        came = sum(leaf.size for tree in self.case.trees for leaf in jax.tree.leaves(tree) if floats(leaf))
        assert size <= came, f"{size} parameters for {came}"
        parts = zip(*(jax.tree.leaves(tree) for tree in (*shared.unshare(), *self.case.trees)), strict=True)
        for leaves in parts:
            if floats(leaves[0]) and len({leaf.shape for leaf in leaves}) == 1:
                ours, theirs = np.split(np.stack([np.asarray(leaf, np.float64) for leaf in leaves]), 2)
                assert np.linalg.norm(ours - theirs) <= 0.31 * np.linalg.norm(theirs) + 1e-6

    def _coarse(self) -> bool:
        return any(tolerance(leaf) > 1e-3 for leaf in jax.tree.leaves(self.case.trees[0]) if floats(leaf))


def floats(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def arrays(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if floats(leaf)]


def merged(learnt: list[Any], leaves: list[Any]) -> list[Any]:
    """The leaves with other floating ones in their places."""
    there = iter(learnt)
    return [next(there) if floats(leaf) else leaf for leaf in leaves]


def inner(one: Any, other: Any) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return sum(float(np.vdot(np.asarray(a, np.float64), np.asarray(b, np.float64))) for a, b in pairs)


def tolerance(leaf: Any) -> float:
    return CLOSE.get(str(getattr(leaf, "dtype", "")), 0.0)


def near(ours: Any, theirs: Any, close: float) -> None:
    a, b = (np.asarray(v, np.float64) for v in (ours, theirs))
    assert a.shape == b.shape, f"{a.shape} is not {b.shape}"
    np.testing.assert_allclose(a, b, rtol=close, atol=close)


def alike(ours: Any, theirs: Any) -> None:
    """The same structure, static leaves, dtypes; close numbers."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs), "another structure"
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        if is_key(other):
            assert is_key(one), "a key came back as no key"
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        if not hasattr(other, "dtype"):
            assert type(one) is type(other), f"{one!r} is not {other!r}"
            assert one == other, f"{one!r} is not {other!r}"
            continue
        assert one.dtype == other.dtype, f"{one.dtype} is not {other.dtype}"
        near(one, other, tolerance(other))
