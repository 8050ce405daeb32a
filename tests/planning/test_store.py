"""The store of measured values: whatever happens to its files, it answers the truth or nothing."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnshare.planning.devices import _cache_folder as store

KEY = {"device": "x", "sizes": [1, 2]}
SIMPLE = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(SIMPLE, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(), v, max_size=3))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TNSHARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def test_the_folder_is_the_users_unless_one_is_chosen(cache, monkeypatch):
    assert store.folder() == cache
    monkeypatch.setenv("TNSHARE_CACHE", "")
    assert store.folder().name == "tnshare"
    assert store.folder() != cache


@given(VALUES.filter(lambda v: v is not None))
def test_what_is_written_is_read(value):
    store.write("kind", KEY, value)
    found = store.read("kind", KEY)
    assert found == value
    assert type(found) is type(value)


def test_one_key_has_one_file_and_the_last_value(cache):
    assert store.read("kind", KEY) is None
    for value in (1, 2):
        store.write("kind", KEY, value)
    assert store.read("kind", KEY) == 2
    assert len(files(cache)) == 1
    assert files(cache)[0].parent == cache / "kind"


@pytest.mark.parametrize(
    "other",
    [
        {"device": "x"},
        {"device": "x", "sizes": [1, 3]},
        {"device": "x", "sizes": [1, 2.0]},
        {"device": "y", "sizes": [1, 2]},
        {"device": "x", "sizes": [1, 2], "more": None},
        {"device": "x", "sizes": [[1, 2]]},
    ],
)
def test_keys_that_differ_in_one_field_are_different(other):
    store.write("kind", KEY, "first")
    assert store.read("kind", other) is None
    store.write("kind", other, "second")
    assert (store.read("kind", KEY), store.read("kind", other)) == ("first", "second")
    assert store.read("another kind", KEY) is None


def test_lists_and_tuples_and_the_order_of_entries_make_no_difference():
    store.write("kind", {"a": ((1, 2), (3,)), "b": 0}, "found")
    assert store.read("kind", {"b": 0, "a": [[1, 2], [3]]}) == "found"


@given(st.binary(max_size=60))
def test_any_bytes_in_the_file_read_as_nothing_and_are_repaired(data):
    store.write("kind", KEY, "value")
    (path,) = files(store.folder())
    path.write_bytes(data)
    assert store.read("kind", KEY) is None
    store.write("kind", KEY, "again")
    assert store.read("kind", KEY) == "again"


@given(st.integers(0, 200))
def test_a_file_cut_short_reads_as_nothing(length):
    store.write("kind", KEY, "value" * 40)
    (path,) = files(store.folder())
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    assert store.read("kind", KEY) is None
    path.write_bytes(whole)
    assert store.read("kind", KEY) == "value" * 40


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found | {"format": store.FORMAT + 1},
        lambda found: found | {"key": {"device": "another", "sizes": [1, 2]}},
        lambda found: found | {"key": {"device": "x", "sizes": [1, 2.0]}},
        lambda found: {name: found[name] for name in ("format", "key")},
        lambda found: {name: found[name] for name in ("format", "value")},
        lambda found: [found],
        lambda found: None,
    ],
)
def test_a_foreign_file_reads_as_nothing(cache, change):
    store.write("kind", KEY, "value")
    (path,) = files(cache)
    found = json.loads(path.read_text())
    path.write_text(json.dumps(found))
    assert store.read("kind", KEY) == "value"
    path.write_text(json.dumps(change(found)))
    assert store.read("kind", KEY) is None


def test_deeply_nested_nonsense_reads_as_nothing(cache):
    store.write("kind", KEY, "value")
    files(cache)[0].write_text("[" * 100_000)
    assert store.read("kind", KEY) is None


@pytest.mark.parametrize("kind", ["pipe", "folder", "huge"])
def test_what_is_no_file_of_ours_reads_as_nothing_at_once(cache, kind):
    store.write("kind", KEY, "value")
    (path,) = files(cache)
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)  # to open it would wait for a writer
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(2**33)  # which takes no room, and would take all memory to read
    assert store.read("kind", KEY) is None
    store.write("kind", KEY, "again")
    assert store.read("kind", KEY) == ("again" if kind == "huge" else None)  # a file, and nothing else


def test_a_full_disk_is_no_error(cache, monkeypatch):
    store.write("kind", KEY, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    store.write("kind", KEY, "new")
    assert store.read("kind", KEY) == "old"
    assert len(files(cache)) == 1


def test_a_folder_that_is_a_file_is_no_error(cache):
    cache.write_text("in the way")
    store.write("kind", KEY, "value")
    assert store.read("kind", KEY) is None
    assert cache.read_text() == "in the way"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="may write everywhere")
def test_a_folder_that_may_not_be_written_is_no_error(cache):
    store.write("kind", KEY, "old")
    (cache / "kind").chmod(0o500)
    try:
        store.write("kind", KEY, "new")
        assert store.read("kind", KEY) == "old"
        (cache / "kind").chmod(0o000)
        assert store.read("kind", KEY) is None
    finally:
        (cache / "kind").chmod(0o700)


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_a_move_that_fails_leaves_the_old_value_and_nothing_else(cache, monkeypatch, error):
    store.write("kind", KEY, "old")

    def refuse(*_):
        raise error("no")

    with monkeypatch.context() as patched:
        patched.setattr(store.os, "replace", refuse)
        store.write("kind", KEY, "new")
    assert store.read("kind", KEY) == "old"
    assert len(files(cache)) == 1


def test_an_interrupted_write_cleans_up_and_is_not_hidden(cache, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(store.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.write("kind", KEY, "new")
    assert files(cache) == []


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_json_cannot_express_is_the_callers_mistake(cache, value):
    with pytest.raises((TypeError, ValueError)):
        store.write("kind", KEY, value)
    assert files(cache) == []


def write_and_read(times: int) -> list[object]:
    """Values of one writer among many: what is read in between must be whole."""
    found = []
    for n in range(times):
        store.write("kind", KEY, [n] * 500)
        found.append(store.read("kind", KEY))
    return found


def test_threads_never_read_half_a_value(cache):
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.extend(write_and_read(40))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 160
    assert all(isinstance(v, list) and len(v) == 500 and len(set(v)) == 1 for v in found)
    assert len(files(cache)) == 1


def test_processes_never_read_half_a_value(cache):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = [value for values in pool.map(write_and_read, [40, 40]) for value in values]
    assert len(found) == 80
    assert all(isinstance(v, list) and len(v) == 500 and len(set(v)) == 1 for v in found)
    assert len(files(cache)) == 1
