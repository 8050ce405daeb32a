"""Steps and the programs made of them: any moves give the right numbers, and views are views."""

from __future__ import annotations

import ast
import math
import re

import numpy as np
import pytest
from drawn import arrays_of
from hypothesis import assume, given
from hypothesis import strategies as st

import tnshare as tn
from tnshare.ops import numpy_ops
from tnshare.ops._operations import NumpyOps
from tnshare.planning import (
    BATCH_AXES,
    IDS,
    WAYS,
    Plan,
    Step,
    Take,
    depends_on_batch,
    group,
    kept_program,
    program,
    with_input,
)
from tnshare.planning._generated_code import source
from tnshare.planning._row_groups import padded
from tnshare.planning._steps import make_step, make_take, product_of
from tnshare.planning._ways import of_present
from tnshare.testing import linear_cases, network_cases
from tnshare.testing.oracles import einsum

SPECS = {"laf": tn.LAF(4), "tucker": tn.Tucker((16, 16, 5)), "tt": tn.TT((16, 5))}
PRIMES = dict(zip("abcdefgh", (2, 3, 5, 7, 11, 13, 17, 19), strict=True))
VARIANTS = ("", "left", "right", "inside", "turned")
PASTED = {name: getattr(numpy_ops, name) for name in ("matmul", "multiply", "reshape", "take", "transpose")}


# Views and copies


@st.composite
def operands(draw):
    """The axes of two operands, and those that are needed later; sizes are primes."""
    left, right = (draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)) for _ in range(2))
    common = set(left) & set(right)
    kept = set(left) ^ set(right) | {axis for axis in common if draw(st.booleans())}
    return tuple(left), tuple(right), frozenset(kept), draw(st.sampled_from(VARIANTS))


def matrices(step, axes, arrays):
    """The operands as the step folds them, without repeating one for all items."""
    found = []
    for own, array, order, groups in zip(
        axes, arrays, (step.left_order, step.right_order), step.groups, strict=True
    ):
        turned = array.transpose(range(len(own)) if order is None else order)
        found.append(turned.reshape([math.prod(PRIMES[a] for a in group) for group in groups]))
    return found


@given(operands())
def test_a_step_is_what_einsum_gives(drawn):
    left, right, kept, variant = drawn
    step = product_of(*drawn)
    arrays = [
        np.random.default_rng(n).normal(size=[PRIMES[a] for a in axes])
        for n, axes in enumerate((left, right))
    ]
    a, b = matrices(step, (left, right), arrays)
    shape = [PRIMES[axis] for axis in step.result]
    expected = np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(step.result)}", *arrays)
    result = np.matmul(a, b) if step.inner else a * b
    np.testing.assert_allclose(result.reshape(shape), expected, atol=1e-9)
    assert result.ndim == len(step.result_groups) or step.variant in ("left", "right")
    assert set(step.result) == kept
    assert step.variant in ("", variant)
    assert step.flops(PRIMES) == 2 * math.prod(PRIMES[axis] for axis in {*left, *right})


@given(operands())
def test_what_is_said_to_be_no_copy_is_none_and_the_rest_is_one(drawn):
    step = product_of(*drawn)
    arrays = [np.empty([PRIMES[a] for a in axes]) for axes in drawn[:2]]
    found = matrices(step, drawn[:2], arrays)
    for array, matrix, groups, copied, turned in zip(
        arrays, found, step.groups, step.copies, step.lies_transposed, strict=True
    ):
        shares = np.shares_memory(array, matrix)
        strides = [s for s, group in zip(matrix.strides[-2:], groups[-2:], strict=True) if group]
        if step.variant == "turned" and array is arrays[1]:
            assert copied
            assert turned
            continue
        # A product reads matrices of which one axis is contiguous; entries are multiplied as they lie.
        unreadable = bool(step.inner and strides) and array.itemsize not in strides
        assert copied == (not shares or unreadable)
        late = len(strides) == 2 and strides[0] < strides[1]
        assert turned == (bool(step.inner) and not copied and late)


@pytest.mark.parametrize(
    ("left", "copied", "turned"),
    [
        (("b", "r", "k"), False, False),
        (("r", "b", "k"), False, False),
        (("k", "b", "r"), False, True),
        (("b", "k", "r"), False, True),
        (("r", "k", "b"), True, False),  # no matrix axis is contiguous
        (("k", "r", "b"), True, False),
    ],
)
def test_an_operand_whose_batch_lies_innermost_is_copied(left, copied, turned):
    step = make_step((0, left), (1, ("b", "k", "c")), frozenset("brc"))
    assert (step.copies, step.lies_transposed) == ((copied, False), (turned, False))


