"""What is saved comes back bit for bit, or the load says why not; a file is whole or not there."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import tnshare as tn

DTYPES = ["?", "u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f4", ">f8", ">c8", ">c16"]
ODD_NAMES = ["", "/", "a/b/", "..", " ", '"\\', "ключ/ä/日本/🦆", "tnshare", "sha256", "L", "x" * 200]
ODD_NAMES += ["a\u00a0b", "\u0645\u06cc\u200c\u062e"]  # a joiner, as Persian has it
METHODS = ["laf", "tucker", "tt"]


def same(a, b):
    """Equal in kind, in order, and in every bit (arrays in this machine's byte order)."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, np.ndarray):
        native = np.array(a, a.dtype.newbyteorder("="), order="C")
        kind = type(b) is np.ndarray and b.dtype == native.dtype and b.shape == a.shape
        return kind and b.tobytes() == native.tobytes()
    return (
        type(a) is type(b) is tn.Decomposition
        and (a.spec, a.network, list(a.factors)) == (b.spec, b.network, list(b.factors))
        and (repr(a.error), repr(a.deviation_error)) == (repr(b.error), repr(b.deviation_error))
        and all(same(a.factors[name], b.factors[name]) for name in a.factors)
    )


def stack(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def bare(spec=None, error=0.0, **factors):
    spec = spec or tn.LAF(1)
    factors = factors or {"L": np.ones((1, 2)), "S": np.ones((2, 1))}
    return tn.Decomposition(spec, spec.network(i=2, task=2), factors, error, error)


EVERYTHING = {
    "d": tn.decompose(stack(3, 2, 4), "tucker", ranks=(2, 2, 2)),
    "a": stack(2, 3).astype(np.float32),
    "c": stack(3) + 1j,
    "b": np.array([True, False]),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.tnshare"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file to damage, and what was in it."""
    path = tmp_path_factory.mktemp("damaged") / "file"
    tn.save(path, EVERYTHING)
    return path, path.read_bytes()


def comes_back(path, obj):
    tn.save(path, obj)
    return same(obj, tn.load(path))


def loads_the_same_or_refuses(path, data):
    path.write_bytes(data)
    try:
        return same(EVERYTHING, tn.load(path))
    except tn.TnshareError:
        return True


def write_content(path, content, checksum=None):
    """A file without arrays whose text is this and whose checksum, unless one is given, fits."""
    text = json.dumps(content)
    fitting = hashlib.sha256(text.encode()).hexdigest()
    save_file({}, path, {"tnshare": text, "sha256": checksum or fitting})


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3), st.integers(0, 999))
def test_an_array_of_any_bits_comes_back_bit_equal(tmp_path_factory, dtype, shape, seed):
    path = tmp_path_factory.getbasetemp() / "any_bits"
    size = (math.prod(shape), np.dtype(dtype).itemsize)
    bits = np.random.default_rng(seed).integers(0, 2 if dtype == "?" else 256, size, np.uint8)
    array = np.frombuffer(bits.tobytes(), dtype).reshape(shape, order="CF"[seed % 2])
    assert comes_back(path, array)
    assert comes_back(path, {"name": array})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_a_decomposition_comes_back_bit_equal(path, method, dtype):
    assert comes_back(path, tn.decompose(stack(4, 3, 5).astype(dtype), method, eps=0.4))


@pytest.mark.parametrize("method", METHODS)
def test_two_task_axes_come_back(path, method):
    axes = ("i", "site", "user")
    assert comes_back(path, tn.decompose(stack(4, 3, 2), method, axes=axes, tasks=axes[1:]))


def test_an_axis_may_be_called_tasks(path):
    assert comes_back(path, tn.decompose(stack(3, 4), "tt", axes=("tasks", "task")))


@pytest.mark.parametrize("tasks", [{"task": 4}, {"site": 2, "user": 2}], ids=["one axis", "two axes"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex64])
@pytest.mark.parametrize("kind", ["single_task", "hard_sharing", "evgeniou_pontil", "with_codes"])
def test_frozen_codes_come_back_in_every_dtype_of_the_factors(path, kind, dtype, tasks):
    given_to = {"hard_sharing": (), "with_codes": (stack(2, 4),)}.get(kind, (4,))
    spec = getattr(tn.LAF, kind)(*given_to)
    network = spec.network(tasks=tuple(tasks), i=3, o=2, **tasks)
    factors = tn.random_factors(network, variance=1, frozen=spec.frozen(network), dtype=dtype)
    assert comes_back(path, tn.Decomposition(spec, network, factors, 0.1, math.inf))


@pytest.mark.parametrize("error", [0.0, 1e-300, 0.1 + 0.2, math.inf])
def test_errors_come_back_bit_equal_even_infinite_ones(path, error):
    assert comes_back(path, bare(error=error))


def test_a_dict_keeps_its_order_and_odd_names_and_may_be_empty(path):
    forward = {name: np.array(n) for n, name in enumerate(ODD_NAMES)}
    assert comes_back(path, forward)
    assert comes_back(path, dict(reversed(forward.items())))
    assert comes_back(path, {})


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_decomposition_may_have_an_odd_name(path, name):
    assert comes_back(path, {name: EVERYTHING["d"], "array": EVERYTHING["a"]})


def test_the_name_that_safetensors_keeps_for_itself_may_be_used(path):
    assert comes_back(path, {"__metadata__": EVERYTHING["a"]})


@pytest.mark.parametrize("names", [("a", "a/L"), ("a/L", "a"), ("", "/L"), ("/L", "")])
def test_an_array_named_like_a_factor_of_another_entry_does_not_overwrite_it(path, names):
    d = tn.decompose(stack(3, 2), "laf", ranks=1)
    assert comes_back(path, {name: np.arange(3.0) if name.endswith("/L") else d for name in names})


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_dtypes_of_ml_dtypes_come_back(path, dtype, shape):
    assert comes_back(path, np.full(shape, 0.7).astype(dtype))


def test_a_view_comes_back_as_what_it_shows_and_can_be_written_to(path):
    for array in (stack(60, 80), stack(60, 80) + 1j):
        assert comes_back(path, array[::20, ::-30].T)
        assert tn.load(path).flags.writeable
        assert path.stat().st_size < 1000, "the memory behind a view is not written"


def test_bfloat16_without_ml_dtypes_says_what_to_import(path):
    tn.save(path, np.zeros(2, ml_dtypes.bfloat16))
    code = f"import tnshare\ntry: tnshare.load({str(path)!r})\nexcept tnshare.TnshareError as e: print(e)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "dtype bfloat16" in run.stdout
    assert "import ml_dtypes first" in run.stdout


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=repr)
def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(path, monkeypatch, function, error):
    def fail(*_):
        raise error

    tn.save(path, EVERYTHING)
    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(type(error)):
            tn.save(path, np.zeros(3))
    assert same(EVERYTHING, tn.load(path))
    assert os.listdir(path.parent) == [path.name]


