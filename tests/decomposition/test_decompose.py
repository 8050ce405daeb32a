"""Particular cases of decompose: what it refuses and how it says so, odd arrays, large arrays, TensorLy."""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import tensorly

import tnshare as tn
from tnshare.decomposition._truncated_svd import peel

METHODS = ("laf", "tucker", "tt")
STACK = np.random.default_rng(7).standard_normal((6, 5, 4))
SAME = np.repeat(STACK[..., :1], 3, axis=2)

NO_DTYPE = (
    "a stack must be float16, bfloat16, float32, float64, complex64 or complex128: found {}; "
    "convert it first, for example with stack.astype(np.float32)"
)
NO_AXES = "a stack has at least one weight axis, then {} of tasks, none of them empty: found shape {}"
NAMES = "axes must name each of the 3 axes of the stack once, the task axes {} last: found {}"
FINITE = "a stack must be finite: found "
EXCLUDE = "eps, ranks and max_parameters exclude each other: found "
FEW = "max_parameters must be a whole number of at least {}, which is {} with all ranks 1: found {}"
EPS = "eps must be a number with 0 <= eps < 1: found "


def entry(array, at, value):
    changed = np.array(array)
    changed[at] = value
    return changed


def smallest(values, allowed):
    return next(k for k in range(1, len(values) + 1) if np.linalg.norm(values[k:]) <= allowed)


def normal(*shape, dtype=float):
    parts = np.random.default_rng(shape).standard_normal((2, *shape))  # whatever ran before
    return parts[0] if dtype is float else parts[0] + 1j * parts[1]


def with_spectrum(shape, values, dtype):
    """A matrix with these singular values."""
    u, v = (np.linalg.qr(normal(size, len(values), dtype=dtype))[0] for size in shape)
    return (u * values) @ v.conj().T


@pytest.mark.parametrize(
    ("stack", "text"),
    [
        (STACK.astype(int), NO_DTYPE.format("int64")),
        (STACK.astype(bool), NO_DTYPE.format("bool")),
        (STACK.astype(np.longdouble), NO_DTYPE.format("float128")),
        (STACK.astype(object), NO_DTYPE.format("object")),
        (STACK.astype(ml_dtypes.float8_e4m3fn), NO_DTYPE.format("float8_e4m3fn")),
        (None, NO_DTYPE.format("object")),
        (1.5, NO_AXES.format(1, "()")),
        (STACK[0, 0], NO_AXES.format(1, "(4,)")),
        (STACK[:, :0], NO_AXES.format(1, "(6, 0, 4)")),
        (entry(STACK, (2, 3, 1), np.nan), FINITE + "nan at (2, 3, 1)"),
        (entry(entry(STACK, (5, 0, 0), np.nan), (4, 4, 3), -np.inf), FINITE + "-inf at (4, 4, 3)"),
        (entry(STACK.astype(np.float16), (0, 1, 2), np.inf), FINITE + "inf at (0, 1, 2)"),
        (entry(STACK.astype(">c8"), (0, 0, 0), complex(0, np.inf)), FINITE + "infj at (0, 0, 0)"),
        (entry(STACK.astype(ml_dtypes.bfloat16), (1, 0, 3), np.nan), FINITE + "nan at (1, 0, 3)"),
    ],
)  # fmt: skip
def test_a_stack_that_cannot_be_decomposed_is_refused(stack, text):
    with pytest.raises(tn.TnshareError, match=f"^{re.escape(text)}$"):
        tn.decompose(stack, "tt")


