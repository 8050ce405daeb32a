"""A misuse is told by a TnshareError, and leaves everything as it was: one check for a whole catalogue."""

from __future__ import annotations

import hashlib
import pickle
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import tnshare as tn


class Misuse(NamedTuple):
    """What somebody does to the things of a world, and what the error says of it."""

    name: str
    text: str
    call: Callable[[SimpleNamespace], object]
    error: type[BaseException] = tn.TnshareError  # a wrong signature is Python's own TypeError


def catalogue(*entries: tuple[Any, ...]) -> Any:
    """All entries as the parameters of one test; names are told apart, and none is given twice."""
    misuses = [Misuse(*entry) for entry in entries]
    names = [misuse.name for misuse in misuses]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
    return pytest.mark.parametrize("misuse", misuses, ids=names)


def refused(misuse: Misuse, world: SimpleNamespace, *more: Any) -> None:
    """The misuse is refused in these words; nothing in the world, nor any random state, is changed by it."""
    before = state((world, *more)), random_states()
    with pytest.raises(misuse.error, match=misuse.text) as caught:
        misuse.call(world)
    assert issubclass(misuse.error, SystemExit | TypeError) or len(str(caught.value)) < 1000
    assert (state((world, *more)), random_states()) == before, "something was changed by what was refused"


def random_states() -> Any:
    """The generators that everybody uses."""
    torch = sys.modules.get("torch")
    numbers = np.random.get_state()[1].tobytes()
    return random.getstate(), numbers, torch.get_rng_state().tolist() if torch else None


def state(thing: Any, seen: frozenset[int] = frozenset()) -> Any:
    """What can be compared of a thing: numbers, shapes, names, modes, files, and what it holds."""
    if id(thing) in seen:
        return "above"
    seen |= {id(thing)}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.nn.Module):
        tensors = [*thing.named_parameters(), *thing.named_buffers()]
        modes = [(name, part.training) for name, part in thing.named_modules()]
        roster = getattr(thing, "roster", None), getattr(thing, "summary", None)
        return [(name, state(t), id(t)) for name, t in tensors], modes, roster
    if torch is not None and isinstance(thing, torch.Tensor):
        numbers = None if thing.is_meta else thing.detach().cpu().to_dense().numpy().tobytes()
        gradient = None if thing.grad is None else state(thing.grad)
        return str(thing.dtype), tuple(thing.shape), thing.requires_grad, numbers, gradient
    if isinstance(thing, Path):
        return folder(thing)
    if isinstance(thing, Mapping):
        return [(repr(key), state(value, seen)) for key, value in thing.items()]
    if isinstance(thing, list | tuple):
        return [state(value, seen) for value in thing]
    if hasattr(thing, "shape") and hasattr(thing, "dtype"):
        return str(thing.dtype), tuple(thing.shape), numbers_of(thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        return [(f.name, state(getattr(thing, f.name), seen)) for f in fields(thing)]
    if isinstance(thing, SimpleNamespace):
        return state(vars(thing), seen)
    return repr(thing)


def numbers_of(array: Any) -> bytes:
    """The numbers of an array of NumPy or JAX, keys of JAX too."""
    jax = sys.modules.get("jax")
    if (
        jax is not None
        and isinstance(array, jax.Array)
        and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    ):
        array = jax.random.key_data(array)
    plain = np.asarray(array)
    return pickle.dumps(plain.tolist()) if plain.dtype.kind == "O" else plain.tobytes()


def folder(path: Path) -> list[tuple[str, str]]:
    """The files of a folder, or the one file, by name and content."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return [(str(f), hashlib.sha256(f.read_bytes()).hexdigest() if f.is_file() else "none") for f in files]
