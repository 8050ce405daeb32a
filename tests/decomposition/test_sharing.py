"""How much is shared: codes in a fixed gauge, the paper's rho, the similarity of tasks."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tolerances import close

import tnshare as tn

METHODS = ("laf", "tucker", "tt")
every_method = pytest.mark.parametrize("method", METHODS)
dtypes = pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])


def normal(*shape, dtype=np.float64, seed=0):
    parts = np.random.default_rng((seed, *shape)).standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]).astype(dtype)


def gauged(network, factors, seed=1):
    """The same weights by other factors: an invertible matrix on each bond, its inverse on the other side."""
    changed = dict(factors)
    for n, (bond, (left, right)) in enumerate(network.bonds.items()):
        size = network.sizes[bond]
        matrix = np.eye(size) + 0.3 * normal(size, size, dtype=factors[left].dtype, seed=seed + n)
        for name, turn in ((left, matrix), (right, np.linalg.inv(matrix).T)):
            at = network.node(name).axes.index(bond)
            changed[name] = np.moveaxis(np.tensordot(turn, changed[name], axes=(1, at)), 0, at)
    return changed


def svd_codes(W, axis, core, rank):
    """What a decomposition by the paper leaves as codes, of the dense weights with the given last axes."""
    _, s, vh = np.linalg.svd(np.moveaxis(W, axis, -1).reshape(-1, W.shape[axis]), full_matrices=False)
    return (vh if core else s[:, None] * vh)[:rank]


def up_to_phase(S):
    """Each row times what makes its largest entry positive."""
    return np.array([row * np.conj(row[np.abs(row).argmax()]) / np.abs(row).max() for row in S])


def loop_rho(S, normalise):
    """Equation 9 of the paper, word by word."""
    columns = [np.abs(column) if normalise else column for column in S.T]
    if normalise:
        columns = [np.exp(column) / np.exp(column).sum() for column in columns]
    total, pairs = 0.0, 0
    for i in range(len(columns)):
        for j in range(i + 1, len(columns)):
            a, b = columns[i], columns[j]
            total += np.vdot(a, b).real / (np.linalg.norm(a) * np.linalg.norm(b))
            pairs += 1
    return total / pairs


@every_method
@dtypes
@pytest.mark.parametrize("eps", [0.0, 0.6])
def test_codes_are_those_of_an_svd_of_the_dense_weights(method, dtype, eps):
    d = tn.decompose(normal(6, 5, 4, dtype=dtype), method, eps=eps)
    S = tn.codes(d.network, d.factors)
    expected = svd_codes(tn.compose(d.network, d.factors), 2, method == "tucker", len(S))
    assert S.shape == (d.spec.ranks[-1], 4)
    tolerance = 1e-4 if dtype == np.float32 else 1e-11
    np.testing.assert_allclose(S, up_to_phase(expected), atol=tolerance)


@every_method
@dtypes
def test_codes_and_similarity_are_the_same_in_every_gauge(method, dtype):
    d = tn.decompose(normal(6, 5, 4, dtype=dtype), method, eps=0.6)
    other = gauged(d.network, d.factors)
    tolerance = 1e-3 if dtype == np.float32 else 1e-10
    np.testing.assert_allclose(tn.compose(d.network, other), tn.compose(d.network, d.factors), atol=tolerance)
    stored = [tn.codes(d.network, factors, gauge="stored") for factors in (d.factors, other)]
    assert not np.allclose(*stored, atol=0.01)
    for read in (tn.codes, tn.task_similarity):
        np.testing.assert_allclose(read(d.network, other), read(d.network, d.factors), atol=tolerance)


@pytest.mark.parametrize("method", ["tucker", "tt"])
def test_codes_of_each_of_two_task_axes_are_those_of_an_svd(method):
    d = tn.decompose(normal(6, 5, 3, 4), method, tasks=("site", "user"), eps=0.6)
    W = tn.compose(d.network, d.factors)
    for factors in (d.factors, gauged(d.network, d.factors)):
        for axis, name in ((2, "site"), (3, "user")):
            S = tn.codes(d.network, factors, axis=name)
            expected = svd_codes(W, axis, method == "tucker", len(S))
            np.testing.assert_allclose(S, up_to_phase(expected), atol=1e-10)


def test_codes_of_laf_with_two_task_axes_have_a_column_for_each_pair():
    d = tn.decompose(normal(6, 5, 3, 4), "laf", tasks=("site", "user"), eps=0)
    S = tn.codes(d.network, d.factors)
    np.testing.assert_allclose(
        S, up_to_phase(svd_codes(normal(6, 5, 3, 4).reshape(6, 5, 12), 2, False, 12)), atol=1e-10
    )
    stored = tn.codes(d.network, d.factors, gauge="stored")
    assert np.array_equal(stored[:, 1 * 4 + 2], d.factors["S"][1, 2])


@every_method
def test_stored_codes_are_the_factor_itself_and_a_copy_of_it(method):
    d = tn.decompose(normal(6, 5, 4), method, eps=0.6)
    factor = d.factors["S" if method == "laf" else "U_task"]
    before = factor.copy()
    S = tn.codes(d.network, d.factors, gauge="stored")
    assert np.array_equal(S, factor.T)
    S[:] = 0
    assert np.array_equal(factor, before)


@given(
    st.tuples(st.integers(1, 6), st.integers(2, 7)),
    st.booleans(),
    st.sampled_from([float, complex]),
    st.floats(1e-3, 50),
    st.integers(0, 999),
)
def test_rho_is_the_formula_of_the_paper(shape, normalise, dtype, scale, seed):
    S = scale * normal(*shape, dtype=dtype, seed=seed)
    assert abs(tn.sharing_strength(S, normalise=normalise) - loop_rho(S, normalise)) < 1e-12


@pytest.mark.parametrize("tasks", [2, 3, 10])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_rho_of_single_task_learning_and_of_hard_sharing(tasks, dtype):
    eye, ones = np.eye(tasks, dtype=dtype), np.ones((1, tasks), dtype)
    expected = (2 * math.e + tasks - 2) / (math.e**2 + tasks - 1)
    assert abs(tn.sharing_strength(eye) - expected) < 1e-6
    assert abs(tn.sharing_strength(eye, normalise=False)) < 1e-12
    for normalise in (True, False):
        assert abs(tn.sharing_strength(ones, normalise=normalise) - 1) < 1e-6


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1.0])
def test_without_softmax_rho_does_not_depend_on_the_scale(scale):
    S = normal(3, 4)
    expected = tn.sharing_strength(S, normalise=False)
    assert abs(tn.sharing_strength(S * scale, normalise=False) - expected) < 1e-12


def test_rho_of_large_codes_does_not_overflow():
    S = 1e4 * np.eye(3)
    assert tn.sharing_strength(S) == 0
    assert abs(tn.sharing_strength(S + 1e5) - tn.sharing_strength(S)) < 1e-9


def test_a_task_without_any_weights_is_like_no_other():
    S = np.array([[1.0, 1.0, 0.0]])
    assert abs(tn.sharing_strength(S, normalise=False) - 1 / 3) < 1e-12
    net = tn.LAF(1).network(i=3, task=3)
    similarity = tn.task_similarity(net, {"L": np.ones((1, 3)), "S": S.T})
    np.testing.assert_allclose(similarity, [[1, 1, 0], [1, 1, 0], [0, 0, 1]], atol=1e-12)


@pytest.mark.parametrize(
    ("codes", "text"),
    [
        (np.ones((3, 1)), "sharing is between tasks: expected codes of at least 2, found 1"),
        (np.ones(3), "codes must be a finite K x T matrix: found float64 of shape (3,)"),
        (np.full((2, 2), np.nan), "codes must be a finite K x T matrix: found float64 of shape (2, 2)"),
        (np.full((2, 2), "a"), "codes must be a finite K x T matrix: found <U1 of shape (2, 2)"),
        (np.ones((0, 3)), "codes must be a finite K x T matrix: found float64 of shape (0, 3)"),
    ],
)
def test_codes_that_say_nothing_about_sharing_are_refused(codes, text):
    for normalise in (True, False):
        with pytest.raises(tn.TnshareError, match=f"^{re.escape(text)}$"):
            tn.sharing_strength(codes, normalise=normalise)


@every_method
@dtypes
def test_the_similarity_of_tasks_is_the_cosine_of_their_dense_weights(method, dtype):
    d = tn.decompose(normal(6, 5, 4, dtype=dtype), method, eps=0.6)
    rows = tn.compose(d.network, d.factors).reshape(-1, 4).T
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = tn.task_similarity(d.network, d.factors)
    close(similarity, (unit.conj() @ unit.T).real, 6 * 5 * 4)
    assert similarity.dtype == np.float64
    assert np.array_equal(np.diagonal(similarity), np.ones(4))
    assert np.allclose(similarity, similarity.T, atol=1e-14)


@every_method
def test_the_similarity_of_pairs_is_in_row_major_order(method):
    d = tn.decompose(normal(6, 5, 3, 4), method, tasks=("site", "user"), eps=0.6)
    similarity = tn.task_similarity(d.network, d.factors)
    a, b = (tn.compose(d.network, d.factors, task=task).ravel() for task in ((0, 3), (2, 1)))
    assert similarity.shape == (12, 12)
    assert abs(similarity[3, 9] - a @ b / np.linalg.norm(a) / np.linalg.norm(b)) < 1e-12


@every_method
@pytest.mark.parametrize("scale", [2.0**660, 2.0**-660])
def test_huge_and_tiny_weights_are_as_similar_as_any(method, scale):
    small, large = (tn.decompose(normal(6, 5, 4) * factor, method, eps=0.6) for factor in (1, scale))
    pairs = [tn.task_similarity(d.network, d.factors) for d in (small, large)]
    np.testing.assert_allclose(*pairs, atol=1e-12)
    codes = [tn.codes(d.network, d.factors) for d in (small, large)]
    np.testing.assert_allclose(codes[0], codes[1] / (1 if method == "tucker" else scale), atol=1e-11)


@every_method
def test_identical_tasks_share_everything_by_both_measures(method):
    d = tn.decompose(np.repeat(normal(6, 5, 1), 4, axis=2), method)
    assert np.allclose(tn.task_similarity(d.network, d.factors), 1, atol=1e-12)
    assert abs(tn.sharing_strength(tn.codes(d.network, d.factors)) - 1) < 1e-12


NET = tn.Tucker((2, 2, 2)).network(i=3, site=3, user=4, tasks=("site", "user"))
FACTORS = tn.random_factors(NET, variance=1.0)
FLATTENED = "the task axes ('site', 'user') are one flattened axis here"
FLAT = tn.LAF(2).network(i=3, site=3, user=4, tasks=("site", "user"))


@pytest.mark.parametrize(
    ("network", "options", "text"),
    [
        (NET, {"gauge": "svd"}, "gauge must be 'paper' or 'stored': found 'svd'"),
        (NET, {"axis": "i"}, "axis must be one of the task axes ('site', 'user'): found 'i'"),
        (NET, {}, "each of the task axes ('site', 'user') has codes of its own: say which with axis="),
        (FLAT, {"axis": "user"}, f"{FLATTENED}: leave out axis='user'"),
    ],
)
def test_codes_that_are_not_there_are_refused(network, options, text):
    with pytest.raises(tn.TnshareError, match=f"^{re.escape(text)}$"):
        tn.codes(network, tn.random_factors(network, variance=1.0), **options)


@pytest.mark.parametrize("read", [lambda n, f: tn.codes(n, f, axis="site"), tn.task_similarity])
def test_factors_that_do_not_fit_or_are_not_finite_are_refused(read):
    missing = {name: factor for name, factor in FACTORS.items() if name != "U_user"}
    with pytest.raises(tn.TnshareError, match="the factor 'U_user' is missing"):
        read(NET, missing)
    with pytest.raises(tn.TnshareError, match=r"must have shape \(4, 2\): found \(2, 4\)"):
        read(NET, {**FACTORS, "U_user": FACTORS["U_user"].T})
    with pytest.raises(tn.TnshareError, match="finite"):
        read(NET, {**FACTORS, "core": FACTORS["core"] * np.nan})