@pytest.mark.parametrize(
    ("method", "options", "text"),
    [
        ("LAF", {}, "method must be one of ('laf', 'tucker', 'tt'): found 'LAF'"),
        (["laf"], {}, "method must be one of ('laf', 'tucker', 'tt'): found ['laf']"),
        ("laf", {"eps": 1}, EPS + "1"),
        ("laf", {"eps": -0.1}, EPS + "-0.1"),
        ("laf", {"eps": math.nan}, EPS + "nan"),
        ("laf", {"eps": True}, EPS + "True"),
        ("laf", {"eps": "0.1"}, EPS + "'0.1'"),
        ("laf", {"eps": 0.1, "ranks": 2}, EXCLUDE + "eps=0.1 and ranks=2"),
        ("tt", {"eps": 0, "max_parameters": 99}, EXCLUDE + "eps=0 and max_parameters=99"),
        ("tt", {"ranks": (2, 2), "max_parameters": 99}, EXCLUDE + "ranks=(2, 2) and max_parameters=99"),
        ("laf", {"ranks": 5}, "LAF rank k=5 is out of range: expected 1 <= k <= 4"),
        ("tucker", {"ranks": (5, 1, 3)}, "Tucker rank k_d1=5 is out of range: expected 1 <= k_d1 <= 3"),
        ("tt", {"ranks": (6, 5)}, "TT rank r_d2=5 is out of range: expected 1 <= r_d2 <= 4"),
        ("tt", {"ranks": 2}, "TT over the axes (d1, d2, task) takes 2 ranks (r_d1, r_d2): found 1, (2,)"),
        ("tucker", {"ranks": (2, 0, 2)}, "Tucker ranks must be whole numbers of at least 1: found (2, 0, 2)"),
        ("laf", {"ranks": (2, 2)}, "LAF takes one rank: found (2, 2)"),
        ("tt", {"max_parameters": 14}, FEW.format(15, "TT", 14)),
        ("laf", {"max_parameters": 99.0}, FEW.format(34, "LAF", 99.0)),
        ("laf", {"relative_to": "mean"}, "relative_to must be 'stack' or 'deviation': found 'mean'"),
        ("laf", {"eps_rule": "each"}, "eps_rule must be 'split' or 'per_svd': found 'each'"),
        ("tt", {"refine": True}, "refine=True is for method='tucker': found method='tt'"),
        ("tt", {"axes": ("i", "t")}, NAMES.format("('t',)", "('i', 't')")),
        ("tt", {"axes": ("i", "i", "t")}, NAMES.format("('t',)", "('i', 'i', 't')")),
        ("tt", {"axes": ("t", "i", "o"), "tasks": ("t",)}, NAMES.format("('t',)", "('t', 'i', 'o')")),
        ("tt", {"tasks": ("a", "b", "c")}, NO_AXES.format(3, "(6, 5, 4)")),
    ],
)  # fmt: skip
def test_an_option_that_makes_no_sense_is_refused(method, options, text):
    with pytest.raises(tn.TnshareError, match=f"^{re.escape(text)}$"):
        tn.decompose(STACK, method, **options)


def test_an_axis_called_task_that_is_not_last_is_refused_as_a_spec_refuses_it():
    with pytest.raises(tn.TnshareError, match="task axes"):
        tn.decompose(STACK, "laf", axes=("task", "i", "o"))


@pytest.mark.parametrize("method", METHODS)
def test_without_any_option_eps_is_a_tenth(method):
    stack = STACK * 5.0 ** -np.arange(4)
    d, same = tn.decompose(stack, method), tn.decompose(stack, method, eps=0.1)
    assert d.spec == same.spec != tn.decompose(stack, method, eps=0.01).spec
    assert all(np.array_equal(d.factors[name], same.factors[name]) for name in same.factors)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_the_layout_of_the_array_in_memory_does_not_matter(method, dtype):
    plain = STACK.astype(dtype)
    locked = plain.copy()
    locked.flags.writeable = False
    spread = np.zeros((12, 5, 8), dtype)
    spread[::2, ::-1, 1::2] = plain
    variants = [
        np.asfortranarray(plain),
        locked,
        spread[::2, ::-1, 1::2],
        plain.astype(plain.dtype.newbyteorder(">")),
    ]
    expected = tn.decompose(plain, method, eps=0.6)
    for variant in [*variants, plain.tolist()] if dtype == np.float64 else variants:
        d = tn.decompose(variant, method, eps=0.6)
        assert d.spec == expected.spec
        assert d.error == expected.error
        for name, factor in expected.factors.items():
            assert np.array_equal(d.factors[name], factor)
            assert d.factors[name].dtype == plain.dtype  # in the byte order of the machine


