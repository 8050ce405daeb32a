"""The law of files.

A file is read (`tnshare.load`, and the adapter's own restoring) and gives the numbers that were saved, or a
`TnshareError`, within two seconds and 200 MB beyond its own size, and nothing that it holds is run. Where a
file was crafted and its sums made good, it may hold other numbers: then what is read must be sound, that is,
come back the same when it is saved again.
"""

from __future__ import annotations

import builtins
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from damaged_files import CANARY, Damaged, damaged
from kinds_of_files import Kind, flat

import tnshare as tn

SECONDS, MEGABYTES = 2.0, 200


@dataclass
class Watch:
    """What happens while a file is read: what is run, what is opened."""

    on: bool = False
    seen: list[str] = field(default_factory=list)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "compile" and args[0] is not None and CANARY in _text(args[0]):
            self.seen.append(f"compiled: {_text(args[0])[:200]}")
        elif event in ("os.system", "subprocess.Popen", "os.exec", "pickle.find_class", "marshal.loads"):
            self.seen.append(f"{event} {args!r}"[:200])


def _text(source: Any) -> str:
    return (
        source
        if isinstance(source, str)
        else bytes(source).decode(errors="replace")
        if isinstance(source, bytes)
        else ""
    )


_watch = Watch()
_hooked: list[bool] = []


class TooLong(BaseException):
    """Reading took so long that it was stopped."""


@contextmanager
def guarded(limit: int) -> Iterator[None]:
    """Stops what takes longer than ``limit`` seconds by the clock."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def memory(word: str) -> int:
    """What Linux says of this process, in bytes: "VmRSS" or "VmHWM" (the most since the last reset)."""
    with open("/proc/self/status") as status:
        line = next((line for line in status if line.startswith(word)), "0 0 kB")
    return int(line.split()[1]) * 1024


def _reset_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def measured(read: Callable[[], Any], size: int) -> tuple[Any, str]:
    """What reading gives, or the TnshareError; and what of the law it breaks, or nothing."""
    if not _hooked:
        sys.addaudithook(_watch)
        _hooked.append(True)
    _reset_peak()
    before, began = memory("VmRSS"), time.thread_time()
    _watch.on, _watch.seen = True, []
    result: Any = None
    wrong = ""
    try:
        with guarded(20):
            result = read()
    except tn.TnshareError as error:
        result = error
        if len(str(error)) > 4000:
            wrong = f"a text of {len(str(error))} characters"
    except TooLong:
        wrong = "not done after 20 s"
    except BaseException as error:  # whatever it is
        wrong = f"{type(error).__name__}: {str(error)[:150]}"
    finally:
        _watch.on = False
    seconds, most = time.thread_time() - began, memory("VmHWM") - before
    if hasattr(builtins, CANARY):
        delattr(builtins, CANARY)
        return result, "ran code from the file"
    if _watch.seen:
        return result, f"compiled text from the file: {_watch.seen[0]}"
    if not wrong and seconds > SECONDS:
        wrong = f"took {seconds:.1f} s"
    if not wrong and most > MEGABYTES * 1e6 + size:
        wrong = f"took {most / 1e6:.0f} MB beyond a file of {size / 1e6:.1f} MB"
    return result, wrong


def _same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return list(a) == list(b) and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and a[n].tobytes() == b[n].tobytes() for n in a
    )


class Judge:
    """Writes damaged files of one kind and says what comes of them."""

    def __init__(self, kind: Kind, folder: Path, others: list[bytes] | None = None) -> None:
        self.kind, self.path, self.again = kind, folder / "damaged", folder / "again"
        made = kind.make()
        self.data = made if isinstance(made, bytes) else b""
        if not self.data:
            tn.save(self.path, made)
            self.data = self.path.read_bytes()
        self.path.write_bytes(self.data)
        self.others = [self.data] if others is None else others
        self.expected = kind.numbers(tn.load(self.path))

    def verdict(self, damage: Damaged) -> str:
        """ "original", "refused", "other" (sound, of a file made good), or what of the law is broken."""
        self.path.write_bytes(damage.data)

        def read() -> Any:
            loaded = tn.load(self.path)
            self.kind.used(loaded)
            return loaded, self.kind.numbers(loaded)

        found, wrong = measured(read, len(damage.data))
        if wrong:
            return f"BROKEN: {wrong}"
        if isinstance(found, tn.TnshareError):
            return "refused"
        if _same(found[1], self.expected):
            return "original"
        if not damage.sealed:
            return "BROKEN: other numbers"
        try:
            tn.save(self.again, found[0])
            sound = _same(flat(tn.load(self.again)), flat(found[0]))
        except Exception as error:
            return f"BROKEN: what was read is not sound: {type(error).__name__}: {str(error)[:150]}"
        return "other" if sound else "BROKEN: what was read does not come back"

    def of_seed(self, seed: int) -> tuple[str, str]:
        """What was done to the file of a seed, and what came of it."""
        damage = damaged(seed, self.data, self.others)
        return damage.mutation, self.verdict(damage)


def every_file(kinds: list[Kind], folder: Path) -> list[bytes]:
    """A whole file of each kind."""
    return [Judge(kind, folder).data for kind in kinds]
