"""Files of version 0.1.0, said in the words of today's: one sum for all, shapes that are not spelled out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tnshare.errors import TnshareError
from tnshare.network import METHODS

from ._container import MOST_AXES, NATIVE, Container
from ._foreign_json import DamagedError, Form, check_form, shown

_ENTRIES: dict[str, dict[str, Form]] = {
    "array": {"name": str, "kind": str, "array": [str]},
    "decomposition": {
        "name": str,
        "kind": str,
        "method": str,
        "ranks": [int],
        "weights": dict,
        "tasks": dict,
        "error": str,
        "deviation_error": str,
        "factors": dict,
        "codes?": str,
        "given?": [str],
    },
}
_VALUE: Form = {"value?": (bool, int, float, str), "array?": [str], "keys?": str}
_STATE: dict[str, Form] = {
    "tasks": [[dict]],
    "names": [str],
    "constants?": [{"name": str, "values": [_VALUE]}],
}


def older_sum(text: str, container: Container) -> str:
    """The one sum that these files have: of their description, and of all numbers."""
    from hashlib import sha256  # here, as `import tnshare` is to be quick

    digest = sha256(text.encode())
    for key in sorted(container.stored):
        stored = container.stored[key]
        digest.update(f"\0{key}\0{stored.dtype}\0{stored.shape}\0".encode())
        container.file.seek(stored.start)
        for start in range(0, stored.size, 1 << 20):
            digest.update(container.file.read(min(1 << 20, stored.size - start)))
    return digest.hexdigest()


def in_todays_words(content: dict[str, Any], container: Container) -> dict[str, Any]:
    """The description that such a file would have today; what is checked there is not checked here."""
    if content["format"] == 1:
        check_form(content, {"format": int, "single": bool, "entries": [dict]})
        words = _Words(container)
        entries = [words.entry(entry) for entry in content["entries"]]
        return words.with_arrays({"holds": "entry" if content["single"] else "dict", "entries": entries})
    check_form(content, {"format": int, "entries": [dict], **_STATE})
    words = _Words(container)
    return words.with_arrays(
        {
            "holds": "state",
            "entries": [words.entry(entry) for entry in content["entries"]],
            "tasks": len(content["tasks"]),
            "own": {"apart": [[words.entry(entry) for entry in task] for task in content["tasks"]]},
            "names": content["names"],
            "constants": [
                {"name": one["name"], "values": [words.constant(value) for value in one["values"]]}
                for one in content.get("constants", [])
            ],
        }
    )


class _Words:
    """Knows the dtypes of arrays, which are said where an array is used."""

    def __init__(self, container: Container) -> None:
        self.stored = container.stored
        self.dtypes: dict[str, str] = {}

    def with_arrays(self, content: dict[str, Any]) -> dict[str, Any]:
        arrays = [self._array(str(number)) for number in range(len(self.stored))]
        return {"format": 2, **content, "arrays": arrays}

    def entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        kind = entry.get("kind")
        if not isinstance(kind, str) or kind not in _ENTRIES:
            return dict(entry)  # which is refused today
        check_form(entry, _ENTRIES[kind], ((), shown(entry.get("name"))))
        if kind == "array":
            return {**entry, "array": self._number(entry["array"])}
        said = ("name", "kind", "method", "ranks", "error", "deviation_error")
        axes = self._axes(entry)
        found = {
            **{key: entry[key] for key in said},
            "output": [*entry["weights"], *entry["tasks"]],
            "tasks": list(entry["tasks"]),
            "factors": [self._factor(name, axes.get(name, ()), at) for name, at in entry["factors"].items()],
        }
        if "codes" in entry:
            found["codes"] = {"kind": entry["codes"], "array": self._number(entry.get("given"))}
        return found

    def constant(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {**value, "array": self._number(value["array"])} if "array" in value else dict(value)

    def _factor(self, name: str, axes: Sequence[str], at: Any) -> dict[str, Any]:
        number = self._number(at)
        return {"name": name, "axes": list(axes), "shape": self._array(str(number))["shape"], "array": number}

    def _axes(self, entry: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The axes of factors, which only the method tells."""
        weights, tasks, method = entry["weights"], entry["tasks"], METHODS.get(entry["method"])
        for sizes in (weights, tasks):
            check_form(list(sizes.values()), [int])
        if method is None or len(weights) + len(tasks) > MOST_AXES or not (weights and tasks):
            raise DamagedError(
                f"{shown(entry['method'])} over {len(weights) + len(tasks)} axes makes no network"
            )
        try:
            network = method(tuple(entry["ranks"])).build(weights, tasks)  # type: ignore[arg-type]
        except (TnshareError, ValueError, IndexError) as error:  # another number of ranks
            raise DamagedError(f"{entry['method']} has no ranks {shown(entry['ranks'])}: {error}") from None
        return {node.name: node.axes for node in network.nodes}

    def _number(self, at: Any) -> int:
        """The number of an array, of which its name in the file and its dtype are said."""
        check_form(at, [str])
        if len(at) != 2 or at[0] not in self.stored or not (at[0].isascii() and at[0].isdigit()):
            raise DamagedError(f"there is no array {shown(at)}")
        self.dtypes[at[0]] = at[1]
        return int(at[0])

    def _array(self, key: str) -> dict[str, Any]:
        if key not in self.stored:
            raise DamagedError(f"there is no array {key}")
        shape, dtype = list(self.stored[key].shape), self.dtypes.get(key, self.stored[key].dtype)
        own = shape if dtype in NATIVE else shape[:-1]
        return {"dtype": dtype, "shape": own, "rows": max([1, *shape[:1]]), "sums": []}
