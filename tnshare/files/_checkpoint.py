"""One file for every framework: safetensors, with the specification beside the numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from tnshare._atomic_write import write_whole
from tnshare.decomposition import Decomposition
from tnshare.errors import TnshareError
from tnshare.network import LAF, METHODS, FrozenCodes, Spec
from tnshare.ops import NDArray

from ._state import Constant, Keys, Saved, State, Stateful

FORMAT = 2  # states; what has none of them is written as format 1
# What safetensors stores as it is; anything else is stored as bytes and its dtype noted.
_NATIVE = {"bool", "float16", "float32", "float64"}
_NATIVE |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def save(path: str | os.PathLike[str], obj: Saved | Mapping[str, Saved] | State | Stateful) -> None:
    """Write a Decomposition, an array, a dict of them, or the state of an adapter's layer or network.

    The file is complete or not there: it is written beside its place and moved when it is done, so an earlier
    file stays whole if anything fails.
    """
    import json  # here and below, as `import tnshare` is to be quick

    from safetensors.numpy import save as to_bytes

    tensors: dict[str, NDArray] = {}
    given: Any = obj.state() if _is_stateful(obj) else obj
    if isinstance(given, State):
        several = [_describe_all(own, tensors) for own in (given.entries, *given.tasks)]
        content = {"format": 2, "entries": several[0], "tasks": several[1:], "names": _texts(given.names)}
        if given.constants:
            content["constants"] = _describe_constants(given.constants, tensors)
    else:
        entries = given if isinstance(given, Mapping) else {"": given}
        single = not isinstance(given, Mapping)
        content = {"format": 1, "single": single, "entries": _describe_all(entries, tensors)}
    text = json.dumps(content)
    data = to_bytes(tensors, {"tnshare": text, "sha256": _checksum(text, tensors)})
    try:
        write_whole(path, data)
    except FileNotFoundError:
        raise TnshareError(f"cannot save {os.fspath(path)!r}: its folder does not exist") from None


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `save` wrote: the same kind of thing, the same numbers."""
    import json

    name = os.fspath(path)
    if not os.path.isfile(name):
        raise TnshareError(f"no file to load: {name!r}")
    metadata, tensors = _read(name)
    text = metadata.get("tnshare")
    if text is None:
        raise TnshareError(f"{name!r} is a safetensors file, but not one that tnshare.save wrote")
    try:
        content = json.loads(text)
        newest = content["format"]
        if newest <= FORMAT and metadata.get("sha256") == _checksum(text, tensors):
            entries = _restore_all(content["entries"], tensors)
            if newest > 1:
                tasks = tuple(_restore_all(own, tensors) for own in content["tasks"])
                constants = _restore_constants(content.get("constants", ()), tensors)
                return State(entries, tasks, tuple(_texts(content["names"])), constants)
            return entries[""] if content["single"] else entries
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, TnshareError):
            raise
        raise TnshareError(
            f"{name!r} is damaged: its description makes no sense; use another copy"
        ) from error
    if newest > FORMAT:
        raise TnshareError(f"{name!r} has format {newest}, this tnshare reads up to {FORMAT}: upgrade")
    raise TnshareError(f"{name!r} is damaged: its checksum does not fit; use another copy")


