"""Whoever is killed, whatever is full or forbidden: the old file or the new one, and nothing beside it."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import killed_writers
import numpy as np
import pytest

import tnshare as tn

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_writers_that_are_killed_leave_a_whole_file_and_nothing_for_good(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    program = str(ROOT / "tests" / "helpers" / "killed_writers.py")
    run = subprocess.run(
        [sys.executable, program, str(tmp_path), "12", "3"],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert [one["found"] for one in found] == ["whole"] * 12
    assert [one["left for good"] for one in found] == [[]] * 12


def test_what_killed_writers_left_is_removed_and_what_others_write_is_not(path: Path) -> None:
    from tnshare._atomic_write import _opened

    left = path.parent / ".tnshare-part-1-0"
    left.write_bytes(b"half")
    strange = path.parent / ".tnshare-part-folder"
    strange.mkdir()
    handle, beside = _opened(str(path.parent), 0o600)
    tn.save(path, {})
    assert sorted(os.listdir(path.parent)) == sorted([path.name, strange.name, os.path.basename(beside)])
    os.close(handle)  # as the system does for whoever is killed
    tn.save(path, {})
    assert sorted(os.listdir(path.parent)) == sorted([path.name, strange.name])


def _write(path: str, number: int, times: int) -> list[str]:
    found = []
    for _ in range(times):
        tn.save(path, killed_writers.content(number, 30_000 * number))
        found.append(killed_writers.whole(Path(path)))
    return found


def test_two_writers_at_once_leave_one_of_both(path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(_write, [(str(path), 1, 25), (str(path), 2, 25)])
    assert found == [["whole"] * 25] * 2
    assert os.listdir(path.parent) == [path.name]


def test_a_full_disk_is_named_and_leaves_the_old_file(path: Path) -> None:
    tn.save(path, {"a": np.arange(3)})
    old = path.read_bytes()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(
            tn.TnshareError, match=r"cannot save '.*file': File too large; what was there is as"
        ):
            tn.save(path, {"a": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("number", [28, 122, 5], ids=["no space", "quota", "input/output"])
def test_whatever_the_system_says_is_named_and_still_an_oserror(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(tn.TnshareError, match=f"cannot save '.*': {os.strerror(number)}") as caught:
        tn.save(path, {})
    assert isinstance(caught.value, OSError)
    assert os.listdir(path.parent) == []


def _folder(path: Path) -> None:
    path.mkdir()


def _below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (_folder, "cannot save '.*': it is a folder"),
        (lambda path: os.mkfifo(path), "cannot save '.*': it is a device or a pipe, not a file"),
        (lambda path: path.parent.rmdir(), "cannot save '.*': its folder does not exist"),
        (_below_a_file, "cannot save '.*': Not a directory"),
        (lambda path: path.symlink_to(path), "cannot save '.*'"),
    ],
)
def test_places_that_are_no_files_are_refused_and_left_alone(path: Path, make: object, text: str) -> None:
    path = path.parent / "inner" / "file"
    path.parent.mkdir()
    make(path)  # type: ignore[operator]
    before = os.lstat(path) if os.path.lexists(path) else None
    with pytest.raises(tn.TnshareError, match=text):
        tn.save(path, {})
    with pytest.raises(tn.TnshareError, match="no file to load"):
        tn.load(path)
    after = os.lstat(path) if os.path.lexists(path) else None
    assert (before and (before.st_ino, before.st_mode)) == (after and (after.st_ino, after.st_mode))


@pytest.mark.skipif(os.geteuid() == 0, reason="may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(path: Path) -> None:
    tn.save(path, {})
    path.parent.chmod(0o500)
    try:
        with pytest.raises(tn.TnshareError, match=r"cannot save '.*': Permission denied"):
            tn.save(path, {"a": np.zeros(3)})
    finally:
        path.parent.chmod(0o700)
    assert tn.load(path) == {}


def test_what_may_not_be_read_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tn.save(path, {})

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", forbidden)
    with pytest.raises(tn.TnshareError, match=r"cannot load '.*': Permission denied"):
        tn.load(path)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (3, "a path is text or an os.PathLike: found int"),
        (None, "a path is text or an os.PathLike: found NoneType"),
        (["a"], "a path is text or an os.PathLike: found list"),
        ("a\0b", "a path has no zeros in it"),
        ("x" * 300, "cannot save '.*': File name too long|no file to load"),
        ("", "cannot save ''|no file to load: ''"),
    ],
)
def test_what_is_no_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: object, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tn.TnshareError, match=text):
        tn.save(wrong, {})  # type: ignore[arg-type]
    with pytest.raises(tn.TnshareError, match=text):
        tn.load(wrong)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


def test_a_path_may_be_bytes(path: Path) -> None:
    tn.save(os.fsencode(path), {"a": np.arange(3)})  # type: ignore[arg-type]
    assert list(tn.load(os.fsencode(path))) == ["a"]  # type: ignore[arg-type]
