"""Files that are there as a whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

try:
    import fcntl
except ImportError:  # Windows, where a file that somebody has opened cannot be removed anyway
    fcntl = None  # type: ignore[assignment]

_PREFIX = ".tnshare-part-"


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write beside the place, then move, so that nobody reads half a file and what was there stays whole.

    Through a link, to where it points, and with the permissions of what was there. Every writer has a file of
    its own beside, and locks it: what a killed writer left is not locked, and removed by the next one. The
    folder must exist; what is there must be a file.
    """
    place = os.path.realpath(path)
    mode = _permissions(place)
    # Opened with the wanted permissions, so that the user's mask is applied to them.
    handle, beside = _opened(os.path.dirname(place), 0o666 if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                os.chmod(beside, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                os.replace(beside, place)  # while the lock says that somebody is at work
        if fcntl is None:
            os.replace(beside, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    _remove_abandoned(os.path.dirname(place))


def _permissions(place: str) -> int | None:
    """Those of the file that is there, if there is one."""
    try:
        there = os.stat(place).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(there):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", place)
    if not stat.S_ISREG(there):  # to move a file there would take a device's place
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a file", place)
    return there & 0o777


def _opened(folder: str, mode: int) -> tuple[int, str]:
    """A new file in a folder, which is locked as long as it is open."""
    while True:
        beside = os.path.join(folder, f"{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with suppress(OSError):  # where nothing can be locked, nothing is removed either
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(beside):
            return handle, beside
        os.close(handle)  # another writer took it for abandoned before it was locked


def _remove_abandoned(folder: str) -> None:
    """Remove what killed writers left: files of our names that nobody has locked."""
    with suppress(OSError), os.scandir(folder) as found:
        for name in [entry.path for entry in found if entry.name.startswith(_PREFIX)]:
            with suppress(OSError):
                if fcntl is None:
                    os.unlink(name)
                    continue
                handle = os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name)
                finally:
                    os.close(handle)
