"""LAF, Tucker, TT and frozen codes: the formulas of the paper, storage order, ranks, and what is refused."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorly
from hypothesis import given
from hypothesis import strategies as st

import tnshare as tn
from tnshare import LAF, TT, FrozenCodes, Tucker

SPECS = {"laf": LAF, "tucker": Tucker, "tt": TT}
Case = tuple[tn.Network, tuple[int, ...]]
EVERY = pytest.mark.parametrize("method", SPECS)


def factors_of(net: tn.Network, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in net.shapes.items()}


@st.composite
def built(draw: st.DrawFn, method: str, most: int = 3) -> Case:
    """A network of one to six weight axes and one or two task axes with useful ranks, and those ranks."""
    weights = draw(st.integers(1, 6))
    # Names that collide with those of bonds and nodes.
    pool = ["k", "i", "r_i", "k_i", "core", "U_i", "k_" if method == "laf" else "L"]
    names = draw(st.permutations(pool))[:weights]
    tasks = draw(st.sampled_from([("task",), ("site", "user"), ("S",), ("r_k", "k_k")]))
    sizes = {axis: draw(st.integers(1, most)) for axis in (*names, *tasks)}
    count = {"laf": 1, "tucker": len(sizes), "tt": len(sizes) - 1}[method]
    asked = SPECS[method](tuple(draw(st.integers(1, most)) for _ in range(count)))
    spec = asked.clipped({a: sizes[a] for a in names}, {a: sizes[a] for a in tasks})
    return spec.network(**sizes, tasks=tasks), spec.ranks


# The formulas


@given(built("laf"))
def test_laf_is_a_sum_of_shared_weights_times_task_codes(case: Case) -> None:
    net, (rank,) = case
    f = factors_of(net)
    expected = np.zeros(net.shape)
    for task in np.ndindex(f["S"].shape[:-1]):
        for k in range(rank):
            expected[(..., *task)] += f["L"][k] * f["S"][(*task, k)]
    np.testing.assert_allclose(tn.compose(net, f), expected, atol=1e-12)
    assert net.parameters == rank * (math.prod(f["L"].shape[1:]) + math.prod(f["S"].shape[:-1]))


@given(built("tucker"))
def test_tucker_is_tensorlys_tucker_in_another_storage_order(case: Case) -> None:
    net, ranks = case
    f = factors_of(net)
    # Stored: core (tasks, weights), U (axis, rank), but (rank, axis) for the last weight axis.
    tasks, last = len(net.tasks), net.weight_axes[-1]
    core = np.moveaxis(f["core"], range(tasks), range(-tasks, 0))
    matrices = [f[f"U_{axis}"].T if axis == last else f[f"U_{axis}"] for axis in net.output]
    assert core.shape == ranks
    expected = tensorly.tucker_to_tensor((core, matrices))
    np.testing.assert_allclose(tn.compose(net, f), expected, atol=1e-10)
    assert net.parameters == math.prod(ranks) + sum(map(math.prod, zip(net.shape, ranks, strict=True)))


@given(built("tt"))
def test_tt_is_tensorlys_tt_in_another_storage_order(case: Case) -> None:
    net, ranks = case
    f = factors_of(net)
    r = (1, *ranks, 1)
    cores = []
    for n, axis in enumerate(net.output):
        # Stored: (r_n, r_n-1, d_n), but the first axis and the task axes lead: (d_n, r_n, r_n-1).
        leads = n == 0 or axis in net.tasks
        full = f[f"U_{axis}"].reshape((-1, r[n + 1], r[n]) if leads else (r[n + 1], r[n], -1))
        cores.append(full.transpose(2, 0, 1) if leads else full.transpose(1, 2, 0))
    expected = tensorly.tt_to_tensor(cores).reshape(net.shape)
    np.testing.assert_allclose(tn.compose(net, f), expected, atol=1e-10)


def test_the_storage_order_is_the_one_that_files_rely_on() -> None:
    sizes = {"h": 2, "c": 3, "m": 4, "task": 5}
    assert LAF(3).network(**sizes).shapes == {"L": (3, 2, 3, 4), "S": (5, 3)}
    tucker = {"core": (4, 2, 3, 3), "U_h": (2, 2), "U_c": (3, 3), "U_m": (3, 4), "U_task": (5, 4)}
    assert Tucker((2, 3, 3, 4)).network(**sizes).shapes == tucker
    tt = {"U_h": (2, 2), "U_c": (6, 2, 3), "U_m": (4, 6, 4), "U_task": (5, 4)}
    assert TT((2, 6, 4)).network(**sizes).shapes == tt
    assert LAF(3).network(**sizes).output == ("h", "c", "m", "task")
    pairs = {"i": 2, "site": 3, "user": 4, "tasks": ("site", "user")}
    assert LAF(2).network(**pairs).shapes == {"L": (2, 2), "S": (3, 4, 2)}
    tucker = {"core": (2, 2, 1), "U_i": (1, 2), "U_site": (3, 2), "U_user": (4, 2)}
    assert Tucker((1, 2, 2)).network(**pairs).shapes == tucker
    assert TT((2, 3)).network(**pairs).tasks == ("site", "user")
    assert TT((2, 3)).network(**pairs).shapes == {"U_i": (2, 2), "U_site": (3, 3, 2), "U_user": (4, 3)}


@EVERY
def test_bonds_get_names_of_their_own_whatever_the_axes_are_called(method: str) -> None:
    axes = ("i", "i_", "k", "k_", "k_i", "r_i", "t")  # k_i_ and r_i_ are then the bonds of both i and i_
    ranks = (1,) * len(SPECS[method].bonds(axes))
    net = SPECS[method](ranks).network(**dict.fromkeys(axes, 2))
    assert net.output == axes
    assert len(net.sizes) == len(axes) + len(ranks)


# Ranks


def useful(method: str, sizes: tuple[int, ...], ranks: tuple[int, ...]) -> bool:
    """The useful maxima as the design states them; the last size is the task axis."""
    if method == "laf":
        return ranks[0] <= min(math.prod(sizes[:-1]), sizes[-1])
    if method == "tucker":
        others = [math.prod(ranks[:n] + ranks[n + 1 :]) for n in range(len(ranks))]
        return all(k <= min(d, other) for k, d, other in zip(ranks, sizes, others, strict=True))
    r = (1, *ranks, 1)
    return all(r[n] <= min(r[n - 1] * sizes[n - 1], sizes[n] * r[n + 1]) for n in range(1, len(sizes)))


@EVERY
@pytest.mark.parametrize("sizes", [(2, 3), (3, 1), (4, 1, 2), (2, 3, 2)])
def test_exactly_the_useful_ranks_are_accepted_and_clipping_finds_the_largest(
    method: str, sizes: tuple[int, ...]
) -> None:
    axes = dict(zip(("i", "o", "task")[-len(sizes) :], sizes, strict=True))
    weights, tasks = dict(list(axes.items())[:-1]), dict(list(axes.items())[-1:])
    count = {"laf": 1, "tucker": len(sizes), "tt": len(sizes) - 1}[method]
    every = list(itertools.product(range(1, 6), repeat=count))
    allowed = [ranks for ranks in every if useful(method, sizes, ranks)]
    for ranks in every:
        if ranks in allowed:
            assert SPECS[method](ranks).network(**axes)
        else:
            with pytest.raises(tn.TnshareError, match="is out of range"):
                SPECS[method](ranks).network(**axes)
        below = [a for a in allowed if all(x <= y for x, y in zip(a, ranks, strict=True))]
        largest = tuple(max(column) for column in zip(*below, strict=True))
        assert SPECS[method](ranks).clipped(weights, tasks) == SPECS[method](largest)


@pytest.mark.parametrize(
    ("spec", "sizes", "message"),
    [
        (LAF(40), (64, 32, 10), r"LAF rank k=40 is out of range: expected 1 <= k <= 10$"),
        (LAF(7), (2, 3, 10), "LAF rank k=7 is out of range: expected 1 <= k <= 6$"),
        (Tucker((1, 2, 7)), (64, 32, 10), "Tucker rank k_task=7 is out of range: expected 1 <= k_task <= 2$"),
        (TT((65, 2)), (64, 99, 10), "TT rank r_i=65 is out of range: expected 1 <= r_i <= 64$"),
        (TT((4, 11)), (64, 99, 10), "TT rank r_o=11 is out of range: expected 1 <= r_o <= 10$"),
        (Tucker((1, 2)), (64, 32, 10), r"takes 3 ranks \(k_i, k_o, k_task\): found 2, \(1, 2\)$"),
        (TT((1, 2, 3)), (64, 32, 10), r"TT over the axes \(i, o, task\) takes 2 ranks \(r_i, r_o\): found 3"),
    ],
)
def test_ranks_that_do_not_fit_are_refused(spec: Any, sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(tn.TnshareError, match=message):
        spec.network(**dict(zip(("i", "o", "task"), sizes, strict=True)))


@pytest.mark.parametrize("ranks", [0, 2.0, True, "3", None, (), np.array([[3, 4]]), np.array(2.5)], ids=str)
def test_ranks_must_be_whole_numbers_of_at_least_one(ranks: Any) -> None:
    for spec in SPECS.values():
        with pytest.raises(tn.TnshareError, match=f"^{spec.__name__} ranks must be whole numbers of at"):
            spec(ranks)


def test_specs_are_values() -> None:
    assert (LAF(np.int64(3)), Tucker([2, 3])) == (LAF(3), Tucker((2, 3)))
    assert len({LAF(2), Tucker(2), TT(2), TT((2, 2)), LAF.single_task(2), LAF(2)}) == 5
    assert f"{LAF(np.int64(3))} {Tucker(np.array([1, 2]))} {TT(4)}" == "LAF(3) Tucker((1, 2)) TT((4,))"
    assert repr(LAF.single_task(3)) == "LAF(3, codes=identity)"
    for spec in (LAF(3), Tucker((1, 2)), TT(4), LAF.with_codes(np.eye(2))):
        assert pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec) == spec
        assert hash(copy.deepcopy(spec)) == hash(spec)


# Axes


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "3", None, np.array(2.5), np.array([3, 4])], ids=str)
@pytest.mark.parametrize("axis", ["i", "task"])
def test_sizes_must_be_whole_numbers_of_at_least_one(size: Any, axis: str) -> None:
    with pytest.raises(tn.TnshareError, match=f"axis '{axis}' must be a whole number of at least 1: found"):
        LAF(1).network(**{"i": 2, "task": 2, axis: size})


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"task": 3, "i": 4}, r"the task axes come last: found the axes \('task', 'i'\)"),
        ({"i": 3, "task": 4, "o": 5}, "the task axes come last"),
        ({"i": 3, "site": 2, "user": 2, "tasks": ("user", "site")}, r"with the task axes \('user', 'site'\)"),
        ({"i": 3, "o": 4, "tasks": ("z",)}, r"found the axes \('i', 'o'\) with the task axes \('z',\)"),
        ({"i": 3, "o": 4, "tasks": ()}, "the task axes come last"),
        ({"i": 3, "o": 4, "tasks": 5}, "task axes"),
        ({"task": 3}, r"expected at least one weight axis and one task axis: found \('task',\)"),
        ({"i": 3, "o": 4, "tasks": ("i", "o")}, "expected at least one weight axis"),
        ({}, "expected at least one weight axis"),
    ],
)
def test_axes_that_make_no_sense_are_refused(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(tn.TnshareError, match=message):
        LAF(1).network(**axes)


# Frozen codes


def test_frozen_codes_are_what_the_paper_says_they_are() -> None:
    given_codes = np.asfortranarray([[1, 2, 3], [4, 5, 6]])
    with_codes = LAF.with_codes(given_codes)
    given_codes[:] = 0  # the spec has a copy
    expected = {
        LAF.single_task(3): np.eye(3),
        LAF.hard_sharing(): [[1, 1, 1]],
        LAF.evgeniou_pontil(3): [[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]],
        with_codes: [[1, 2, 3], [4, 5, 6]],
    }
    for spec, codes in expected.items():
        net = spec.network(i=1, task=3)  # one weight: frozen codes may have any rank
        np.testing.assert_array_equal(spec.frozen(net)["S"].T, codes)
        assert (net.node("L").learnt, net.node("S").learnt) == (True, False)
        assert net.parameters == len(codes)
        assert spec.clipped({"i": 1}, {"task": 3}) is spec
    assert LAF(2).frozen(LAF(2).network(i=3, task=3)) == {}
    assert with_codes == LAF.with_codes(np.array([[1.0, 2, 3], [4, 5, 6]])) != LAF.with_codes(np.ones((2, 3)))


def test_frozen_codes_of_two_task_axes_count_pairs() -> None:
    spec = LAF.single_task(6)
    net = spec.network(i=2, site=2, user=3, tasks=("site", "user"))
    L = np.arange(12.0).reshape(6, 2)
    W = tn.compose(net, {"L": L, **spec.frozen(net)})
    np.testing.assert_array_equal(W, L.T.reshape(2, 2, 3))


def ridge(spec: LAF, X: np.ndarray, y: np.ndarray, **penalties: float) -> np.ndarray:
    """The weights (in, out, T) that minimise squares plus a penalty on each group of L; X is (T, n, in)."""
    T, _, size = X.shape
    net = spec.network(i=size, o=y.shape[-1], task=T)
    S = spec.frozen(net)["S"]
    features = np.vstack([np.kron(S[t], X[t]) for t in range(T)])
    penalty = np.full((spec.rank, size), np.nan)  # every row of L is in a group
    for group, rows in spec.groups.items():
        penalty[rows] = penalties[group]
    normal = features.T @ features + np.diag(penalty.ravel())
    L = np.linalg.solve(normal, features.T @ y.reshape(-1, y.shape[-1]))
    return tn.compose(net, {"L": L.reshape(spec.rank, size, -1), "S": S})


@pytest.mark.parametrize("tasks", [1, 4])
def test_penalties_take_evgeniou_pontil_from_independent_models_to_hard_sharing(tasks: int) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(tasks, 9, 3)), rng.normal(size=(tasks, 9, 2))
    alone = [np.linalg.solve(x.T @ x + 2 * np.eye(3), x.T @ z) for x, z in zip(X, y, strict=True)]
    rows, targets = X.reshape(-1, 3), y.reshape(-1, 2)
    pooled = np.linalg.solve(rows.T @ rows + 2 * np.eye(3), rows.T @ targets)
    independent, hard = np.stack(alone, axis=-1), np.stack([pooled] * tasks, axis=-1)
    np.testing.assert_allclose(ridge(LAF.single_task(tasks), X, y, specific=2), independent)
    np.testing.assert_allclose(ridge(LAF.hard_sharing(), X, y, shared=2), hard)
    spec = LAF.evgeniou_pontil(tasks)
    grown = (2.0, 2e3, 2e6, 2e9)
    to_hard = [np.abs(ridge(spec, X, y, shared=2, specific=p) - hard).max() for p in grown]
    to_independent = [np.abs(ridge(spec, X, y, shared=p, specific=2) - independent).max() for p in grown]
    for distances in (to_hard, to_independent):
        assert distances == sorted(distances, reverse=True)
        assert distances[0] > 1e-2
        assert distances[-1] < 1e-8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LAF((3, 3)), r"LAF takes one rank: found \(3, 3\)"),
        (lambda: LAF.single_task(3).network(i=2, task=4), r"codes \(identity\) of 3 tasks cannot serve 4"),
        (lambda: LAF.evgeniou_pontil(3).network(i=2, task=4), "of 3 tasks cannot serve 4 tasks"),
        (lambda: LAF.with_codes(np.eye(3)).network(i=2, task=4), r"\(given\) of 3 tasks cannot"),
        (lambda: LAF(3, FrozenCodes.identity(2)), "LAF rank k=3 does not fit 2 rows of frozen codes"),
        (lambda: LAF.with_codes(np.ones(3)), r"must be a real K x T matrix: found float64 \(3,\)"),
        (lambda: LAF.with_codes(np.eye(2) * 1j), "real K x T matrix: found complex128"),
        (lambda: LAF.with_codes([[np.nan]]), "frozen codes must be finite: found NaN or infinity"),
        (lambda: LAF.with_codes([[1, 2], [3]]), "real K x T matrix"),
        (lambda: LAF(2, np.eye(2)), "codes"),
        (lambda: LAF.single_task(0), "tasks"),
        (lambda: LAF.evgeniou_pontil(0), "tasks"),
        (lambda: LAF.evgeniou_pontil("a"), "tasks"),
    ],
)
def test_codes_that_make_no_sense_are_refused(make: Callable[[], LAF], message: str) -> None:
    with pytest.raises(tn.TnshareError, match=message):
        make()
