"""What of a tree is state and no weight: what its framework says of a leaf; where it says nothing, a rule.

State is what a network writes while it runs: statistics of norms, caches, counts, and streams of random
numbers. It is never factorised, and no optimiser should decay it. The rule, which `share` and `restore` let a
user override for patterns of names (``state={"core.mean": False}``):

- In flax linen, every collection but "params" is state; in nnx, every variable that is no `Param`; in
  equinox, what is under a `State` or a `StateIndex`.
- Elsewhere, what libraries call so (``RULE``), and "mean" and "var" (or "variance") beside each other.
- Keys of random numbers whose name says that a network draws from them are streams: see `STREAMS`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.tree_util import tree_flatten_with_path

import tnshare as tn

RULE = (
    "*_ema.average",  # of haiku, as the next
    "*_ema.hidden",
    "*spectral_norm*.u0",
    "*spectral_norm*.sigma",
    "*running_mean",
    "*running_var",
    "*moving_mean",
    "*moving_var*",
    "*batch_stats.*",
)
STREAMS = re.compile(r"(^|[._/])(rngs?|rng_streams?|prng|dropout|dropout_rngs?|dropout_key)([._/]|$)")
_PAIRS = ("mean", "var", "variance")

Kind = Literal["weight", "state", "stream", ""]  # the last: nobody says


def said_by_frameworks(tree: Any) -> dict[tuple[Any, ...], Kind]:
    """What frameworks say of the leaves under a path."""
    known = (*_variables(), *_equinox())
    if not known:
        return {}
    nodes = tree_flatten_with_path(tree, is_leaf=lambda node: isinstance(node, known))[0]
    return {path: _kind_of(node) for path, node in nodes if isinstance(node, known)}


def is_collections(tree: Any) -> bool:
    """Whether a tree is what linen's ``init`` gives: collections by name, "params" and others."""
    return (
        isinstance(tree, Mapping) and "params" in tree and all(isinstance(v, Mapping) for v in tree.values())
    )


def by_rule(name: str, names: Collection[str]) -> bool:
    """Whether a leaf is state by its name, and the names of all leaves."""
    parent, _, last = name.rpartition(".")
    beside = [other for other in _PAIRS if other != last and f"{parent}.{other}".lstrip(".") in names]
    pair = last in _PAIRS and bool(beside) and ("mean" in (last, *beside))
    return pair or any(fnmatchcase(name, pattern) for pattern in RULE)


def is_stream(name: str, value: Any) -> bool:
    """Whether a leaf is a key, or the count of one, from which a network draws, as dropout does."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not STREAMS.search(name):
        return False
    old_key = dtype == jnp.uint32 and tuple(value.shape)[-1:] == (2,)
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key)) or old_key


def chosen_by_user(name: str, state: Mapping[str, bool]) -> bool | None:
    """What a user says of a leaf; the first pattern that fits it counts."""
    return next((value for pattern, value in state.items() if fnmatchcase(name, pattern)), None)


def check_choice(state: Any, names: Collection[str]) -> None:
    """Refuse what is no choice, and patterns that fit nothing."""
    if not isinstance(state, Mapping) or not all(isinstance(value, bool) for value in state.values()):
        raise tn.TnshareError(f"state must say True or False for patterns of names: found {state!r}")
    for pattern in state:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise tn.TnshareError(f"state: no leaf matches {pattern!r}: expected one of {tuple(names)[:8]}")


def _kind_of(node: Any) -> Kind:
    if not isinstance(node, _variables()):
        return "state"
    nnx = sys.modules["flax.nnx"]
    if isinstance(node, nnx.RngState):
        return "stream"
    return "weight" if isinstance(node, nnx.Param) else "state"


# A tree that holds things of a library was made with it: nothing is imported here that is not there already.
def _variables() -> tuple[type, ...]:
    library = sys.modules.get("flax.nnx")
    return () if library is None else (library.Variable,)


def _equinox() -> tuple[type, ...]:
    library = sys.modules.get("equinox")
    return () if library is None else (library.nn.State, library.nn.StateIndex)
