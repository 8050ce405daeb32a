"""Trees of T tasks drawn from a seed, and the law that sharing them must meet.

Shared without loss, a tree comes back in structure, dtypes and numbers, from a file too, and with tasks
removed and added; what is state stays bit by bit; what is one array stays one. Or there is a `TnshareError`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tnshare_jax as tnj

import tnshare as tn

METHODS = ("laf", "tucker", "tt", "single")


class Pair(NamedTuple):
    left: Any
    right: Any


def _weight(draw: random.Random, dtype: Any = jnp.float32) -> Callable[[int], Any]:
    shape = tuple(draw.randrange(1, 5) for _ in range(draw.choice([2, 2, 2, 3, 4])))
    seed = draw.randrange(10**6)
    return lambda t: jnp.asarray(np.random.default_rng((seed, t)).standard_normal(shape), dtype)


def _leaf(draw: random.Random) -> tuple[str, Callable[[int], Any]]:
    """The name of a leaf, and what it is in each task."""
    seed, size = draw.randrange(10**6), draw.randrange(1, 5)

    def numbers(t: int, *shape: int) -> Any:
        return jnp.asarray(np.random.default_rng((seed, t)).standard_normal(shape), jnp.float32)

    kinds: dict[str, Callable[[int], Any]] = {
        "w": _weight(draw),
        "kernel": _weight(draw),
        "half": _weight(draw, jnp.bfloat16),
        "complex": _weight(draw, jnp.complex64),
        "bias": lambda t: numbers(t, size),
        "scale": lambda t: numbers(t),
        "running_mean": lambda t: numbers(t, size, size),
        "head": lambda t: numbers(t, 3, 2 + t % 2),
        "count": lambda t: jnp.asarray(t if seed % 2 else 3),
        "depth": lambda t: seed % 7,
        "step": lambda t: t,
        "word": lambda t: "relu" if seed % 2 or t else "gelu",
        "act": lambda t: jnp.tanh,
        "key": lambda t: jax.random.key(seed + t * (seed % 3)),
        "nothing": lambda t: None,
        "big": lambda t: np.random.default_rng((seed, t)).standard_normal((2, 3)).astype(">f4"),
        "rng": lambda t: jax.random.key(seed),
    }
    names = [name for name in kinds if name != "rng"] * 6 + ["rng", "w", "w", "w", "kernel", "kernel"]
    name = draw.choice(names)
    return name, kinds[name]


def _tree(draw: random.Random, depth: int) -> Callable[[int], Any]:
    if depth == 0:
        return _leaf(draw)[1]
    kind = draw.choice(["dict", "dict", "dict", "list", "tuple", "pair", "norm", "tied", "leaf"])
    if kind == "leaf":
        return _leaf(draw)[1]
    if kind == "norm":
        mean, var = _weight(draw), _weight(draw)
        return lambda t: {"mean": mean(t), "var": var(t)}
    if kind == "tied":
        weight = _weight(draw)
        return lambda t: (lambda one: {"embed": one, "out": {"w": one}})(weight(t))
    if kind == "dict":
        own = dict(_leaf(draw) for _ in range(draw.randrange(1, 4)))
        own |= {f"layer{n}": _tree(draw, depth - 1) for n in range(draw.randrange(0, 3))}
        return lambda t: {name: make(t) for name, make in own.items()}
    parts = [_tree(draw, depth - 1) for _ in range(2 if kind == "pair" else draw.randrange(1, 3))]
    made = {"list": list, "tuple": tuple, "pair": lambda values: Pair(*values)}[kind]
    return lambda t: made([part(t) for part in parts])


def _bits(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return leaf


def _check_alike(found: Any, expected: Any, exact: bool) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected), "another structure"
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True
    ):
        where, a, b = jax.tree_util.keystr(path), _bits(one), _bits(other)
        if not hasattr(b, "dtype"):
            assert type(a) is type(b), where
            assert a == b, where
            continue
        native = b.dtype.newbyteorder("=")
        assert (a.dtype, a.shape) == (native, b.shape), (
            f"{where}: {a.dtype} {a.shape}, not {native} {b.shape}"
        )
        wide = np.complex64 if native.kind == "c" else np.float32 if "float" in native.name else native
        a, b = np.asarray(a).astype(wide), np.asarray(b).astype(wide)
        tolerance = 0 if exact or wide is native else 0.05 if native.itemsize == 2 else 1e-4
        np.testing.assert_allclose(
            a, b, rtol=0, atol=tolerance * (1 + np.abs(b).max(initial=0)), err_msg=where
        )


def verdict(seed: int, folder: Path) -> str:
    """ "right", "refused: ...", or "BROKEN: ...": what comes of sharing the trees of a seed."""
    draw = random.Random(seed)
    first, rest, tasks = _weight(draw), _tree(draw, draw.choice([1, 2, 2, 3])), draw.choice([2, 3, 3, 4])
    trees, method = [{"first": first(t), "rest": rest(t)} for t in range(tasks)], draw.choice(METHODS)
    options = {} if method == "single" else {"eps": 0}
    try:
        shared = tnj.share(trees, method, **options)
        _check(shared, trees)
        path = folder / "tree"
        tn.save(path, shared)
        loaded = tn.load(path)
        again = tnj.restore(trees[0] if draw.random() < 0.7 else trees, loaded)
        for t in range(tasks):
            _check_alike(again.compose(t), shared.compose(t), exact=True)
        assert again.labels().own == shared.labels().own, "other labels"
        fewer = again.remove_task(0)
        _check_alike(fewer.compose(0), shared.compose(1), exact=True)
        _check_alike(fewer.add_task(trees[0]).compose(tasks - 1), trees[0], exact=False)
    except tn.TnshareError as error:
        return f"refused: {error}"
    except Exception as error:  # whatever it is
        return f"BROKEN: {type(error).__name__}: {str(error)[:300]}"
    return "right"


def _check(shared: Any, trees: list[Any]) -> None:
    for t, tree in enumerate(trees):
        found = shared.compose(t)
        _check_alike(found, tree, exact=False)
        ours, theirs = jax.tree.leaves(found), jax.tree.leaves(tree)
        for n, leaf in enumerate(theirs):
            same = [
                m
                for m, other in enumerate(theirs)
                if other is leaf and hasattr(leaf, "ndim") and leaf.ndim > 1
            ]
            assert all(ours[m] is ours[n] for m in same), "one weight became two"
    state = [name for name, word in shared.labels().own.items() if word == "state"]
    for name in state:
        for t, value in enumerate(shared.own[name]):
            expected = next(leaf.value for leaf in _named(trees[t]) if leaf.name == name)
            np.testing.assert_array_equal(value, expected)


def _named(tree: Any) -> Any:
    from tnshare_jax.shared._leaves import leaves_of

    return leaves_of(tree)