@pytest.mark.parametrize("method", METHODS)
def test_axes_and_tasks_are_called_what_the_user_calls_them(method):
    d = tn.decompose(STACK, method, axes=("i", "site", "user"), tasks=("site", "user"), eps=0)
    assert d.network.output == ("i", "site", "user")
    assert d.network.tasks == ("site", "user")
    np.testing.assert_allclose(tn.compose(d.network, d.factors, task=(3, 2)), STACK[:, 3, 2], atol=1e-12)
    assert tn.decompose(STACK, method, axes=("i", "o", "t")).network.tasks == ("t",)
    assert tn.decompose(STACK, method).network.output == ("d1", "d2", "task")


def test_the_representation_says_what_was_kept():
    d = tn.decompose(SAME, "laf", ranks=1)
    assert repr(d) == f"Decomposition(LAF(1) of 6 x 5 x 3, error={d.error:.3g}, keeps 33 of 90 parameters)"
    assert d.kept == 33 / 90


def test_laf_within_a_number_of_parameters_has_the_largest_rank_that_fits():
    for rank in (1, 2, 3, 4):
        for limit in (34 * rank, 34 * rank + 33):
            assert tn.decompose(STACK, "laf", max_parameters=limit).spec == tn.LAF(rank)


@pytest.mark.parametrize("method", METHODS)
def test_identical_tasks_share_everything_and_deviate_by_nothing(method):
    d = tn.decompose(SAME, method, eps=0.1, relative_to="deviation")
    assert d.spec.ranks[-1] == 1
    assert d.deviation_error == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_stack_far_from_its_mean_and_near_to_it_differ_in_what_eps_means(method):
    stack = SAME + 1e-3 * STACK[..., 1:]
    deviation = np.linalg.norm(stack - stack.mean(-1, keepdims=True))
    d = tn.decompose(stack, method, eps=0.2, relative_to="deviation")
    coarse = tn.decompose(stack, method, eps=0.2)
    error = np.linalg.norm(tn.compose(d.network, d.factors) - stack) / deviation
    assert error <= 0.2 < coarse.deviation_error
    assert abs(d.deviation_error - error) < 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_the_rule_of_the_paper_finds_an_exactly_low_rank_too(method):
    stack = np.multiply.outer(np.multiply.outer(*STACK[:2, :, 0]), STACK[2, :, 0])
    for rule in ("split", "per_svd"):
        assert set(tn.decompose(stack, method, eps=0, eps_rule=rule).spec.ranks) == {1}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(2000, 10), (10, 2000), (3, 2000, 4)])
def test_more_rank_than_a_large_stack_has_gives_no_nan(method, shape):
    low = np.add.outer(normal(*shape[:-1]), np.zeros(shape[-1]))  # all tasks alike
    d = tn.decompose(low, method, max_parameters=10**9)
    assert d.error < 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(2000, 10), (10, 2000), (300, 20, 10)])
