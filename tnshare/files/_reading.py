"""What a file says of its numbers, format 2: checked in full before any of them is read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tnshare.checks import printable
from tnshare.decomposition import Decomposition
from tnshare.errors import TnshareError
from tnshare.network import LAF, METHODS, FrozenCodes, Network, Spec
from tnshare.ops import NDArray

from ._container import MOST_AXES, NATIVE, Container, block_count
from ._foreign_json import DamagedError, Form, check_form, shown
from ._state import Keys, Saved, State
from ._writing import STORED_AS_BYTES

_ARRAY: Form = {"dtype": str, "shape": [int], "rows": int, "sums": [re.compile("[0-9a-f]{64}")]}
_FACTOR: Form = {"name": str, "axes": [str], "shape": [int], "array": int}
_ENTRIES: dict[str, dict[str, Form]] = {
    "array": {"name": str, "kind": str, "array": int},
    "decomposition": {
        "name": str,
        "kind": str,
        "method": str,
        "ranks": [int],
        "output": [str],
        "tasks": [str],
        "error": str,
        "deviation_error": str,
        "factors": [_FACTOR],
        "codes?": {"kind": str, "array": int},
    },
}
_CONSTANT: Form = {"value?": (bool, int, float, str), "array?": int, "keys?": str}
_STATE: dict[str, Form] = {
    "tasks": int,
    "own": {"apart?": [[dict]], "stacked?": [{"name": str, "array?": int, "each?": [dict]}]},
    "names": [str],
    "constants": [{"name": str, "array?": int, "keys?": str, "values?": [_CONSTANT]}],
}
_CONTENT: dict[str, Form] = {"format": int, "holds": str, "entries": [dict], "arrays": [_ARRAY]}

Reader = Callable[[], Any]  # reads numbers, of which all that can be said beforehand has been checked


class Contents:
    """A description, checked: of which arrays a file consists, and what they are."""

    def __init__(self, name: str, content: dict[str, Any], container: Container) -> None:
        self.name, self.container = name, container
        state = content.get("holds") == "state"
        check_form(content, {**_CONTENT, **(_STATE if state else {})})
        self.arrays: list[dict[str, Any]] = content["arrays"]
        self.used: set[int] = set()
        _check_arrays(self.arrays, container)
        entries = self._all(content["entries"])
        if state:
            self._read = self._state(content, entries)
        elif content["holds"] == "entry" and list(entries) == [""]:
            self._read = entries[""]
        elif content["holds"] == "dict":
            self._read = lambda: {name: read() for name, read in entries.items()}
        else:
            raise DamagedError(f"it holds {shown(content['holds'])}, of {len(entries)} entries")
        if len(self.used) != len(self.arrays):
            raise DamagedError("it has arrays that belong to nothing")

    def read(self) -> Any:
        """The numbers, as what they are."""
        return self._read()

    def _array(self, number: int) -> Reader:
        """Each array belongs to one thing."""
        if number >= len(self.arrays) or number in self.used:
            raise DamagedError(f"array {number} is not there, or belongs to two things")
        self.used.add(number)
        one = self.arrays[number]
        return lambda: self.container.read(str(number), one["dtype"], one["rows"], one["sums"])

    def _all(self, entries: Sequence[dict[str, Any]]) -> dict[str, Reader]:
        found: dict[str, Reader] = {}
        for entry in entries:
            if _name(entry) in found:
                raise DamagedError(f"the name {shown(entry['name'])} is there twice")
            found[entry["name"]] = self._entry(entry)
        return found

    def _entry(self, entry: dict[str, Any]) -> Reader:
        kind, name = entry.get("kind"), _name(entry)
        check_form(kind, str, (((), name), "kind"))
        if kind not in _ENTRIES:
            raise TnshareError(
                f"{self.name!r} holds {name!r} of the kind {shown(kind)}, which this tnshare does not know: "
                f"expected one of {tuple(_ENTRIES)}; upgrade"
            )
        check_form(entry, _ENTRIES[kind], ((), name))
        return self._array(entry["array"]) if kind == "array" else self._decomposition(entry)

    def _decomposition(self, entry: dict[str, Any]) -> Reader:
        network, spec_of = _network(entry, self.arrays)
        factors = {one["name"]: self._array(one["array"]) for one in entry["factors"]}
        given = self._array(entry["codes"]["array"]) if "codes" in entry else None
        error, deviation = _float(entry["error"]), _float(entry["deviation_error"])

        def read() -> Decomposition:
            spec = spec_of(b"" if given is None else given().tobytes())
            return Decomposition(
                spec, network, {key: one() for key, one in factors.items()}, error, deviation
            )

        return read

    def _state(self, content: dict[str, Any], entries: dict[str, Reader]) -> Reader:
        own, names, count = self._own(content), tuple(content["names"]), content["tasks"]
        for name in names:
            _name({"name": name})
        if len(set(names)) < len(names) or len(names) not in (0, count):
            raise DamagedError(f"{count} tasks have {len(names)} names, {len(set(names))} of them different")
        constants = self._constants(content)

        def read() -> State:
            found = {name: one() for name, one in entries.items()}
            values = {name: tuple(one()) for name, one in constants.items()}
            return State(found, tuple(own()), names, values)

        return read

    def _own(self, content: dict[str, Any]) -> Callable[[], list[dict[str, Saved]]]:
        own, count = content["own"], content["tasks"]
        if list(own) == ["apart"] and len(own["apart"]) == count:
            tasks = [self._all(entries) for entries in own["apart"]]
            return lambda: [{name: read() for name, read in task.items()} for task in tasks]
        if list(own) != ["stacked"]:
            raise DamagedError(f"what {count} tasks have of their own is {shown(list(own))}")
        columns: dict[str, Reader] = {}
        for one in own["stacked"]:
            columns[_new(one, columns)] = self._column(one, count)

        def read() -> list[dict[str, Saved]]:
            found: list[dict[str, Saved]] = [{} for _ in range(count)]
            for name, column in columns.items():
                for task, value in zip(found, column(), strict=True):
                    task[name] = value
            return found

        return read

    def _column(self, one: dict[str, Any], count: int) -> Reader:
        """What each task has under one name."""
        if "each" in one and "array" not in one and len(one["each"]) == count:
            each = [self._entry(entry) for entry in one["each"]]
            return lambda: [read() for read in each]
        if "each" in one or "array" not in one:
            raise DamagedError(f"{shown(one['name'])} is not what {count} tasks have")
        read = self._array(one["array"])
        if self.arrays[one["array"]]["shape"][:1] != [count]:
            raise DamagedError(f"{shown(one['name'])} is not of {count} tasks")
        return lambda: _rows(read())

    def _constants(self, content: dict[str, Any]) -> dict[str, Reader]:
        found: dict[str, Reader] = {}
        for one in content["constants"]:
            found[_new(one, found)] = self._of_each(one) if "values" in one else self._of_all(one)
        return found

    def _of_each(self, one: dict[str, Any]) -> Reader:
        if "array" in one or "keys" in one:
            raise DamagedError(f"{shown(one['name'])} is no constant")
        values = [self._constant(value) for value in one["values"]]
        return lambda: [read() for read in values]

    def _of_all(self, one: dict[str, Any]) -> Reader:
        """A constant of which the values of all tasks are stacked."""
        read, keys = (
            self._constant({key: value for key, value in one.items() if key != "keys"}),
            one.get("keys"),
        )
        if not self.arrays[one["array"]]["shape"]:
            raise DamagedError(f"{shown(one['name'])} is not of several tasks")
        return lambda: [row if keys is None else Keys(keys, row) for row in _rows(read())]

    def _constant(self, one: dict[str, Any]) -> Reader:
        if ("value" in one) == ("array" in one) or ("keys" in one and "array" not in one):
            raise DamagedError("a constant is neither a value nor an array")
        if "value" in one:
            return lambda: one["value"]
        read = self._array(one["array"])
        return (lambda: Keys(one["keys"], read())) if "keys" in one else read


def _rows(array: NDArray) -> list[NDArray]:
    """The entries along the first axis, as arrays, those of one number too."""
    return [array[number, ...] for number in range(len(array))]


def _name(one: Mapping[str, Any]) -> str:
    try:
        return printable("names", one.get("name"))
    except TnshareError as error:
        raise DamagedError(str(error)) from None


def _new(one: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if _name(one) in found:
        raise DamagedError(f"the name {shown(one['name'])} is there twice")
    return str(one["name"])


def _check_arrays(arrays: Sequence[dict[str, Any]], container: Container) -> None:
    """Refuse a description of other arrays than there are; older files have one sum for all arrays."""
    fewest = 0 if "sum" not in container.metadata else math.inf
    if list(map(str, range(len(arrays)))) != sorted(container.stored, key=lambda key: (len(key), key)):
        raise DamagedError(f"it describes {len(arrays)} arrays, and holds {len(container.stored)}")
    for number, one in enumerate(arrays):
        stored, shape = container.stored[str(number)], tuple(one["shape"])
        dtype = one["dtype"]
        if dtype in NATIVE:
            expected: tuple[Any, ...] = (dtype, shape)
        else:
            expected = ("uint8", (*shape, _dtype(dtype).itemsize))
        if (stored.dtype, stored.shape) != expected:
            raise DamagedError(
                f"array {number} is described as {dtype} {shown(shape)}, and stored as another"
            )
        if one["rows"] < 1 or len(one["sums"]) not in {block_count(stored.shape, one["rows"]), fewest}:
            raise DamagedError(f"array {number} has {len(one['sums'])} checksums")


def _dtype(name: str) -> np.dtype[Any]:
    """A dtype that is stored as bytes."""
    if not STORED_AS_BYTES.fullmatch(name):
        raise DamagedError(f"an array has dtype {shown(name)}")
    try:
        found = np.dtype(name)
    except TypeError:
        raise TnshareError(
            f"an array has dtype {name}, which NumPy alone does not know: import ml_dtypes first"
        ) from None
    return found


def _network(
    entry: Mapping[str, Any], arrays: Sequence[Mapping[str, Any]]
) -> tuple[Network, Callable[[bytes], Spec]]:
    """The network that the factors' axes and shapes say; it must be what its method and ranks make."""
    factors, output, tasks = entry["factors"], entry["output"], entry["tasks"]
    sizes: dict[str, int] = {}
    for one in factors:
        if one["array"] >= len(arrays) or one["shape"] != arrays[one["array"]]["shape"]:
            raise DamagedError(f"factor {shown(one['name'])} is described with another shape than it has")
        if len(one["axes"]) != len(one["shape"]):
            raise DamagedError(f"factor {shown(one['name'])} has {len(one['axes'])} axes")
        sizes.update(zip(one["axes"], one["shape"], strict=True))
    if entry["method"] not in METHODS or len(output) > MOST_AXES or not set(output) <= set(sizes):
        raise DamagedError(f"method {shown(entry['method'])} over {len(output)} axes makes no network")
    weights = {axis: sizes[axis] for axis in output if axis not in tasks}
    chosen = {axis: sizes[axis] for axis in output if axis in tasks}
    try:
        spec: Spec = METHODS[entry["method"]](tuple(entry["ranks"]))  # type: ignore[arg-type]
        if len(spec.ranks) != len(spec.bonds(output)) or [*weights, *chosen] != output or not weights:
            raise DamagedError(f"{len(spec.ranks)} ranks and {len(chosen)} tasks over {len(output)} axes")
        spec, given = _with_codes(entry, spec, chosen, arrays)
        network = spec.build(weights, chosen)
    except TnshareError as error:
        raise DamagedError(str(error)) from None
    said = [(one["name"], tuple(one["axes"]), tuple(one["shape"])) for one in factors]
    if list(chosen) != tasks or said != [(node.name, node.axes, node.shape) for node in network.nodes]:
        raise DamagedError(f"the factors are not those of {spec.method} with ranks {shown(spec.ranks)}")
    return network, lambda data: given(data) if given else spec