def test_an_operand_with_the_batch_alone_is_not_copied():
    plain = make_step((0, ("k", "i", "o")), (1, ("i", "b")), frozenset("kob"))
    assert plain.copies == (True, False)
    alone = make_step((0, ("k", "i", "o")), (1, ("i", "b")), frozenset("kob"), "left")
    assert (alone.copies, alone.variant, alone.result) == ((False, False), "left", ("k", "o", "b"))
    assert alone.groups == ((("k",), ("o",), ("i",)), (("i",), ("b",)))


def test_a_right_operand_may_be_copied_to_lie_transposed():
    step = make_step((0, ("b", "i")), (1, ("i", "o")), frozenset("bo"), "turned")
    assert (step.variant, step.result) == ("turned", ("b", "o"))
    assert (step.copies, step.lies_transposed) == ((False, True), (False, True))
    stack = make_step((0, ("b", "i")), (1, ("b", "i", "o")), frozenset("bo"), "turned")
    assert stack.variant == ""
    assert make_step((0, ("b",)), (1, ("o",)), frozenset("bo"), "turned").variant == ""
    assert make_step((0, ("b", "i")), (1, ("i",)), frozenset("b"), "turned").variant == ""
    assert make_step((0, ("i",)), (1, ("i", "o")), frozenset("o"), "turned").variant == ""


def test_an_outer_product_may_put_the_axes_of_one_inside_the_other():
    step = make_step((0, ("b", "r")), (1, ("b", "i", "o")), frozenset("brio"), "inside")
    assert (step.variant, step.result) == ("inside", ("b", "i", "r", "o"))
    assert make_step((0, ("b", "r")), (1, ("b", "o")), frozenset("bro"), "inside").variant == ""
    assert make_step((0, ("b", "r", "k")), (1, ("k", "i", "o")), frozenset("brio"), "inside").variant == ""


def test_rows_meet_the_matrices_of_their_tasks():
    step = make_step((0, ("b", "m", "i")), (1, ("t", "o", "i")), frozenset("bmot"), "grouped", ("t",))
    assert (step.variant, step.result, step.batch) == ("grouped", ("b", "m", "o"), ("t",))
    assert step.groups == ((("b",), ("m", "i")), (("t",), ("i",), ("o",)))
    assert (step.copies, step.lies_transposed) == ((False, False), (False, True))
    sizes = {"b": 100, "m": 2, "i": 3, "o": 5, "t": 4}
    assert step.flops(sizes) == 2 * padded(100, 4) * 2 * 3 * 5
    assert 100 < padded(100, 4) < 200
    two = make_step((0, ("b", "i")), (1, ("u", "s", "i")), frozenset("bus"), "grouped", ("s", "u"))
    assert (two.batch, two.right_order) == (("s", "u"), (1, 0, 2))  # as groups of rows are counted


@pytest.mark.parametrize(
    ("left", "right", "needed", "tasks"),
    [
        ("bi", "tio", "bto", ""),  # no tasks
        ("bi", "sio", "bsuo", "su"),  # not all of them
        ("bi", "to", "bito", "t"),  # nothing to sum over
        ("bi", "tio", "bito", "t"),  # an axis of both that is needed later
        ("ti", "bio", "bto", "t"),  # the rows must be on the left
    ],
)
def test_where_rows_cannot_meet_their_tasks_the_step_is_an_ordinary_one(left, right, needed, tasks):
    step = make_step((0, tuple(left)), (1, tuple(right)), frozenset(needed), "grouped", tuple(tasks))
    assert step.variant == ""
    assert step == make_step((0, tuple(left)), (1, tuple(right)), frozenset(needed))


# Any moves are right


class Direct(NumpyOps):
    """NumPy that wants to be told whether matrices are stacked."""

    def mm(self, a, b):
        assert a.ndim == b.ndim == 2
        return a @ b

    def bmm(self, a, b):
        assert a.ndim == b.ndim == 3
        return a @ b

    def matmul(self, a, b):
        assert a.ndim != b.ndim
        return a @ b


class Naming(NumpyOps):
    """NumPy that arranges axes itself, but those of grouped rows."""

    einsum = staticmethod(np.einsum)
    bmm = Direct.bmm

    def matmul(self, a, b):
        raise AssertionError("products are told their axes")


