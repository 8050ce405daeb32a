"""One file for every framework: safetensors, with the specification beside the numbers."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .decompose import Decomposition
from .errors import TnshareError
from .frozen import FrozenCodes
from .network import Network
from .ops import NDArray
from .spec import LAF, METHODS, Spec

FORMAT = 1
# What safetensors stores as it is; anything else is stored as bytes and its dtype noted.
_NATIVE = {"bool", "float16", "float32", "float64"}
_NATIVE |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}

Saved = Decomposition | NDArray


def save(path: str | os.PathLike[str], obj: Saved | Mapping[str, Saved]) -> None:
    """Write a Decomposition, an array, or a dict of them.

    The file is complete or not there: it is written beside its place and moved when it is done, so an earlier
    file stays whole if anything fails.
    """
    entries = obj if isinstance(obj, Mapping) else {"": obj}
    tensors: dict[str, NDArray] = {}
    described = [_describe(name, value, tensors) for name, value in entries.items()]
    content = {"format": FORMAT, "single": not isinstance(obj, Mapping), "entries": described}
    text = json.dumps(content)
    from safetensors.numpy import save as to_bytes

    data = to_bytes(tensors, {"tnshare": text, "sha256": _checksum(text, tensors)})
    _write_whole(Path(path), data)


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `save` wrote: the same kind of thing, the same numbers."""
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        raise TnshareError(f"no file to load: {os.fspath(path)!r}")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise TnshareError(f"{os.fspath(path)!r} is damaged or not a tnshare file: {error}") from None
    text = metadata.get("tnshare")
    if text is None:
        raise TnshareError(f"{os.fspath(path)!r} is a safetensors file, but not one that tnshare.save wrote")
    if metadata.get("sha256") != _checksum(text, tensors):
        raise TnshareError(f"{os.fspath(path)!r} is damaged: its checksum does not fit; use another copy")
    content = json.loads(text)
    if content["format"] > FORMAT:
        raise TnshareError(
            f"{os.fspath(path)!r} has format {content['format']}, this tnshare reads up to {FORMAT}: upgrade"
        )
    entries = {entry["name"]: _restore(entry, tensors) for entry in content["entries"]}
    return entries[""] if content["single"] else entries


def _describe(name: str, value: Saved, tensors: dict[str, NDArray]) -> dict[str, Any]:
    """What to write about an entry as text; puts its arrays among the tensors."""
    if not isinstance(name, str):
        raise TnshareError(f"names must be strings: found {name!r}")
    if isinstance(value, Decomposition):
        codes = value.spec.codes if isinstance(value.spec, LAF) else None
        network = value.network
        return {
            "name": name,
            "kind": "decomposition",
            "method": value.spec.method,
            "ranks": value.spec.ranks,
            "codes": codes and codes.kind,
            "sizes": {axis: network.sizes[axis] for axis in network.output},
            "tasks": network.tasks,
            "error": _as_text(value.error),
            "deviation_error": _as_text(value.deviation_error),
            "dtypes": {key: _put(tensors, f"{name}/{key}", array) for key, array in value.factors.items()},
        }
    if isinstance(value, np.ndarray):
        return {"name": name, "kind": "array", "dtype": _put(tensors, name, value)}
    raise TnshareError(
        f"save takes a Decomposition, a NumPy array, or a dict of them: found {type(value).__name__}"
        + (f" under {name!r}" if name else "")
    )


def _restore(entry: Mapping[str, Any], tensors: Mapping[str, NDArray]) -> Saved:
    if entry["kind"] == "array":
        return _get(tensors, entry["name"], entry["dtype"])
    factors = {key: _get(tensors, f"{entry['name']}/{key}", dtype) for key, dtype in entry["dtypes"].items()}
    spec = _spec(entry, factors)
    network: Network = spec.network(tasks=tuple(entry["tasks"]), **entry["sizes"])
    return Decomposition(spec, network, factors, float(entry["error"]), float(entry["deviation_error"]))


def _spec(entry: Mapping[str, Any], factors: Mapping[str, NDArray]) -> Spec:
    ranks = tuple(entry["ranks"])
    if entry["codes"] is None:
        return METHODS[entry["method"]](ranks)  # type: ignore[arg-type]
    if entry["codes"] == "given":
        return LAF.with_codes(factors["S"].reshape(-1, ranks[0]).T)
    return LAF(ranks[0], FrozenCodes(entry["codes"], ranks[0]))


def _put(tensors: dict[str, NDArray], key: str, array: NDArray) -> str:
    """Store an array; returns the name of its dtype."""
    name: str = array.dtype.name
    if name not in _NATIVE and array.dtype.kind not in "cV":
        raise TnshareError(f"arrays of dtype {array.dtype} cannot be saved: found one under {key!r}")
    # A copy of the numbers alone: in order, in this machine's byte order, and without a view's memory.
    plain = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    if name not in _NATIVE:
        shape = (*plain.shape, plain.dtype.itemsize)
        plain = np.frombuffer(plain.tobytes(), np.uint8).reshape(shape)
    tensors[key] = plain
    return name


def _get(tensors: Mapping[str, NDArray], key: str, dtype: str) -> NDArray:
    stored = tensors[key]
    if dtype in _NATIVE:
        return stored
    try:
        actual = np.dtype(dtype)
    except TypeError:
        raise TnshareError(
            f"{key!r} has dtype {dtype}, which NumPy alone does not know: import ml_dtypes first"
        ) from None
    return np.frombuffer(stored.tobytes(), actual).reshape(stored.shape[:-1]).copy()


def _checksum(text: str, tensors: Mapping[str, NDArray]) -> str:
    digest = hashlib.sha256(text.encode())
    for key in sorted(tensors):
        array = tensors[key]
        digest.update(f"\0{key}\0{array.dtype.name}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _as_text(number: float) -> str | float:
    """JSON has no infinity."""
    return number if math.isfinite(number) else repr(number)


def _write_whole(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    """The permissions that new files are not given; mkstemp's are for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
