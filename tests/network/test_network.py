"""Node and Network: named axes, what is refused, and that every operation on names is one on arrays."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import opt_einsum
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tnshare as tn
from tnshare import Network, Node

A = Node("A", ("i", "k"), (2, 3))
B = Node("B", ("k", "j"), (3, 4))
AB = Network((A, B), ("i", "j"))
LAF = tn.LAF(2).network(i=3, o=4, task=5)
TUCKER = tn.Tucker((2, 3, 2)).network(i=3, o=4, task=5)
TT = tn.TT((3, 2)).network(i=3, o=4, task=5)
PAIRS = tn.TT((2, 3, 2)).network(i=2, o=3, site=2, user=3, tasks=("site", "user"))
METHODS = pytest.mark.parametrize("net", [LAF, TUCKER, TT], ids=["laf", "tucker", "tt"])


def arrays_of(net: Network, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in net.shapes.values()]


def by_loops(net: Network, arrays: list[np.ndarray]) -> np.ndarray:
    """The definition: over every value of every axis, the product of one entry of each node."""
    result = np.zeros([net.sizes[axis] for axis in net.output])
    for values in itertools.product(*(range(n) for n in net.sizes.values())):
        at = dict(zip(net.sizes, values, strict=True))
        entries = (a[tuple(at[x] for x in n.axes)] for n, a in zip(net.nodes, arrays, strict=True))
        result[tuple(at[axis] for axis in net.output)] += np.prod(list(entries))
    return result


def contract(net: Network, arrays: list[np.ndarray]) -> np.ndarray:
    return np.einsum(net.equation, *arrays)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Any network of one to four small tensors, axes in three or more of them and scalars included."""
    sizes = {axis: draw(st.integers(1, 3)) for axis in ("i", "k_", "r_i", "ä", "__import__")}
    held = draw(
        st.lists(st.lists(st.sampled_from(sorted(sizes)), unique=True, max_size=3), min_size=1, max_size=4)
    )
    nodes = [Node(f"n{n}", tuple(axes), tuple(sizes[a] for a in axes)) for n, axes in enumerate(held)]
    counts = {axis: sum(axis in axes for axes in held) for axes in held for axis in axes}
    output = [axis for axis, n in counts.items() if n == 1 or draw(st.booleans())]
    return Network(tuple(nodes), tuple(draw(st.permutations(output))))


# What a network says of itself


@given(networks())
def test_the_equation_is_the_sum_over_every_axis_that_is_not_in_the_output(net: Network) -> None:
    arrays = arrays_of(net)
    np.testing.assert_allclose(contract(net, arrays), by_loops(net, arrays), atol=1e-12)
    assert contract(net, arrays).shape == net.shape


def test_the_equation_goes_on_past_the_52_letters_of_the_alphabet() -> None:
    chain = tuple(Node(f"A{n}", (f"a{n}", f"a{n + 1}"), (2, 2)) for n in range(64))
    net = Network(chain, ("a64", "a0"))
    arrays = [a / 2 for a in arrays_of(net)]
    assert len(net.sizes) == len(set(net.equation) - set(",->")) == 65
    expected = np.linalg.multi_dot(arrays).T
    np.testing.assert_allclose(opt_einsum.contract(net.equation, *arrays), expected, rtol=1e-9)


def test_task_columns_are_the_columns_of_ids_that_choose_the_rows_of_a_node() -> None:
    crossed = Network(PAIRS.nodes, PAIRS.output, ("user", "site"))
    both = tn.LAF(2).network(i=3, site=2, user=3, tasks=("site", "user"))
    assert [PAIRS.task_columns(node) for node in PAIRS.nodes] == [(), (), (0,), (1,)]
    assert [crossed.task_columns(node) for node in crossed.nodes] == [(), (), (1,), (0,)]
    assert [both.task_columns(node) for node in both.nodes] == [(), (0, 1)]
    assert [PAIRS.is_coded(node) for node in PAIRS.nodes] == [False, False, True, True]


