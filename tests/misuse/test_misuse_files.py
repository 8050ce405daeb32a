"""Misuse of save and load: what is no state, what is no path; no file is changed, none is left behind."""

from __future__ import annotations

import io
import os
from types import SimpleNamespace

import numpy as np
import pytest
from misused import catalogue, refused

import tnshare as tn


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> SimpleNamespace:
    path = tmp_path_factory.mktemp("files")
    d = tn.decompose(np.random.default_rng(0).standard_normal((5, 4, 3)), "tt")
    tn.save(path / "d.tn", d)
    (path / "folder").mkdir()
    (path / "empty.tn").touch()
    (path / "text.tn").write_text("weights")
    whole = (path / "d.tn").read_bytes()
    (path / "half.tn").write_bytes(whole[: len(whole) // 2])
    (path / "flipped.tn").write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    np.save(path / "stack.npy", np.ones(3))
    return SimpleNamespace(path=path, d=d, array=np.ones((2, 3)), file=path / "d.tn")


def save(make, name="d.tn"):
    """Over a file that is there."""
    return lambda w: tn.save(w.path / name, make(w))


def load(name):
    return lambda w: tn.load(w.path / name)


class Sloppy:
    def state(self):
        return 3


SAVED = r"save takes a Decomposition, a NumPy array, a dict of them, or a state: found "

FILES = catalogue(
    ("save None", SAVED + "NoneType", save(lambda w: None)),
    ("save a number", SAVED + "float", save(lambda w: 1.0)),
    ("save words", SAVED + "str", save(lambda w: "weights")),
    ("save a list", SAVED + "list", save(lambda w: [w.d, w.d])),
    ("save a class", SAVED + "type", save(lambda w: tn.Decomposition)),
    ("save a network", SAVED + "Network", save(lambda w: w.d.network)),
    ("save a list in a dict", SAVED + "list under 'a'", save(lambda w: {"a": [1.0]})),
    ("save a dict in a dict", SAVED + "dict under 'a'", save(lambda w: {"a": {"b": w.d}})),
    ("save a masked array", SAVED + "MaskedArray", save(lambda w: np.ma.masked_array(w.array, w.array > 0))),
    ("save objects", r"dtype object cannot be saved", save(lambda w: w.array.astype(object))),
    ("save words in an array", r"dtype <U1 cannot be saved", save(lambda w: np.full(3, "a"))),
    ("save dates", r"dtype datetime64.* cannot be saved", save(lambda w: np.zeros(3, "M8[s]"))),
    ("save structures", r"dtype .* cannot be saved", save(lambda w: np.zeros(3, [("a", "f4")]))),
    ("save by numbers", r"(names|entries).*: found (0|int)", save(lambda w: {0: w.array})),
    ("save by None", r"(names|entries).*: found None", save(lambda w: {None: w.array})),
    ("save half a character", r"names|characters", save(lambda w: {"\ud800": w.array})),
    ("save what has no state", SAVED + "int", save(lambda w: Sloppy())),
    ("save a factorisation of one's own", r"a factorisation of one's own cannot be saved", save(lambda w: own(w))),
    ("save a decomposition of factors of words", r"dtype <U1 cannot be saved", save(lambda w: tn.Decomposition(w.d.spec, w.d.network, {k: np.full(v.shape, "a") for k, v in w.d.factors.items()}))),
    ("save a decomposition lacking a factor", r"the factor .* is missing|factors", save(lambda w: tn.Decomposition(w.d.spec, w.d.network, {}))),
    ("save a decomposition of factors too large", r"shape", save(lambda w: tn.Decomposition(w.d.spec, w.d.network, {k: np.concatenate([v, v]) for k, v in w.d.factors.items()}))),
    ("save a state with a number for an entry", SAVED + "int under 'a'", save(lambda w: tn.State({"a": 3}))),
    ("save a state of an empty dict of nothing", SAVED, save(lambda w: tn.State({"a": None}))),
    ("save to None", r"a path .*: found NoneType", lambda w: tn.save(None, w.d)),
    ("save to a number", r"a path .*: found int", lambda w: tn.save(1, w.d)),
    ("save to True", r"a path .*: found bool", lambda w: tn.save(True, w.d)),
    ("save to a list", r"a path .*: found list", lambda w: tn.save([w.file], w.d)),
    ("save to no name", r"cannot save ''", lambda w: tn.save("", w.d)),
    ("save to a name with a zero", r"a path .*: found", lambda w: tn.save(str(w.file) + "\0", w.d)),
    ("save to a folder", r"cannot save '.*folder': .*folder", save(lambda w: w.d, "folder")),
    ("save into a folder that is not there", r"cannot save .*: its folder does not exist", save(lambda w: w.d, "none/d.tn")),
    ("save into a file as if it were a folder", r"cannot save ", save(lambda w: w.d, "d.tn/e.tn")),
    ("save to a name that is too long", r"cannot save ", save(lambda w: w.d, "x" * 300)),
    ("save a path to an object", r"a path .*: found Decomposition", lambda w: tn.save(w.d, w.file)),
    ("save without an object", r"obj", lambda w: tn.save(w.file), TypeError),
    ("load None", r"a path .*: found NoneType", lambda w: tn.load(None)),
    ("load a number", r"a path .*: found int", lambda w: tn.load(0)),
    ("load True", r"a path .*: found bool", lambda w: tn.load(True)),
    ("load a decomposition", r"a path .*: found Decomposition", lambda w: tn.load(w.d)),
    ("load an open file", r"a path .*: found", lambda w: tn.load(io.BytesIO())),
    ("load what is not there", r"no file to load: '.*nothing\.tn'", load("nothing.tn")),
    ("load a folder", r"no file to load: '.*folder'", load("folder")),
    ("load no name", r"no file to load: ''", lambda w: tn.load("")),
    ("load an empty file", r"is damaged or not a tnshare file|empty\.tn", load("empty.tn")),
    ("load a text", r"text\.tn' is ", load("text.tn")),
    ("load half a file", r"half\.tn' is damaged", load("half.tn")),
    ("load a file with a flipped bit", r"flipped\.tn' is damaged: .*; use another copy", load("flipped.tn")),
    ("load a file of NumPy", r"stack\.npy' is ", load("stack.npy")),
)  # fmt: skip


def own(w: SimpleNamespace) -> tn.Decomposition:
    """Of a class of a user."""

    class Mine(tn.TT):
        pass

    return tn.Decomposition(Mine(w.d.spec.ranks), w.d.network, w.d.factors)


@FILES
def test_files(misuse, world):
    refused(misuse, world)


def test_a_device_is_not_replaced():
    with pytest.raises(tn.TnshareError, match="cannot save"):
        tn.save(os.devnull, np.ones(1))
    assert not os.path.isfile(os.devnull)
