"""State that a network keeps outside of parameters and buffers: of one template, all tasks would share it."""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

import tnshare as tn
from tnshare.models import matches

from ._placeholder import Placeholder

_INTERNAL = frozenset(vars(nn.Module()))
_CONTAINERS = (dict, list, set, deque)
_ATOMS = (type, types.ModuleType, str, bytes, int, float, complex, type(None), torch.dtype, torch.device)


class StateGuard:
    """While it is entered, nothing that a module holds may change, at any depth; what did is put back.

    Lists, dicts and sets, attributes of objects, what functions close over, tensors that nobody registered.
    It looks at everything, and so is for the first of calls that are alike.
    """

    def __init__(self, module: nn.Module, scratch: Sequence[str] = ()) -> None:
        self.module, self.scratch = module, scratch
        self.places: list[_Place] = []

    def __enter__(self) -> StateGuard:
        self.places = [place for place in _places(self.module) if not self._may(place.path)]
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        changed = [path for place in self.places for path in place.undone(self._may)]
        if changed and kind is None:
            raise tn.TnshareError(
                f"the network assigns to {changed[0]!r} in its forward, which would mix the tasks up: "
                "register a buffer and write to it in place, say with copy_, for what each task remembers; "
                f"or name what no task reads of another, share(..., scratch=[{changed[0]!r}])"
            )

    def _may(self, path: str) -> bool:
        return any(matches(path, pattern) for pattern in self.scratch)


class _Place:
    """Something that can change: its parts before, how they are read, and how they are put back."""

    def __init__(self, path: str, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self.path, self.read, self.write = path, read, write
        self.before = read()

    def undone(self, may: Callable[[str], bool]) -> list[str]:
        """The paths of what has changed and may not; it is put back."""
        now = self.read()
        if _same(now, self.before) or may(self.path):
            return []
        if not isinstance(now, dict):
            self.write(self.before)
            return [self.path]
        missing = object()
        names = [n for n in {**self.before, **now} if now.get(n, missing) is not self.before.get(n, missing)]
        changed = [f"{self.path}.{name}" for name in names if not may(f"{self.path}.{name}")]
        kept = {name: now[name] for name in now if may(f"{self.path}.{name}")}
        if changed:
            self.write({**self.before, **kept})
        return changed


def _same(now: Any, before: Any) -> bool:
    """Whether two readings hold the same things, each in its place."""
    if isinstance(now, dict):
        return now.keys() == before.keys() and all(now[key] is before[key] for key in now)
    if isinstance(now, set):
        return bool(now == before)
    if isinstance(now, list):
        return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))
    return now is before


def _places(module: nn.Module) -> Iterator[_Place]:
    """Whatever can change in a module and its parts."""
    seen: set[int] = set()
    for path, part in module.named_modules():
        start = f"{path}." if path else ""
        held = {n: v for n, v in vars(part).items() if n not in _INTERNAL}
        yield from (place for name, value in held.items() for place in _within(f"{start}{name}", value, seen))


def _within(path: str, value: Any, seen: set[int]) -> Iterator[_Place]:
    """Whatever can change in what lies at a path."""
    todo = [(path, value)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, (*_ATOMS, nn.Module, Placeholder)) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            yield _Numbers(path, value)
            continue
        own, below = _parts(path, value)
        yield from own
        todo += below


def _parts(path: str, value: Any) -> tuple[list[_Place], list[tuple[str, Any]]]:
    """The places that something is, and what it holds."""
    found: list[_Place] = []
    below: list[tuple[str, Any]] = []
    if isinstance(value, _CONTAINERS):
        found.append(_container(path, value))
    if isinstance(value, dict):
        below += [(f"{path}.{key}", held) for key, held in value.items()]
    elif isinstance(value, list | tuple | set | frozenset | deque):
        below += [(f"{path}[{n}]", held) for n, held in enumerate(value)]
    elif isinstance(value, functools.partial):
        below += [(path, value.func), (path, value.args), (path, value.keywords)]
    elif isinstance(value, types.MethodType):
        below.append((path, value.__self__))
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            found.append(_cell(f"{path}.{name}", cell))
            below.append((f"{path}.{name}", found[-1].before))
    elif hasattr(value, "__dict__") and _is_users(type(value)):
        found.append(_container(path, value.__dict__))
        below += [(f"{path}.{name}", held) for name, held in value.__dict__.items()]
    return found, below


def _is_users(kind: type) -> bool:
    """Whether objects of a class are somebody's own, and not, say, a logger, which holds all others."""
    return kind is types.SimpleNamespace or kind.__module__.partition(".")[0] not in sys.stdlib_module_names


def _container(path: str, value: Any) -> _Place:
    plain = next(kind for kind in (dict, set, list) if isinstance(value, kind) or kind is list)

    def write(before: Any) -> None:
        value.clear()
        if isinstance(value, dict | set):
            value.update(before)
        else:
            value.extend(before)

    return _Place(path, lambda: plain(value), write)


def _cell(path: str, cell: types.CellType) -> _Place:
    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # it was never filled
            return None

    def write(before: Any) -> None:
        cell.cell_contents = before

    return _Place(path, read, write)


class _Numbers(_Place):
    """A tensor that nobody has registered: written to in place, or given other memory."""

    def __init__(self, path: str, tensor: torch.Tensor) -> None:
        self.path, self.tensor, self.copy = path, tensor, tensor.detach().clone()
        self.version, self.memory = _version(tensor), _memory(tensor)

    def undone(self, may: Callable[[str], bool]) -> list[str]:
        if (_version(self.tensor), _memory(self.tensor)) == (self.version, self.memory):
            return []
        self.tensor.data = self.copy
        return [self.path]


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _memory(tensor: torch.Tensor) -> int:
    strided = tensor.layout is torch.strided and not tensor.is_meta
    return tensor.data_ptr() if strided else id(tensor)