NAMING, DIRECT = Naming(), Direct()


def random_plan(network, rng):
    """Some order, with rows taken at some time, operands on either side, batches alone or not."""
    live = {n: node.axes for n, node in enumerate(network.nodes) if node.name != IDS}
    tasks = set(network.tasks) if len(live) < len(network.nodes) else set()
    moves = []

    def leads(axes):
        own = [axis in tasks for axis in axes]
        return own == sorted(own, reverse=True)

    while len(live) > 1 or tasks & {axis for axes in live.values() for axis in axes}:
        a, b = (int(n) for n in rng.choice(list(live), 2)) if len(live) > 1 else (next(iter(live)),) * 2
        number = len(network.nodes) + len(moves)
        if a == b:
            if tasks & set(live[a]):
                moves.append((a,))
                live[number] = make_take(a, live.pop(a), network.tasks).result
            continue
        rest = [axes for n, axes in live.items() if n not in (a, b)]
        needed = frozenset(network.output).union(tasks, BATCH_AXES if tasks else (), *rest)
        variant = str(rng.choice((*VARIANTS, "grouped")))
        step = make_step((a, live[a]), (b, live[b]), needed, variant, network.tasks if tasks else ())
        clash = tasks and "b" in step.result and tasks & set(step.result)
        if not clash and leads(step.result):
            moves.append((a, b, step.variant))
            live = {n: axes for n, axes in live.items() if n not in (a, b)} | {number: step.result}
    return Plan.of(network, moves, "by chance")


WAY_NETWORKS = st.builds(
    lambda case, rows, inner: with_input(case.layer.network, case.way, rows, inner),
    linear_cases(),
    st.integers(1, 5),
    st.none() | st.integers(1, 3),
)
GROUPED = st.builds(
    lambda case, groups, rows, inner: of_present(case.layer.network, groups, rows, inner),
    linear_cases(),
    st.integers(1, 3),
    st.integers(1, 5),
    st.none() | st.integers(1, 3),
)
NETWORKS = st.builds(lambda case: case.network, network_cases()) | WAY_NETWORKS | GROUPED


def groups_rows(plan):
    return any(isinstance(step, Step) and step.variant == "grouped" for step in plan.steps)


def inputs_of(plan, seed=0):
    """Operands of a plan, with the places of rows if it groups them, and the same as arrays by name."""
    operands, named = arrays_of(plan.network, seed)
    if not groups_rows(plan):
        return operands, named
    ids = next(o for o, node in zip(operands, plan.network.nodes, strict=True) if node.name == IDS)
    found = group(ids, plan.network.task_shape, everyone=True)
    return [*operands, found.rows, found.back], named


@given(NETWORKS, st.integers(0, 2**32))
def test_any_moves_give_what_einsum_gives(network, seed):
    plan = random_plan(network, np.random.default_rng(seed))
    given_, named = inputs_of(plan, seed)
    expected = einsum(network, named)
    np.testing.assert_allclose(plan.run(numpy_ops, given_), expected, atol=1e-8)
    np.testing.assert_allclose(program(plan, NAMING, named=True)(*given_), expected, atol=1e-8)
    np.testing.assert_allclose(program(plan, DIRECT)(*given_), expected, atol=1e-8)
    again = Plan.of(network, plan.moves, "again")
    assert (again.steps, again.order) == (plan.steps, plan.order)
    assert hash(again) == hash(plan)
    assert again != plan == Plan.of(network, plan.moves, "by chance")
    assert again.needs_final_transpose == (np.argsort(again.order).tolist() != list(range(len(again.order))))


@given(NETWORKS, st.integers(0, 2**32))
def test_the_source_with_and_without_what_is_kept_gives_the_same(network, seed):
    plan = random_plan(network, np.random.default_rng(seed))
    given_, named = inputs_of(plan, seed)
    expected = einsum(network, named)
    fixed = tuple(axis for axis in network.sizes if axis not in (*BATCH_AXES, "g"))
    for text in (plan.source(), plan.source(fixed)):
        scope = dict(PASTED)
        exec(text, scope)
        np.testing.assert_allclose(scope["contract"](*given_), expected, atol=1e-8)
    np.testing.assert_allclose(program(plan, numpy_ops, fixed)(*given_), expected, atol=1e-8)
    if any(axis in BATCH_AXES for axis in network.output):
        fixed, scope = tuple(axis for axis in network.sizes if axis not in BATCH_AXES), dict(PASTED)
        exec(source(plan, fixed, kept=True), scope)
        constant = [not depends_on_batch(node.axes) for node in network.nodes]
        prepared = scope["prepare"](*(g for g, c in zip(given_, constant, strict=False) if c))
        rest = [g for g, c in zip(given_, constant, strict=False) if not c] + given_[len(constant) :]
        assert isinstance(prepared, tuple)
        np.testing.assert_allclose(scope["contract"](*prepared, *rest), expected, atol=1e-8)
        made = kept_program(plan, numpy_ops, fixed)
        assert made.preparation == source(plan, fixed, kept=True).split("\n\n\n")[0]
        assert made.preparation.startswith("def prepare(")