def test_shapes_sizes_and_parameters_are_those_of_the_nodes() -> None:
    given_input = LAF.feed("x", ("b", "i"), ("b", "o", "task"), b=7)
    assert given_input.shapes == {"L": (2, 3, 4), "S": (5, 2), "x": (7, 3)}
    assert list(given_input.shapes) == ["L", "S", "x"]
    assert given_input.sizes == {"k": 2, "i": 3, "o": 4, "task": 5, "b": 7}
    assert given_input.shape == (7, 4, 5)
    assert given_input.weight_axes == ("b", "o")
    # An input is not learnt, and neither are frozen codes.
    assert given_input.parameters == LAF.parameters == 2 * 3 * 4 + 5 * 2
    assert Network((A, Node("B", ("k", "j"), (3, 4), learnt=False)), ("i", "j")).parameters == 6


def test_bonds_name_the_nodes_that_an_axis_joins() -> None:
    assert AB.bonds == {"k": ("A", "B")}
    assert TT.bonds == {"r_i": ("U_i", "U_o"), "r_o": ("U_o", "U_task")}
    rows = PAIRS.rename(("site", "user"), "b", 4)
    assert rows.bonds["b"] == ("U_site", "U_user")


def test_a_node_is_found_by_its_name() -> None:
    assert AB.node("B") is B
    with pytest.raises(tn.TnshareError, match=r"no node is called 'Z': expected one of \('A', 'B'\)"):
        AB.node("Z")


@METHODS
def test_cutting_a_bond_parts_a_tree_into_two_sides(net: Network) -> None:
    for bond, (left, right) in net.bonds.items():
        one, other = net.side(left, bond), net.side(right, bond)
        assert sorted(n.name for n in one + other) == sorted(net.shapes)
        assert net.node(left) in one
        assert net.node(right) in other


def test_a_side_of_a_chain_is_all_that_hangs_on_it_in_the_order_of_the_nodes() -> None:
    assert [n.name for n in PAIRS.side("U_site", "r_o")] == ["U_site", "U_user"]
    assert [n.name for n in PAIRS.side("U_o", "r_o")] == ["U_i", "U_o"]
    # A shared axis of the result does not hold nodes together: rows of pairs are still cut at their bond.
    rows = PAIRS.rename(("site", "user"), "b", 4)
    assert [n.name for n in rows.side("U_user", "r_site")] == ["U_user"]


def test_a_side_of_a_bond_that_is_not_there_is_refused() -> None:
    with pytest.raises(tn.TnshareError, match="zz"):
        AB.side("A", "zz")


def test_networks_are_values() -> None:
    again = Network((Node("A", ("i", "k"), (2, 3)), Node("B", ("k", "j"), (3, 4))), ("i", "j"))
    assert AB.equation == "ab,bc->ac"
    assert AB.sizes  # what has been worked out is no part of the value
    assert again == AB
    assert hash(again) == hash(AB)
    assert pickle.loads(pickle.dumps(AB)) == AB
    others = [
        AB.to("j", "i"),
        AB.rename("i", "I"),
        AB.rename("i", "i2", 5),
        Network((A, B), ("i", "j"), ("i",)),
    ]
    others.append(Network((Node("A", ("i", "k"), (2, 3), learnt=False), B), ("i", "j")))
    assert len({AB, *others}) == 6
    with pytest.raises(AttributeError):
        AB.output = ("j", "i")  # type: ignore[misc]


def test_repr_and_describe_show_the_graph() -> None:
    fed = AB.feed("x", ("b", "i"), ("b", "j"), b=7)
    assert repr(A) == "A(i=2, k=3)"
    assert repr(fed) == "Network(A(i=2, k=3), B(k=3, j=4), x(b=7, i=2) -> b, j)"
    assert fed.describe() == (
        "A(i=2, k=3)\nB(k=3, j=4)\nx(b=7, i=2)  (not learnt)\n  i: A -- x\n  k: A -- B\ngives (b=7, j=4)"
    )


