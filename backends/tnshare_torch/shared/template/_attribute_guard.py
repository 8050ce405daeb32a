"""What a network does to itself in its forward: all tasks have the same one, so it must leave no traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

import tnshare as tn
from tnshare.models import matches

_INTERNAL = frozenset(vars(nn.Module())) | {"training"}
Place = tuple[str, Any, Any]  # a path, a container, and a copy of it


class AttributeGuard:
    """While it is entered, a module must not come to hold other things than before.

    On the way out what it was made to hold is taken from it again; ``scratch`` are patterns of attributes
    that may change.
    """

    def __init__(self, module: nn.Module, scratch: Sequence[str] = ()) -> None:
        self.module, self.scratch = module, scratch
        self.before: list[Place] = []

    def __enter__(self) -> AttributeGuard:
        self.before = list(_places(self.module))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        changed = [name for place in self.before for name in self._restored(*place)]
        if changed and kind is None:
            raise tn.TnshareError(
                f"the network assigns to {changed[0]!r} in its forward, which would mix the tasks up: "
                "register a buffer and write to it in place, say with copy_, for what each task remembers; "
                f"or name what no task reads of another, share(..., scratch=[{changed[0]!r}])"
            )

    def _restored(self, path: str, now: Any, before: Any) -> Iterator[str]:
        if isinstance(now, dict):
            names = [n for n in {**before, **now} if now.get(n, _INTERNAL) is not before.get(n, _INTERNAL)]
            changed = [n for n in names if n not in _INTERNAL and not self._may(f"{path}{n}")]
            for name in changed:
                if name in before:
                    now[name] = before[name]
                else:
                    del now[name]
                yield f"{path}{name}"
        elif not self._may(path) and list(map(id, now)) != list(map(id, before)):
            now[:] = before
            yield path

    def _may(self, name: str) -> bool:
        return any(matches(name, pattern) for pattern in self.scratch)


def _places(module: nn.Module) -> Iterator[Place]:
    """Where a module and its parts keep things."""
    for path, part in module.named_modules():
        start = f"{path}." if path else ""
        for where in (vars(part), part._parameters, part._buffers):
            yield start, where, dict(where)
        for name, value in vars(part).items():
            if name not in _INTERNAL and isinstance(value, list):
                yield f"{start}{name}", value, list(value)
            elif name not in _INTERNAL and isinstance(value, dict):
                yield f"{start}{name}.", value, dict(value)