@given(WAY_NETWORKS, st.integers(0, 2**32), st.integers(0, 6), st.integers(0, 3))
def test_a_program_holds_for_every_batch(network, seed, rows, inner):
    plan = random_plan(network, np.random.default_rng(seed))
    sizes = {**network.sizes, "b": rows, "m": inner}
    rng = np.random.default_rng(seed)
    named = {n.name: rng.normal(size=[sizes[a] for a in n.axes]) for n in network.nodes}
    given_ = list(named.values())
    for n, node in enumerate(network.nodes):
        if node.name == IDS:
            given_[n] = tuple(rng.integers(0, size, rows) for size in node.shape[:-1])
            named[IDS] = np.zeros((*node.shape[:-1], rows))
            named[IDS][(*given_[n], np.arange(rows))] = 1
    fixed = tuple(axis for axis in network.sizes if axis not in BATCH_AXES)
    if groups_rows(plan):
        assume(rows)
        found = group(given_[-1], network.task_shape, everyone=True)
        given_ += [found.rows, found.back]
    result = program(plan, numpy_ops, fixed)(*given_)
    np.testing.assert_allclose(result, einsum(network, named), atol=1e-8)


# The text of a program


def names_in(text):
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", SPECS)
def test_sizes_that_stay_the_same_are_numbers(method, way):
    network = with_input(SPECS[method].network(i=64, o=32, task=20), way, 8)
    fixed = tuple(axis for axis in network.sizes if axis != "b")
    for first in range(len(network.nodes) - (way == "mixed")):
        plan = random_plan(network, np.random.default_rng(first))
        assert names_in(plan.source(fixed)).isdisjoint({*fixed, *network.shapes} - {"x", "ids"})
        assert ".shape" not in plan.source(tuple(network.sizes))


@pytest.mark.parametrize(
    "names", [("i", "o", "task"), ("class", "k_", "n"), ("t1", "matmul", "_"), ("x", "L", "S")]
)
@pytest.mark.parametrize("method", SPECS)
def test_the_source_of_a_plan_runs_when_pasted(method, names):
    network = SPECS[method].network(**dict(zip(names, (64, 32, 20), strict=True)))
    plan = Plan.chain(network, 0)
    scope = dict(PASTED)
    exec(plan.source(), scope)
    given_, named = arrays_of(network)
    np.testing.assert_allclose(scope["contract"](*given_), einsum(network, named), atol=1e-10)
    assert len(re.findall(r"\bmatmul\(", plan.source())) == len(plan.steps)


def test_rows_are_taken_by_the_ids_of_their_own_task_axes():
    assert make_take(3, ("user", "k"), ("site", "user")) == Take(3, (1,), ("b", "k"))
    assert make_take(3, ("user", "site", "k"), ("site", "user")) == Take(3, (1, 0), ("b", "k"))
    network = with_input(
        tn.Tucker((2, 2, 2, 2)).network(i=3, o=3, site=3, user=4, tasks=("site", "user")), "mixed", 4
    )
    text = random_plan(network, np.random.default_rng(0)).text
    assert text.count("[ids]") in (1, 2)


def test_what_a_plan_contracts_is_said_in_the_names_of_the_nodes():
    network = with_input(tn.LAF(2).network(i=3, o=4, task=5), "mixed", 4)
    assert [n.name for n in network.nodes] == ["L", "S", "x", "ids"]
    plan = Plan.of(network, [(1,), (2, 0, ""), (4, 5, "")], "")
    assert plan.text == "S[ids] (x L)"
    assert Plan.chain(tn.TT((2, 2)).network(i=3, o=4, task=5), 2).text == "(U_task U_o) U_i"
