"""Plan, compose and the choice of tasks: the same numbers as einsum, by matrix products only."""

from __future__ import annotations

import itertools
import math
import random
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import opt_einsum
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tnshare as tn
from tnshare import LAF, TT, Network, Node, Plan, Tucker
from tnshare.decomposition._compose import gram, squared_norm
from tnshare.ops import numpy_ops
from tnshare.ops._operations import NumpyOps

ONE_AXIS = {
    "laf": LAF(3).network(i=3, o=2, task=5),
    "tucker": Tucker((2, 2, 3)).network(i=3, o=2, task=5),
    "tt": TT((3, 4)).network(i=3, o=2, task=5),
    "frozen": LAF.single_task(5).network(i=3, o=2, task=5),
    "one weight axis": Tucker((2, 2)).network(i=3, task=5),
    "a weight axis called k": TT((3, 4)).network(k=3, r_k=2, task=5),
    "task axis first in the result": TT((3, 4)).network(i=3, o=2, task=5).to("task", "o", "i"),
}
PAIRS = {"i": 3, "site": 2, "user": 4, "tasks": ("site", "user")}
TWO_AXES = {"laf": LAF(3).network(**PAIRS), "tucker": Tucker((2, 2, 3)).network(**PAIRS)}
TWO_AXES["tt"] = TT((2, 4)).network(**PAIRS)
LAF_NET, TT_PAIRS = ONE_AXIS["laf"], TWO_AXES["tt"]
ONE = pytest.mark.parametrize("net", ONE_AXIS.values(), ids=ONE_AXIS)
TWO = pytest.mark.parametrize("net", TWO_AXES.values(), ids=TWO_AXES)


def factors_of(net: Network, dtype: Any = float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in net.shapes.items()}


