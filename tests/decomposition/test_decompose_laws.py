"""Laws of decompose over shapes, dtypes and structures; plain textbook algorithms are the measure."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tensorly.tt_tensor import tt_to_tensor
from tensorly.tucker_tensor import tucker_to_tensor

import tnshare as tn

DOUBLE = (np.float64, np.complex128)
DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.complex64, *DOUBLE)
NONZERO = ("random", "low rank", "identical", "alike", "decaying", "one entry", "huge", "tiny")
STRUCTURES = (*NONZERO, "zeros")
METHODS = {"laf": tn.LAF, "tucker": tn.Tucker, "tt": tn.TT}
EPS = st.sampled_from([0.0, 1e-9, 1e-3, 0.1, 0.3, 0.7, 0.99]) | st.floats(0, 0.99)


@dataclass(frozen=True)
class Case:
    """A stack said in few words, so that a failing example can be read."""

    method: str
    shape: tuple[int, ...]
    tasks: tuple[str, ...]
    dtype: Any
    structure: str
    seed: int
    fast: bool = False  # by Gram matrices, as large arrays are

    @property
    def bonds(self) -> int:
        return {"laf": 1, "tucker": len(self.shape), "tt": len(self.shape) - 1}[self.method]

    @property
    def stack(self) -> np.ndarray:
        rng = np.random.default_rng(self.seed)

        def normal(*shape):
            parts = rng.standard_normal((2, *shape))
            return parts[0] + 1j * parts[1] if np.dtype(self.dtype).kind == "c" else parts[0]

        full = normal(*self.shape)
        if self.structure in ("huge", "tiny"):
            power = 200 if self.dtype in DOUBLE else 3 if self.dtype == np.float16 else 30
            full *= 10.0 ** (power if self.structure == "huge" else -power)
        elif self.structure == "low rank":
            full = sum(outer([normal(n) for n in self.shape]) for _ in range(2))
        elif self.structure in ("identical", "alike"):
            shared = full[(..., *(slice(1) for _ in self.tasks))]
            full = shared + (1e-3 if self.structure == "alike" else 0) * normal(*self.shape)
        elif self.structure == "decaying":
            full *= 10.0 ** -np.add.reduce(np.indices(self.shape))
        elif self.structure in ("one entry", "zeros"):
            full[np.arange(full.size).reshape(self.shape) != full.size // 2] = 0
            full *= self.structure == "one entry"
        return full.astype(self.dtype)

    def network(self, ranks: tuple[int, ...]) -> tn.Network:
        names = [*(f"d{n}" for n in range(1, len(self.shape) - len(self.tasks) + 1)), *self.tasks]
        sizes = dict(zip(names, self.shape, strict=True))
        return METHODS[self.method](ranks).network(tasks=self.tasks, **sizes)

    def decompose(self, **options: Any) -> tn.Decomposition:
        stack = options.pop("stack", self.stack)
        with mock.patch("tnshare.decomposition._truncated_svd._GRAM_SIZE", 0 if self.fast else math.inf):
            return tn.decompose(stack, self.method, tasks=self.tasks, **options)


@st.composite
def cases(draw, methods=tuple(METHODS), dtypes=DTYPES, structures=STRUCTURES, most=1500):
    tasks = ("site", "user")[: draw(st.integers(1, 2))]
    sizes = draw(st.lists(st.integers(1, 5) | st.integers(1, 30), min_size=1, max_size=6))
    sizes += draw(st.lists(st.integers(1, 6), min_size=len(tasks), max_size=len(tasks)))
    shape: list[int] = []
    for size in reversed(sizes):  # cut down from the task axes backwards to what a test has time for
        shape.insert(0, max(1, min(size, most // math.prod(shape))))
    method, dtype, structure = (draw(st.sampled_from(names)) for names in (methods, dtypes, structures))
    seed, fast = draw(st.integers(0, 2**32)), draw(st.booleans())
    return Case(method, tuple(shape), tasks, dtype, structure, seed, fast)


def outer(vectors):
    return functools.reduce(np.multiply.outer, vectors)


def wide(array):
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def scaled(array, stack):
    """The array in double precision, in units of the largest entry of the stack."""
    return wide(array) / (np.abs(wide(stack)).max() or 1.0)


def measured(d, stack):
    """The norms of the error, the stack and its deviation from the task mean, in plain NumPy."""
    dense = np.einsum(d.network.equation, *map(wide, d.factors.values()), optimize=True)
    W, axes = scaled(stack, stack), tuple(range(-len(d.network.tasks), 0))
    return map(np.linalg.norm, (scaled(dense, stack) - W, W, W - W.mean(axes, keepdims=True)))


def rounding(d):
    """A few units in the last place for each of the factors, or the accuracy of an SVD."""
    epsilon = max(float(np.finfo(factor.dtype).eps) for factor in d.factors.values())
    return 4 * len(d.factors) * max(epsilon, 64 * float(np.finfo(float).eps))


def smallest(values, allowed):
    """The smallest rank of at least 1 that drops singular values of at most that norm."""
    return next(k for k in range(1, len(values) + 1) if np.linalg.norm(values[k:]) <= allowed)


def textbook_ranks(case, eps, svds=None):
    """The ranks of SVD (LAF), HOSVD or TT-SVD, eps split over all SVDs or over the number that is given."""
    W = scaled(case.stack, case.stack)
    allowed = eps * np.linalg.norm(W) / math.sqrt(svds or case.bonds)
    ranks: list[int] = []
    if case.method == "tt":
        for size in W.shape[:-1]:
            _, s, W = np.linalg.svd(W.reshape(size * (ranks or [1])[-1], -1), full_matrices=False)
            ranks.append(smallest(s, allowed))
            W = s[: ranks[-1], None] * W[: ranks[-1]]
        return tuple(ranks)
    flat = [np.moveaxis(W, n, 0).reshape(size, -1) for n, size in enumerate(W.shape)]
    if case.method == "laf":
        flat = [W.reshape(-1, math.prod(W.shape[-len(case.tasks) :]))]
    return tuple(smallest(np.linalg.svd(matrix, compute_uv=False), allowed) for matrix in flat)


def is_useful(case, ranks):
    """Whether no rank is larger than what its neighbours can use."""
    shape, r = case.shape, (1, *ranks, 1)
    if case.method == "laf":
        most = [min(math.prod(shape[: -len(case.tasks)]), math.prod(shape[-len(case.tasks) :]))]
    elif case.method == "tucker":
        most = [min(d, math.prod(ranks) // k) for d, k in zip(shape, ranks, strict=True)]
    else:
        most = [min(r[n] * shape[n], shape[n + 1] * r[n + 2]) for n in range(len(ranks))]
    return all(1 <= k <= m for k, m in zip(ranks, most, strict=True))


@given(cases(), EPS, st.sampled_from(["stack", "deviation"]))
def test_the_error_is_at_most_eps_of_what_it_is_relative_to(case, eps, relative_to):
    d = case.decompose(eps=eps, relative_to=relative_to)
    difference, norm, deviation = measured(d, case.stack)
    assert difference <= eps * (norm if relative_to == "stack" else deviation) + rounding(d) * norm
    assert is_useful(case, d.spec.ranks)


@example(Case("tucker", (4, 5, 4), ("site",), np.complex128, "alike", 2), 0.539)  # the core mixes a bond
@given(cases(), EPS)
def test_the_reported_errors_are_those_that_numpy_measures(case, eps):
    d = case.decompose(eps=eps)
    difference, norm, deviation = measured(d, case.stack)
    assert abs(d.error * norm - difference) <= rounding(d) * norm
    assert d.error <= eps + rounding(d)
    if deviation > 1e-9 * norm:
        assert abs(d.deviation_error * deviation - difference) <= rounding(d) * norm


@example(Case("tt", (10, 10, 10), ("site",), np.float64, "random", 0), 0.7)
@given(cases(), EPS)
def test_ranks_are_at_most_those_of_the_textbook(case, eps):
    d = case.decompose(eps=eps)
    most = textbook_ranks(case, eps * (1 - 1e-6))
    assert all(k <= m for k, m in zip(d.spec.ranks, most, strict=True))
    if case.method == "laf":  # the smallest that will do
        assert d.spec.ranks >= textbook_ranks(case, eps * (1 + 1e-6) + rounding(d))


@given(cases(dtypes=DOUBLE, structures=("random",)), st.data())
def test_an_exactly_low_rank_stack_gets_its_exact_rank_at_eps_zero(case, data):
    ranks = tuple(data.draw(st.integers(1, k)) for k in textbook_ranks(case, 0))
    assume(is_useful(case, ranks))
    net = case.network(ranks)
    draws = map(np.random.default_rng(case.seed).standard_normal, net.shapes.values())
    stack = np.einsum(net.equation, *draws, optimize=True).astype(case.dtype)
    d, within = (case.decompose(stack=stack, **o) for o in ({"eps": 0}, {"max_parameters": net.parameters}))
    assert (d.spec, d.network) == (METHODS[case.method](ranks), net)
    assert within.error <= rounding(within)


@given(cases(), EPS)
def test_composing_equals_tensorly_and_a_loop_over_entries(case, eps):
    d = case.decompose(eps=eps)
    net, bonds = d.network, type(d.spec).bonds(d.network.output)
    places = [*itertools.islice(np.ndindex(case.shape), 0, None, 1 + math.prod(case.shape) // 20)]

    def turned(name, *axes):
        return wide(d.factors[name]).transpose([net.node(name).axes.index(axis) for axis in axes])

    if case.method == "laf":
        L, S = turned("L", *net.weight_axes, *bonds), turned("S", *bonds, *case.tasks)
        expected, weights = np.tensordot(L, S, 1), len(net.weight_axes)
        entries = {at: L[at[:weights]] @ S[:, *at[weights:]] for at in places}
    elif case.method == "tucker":
        core = turned("core", *bonds)
        matrices = [turned(f"U_{a}", a, b) for a, b in zip(net.output, bonds, strict=True)]
        expected = tucker_to_tensor((core, matrices))
        entries = {at: (core * outer(map(operator.getitem, matrices, at))).sum() for at in places}
    else:
        ends = [(), *((b,) for b in bonds), ()]
        cores = [turned(f"U_{a}", *ends[n], a, *ends[n + 1]) for n, a in enumerate(net.output)]
        cores = [cores[0][None], *cores[1:-1], cores[-1][..., None]]
        expected = tt_to_tensor(cores)
        slices = [[core[:, n] for core, n in zip(cores, at, strict=True)] for at in places]
        entries = {at: functools.reduce(np.matmul, s).item() for at, s in zip(places, slices, strict=True)}
    composed = tn.compose(net, {name: wide(factor) for name, factor in d.factors.items()})
    size = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(composed, expected, rtol=0, atol=size)
    assert all(abs(composed[at] - entry) <= size for at, entry in entries.items())


@given(cases(), EPS)
def test_factors_are_contiguous_of_the_right_dtype_and_norm_and_the_stack_is_untouched(case, eps):
    d = case.decompose(stack=(stack := case.stack), eps=eps)
    assert stack.tobytes() == case.stack.tobytes()
    dtype = np.float32 if stack.dtype.itemsize == 2 else stack.dtype
    assert {name: f.shape for name, f in d.factors.items()} == d.network.shapes
    assert all(f.dtype == dtype and f.flags.c_contiguous for f in d.factors.values())
    norms = [np.linalg.norm(wide(factor)) for factor in d.factors.values()]
    assert case.structure == "zeros" or max(norms) <= min(norms) * (1 + 1e-5)


@given(cases(dtypes=DOUBLE, structures=("random", "alike", "decaying", "huge", "tiny")))
def test_each_bond_has_the_root_of_its_singular_values_on_either_side(case):
    d, W = case.decompose(eps=0), scaled(case.stack, case.stack)
    net = d.network
    for bond, (name, other) in net.bonds.items():
        grams = []
        for start in (name, other):
            nodes = net.side(start, bond)
            axes = tuple(a for a in net.output if any(a in node.axes for node in nodes))
            side = tn.Network(nodes, (bond, *axes))
            array = np.einsum(side.equation, *(d.factors[n.name] for n in nodes), optimize=True)
            flat = scaled(array, array).reshape(len(array), -1)
            grams.append(flat @ flat.conj().T)
        matrix = np.moveaxis(W, [net.output.index(a) for a in axes], range(len(axes)))
        values = np.linalg.svd(matrix.reshape(math.prod(net.sizes[a] for a in axes), -1), compute_uv=False)
        expected = np.diag(values[: len(grams[0])] / values[0])
        for gram in grams:
            np.testing.assert_allclose(gram / gram[0, 0], expected, rtol=0, atol=2e-6)


@given(cases(), EPS, st.booleans())
def test_some_gradient_is_not_zero(case, eps, full):
    """The derivative with respect to a factor is zero if and only if the others contract to zero."""
    d = case.decompose(max_parameters=10**9) if full else case.decompose(eps=eps)
    factors = {name: scaled(factor, factor) for name, factor in d.factors.items()}
    draw = np.random.default_rng(case.seed).standard_normal
    changes = [tn.compose(d.network, {**factors, name: draw(f.shape)}) for name, f in factors.items()]
    assert np.abs(changes).max() > 1e-6


@given(cases(structures=("random", "alike", "decaying", "zeros")), st.floats(0, 1))
def test_max_parameters_is_respected_and_not_wasted(case, share):
    limit = case.network((1,) * case.bonds).parameters + int(share * math.prod(case.shape))
    d = case.decompose(max_parameters=limit)
    assert d.network.parameters <= limit
    most = case.decompose(eps=0).spec.ranks  # a higher rank would hold rounding errors alone
    for unit in np.eye(case.bonds, dtype=int):
        ranks = tuple(d.spec.ranks + unit)
        if is_useful(case, ranks) and all(map(operator.le, ranks, most)):
            assert case.network(ranks).parameters > limit


@given(cases(methods=("tucker",), structures=NONZERO, most=300), EPS)
def test_refining_never_raises_the_error(case, eps):
    plain, refined = case.decompose(eps=eps), case.decompose(eps=eps, refine=True)
    assert refined.error <= plain.error
    difference, norm, _ = measured(refined, case.stack)
    assert abs(refined.error * norm - difference) <= rounding(refined) * norm


@given(cases(dtypes=DOUBLE, structures=("random", "alike")), st.floats(1e-6, 0.99))
def test_the_rule_of_the_paper_spends_eps_in_every_svd(case, eps):
    d = case.decompose(eps=eps, eps_rule="per_svd")
    most, least = (textbook_ranks(case, eps * (1 + sign * 1e-6), svds=1) for sign in (-1, 1))
    assume(most == least and is_useful(case, most))
    assert d.spec.ranks == most
    assert d.error <= math.sqrt(len(most)) * eps + rounding(d)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure_is_what_its_name_says(structure):
    W = Case("tt", (4, 3, 5), ("site",), np.float64, structure, 1).stack
    expected = {"low rank": 2, "identical": 1, "one entry": 1, "zeros": 0}.get(structure, 5)
    assert np.linalg.matrix_rank(W.reshape(12, 5)) == expected