def _read(name: str) -> tuple[dict[str, str], dict[str, NDArray]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(name, framework="np") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
            return file.metadata() or {}, tensors
    except SafetensorError as error:
        raise TnshareError(f"{name!r} is damaged or not a tnshare file: {error}") from None


def _is_stateful(obj: Any) -> TypeGuard[Stateful]:
    return not isinstance(obj, type) and callable(getattr(obj, "state", None))


def _texts(names: Any) -> list[str]:
    for name in names:
        if not isinstance(name, str) or name.encode(errors="replace").decode() != name:
            raise TnshareError(f"names must be strings of Unicode characters: found {name!r}")
    return list(names)


def _describe_all(entries: Mapping[str, Saved], tensors: dict[str, NDArray]) -> list[dict[str, Any]]:
    return [
        _describe(name, value, tensors) for name, value in zip(_texts(entries), entries.values(), strict=True)
    ]


def _restore_all(described: Any, tensors: Mapping[str, NDArray]) -> dict[str, Saved]:
    return {entry["name"]: _restore(entry, tensors) for entry in described}


def _describe(name: str, value: Saved, tensors: dict[str, NDArray]) -> dict[str, Any]:
    """What to write about an entry as text; puts its arrays among the tensors."""
    if not isinstance(value, Decomposition):
        return {"name": name, "kind": "array", "array": _put(tensors, name, value)}
    spec, network = value.spec, value.network
    if METHODS.get(spec.method) is not type(spec):
        raise TnshareError(f"a factorisation of one's own cannot be saved: found {type(spec).__name__}")
    codes = spec.codes if isinstance(spec, LAF) else None
    described = {
        "name": name,
        "kind": "decomposition",
        "method": spec.method,
        "ranks": spec.ranks,
        "weights": {axis: network.sizes[axis] for axis in network.weight_axes},
        "tasks": {axis: network.sizes[axis] for axis in network.tasks},
        "error": repr(float(value.error)),
        "deviation_error": repr(float(value.deviation_error)),
        "factors": {key: _put(tensors, f"{name}/{key}", array) for key, array in value.factors.items()},
    }
    if codes is not None:
        described["codes"] = codes.kind
        described["given"] = _put(tensors, f"{name}/codes", np.frombuffer(codes.data))
    return described


def _restore(entry: Mapping[str, Any], tensors: Mapping[str, NDArray]) -> Saved:
    if entry["kind"] == "array":
        return _get(tensors, *entry["array"])
    factors = {key: _get(tensors, *stored) for key, stored in entry["factors"].items()}
    spec: Spec = METHODS[entry["method"]](tuple(entry["ranks"]))  # type: ignore[arg-type]
    if "codes" in entry:
        data = _get(tensors, *entry["given"]).tobytes()
        spec = LAF(spec.ranks[0], FrozenCodes(entry["codes"], spec.ranks[0], data))
    network = spec.checked(entry["weights"], entry["tasks"])
    return Decomposition(spec, network, factors, float(entry["error"]), float(entry["deviation_error"]))


def _describe_constants(
    constants: Mapping[str, tuple[Constant, ...]], tensors: dict[str, NDArray]
) -> list[dict[str, Any]]:
    """What JSON holds itself as it is, arrays and keys by where their numbers are."""

    def described(name: str, value: Constant) -> dict[str, Any]:
        if isinstance(value, bool | int | float | str):
            return {"value": value}
        if isinstance(value, Keys):
            return {"keys": value.implementation, "array": _put(tensors, name, value.numbers)}
        return {"array": _put(tensors, name, value)}

    return [
        {"name": name, "values": [described(name, value) for value in constants[name]]}
        for name in _texts(constants)
    ]


def _restore_constants(described: Any, tensors: Mapping[str, NDArray]) -> dict[str, tuple[Constant, ...]]:
    def restored(value: Mapping[str, Any]) -> Constant:
        if "value" in value:
            plain: Constant = value["value"]
            return plain
        array = _get(tensors, *value["array"])
        return Keys(value["keys"], array) if "keys" in value else array

    return {entry["name"]: tuple(map(restored, entry["values"])) for entry in described}


def _put(tensors: dict[str, NDArray], name: str, array: Any) -> tuple[str, str]:
    """Store an array; returns the key it is stored under, a running number, and the name of its dtype."""
    under = f" under {name!r}" if name else ""
    if type(array) not in (np.ndarray, np.memmap):  # a mask or units of another kind of array would be lost
        kind = type(array).__name__
        raise TnshareError(
            f"save takes a Decomposition, a NumPy array, a dict of them, or a state: found {kind}{under}"
        )
    dtype = array.dtype.newbyteorder("=")
    native = dtype.name in _NATIVE
    if not native and not any(kind in dtype.name for kind in ("complex64", "complex128", "float", "int")):
        raise TnshareError(f"arrays of dtype {array.dtype} cannot be saved: found one{under}")
    # A copy of the numbers alone: in order, in this machine's byte order, and without a view's memory.
    plain = np.array(array, dtype=dtype, order="C", subok=False)
    if not native:
        plain = np.frombuffer(plain.tobytes(), np.uint8).reshape(*plain.shape, dtype.itemsize)
    key = str(len(tensors))
    tensors[key] = plain
    return key, dtype.name


def _get(tensors: Mapping[str, NDArray], key: str, dtype: str) -> NDArray:
    stored = tensors[key]
    if dtype in _NATIVE:
        return stored
    try:
        actual = np.dtype(dtype)
    except TypeError:
        raise TnshareError(
            f"an array has dtype {dtype}, which NumPy alone does not know: import ml_dtypes first"
        ) from None
    return np.frombuffer(stored.tobytes(), actual).reshape(stored.shape[:-1]).copy()


def _checksum(text: str, tensors: Mapping[str, NDArray]) -> str:
    from hashlib import sha256

    digest = sha256(text.encode())
    for key in sorted(tensors):
        array = tensors[key]
        digest.update(f"\0{key}\0{array.dtype.name}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
