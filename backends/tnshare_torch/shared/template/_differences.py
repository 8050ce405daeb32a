"""What networks of one architecture differ in besides their tensors: all would have it from the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import nn

from tnshare.models import Difference, Pair, Verdict, differences_of, named_pairs

_TENSORS = ("_parameters", "_buffers", "_modules")
_NOT_RUN = ("__init__", "__repr__", "extra_repr", "reset_parameters", "__setstate__")


def differences(
    first: nn.Module, other: nn.Module, ignore: Sequence[str] = (), dtypes: bool = True
) -> Iterator[Difference]:
    """Where two networks differ in anything but the numbers and shapes of their tensors, by dotted path.

    Modules, their classes and hooks; names, dtypes and ties of tensors; and all other attributes, also what
    lists, dicts, configurations and functions hold. A number that restates the size of a module's own
    tensor, as ``out_features`` of heads of different size, is no difference where no code of the network
    reads it.
    ``dtypes`` of tensors may be left out.
    """
    comparison = _Comparison(first, other, dtypes)
    yield from differences_of(comparison.pairs(), ignore, comparison.verdict)


class _Comparison:
    """Two networks: their parts and tensors are told by name wherever they are held."""

    def __init__(self, first: nn.Module, other: nn.Module, dtypes: bool) -> None:
        self.both, self.dtypes = (first, other), dtypes
        self.names = _names(first), _names(other)
        self.owners: dict[str, tuple[nn.Module, nn.Module]] = {}

    def pairs(self) -> list[Pair]:
        """What each module has of its own, in the order of modules."""
        one, other = (dict(model.named_modules()) for model in self.both)
        pairs: list[Pair] = []
        classes: list[Pair] = []
        for path in {**one, **other}:
            a, b = one.get(path), other.get(path)
            if a is None or b is None:
                pairs.append((path, _Kind(a), _Kind(b)))
                continue
            self.owners[path] = a, b
            named = type(a).__name__ == type(b).__name__
            (classes if named else pairs).append((path, type(a), type(b)))
            pairs += named_pairs(path, self._tensors(a, self.names[0]), self._tensors(b, self.names[1]))
            pairs += named_pairs(path, _held(a), _held(b))
        return [*pairs, *classes]

    def verdict(self, path: str, one: Any, other: Any) -> Verdict | None:
        """What is said of modules and tensors, and of sizes."""
        names = self.names[0].get(id(one)), self.names[1].get(id(other))
        if names != (None, None) and isinstance(one, torch.Tensor | nn.Module):
            return names[0] == names[1]
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            return _alike(one, other)
        if isinstance(one, torch.Generator) and isinstance(other, torch.Generator):
            return torch.equal(one.get_state(), other.get_state())
        if isinstance(one, _Word):
            return bool(one == other)
        if isinstance(one, torch.dtype | torch.device | torch.layout | torch.memory_format):
            return bool(one == other)
        if type(one) is int and type(other) is int and one != other:
            return self._restates(path, one, other)
        return None

    def _tensors(self, module: nn.Module, names: Mapping[int, str]) -> dict[str, Any]:
        """Of a module's tensors and parts all but the numbers: names, ties, dtypes."""
        found: dict[str, Any] = {}
        for kind in _TENSORS:
            for name, held in vars(module)[kind].items():
                typed = self.dtypes and isinstance(held, torch.Tensor)
                dtype = str(held.dtype).removeprefix("torch.") + " " if typed else ""
                found[name] = None if held is None else _Word(f"{dtype}{kind[1:-1]} {names[id(held)]!r}")
        return found

    def _restates(self, path: str, one: int, other: int) -> bool:
        """Whether numbers are the sizes of a module's own tensor, and only that."""
        owner, _, attribute = path.partition("[")[0].rpartition(".")
        if owner not in self.owners:
            return False
        sizes = [dict(_sizes(module)) for module in self.owners[owner]]
        same = any(sizes[0][key] == one and sizes[1].get(key) == other for key in sizes[0])
        return same and attribute not in self.read

    @cached_property
    def read(self) -> set[str]:
        """What the code of somebody's own classes speaks of; torch's take sizes from their tensors."""
        kinds = {kind for module in self.both[0].modules() for kind in type(module).__mro__}
        own = [kind for kind in kinds if not f"{kind.__module__}.".startswith(("torch.nn.", "builtins."))]
        functions = [f for kind in own for name, f in vars(kind).items() if name not in _NOT_RUN]
        return {word for f in functions if hasattr(f, "__code__") for word in _words(f.__code__)}


class _Kind:
    """A module that only one of the networks has."""

    def __init__(self, module: nn.Module | None) -> None:
        self.text = "missing" if module is None else type(module).__qualname__

    def __repr__(self) -> str:
        return self.text


def _names(model: nn.Module) -> dict[int, str]:
    """Modules, parameters and buffers by their first names."""
    found: dict[int, str] = {}
    for name, held in (*model.named_modules(), *model.named_parameters(), *model.named_buffers()):
        found.setdefault(id(held), name)
    return found


class _Word(str):
    """A string that is shown as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def _held(module: nn.Module) -> dict[str, Any]:
    """A module's other attributes; of its hooks, which torch numbers anew for each, the order alone."""
    found = {name: value for name, value in vars(module).items() if name not in _TENSORS}
    for name in _HOOKS & found.keys():
        hooks = found.pop(name)
        if hooks:
            found[name] = [(hook, *_flags(module, key)) for key, hook in hooks.items()]
    return found


_HOOKS = frozenset(n for n, v in vars(nn.Module()).items() if isinstance(v, dict)) - {*_TENSORS}
_FLAGS = tuple(name for name in sorted(_HOOKS) if name.endswith(("_with_kwargs", "_always_called")))


def _flags(module: nn.Module, key: Any) -> list[bool]:
    return [key in vars(module)[name] for name in _FLAGS]


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether tensors that nobody registered are the same."""
    if (one.dtype, one.shape, one.layout) != (other.dtype, other.shape, other.layout):
        return False
    if one.is_meta or other.is_meta:
        return one.is_meta and other.is_meta
    return (
        torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
        if _floats(one)
        else torch.equal(one, other)
    )


def _floats(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and tensor.layout is torch.strided


def _sizes(module: nn.Module) -> Iterator[tuple[tuple[str, int], int]]:
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        for axis, size in enumerate(() if tensor is None else tensor.shape):
            yield (name, axis), size


def _words(code: Any) -> set[str]:
    inner = [_words(const) for const in code.co_consts if hasattr(const, "co_names")]
    return {*code.co_names, *(c for c in code.co_consts if isinstance(c, str))}.union(*inner)