def test_a_saved_file_has_the_permissions_of_any_new_file(path):
    before = os.umask(0o027)
    try:
        tn.save(path, {})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_name_may_be_as_long_as_the_system_allows(tmp_path):
    assert comes_back(tmp_path / ("x" * 255), {})


def test_a_truncated_or_lengthened_file_is_refused(whole):
    path, data = whole
    for wrong in (data + b"\0", *(data[:length] for length in range(0, len(data), 5))):
        path.write_bytes(wrong)
        with pytest.raises(tn.TnshareError, match=r"damaged|not a tnshare file"):
            tn.load(path)


@given(st.data())
def test_a_changed_byte_is_refused_or_changes_nothing(whole, data):
    path, content = whole
    place = data.draw(st.integers(0, len(content) - 1), "place")
    byte = data.draw(st.integers(0, 255), "byte")
    assert loads_the_same_or_refuses(path, content[:place] + bytes([byte]) + content[place + 1 :])


def test_a_flipped_bit_in_any_byte_is_refused_or_changes_nothing(whole):
    path, data = whole
    for place in range(len(data)):
        flipped = bytes([data[place] ^ (1 << place % 8)])
        assert loads_the_same_or_refuses(path, data[:place] + flipped + data[place + 1 :]), place


def test_a_missing_file_and_a_directory_are_no_file_to_load(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(tn.TnshareError, match=f"no file to load: '{path}'"):
            tn.load(path)


def test_a_file_of_somebody_else_is_refused(path):
    save_file({"a": np.zeros(2)}, path, {"format": "pt"})
    with pytest.raises(tn.TnshareError, match=r"a safetensors file, but not one that tnshare\.save wrote"):
        tn.load(path)


def test_a_pickle_is_refused_and_not_run(path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(path.parent / "run"),)

    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(tn.TnshareError, match="not a tnshare file"):
        tn.load(path)
    assert not (path.parent / "run").exists()


@pytest.mark.parametrize("checksum", [None, "of another kind"])
def test_a_newer_format_asks_for_an_upgrade_whatever_its_checksum(path, checksum):
    write_content(path, {"format": 3, "new": []}, checksum)
    with pytest.raises(tn.TnshareError, match="has format 3, this tnshare reads up to 2: upgrade"):
        tn.load(path)


@pytest.mark.parametrize(
    "entries", [None, [], [{"name": "", "kind": "new"}], [{"name": "", "kind": "array"}]]
)
def test_strange_content_with_a_fitting_checksum_is_refused(path, entries):
    write_content(path, {"format": 1, "single": True, "entries": entries})
    with pytest.raises(tn.TnshareError):
        tn.load(path)


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (
            "text",
            "save takes a Decomposition, a NumPy array, a dict of them, or a state: found str under 'w'",
        ),
        (None, "found NoneType under 'w'"),
        (np.float64(3), "found float64 under 'w'"),
        ({"a": np.zeros(2)}, "found dict under 'w'"),
        (np.array([None]), "arrays of dtype object cannot be saved: found one under 'w'"),
        (np.array(["a"]), "arrays of dtype <U1 cannot be saved: found one under 'w'"),
        (np.zeros(2, "M8[s]"), "arrays of dtype datetime64.s. cannot be saved"),
        (np.zeros(2, [("a", "f4"), ("b", "i4")]), "arrays of dtype .* cannot be saved"),
        (np.zeros(2, "V3"), "arrays of dtype .* cannot be saved"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), "MaskedArray"),
        (bare(L=[1.0, 2.0]), "found list under 'w/L'"),
        (bare(type("Mine", (tn.LAF,), {"method": "mine"})(1)), "Mine"),
    ],
)
def test_what_cannot_come_back_is_refused(path, obj, text):
    with pytest.raises(tn.TnshareError, match=text):
        tn.save(path, {"w": obj})


def test_a_torch_tensor_is_refused(path):
    tensor = pytest.importorskip("torch").zeros(1, 2)
    for obj, name in ((tensor, "Tensor"), ({"w": tensor}, "Tensor under 'w'")):
        with pytest.raises(tn.TnshareError, match=f"found {name}$"):
            tn.save(path, obj)


@pytest.mark.parametrize("name", [1, None, b"a", "\ud800"])
def test_names_must_be_text(path, name):
    with pytest.raises(tn.TnshareError, match="names must be"):
        tn.save(path, {name: np.zeros(2)})
