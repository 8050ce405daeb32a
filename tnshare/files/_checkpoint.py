"""One file for every framework: safetensors, with the specification beside the numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeGuard

from tnshare.errors import TnshareError

from ._container import Container
from ._foreign_json import DamagedError, check_form, parsed, shown
from ._older_files import in_todays_words, older_sum
from ._reading import Contents
from ._state import Saved, State, Stateful
from ._writing import Arrays, described

FORMAT = 2


def save(path: str | os.PathLike[str], obj: Saved | Mapping[str, Saved] | State | Stateful) -> None:
    """Write a Decomposition, an array, a dict of them, or the state of an adapter's layer or network.

    The file is complete or not there: it is written beside its place and moved when it is done, so an earlier
    file stays whole if anything fails.
    """
    import json  # here and below, as `import tnshare` is to be quick

    from safetensors.numpy import save as to_bytes

    arrays = Arrays()
    text = json.dumps(described(obj.state() if _is_stateful(obj) else obj, arrays))
    _write_whole(os.fspath(path), to_bytes(arrays.stored, {"tnshare": text, "sum": _sum(text)}))


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `save` wrote: the same kind of thing, the same numbers.

    All that a file says of its numbers is checked before any of them is read, and nothing of it is run.
    """
    name = os.fsdecode(path)
    if not os.path.isfile(name):
        raise TnshareError(f"no file to load: {name!r}")
    try:
        with open(name, "rb") as file:
            container = Container.of(name, file)
            return _contents(name, container, container.metadata["tnshare"]).read()
    except DamagedError as error:
        raise TnshareError(f"{name!r} is damaged: {error}; use another copy") from None
    except OSError as error:
        raise TnshareError(f"cannot load {name!r}: {error.strerror or error}") from None


def _contents(name: str, container: Container, text: str) -> Contents:
    """What a file of any format is said to hold, if the sum of what is said fits."""
    metadata, today = container.metadata, "sum" in container.metadata
    try:
        content = parsed(text)
        check_form(content, dict)
        newest = content.get("format")
        check_form(newest, int, ((), "format"))
        if newest > FORMAT:
            text = f"{name!r} has format {shown(newest)}, this tnshare reads up to {FORMAT}: upgrade"
            raise TnshareError(text)
        fits = metadata["sum"] == _sum(text) if today else True
        contents = Contents(name, content if today else in_todays_words(content, container), container)
    except DamagedError as error:
        reason = f"its description makes no sense ({error})"
        raise TnshareError(f"{name!r} is damaged: {reason}; use another copy") from None
    if not fits or not (today or metadata.get("sha256") == older_sum(text, container)):
        raise DamagedError("its checksum does not fit")
    return contents


def _sum(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def _is_stateful(obj: Any) -> TypeGuard[Stateful]:
    return not isinstance(obj, type) and callable(getattr(obj, "state", None))


def _write_whole(path: str, data: bytes) -> None:
    """Write beside the place, then move; through a link, to where it points, and with the old permissions."""
    place = os.path.realpath(path)
    there = os.path.exists(place)
    mode = os.stat(place).st_mode & 0o777 if there else 0o666
    beside = os.path.join(os.path.dirname(place), f".tnshare-{os.getpid()}-{os.urandom(8).hex()}")
    try:
        # Opened with the wanted permissions, so that the user's mask is applied to them.
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileNotFoundError:
        raise TnshareError(f"cannot save {path!r}: its folder does not exist") from None
    try:
        with os.fdopen(handle, "wb") as file:
            if there:
                os.chmod(beside, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    except BaseException:
        os.unlink(beside)
        raise
