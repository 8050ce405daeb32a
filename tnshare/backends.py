"""Find the adapter of a framework by name, through the entry points of the group ``tnshare.backends``."""

from __future__ import annotations

from typing import Any

from .errors import TnshareError

GROUP = "tnshare.backends"


def names() -> tuple[str, ...]:
    """The names of all installed adapters; the framework of one need not be installed."""
    return tuple(sorted(_found()))


def load(name: str) -> Any:
    """Import the adapter of that name; its ``ops`` is a `tnshare.ops.Ops`."""
    found = _found()
    if not isinstance(name, str) or name not in found:
        raise TnshareError(f"no backend is called {name!r}: expected one of {names()}")
    return found[name].load()


def _found() -> dict[str, Any]:
    # Imported here because it costs a third of what `import tnshare` does.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}