def test_no_factor_keeps_the_memory_of_the_whole_stack_alive(method, shape):
    d = tn.decompose(normal(*shape), method, eps=0.999)
    for factor in d.factors.values():
        while factor.base is not None:
            factor = factor.base
        assert factor.nbytes < 8 * math.prod(shape) / 2


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shape", [(3000, 8), (8, 3000), (300, 64)])
@pytest.mark.parametrize("spectrum", ["spread", "degenerate", "steep"])
def test_a_large_stack_gets_the_rank_and_the_error_of_an_exact_svd(dtype, shape, spectrum):
    n = min(shape)
    values = {
        "spread": 1 / (1 + np.arange(n)),
        "degenerate": 1 - 1e-9 * np.arange(n),  # no gap to cut at
        "steep": 7.0 ** -np.arange(n),
    }[spectrum]
    stack = with_spectrum(shape, values, dtype)
    for eps in (0.6, 0.1, 1e-3, 3e-5, 1e-6, 1e-8):
        rank = smallest(values, eps * np.linalg.norm(values))
        best = np.linalg.norm(values[rank:]) / np.linalg.norm(values)
        d = tn.decompose(stack, "laf", eps=eps)
        assert d.spec == tn.LAF(rank)
        assert abs(d.error - best) <= 1e-6 * best + 1e-13
        for method in ("tucker", "tt"):
            assert max(tn.decompose(stack, method, eps=eps).spec.ranks) == rank


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize(
    "shape", [(1, 40, 600), (30, 20, 40), (600, 40, 1), (1, 3000, 8), (3, 3000, 4), (8, 3000, 1)]
)
@pytest.mark.parametrize("kept", [{"allowed": 5e3}, {"rank": 6}, {"rank": 8}])
def test_the_gram_matrix_splits_off_what_an_exact_svd_does(dtype, shape, kept, monkeypatch):
    monkeypatch.setattr("tnshare.decomposition._truncated_svd._CHUNK", 5000)  # several blocks
    work = normal(*shape, dtype=dtype)
    fast, exact = peel(work.copy(), **kept), peel(work.copy(), **kept, exact=True)
    np.testing.assert_allclose(fast.singular_values, exact.singular_values, rtol=1e-10)
    np.testing.assert_allclose(fast.dropped, exact.dropped, rtol=1e-9, atol=1e-9)
    eye = fast.basis.conj().T @ fast.basis
    np.testing.assert_allclose(eye, np.eye(len(eye)), atol=1e-10)
    split = [np.einsum("dk,pkq->pdq", part.basis, part.rest) for part in (fast, exact)]
    np.testing.assert_allclose(*split, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(6, 5, 4), (60, 2), (2, 60), (2, 60, 3)])
def test_working_in_small_blocks_changes_nothing(method, shape, monkeypatch):
    stack = normal(*shape, dtype=complex)
    whole = tn.decompose(stack, method, eps=0.6)
    sizes = {"_truncated_svd._GRAM_SIZE": 0, "_truncated_svd._CHUNK": 7, "_stack._BLOCK": 7}
    for name, value in sizes.items():
        monkeypatch.setattr(f"tnshare.decomposition.{name}", value)
    blocks = tn.decompose(stack, method, eps=0.6)
    assert blocks.spec == whole.spec
    assert abs(blocks.error - whole.error) < 1e-12
    assert abs(blocks.deviation_error - whole.deviation_error) < 1e-12
    np.testing.assert_allclose(*(tn.compose(d.network, d.factors) for d in (blocks, whole)), atol=1e-10)


@pytest.fixture
def torch_backend():
    before = tensorly.get_backend()
    tensorly.set_backend("pytorch")
    yield
    tensorly.set_backend(before)


@pytest.mark.parametrize("options", [{"refine": True}, {}])
def test_tensorly_may_run_on_torch_and_goes_on_doing_so_in_every_thread(options, torch_backend):
    found = []
    for method in METHODS[1:2] if options else METHODS:
        d = tn.decompose(STACK, method, eps=0.6, **options)
        assert all(isinstance(factor, np.ndarray) for factor in d.factors.values())
        assert 0.1 < d.error <= 0.6
        with ThreadPoolExecutor() as other:
            found += [tensorly.get_backend(), other.submit(tensorly.get_backend).result()]
    assert set(found) == {"pytorch"}


@pytest.mark.parametrize("dtype", [float, complex])
def test_refining_lowers_the_error_of_a_tucker_decomposition(dtype):
    stack = normal(6, 5, 4, dtype=dtype)
    plain, refined = (tn.decompose(stack, "tucker", ranks=(2, 2, 2), refine=r) for r in (False, True))
    assert refined.error < plain.error - 1e-4
    assert refined.spec == plain.spec


@pytest.mark.parametrize("shape", [(6, 5, 1), (1, 1, 1), (6, 4)])
def test_refining_what_cannot_be_refined_warns_of_nothing(shape):
    for stack in (np.ones(shape), np.zeros(shape)):
        assert tn.decompose(stack, "tucker", refine=True).error < 1e-12
