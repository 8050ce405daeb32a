"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write beside the place, then move, so that nobody reads half a file and what was there stays whole.

    Through a link, to where it points, and with the permissions of what was there. Every writer has a name of
    its own. The folder must exist.
    """
    place = os.path.realpath(path)
    there = os.path.exists(place)
    mode = os.stat(place).st_mode & 0o777 if there else 0o666
    beside = os.path.join(os.path.dirname(place), f".tnshare-{os.getpid()}-{os.urandom(8).hex()}")
    # Opened with the wanted permissions, so that the user's mask is applied to them.
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
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