def _with_codes(
    entry: Mapping[str, Any], spec: Spec, tasks: Mapping[str, int], arrays: Sequence[Mapping[str, Any]]
) -> tuple[Spec, Callable[[bytes], Spec] | None]:
    """The same with frozen codes, if it has some; those that are given are known once they are read."""
    if "codes" not in entry:
        return spec, None
    kind, number, rank = entry["codes"]["kind"], entry["codes"]["array"], spec.ranks[0]
    count = rank * math.prod(tasks.values()) if kind == "given" else 0
    if number >= len(arrays) or (arrays[number]["dtype"], arrays[number]["shape"]) != ("float64", [count]):
        raise DamagedError(f"frozen codes of the kind {shown(kind)} are not {count} numbers")
    if not isinstance(spec, LAF):
        raise DamagedError(f"{spec.method} has no frozen codes")

    def given(data: bytes) -> Spec:
        if not np.isfinite(np.frombuffer(data)).all():
            raise DamagedError("frozen codes are NaN or infinite")
        return LAF(rank, FrozenCodes(kind, rank, data))

    codes = FrozenCodes(kind, rank, bytes(8 * count))
    codes.check_tasks(math.prod(tasks.values()))
    return LAF(rank, codes), given


def _float(text: str) -> float:
    try:
        return float(text[:40])
    except ValueError:
        raise DamagedError(f"an error is {shown(text)}") from None