# Operations on names are operations on arrays


@METHODS
def test_dropping_an_axis_takes_one_index_of_it(net: Network) -> None:
    arrays = arrays_of(net)
    for axis in ("task", "i"):
        part = [
            a[(slice(None),) * n.axes.index(axis) + (1,)] if axis in n.axes else a
            for n, a in zip(net.nodes, arrays, strict=True)
        ]
        expected = contract(net, arrays).take(1, axis=net.output.index(axis))
        np.testing.assert_allclose(contract(net.drop(axis), part), expected)
    assert net.drop("task").tasks == ()
    assert net.drop("i").tasks == ("task",)
    assert net.drop("i", "task").output == ("o",)
    assert net.drop() == net


@METHODS
def test_renaming_the_task_axis_gives_every_row_a_task_of_its_own(net: Network) -> None:
    arrays, ids = arrays_of(net), [4, 0, 0, 2, 1, 3, 4]
    rows = net.rename("task", "b", len(ids))
    taken = [a[ids] if n.axes[0] == "task" else a for n, a in zip(net.nodes, arrays, strict=True)]
    np.testing.assert_allclose(contract(rows, taken), contract(net, arrays)[..., ids])
    assert rows.tasks == ()
    assert rows.output == ("i", "o", "b")
    assert rows.sizes["b"] == 7
    assert net.rename("task", "b").sizes["b"] == 5
    assert net.rename("i", "in").tasks == ("task",)


@pytest.mark.parametrize("spec", [tn.LAF(3), tn.Tucker((2, 3, 2, 3)), tn.TT((2, 3, 2))], ids=str)
def test_two_task_axes_become_one_axis_of_rows(spec: tn.LAF) -> None:
    net = spec.network(i=2, o=3, site=2, user=3, tasks=("site", "user"))
    rows = net.rename(("site", "user"), "b", 4)
    assert rows.output == ("i", "o", "b")
    assert all(n.axes.count("b") == bool({"site", "user"} & set(net.node(n.name).axes)) for n in rows.nodes)
    assert {rows.sizes[a] for n in rows.nodes for a in n.axes if a == "b"} == {4}
    with pytest.raises(tn.TnshareError, match=r"axes \('site', 'user'\) become one axis 'b': say its size"):
        net.rename(("site", "user"), "b")


@METHODS
def test_feeding_an_input_applies_the_weights_to_it(net: Network) -> None:
    arrays, rng = arrays_of(net), np.random.default_rng(1)
    weights, x, each = contract(net, arrays), rng.normal(size=(7, 3)), rng.normal(size=(5, 7, 3))
    same = net.feed("x", ("b", "i"), ("task", "b", "o"), b=7)
    np.testing.assert_allclose(contract(same, [*arrays, x]), np.einsum("bi,iot->tbo", x, weights))
    own = net.feed("x", ("task", "b", "i"), ("task", "b", "o"), b=7)
    np.testing.assert_allclose(contract(own, [*arrays, each]), np.einsum("tbi,iot->tbo", each, weights))
    assert own.tasks == ("task",)
    assert not own.node("x").learnt


@given(networks(), st.data())
def test_to_transposes_the_result(net: Network, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(net.output))))
    arrays = arrays_of(net)
    turned = net.to(*(net.output[n] for n in order))
    np.testing.assert_allclose(contract(turned, arrays), contract(net, arrays).transpose(order), atol=1e-12)