def dense(net: Network, factors: dict[str, np.ndarray]) -> np.ndarray:
    return np.einsum(net.equation, *factors.values())


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Any network of one to four small tensors, axes in three or more of them and scalars included."""
    sizes = {axis: draw(st.integers(1, 4)) for axis in "ijklm"}
    held = draw(st.lists(st.lists(st.sampled_from("ijklm"), unique=True, max_size=3), min_size=1, max_size=4))
    nodes = [Node(f"n{n}", tuple(axes), tuple(sizes[a] for a in axes)) for n, axes in enumerate(held)]
    counts = {axis: sum(axis in axes for axes in held) for axes in held for axis in axes}
    output = [axis for axis, n in counts.items() if n == 1 or draw(st.booleans())]
    return Network(tuple(nodes), tuple(draw(st.permutations(output))))


# Plans


@given(networks())
def test_a_plan_gives_what_einsum_gives(net: Network) -> None:
    f = factors_of(net)
    result = Plan.flop_optimal(net).run(numpy_ops, list(f.values()))
    np.testing.assert_allclose(result, dense(net, f), atol=1e-12)
    assert np.shape(result) == net.shape


@given(networks(), st.data())
def test_a_plan_holds_for_every_size_of_the_axes(net: Network, data: st.DataObject) -> None:
    sizes = {axis: data.draw(st.integers(0, 3)) for axis in net.sizes}
    arrays = [np.random.default_rng(0).normal(size=[sizes[a] for a in node.axes]) for node in net.nodes]
    result = Plan.flop_optimal(net).run(numpy_ops, arrays)
    np.testing.assert_allclose(result, np.einsum(net.equation, *arrays), atol=1e-12)


def test_a_plan_copes_with_more_axes_than_there_are_letters() -> None:
    chain = tuple(Node(f"A{n}", (f"a{n}", f"a{n + 1}"), (2, 2)) for n in range(64))
    net = Network(chain, ("a64", "a0"))
    arrays = [a / 2 for a in factors_of(net).values()]
    assert len(net.sizes) == 65
    result = Plan.flop_optimal(net).run(numpy_ops, arrays)
    np.testing.assert_allclose(result, opt_einsum.contract(net.equation, *arrays), rtol=1e-9)


def test_planning_leaves_the_global_random_state_alone() -> None:
    state = random.getstate()
    Plan.flop_optimal(TT((1,) * 24).network(**{f"d{n}": 1 for n in range(24)}, task=2))
    assert random.getstate() == state


def cheapest(operands: list[frozenset[str]], output: set[str], sizes: dict[str, int]) -> int:
    """The fewest flops of all orders, as opt_einsum counts: an outer product has no additions."""
    if len(operands) == 1:
        return 0
    costs = []
    for a, b in itertools.combinations(range(len(operands)), 2):
        rest = [o for n, o in enumerate(operands) if n not in (a, b)]
        kept = (operands[a] | operands[b]) & output.union(*rest)
        summed = bool((operands[a] | operands[b]) - kept)
        step = (1 + summed) * math.prod(sizes[axis] for axis in operands[a] | operands[b])
        costs.append(step + cheapest([*rest, frozenset(kept)], output, sizes))
    return min(costs)


@given(st.sampled_from(["laf", "tucker", "tt"]), st.data())
def test_no_other_order_has_fewer_flops(method: str, data: st.DataObject) -> None:
    sizes = {axis: data.draw(st.integers(1, 9)) for axis in ("i", "o", "task")}
    count, spec = {"laf": (1, LAF), "tucker": (3, Tucker), "tt": (2, TT)}[method]
    ranks = tuple(data.draw(st.integers(1, 5)) for _ in range(count))
    net = spec(ranks).build({"i": sizes["i"], "o": sizes["o"]}, {"task": sizes["task"]})
    rows = data.draw(st.integers(1, 9))
    for way in (net, net.drop("task"), net.feed("x", ("b", "i"), ("task", "b", "o"), b=rows)):
        steps = Plan.flop_optimal(way).steps
        counted = sum(step.flops(way.sizes) // (1 if step.inner else 2) for step in steps)
        assert counted == cheapest([frozenset(n.axes) for n in way.nodes], set(way.output), way.sizes)


class Watching(NumpyOps):
    """NumPy that writes down the shapes of products and how many earlier products are still alive."""

    def __init__(self) -> None:
        self.products: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.alive: list[int] = []
        self.results: list[weakref.ref[np.ndarray]] = []

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.watched(a, b, super().matmul)

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        assert a.shape[-1] == b.shape[-2] == 1  # outer products, entry by entry
        return self.watched(a, b, super().multiply)

    def watched(self, a: np.ndarray, b: np.ndarray, product: Any) -> np.ndarray:
        self.products.append((a.shape, b.shape))
        self.alive.append(sum(ref() is not None for ref in self.results))
        result = product(a, b)
        self.results.append(weakref.ref(result))
        return result


@given(networks())
def test_every_step_is_one_matrix_product_and_its_flops_are_those_of_the_product(net: Network) -> None:
    plan, ops = Plan.flop_optimal(net), Watching()
    plan.run(ops, list(factors_of(net).values()))
    assert len(ops.products) == len(plan.steps) == len(net.nodes) - 1
    assert all(len(a) == len(b) in (2, 3) for a, b in ops.products)
    assert plan.flops == sum(2 * math.prod(a) * b[-1] for a, b in ops.products)
    between = [math.prod(a[:-1]) * b[-1] for a, b in ops.products[:-1]]
    assert plan.largest_intermediate == max(between, default=0)


def test_an_intermediate_is_let_go_as_soon_as_it_has_been_used() -> None:
    sizes = (1, *[4] * 6)  # a row vector times matrices: one after the other
    chain = [Node(f"A{n}", (f"a{n}", f"a{n + 1}"), sizes[n : n + 2]) for n in range(6)]
    net, ops = Network(tuple(chain), ("a0", "a6")), Watching()
    Plan.flop_optimal(net).run(ops, list(factors_of(net).values()))
    assert ops.alive == [0, 1, 1, 1, 1]


def test_no_operand_is_transposed_that_lies_as_its_step_wants_it() -> None:
    a, b = Node("A", ("i", "k"), (2, 3)), Node("B", ("k", "j"), (3, 4))
    (step,) = Plan.flop_optimal(Network((a, b), ("i", "j"))).steps
    assert (step.batch, step.rows, step.inner, step.columns) == ((), ("i",), ("k",), ("j",))
    assert step.left_order is step.right_order is None
    turned = Node("B", ("j", "k"), (4, 3))
    (step,) = Plan.flop_optimal(Network((a, turned), ("i", "j"))).steps
    assert (step.left_order, step.right_order) == (None, (1, 0))


def test_plans_are_values_and_explain_themselves() -> None:
    net = LAF(2).network(i=30, o=40, task=5)
    plan = Plan.flop_optimal(net)
    assert plan == Plan(net, plan.steps, plan.order, plan.why)
    assert hash(plan) == hash(Plan(net, plan.steps, plan.order, plan.why))
    assert plan.flops == 2 * 2 * 30 * 40 * 5
    head, counts, titles, row = plan.explain().splitlines()
    assert head == repr(net)
    assert "24,000 flops, largest intermediate 0 elements" in counts
    assert " ".join(titles.split()) == "step batch x rows x inner x columns flops copies result elements"
    assert " ".join(row.split()) == "t1 = L . S 1 x 1200 x 2 x 5 24,000 - (i, o, task) 6,000"


# Composing


@ONE
@pytest.mark.parametrize("task", [0, 4, np.int64(3), np.array(2), np.uint8(1)], ids=repr)
def test_composing_one_task_is_one_slice_of_composing_all(net: Network, task: Any) -> None:
    f = factors_of(net)
    everything = tn.compose(net, f)
    np.testing.assert_allclose(everything, dense(net, f), atol=1e-12)
    expected = everything.take(int(task), axis=net.output.index("task"))
    np.testing.assert_allclose(tn.compose(net, f, task), expected, atol=1e-12)


@ONE
@pytest.mark.parametrize("task", [[2], (4, 0, 0), range(5), np.array([3, 1], np.uint8), []], ids=repr)
def test_composing_a_list_of_tasks_keeps_one_axis_for_them_last(net: Network, task: Sequence[int]) -> None:
    f = factors_of(net)
    chosen = np.moveaxis(dense(net, f), net.output.index("task"), -1)[..., list(task)]
    result = tn.compose(net, f, task)
    assert result.shape == (*(net.sizes[axis] for axis in net.weight_axes), len(task))
    np.testing.assert_allclose(result, chosen, atol=1e-12)


@TWO
def test_with_two_task_axes_a_task_is_a_pair(net: Network) -> None:
    f = factors_of(net)
    everything = tn.compose(net, f)
    np.testing.assert_allclose(everything, dense(net, f), atol=1e-12)
    np.testing.assert_allclose(tn.compose(net, f, (1, 3)), everything[:, 1, 3], atol=1e-12)
    ids = np.array([[0, 1], [1, 3], [0, 1], [1, 0]])
    np.testing.assert_allclose(tn.compose(net, f, ids), everything[:, ids[:, 0], ids[:, 1]], atol=1e-12)
    assert tn.compose(net, f, np.empty((0, 2), int)).shape == (3, 0)


def test_an_empty_list_is_no_tasks_with_two_task_axes_too() -> None:
    assert tn.compose(TT_PAIRS, factors_of(TT_PAIRS), []).shape == (3, 0)


def test_a_weight_axis_may_be_called_like_the_axis_of_rows() -> None:
    net = LAF(2).network(b=3, o=2, task=5)
    f = factors_of(net)
    np.testing.assert_allclose(tn.compose(net, f, [4, 1, 1]), dense(net, f)[..., [4, 1, 1]])


@ONE
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_the_result_has_the_dtype_of_the_factors(net: Network, dtype: Any) -> None:
    f = factors_of(net, dtype)
    assert {tn.compose(net, f, task).dtype for task in (None, 1, [0, 1])} == {np.dtype(dtype)}


@pytest.mark.parametrize("net", [*ONE_AXIS.values(), *TWO_AXES.values()], ids=[*ONE_AXIS, *TWO_AXES])
def test_gram_and_norm_are_those_of_the_composed_weights(net: Network) -> None:
    f = {name: a + 1j * a[::-1] for name, a in factors_of(net).items()}
    T = math.prod(net.sizes[axis] for axis in net.tasks)
    W = np.moveaxis(dense(net, f), [net.output.index(a) for a in net.tasks], range(-len(net.tasks), 0))
    rows = W.reshape(-1, T)
    np.testing.assert_allclose(gram(net, f, net.tasks).reshape(T, T), rows.conj().T @ rows, rtol=1e-9)
    assert squared_norm(net, f) == pytest.approx(np.linalg.norm(W) ** 2)


def test_gram_copes_with_any_names_of_axes() -> None:
    net = LAF(2).network(task_twin=3, task=5)
    rows = dense(net, factors_of(net))
    np.testing.assert_allclose(gram(net, factors_of(net), ("task",)), rows.T @ rows)


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"S": None}, r"the factor 'S' is missing: expected \('L', 'S'\)"),
        ({"S": np.ones((3, 5))}, r"the factor S\(task=5, k=3\) must have shape \(5, 3\): found \(3, 5\)"),
        (
            {"L": np.ones((3, 6))},
            r"the factor L\(k=3, i=3, o=2\) must have shape \(3, 3, 2\): found \(3, 6\)",
        ),
        ({"S": [[1.0] * 3] * 4}, "the factor S"),
    ],
)
def test_factors_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    factors = {name: a for name, a in (factors_of(LAF_NET) | change).items() if a is not None}
    with pytest.raises(tn.TnshareError, match=message):
        tn.compose(LAF_NET, factors)


WHOLE = "task ids must be whole numbers: found dtype"


@pytest.mark.parametrize(
    ("net", "task", "message"),
    [
        (LAF_NET, 5, "^task 5 is out of range: expected 0 <= task <= 4$"),
        (LAF_NET, -1, "^task -1 is out of range: expected 0 <= task <= 4$"),
        (LAF_NET, [0, 1, 7, 9], "^task 7 in row 2 is out of range"),
        (LAF_NET, 1.0, f"{WHOLE} float64"),
        (LAF_NET, True, f"{WHOLE} bool"),
        (LAF_NET, np.ones(5, bool), f"{WHOLE} bool"),
        (LAF_NET, "all", WHOLE),
        (LAF_NET, np.array([]), f"{WHOLE} float64"),
        (LAF_NET, [[0]], r"a task must be a whole number, task ids .* shape \(rows,\): found shape \(1, 1\)"),
        (LAF_NET, [[0, 1], [2]], "a task must be a whole number"),
        (TT_PAIRS, 0, r"must be 2 whole numbers, task ids .* shape \(rows, 2\): found shape \(\)"),
        (TT_PAIRS, [0, 1, 2], r"must be 2 whole numbers, .* found shape \(3,\)"),
        (TT_PAIRS, (2, 0), "^site 2 is out of range: expected 0 <= site <= 1$"),
        (TT_PAIRS, [[0, 3], [1, -4]], "^user -4 in row 1 is out of range: expected 0 <= user <= 3$"),
        (LAF_NET.drop("task"), 0, "no task ax"),
        (LAF_NET.drop("task"), [], "no task ax"),
    ],
)
def test_tasks_that_are_not_there_are_refused(net: Network, task: Any, message: str) -> None:
    with pytest.raises(tn.TnshareError, match=message):
        tn.compose(net, factors_of(net), task)
