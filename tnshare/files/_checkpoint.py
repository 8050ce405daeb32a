"""One file for every framework: safetensors, with the specification beside the numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeGuard

from tnshare._atomic_write import write_whole
from tnshare.errors import TnshareError

from ._container import Container
from ._foreign_json import DamagedError, check_form, parsed, shown
from ._older_files import in_todays_words, older_sum
from ._reading import Contents
from ._state import Saved, State, Stateful
from ._writing import Arrays, described

FORMAT = 2


class NotSaved(TnshareError, OSError):  # noqa: N818 (says what did not happen)
    """A file could not be written: no room, no permission, no such folder."""


def save(path: str | os.PathLike[str], obj: Saved | Mapping[str, Saved] | State | Stateful) -> None:
    """Write a Decomposition, an array, a dict of them, or the state of an adapter's layer or network.

    The file is complete or not there: it is written beside its place and moved when it is done, so an earlier
    file stays whole if anything fails.
    """
    import json  # here and below, as `import tnshare` is to be quick

    from safetensors.numpy import save as to_bytes

    name, arrays = _name_of(path), Arrays()
    text = json.dumps(described(obj.state() if _is_stateful(obj) else obj, arrays))
    data = to_bytes(arrays.stored, {"tnshare": text, "sum": _sum(text)})
    try:
        write_whole(name, data)
    except OSError as error:
        reason = "its folder does not exist" if isinstance(error, FileNotFoundError) else error.strerror
        raise NotSaved(f"cannot save {name!r}: {reason or error}; what was there is as it was") from error


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `save` wrote: the same kind of thing, the same numbers.

    All that a file says of its numbers is checked before any of them is read, and nothing of it is run.
    """
    name = _name_of(path)
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


def _name_of(path: Any) -> str:
    try:
        name = os.fsdecode(path)
    except TypeError:
        found = type(path).__name__
        raise TnshareError(f"a path is text or an os.PathLike: found {found}") from None
    if "\0" in name:
        raise TnshareError(f"a path has no zeros in it: found {name!r}")
    return name


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