# What is refused, and in which words


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("A", ("i",), (2, 3)), r"node A has 1 axes \('i',\) but shape \(2, 3\)"),
        (("A", ("i", "i"), (2, 2)), r"node A names an axis twice: \('i', 'i'\)"),
        (("A", ("i",), (2.5,)), "2.5"),
        (("A", ("i",), (-3,)), "-3"),
        (
            ("A b", ("i",), (3,)),
            r"the name of a node must be a Python identifier of at most 250 .*: found 'A b'",
        ),
        (("A", ("i'",), (3,)), r"the name of an axis must be a Python identifier .*, as k_i: found \"i'\""),
        (("A\n", ("i",), (3,)), r"identifier .* found 'A\\n'"),
        (("A", (3,), (3,)), r"the name of an axis must be .* found 3"),
        (("A", ("x" * 251,), (3,)), "the name of an axis must be .* found 'xxxxx"),
        (("", ("i",), (3,)), "the name of a node must be .* found ''"),
    ],
)
def test_a_node_that_makes_no_sense_is_refused(args: tuple[object, ...], message: str) -> None:
    with pytest.raises(tn.TnshareError, match=message):
        Node(*args)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "output", "tasks", "message"),
    [
        ((A, A), ("i", "k"), (), "the name 'A' is used 2 times: expected it once"),
        ((A, B), ("i", "j", "j"), (), "the name 'j' is used 2 times"),
        ((A, B), ("i", "j"), ("i", "i"), "'i'"),
        ((A, B), ("i", "z"), (), r"no node has the axis 'z': expected one of \('i', 'k', 'j'\)"),
        ((A, B), ("i", "j"), ("z",), "no node has the axis 'z'"),
        ((A, B), ("i",), (), r"axis 'j' is in one node only and not in the output \('i',\)"),
        ((A, Node("B", ("k",), (4,))), ("i",), (), r"axis 'k' has size 3 and, in B\(k=4\), 4"),
        ((A, B), ("i", "j"), ("j",), r"the task axes \('j',\) must come first in B\(k=3, j=4\)"),
    ],
)
def test_a_network_that_makes_no_sense_is_refused(
    nodes: tuple[Node, ...], output: tuple[str, ...], tasks: tuple[str, ...], message: str
) -> None:
    with pytest.raises(tn.TnshareError, match=message):
        Network(nodes, output, tasks)


def test_operations_on_axes_that_are_not_there_are_refused() -> None:
    known = r"no axis is called 'z': expected one of \('i', 'k', 'j'\)"
    with pytest.raises(tn.TnshareError, match=known):
        AB.rename("z", "b")
    with pytest.raises(tn.TnshareError, match=known):
        AB.drop("i", "z")
    with pytest.raises(tn.TnshareError, match=r"expected the axes \('i', 'j'\) in any order, found \('i',\)"):
        AB.to("i")
    with pytest.raises(tn.TnshareError, match=r"the size of axis 'b' of 'x' is not known: say b=\.\.\."):
        AB.feed("x", ("b", "i"), ("b", "j"))


def test_an_input_that_does_not_fit_is_refused() -> None:
    with pytest.raises(tn.TnshareError, match=r"axis 'i' has size 2 and, in x\(b=7, i=9\), 9"):
        AB.feed("x", ("b", "i"), ("b", "j"), b=7, i=9)
    with pytest.raises(tn.TnshareError, match="the name 'A' is used 2 times"):
        AB.feed("A", ("b", "i"), ("b", "j"), b=7)
    with pytest.raises(
        tn.TnshareError, match=r"task axes \('task',\) must come first in x\(b=7, task=5, i=3\)"
    ):
        LAF.feed("x", ("b", "task", "i"), ("task", "b", "o"), b=7)


def test_renaming_onto_an_axis_that_is_there_already_is_refused() -> None:
    # It would tie two axes together in silence, and even change the size of the other one.
    for new in ("o", "k"):
        with pytest.raises(tn.TnshareError, match=repr(new)):
            LAF.rename("i", new)


def test_renaming_no_axis_at_all_is_refused() -> None:
    with pytest.raises(tn.TnshareError):
        AB.rename((), "b")


@pytest.mark.parametrize("axis", ["name", "axes", "output"])
def test_an_axis_may_have_the_name_of_an_argument_of_feed(axis: str) -> None:
    assert AB.feed("x", (axis, "i"), (axis, "j"), **{axis: 7}).shape == (7, 4)
