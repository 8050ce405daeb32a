"""Rows grouped by task: who goes where, and that no number of one task reaches another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tolerances import close

import tnshare as tn
from tnshare.layers import calls_for
from tnshare.layers._linear_runner import runner
from tnshare.ops import numpy_ops
from tnshare.ops._operations import NumpyOps
from tnshare.planning import MOST_KEPT_NUMBERS, PROFILES, Job, RowGroups, candidates, choose, group
from tnshare.planning._generated_code import CALLS
from tnshare.testing.cases import LinearCase
from tnshare.testing.oracles import looped

CPU = PROFILES["cpu"]


@st.composite
def rows(draw):
    """Task shape, and ids for one or two axes."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=2)))
    count = draw(st.integers(1, 30))
    favourite = draw(st.booleans())  # most rows of one task, or all alike
    ids = [tuple(draw(st.integers(0, n - 1)) for n in shape) for _ in range(3 if favourite else count)]
    return shape, (ids[:1] * count + ids)[-count - 2 :] if favourite else ids


@given(rows(), st.booleans())
def test_a_group_has_the_rows_of_its_task_and_no_other(drawn, everyone):
    shape, ids = drawn
    every = list(np.ndindex(*shape))
    tasks = [task for task in every if everyone or task in ids]
    own = {task: [n for n, found in enumerate(ids) if found == task] for task in tasks}
    longest = max(map(len, own.values()))
    groups = group([np.array(column) for column in zip(*ids, strict=True)], shape, everyone)
    if len(tasks) * longest > 4 * len(ids) + 64:
        assert groups is None
        return
    assert groups is not None
    assert groups.longest == longest
    assert list(zip(*(column.tolist() for column in groups.present), strict=True)) == tasks
    table = groups.rows.reshape(len(tasks), longest).tolist()
    for task, row in zip(tasks, table, strict=True):
        count = len(own[task])
        assert row[:count] == own[task]
        filled = own[task][:1] or range(len(ids))  # what an empty group computes is not looked at
        assert set(row[count:]) <= set(filled)
    assert groups.rows[groups.back].tolist() == list(range(len(ids)))
    assert [tasks[n // longest] for n in groups.back] == ids


@pytest.mark.parametrize(("rows", "tasks", "refused"), [(23, 8, False), (11, 15, True), (99, 2, False)])
def test_groups_of_very_different_lengths_are_refused(rows, tasks, refused):
    ids = np.concatenate([np.zeros(rows, int), np.arange(1, tasks)])
    assert (group([ids], (tasks,)) is None) is refused
    assert (group([ids], (tasks,), everyone=True) is None) is refused


def grouped(layer, rows, training=True, keep=0):
    job = Job(layer.network, "mixed", rows, None, training, keep, True, layer.bias)
    return job, [c for c in candidates(job, CPU) if c.grouped]


@pytest.mark.parametrize("keep", [0, MOST_KEPT_NUMBERS])
@pytest.mark.parametrize("spec", [tn.LAF(2), tn.Tucker((2, 2, 2)), tn.TT((2, 2))], ids=repr)
def test_a_nan_in_a_row_stays_in_its_row(spec, keep):
    layer = tn.Linear(3, 2, tasks=4, spec=spec)
    params = layer.init(0, dtype=float)
    ids = np.array([3, 0, 0, 3, 1, 3, 3, 0])
    x = np.random.default_rng(0).normal(size=(8, 3))
    x[0] = np.nan  # the first row of its group, which short groups would be filled up with
    job, found = grouped(layer, 8, training=False, keep=keep)
    assert {c.grouped for c in found} == ({"present", "all"} if keep else {"present"})
    factors = [params[node.name] for node in layer.network.nodes]
    for candidate in found:
        y = runner(job, candidate, numpy_ops, (8,))(factors, params["bias"], x, (ids,))
        assert np.isnan(y).all(axis=1).tolist() == [True] + [False] * 7
        assert np.isfinite(y[1:]).all()


@pytest.mark.parametrize("everyone", [False, True])
def test_a_nan_in_the_factors_of_a_task_stays_there(everyone):
    layer = tn.Linear(3, 2, tasks=4, spec=tn.LAF(2), bias=False)
    params = layer.init(0, dtype=float)
    params["S"][1] = np.nan
    ids = np.array([0, 1, 1, 3, 3, 3])
    job, found = grouped(layer, 6, training=False, keep=MOST_KEPT_NUMBERS)
    x = np.random.default_rng(0).normal(size=(6, 3))
    for candidate in (c for c in found if (c.grouped == "all") == everyone):
        y = runner(job, candidate, numpy_ops, (6,))([params["L"], params["S"]], None, x, (ids,))
        assert np.isnan(y).any(axis=1).tolist() == [False, True, True, False, False, False]


class Refusing(NumpyOps):
    """NumPy that notes the shapes of what is taken."""

    def __init__(self):
        self.taken = []

    def take(self, a, ids):
        self.taken.append(np.shape(ids[0]))
        return super().take(a, ids)


@pytest.mark.parametrize("inner", [None, 3])
@pytest.mark.parametrize("tasks", [40, {"site": 5, "user": 8}])
def test_rows_that_would_be_mostly_padding_are_computed_as_they_come(tasks, inner):
    axes = 1 if tasks == 40 else 2
    layer = tn.Linear(3, 2, tasks=tasks, spec=tn.LAF(2))
    skewed = np.concatenate([np.zeros(40, int), np.arange(40)])
    even = np.arange(80) % 40
    lead = (80,) if inner is None else (80, inner)
    job = Job(layer.network, "mixed", 80, inner)
    found = [c for c in candidates(job, CPU) if c.grouped]
    params = layer.init(0, dtype=float)
    factors = [params[node.name] for node in layer.network.nodes]
    x = np.random.default_rng(0).normal(size=(*lead, 3))
    weights = tn.compose(layer.network, params).reshape(3, 2, 40)
    assert found
    for ids, padded in ((skewed, False), (even, True)):
        columns = (ids,) if axes == 1 else (ids // 8, ids % 8)
        expected = np.einsum("b...i,iob->b...o", x, weights[..., ids])
        bias = params["bias"].reshape(40, 2)[ids]
        expected = expected + (bias if inner is None else bias[:, None])
        for candidate in found:
            ops = Refusing()
            y = runner(job, candidate, ops, lead)(factors, params["bias"], x, columns)
            np.testing.assert_allclose(y, expected, atol=1e-12)
            assert ((40,) in ops.taken) == padded  # the factors of the tasks that are present


@pytest.mark.parametrize("ids", [[0, 4], [4, 4, 4], [0], [4], [1, 2, 3], [4, 0, 4, 0]], ids=str)
def test_tasks_at_both_ends(ids):
    layer = tn.Linear(3, 2, tasks=5, spec=tn.TT((2, 2)))
    case = LinearCase(layer, "mixed", (len(ids),), "float64", 0)
    params, x = case.params(), case.x()
    object.__setattr__(case, "task", lambda: np.array(ids))
    factors = [params[node.name] for node in layer.network.nodes]
    job, found = grouped(layer, len(ids), training=False, keep=MOST_KEPT_NUMBERS)
    for candidate in found:
        y = runner(job, candidate, numpy_ops, case.lead)(factors, params["bias"], x, (np.array(ids),))
        np.testing.assert_allclose(y, looped(case, params, x), atol=1e-12)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3))), st.booleans())
def test_sorted_rows_are_those_of_each_group_in_turn(ids, everyone):
    columns = [np.array(column, int) for column in (zip(*ids, strict=True) if ids else ([], []))]
    groups = RowGroups.of(columns, (3, 4), everyone)
    every = [tuple(map(int, pair)) for pair in zip(*groups.present, strict=True)]
    assert every == [pair for pair in np.ndindex(3, 4) if everyone or pair in ids]
    assert [ids[n] for n in groups.order] == [
        pair for pair, n in zip(every, groups.counts, strict=True) for _ in range(n)
    ]
    assert (groups.order[groups.places] == np.arange(len(ids))).all()


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64"])
def test_ids_of_every_dtype_are_sorted(dtype):
    groups = RowGroups.of([np.array([2, 0, 2], dtype)], (3,))
    assert [groups.present[0].tolist(), groups.counts.tolist()] == [[0, 2], [1, 2]]
    assert groups.order.tolist() == [1, 0, 2]


@pytest.mark.parametrize("wrong", [-1, 5])
def test_ids_that_are_out_of_range_do_not_reach_the_groups(wrong):
    layer = tn.Linear(3, 2, tasks=5, spec=tn.LAF(2))
    params = layer.init(0, dtype=float)
    factors = [params[node.name] for node in layer.network.nodes]
    job, found = grouped(layer, 4)
    for candidate in found:
        with pytest.raises(IndexError, match="out of range"):
            runner(job, candidate, numpy_ops, (4,))(
                factors, params["bias"], np.ones((4, 3)), (np.array([0, wrong, 1, 2]),)
            )
    with pytest.raises(tn.TnshareError, match=f"^task {wrong} in row 1 is out of range"):
        choose(np.array([0, wrong, 1, 2]), layer.network, numpy_ops)


@pytest.mark.parametrize("training", [True, False])
def test_the_source_of_grouped_rows_runs_when_pasted(training):
    layer = tn.Linear(64, 64, tasks=4, spec=tn.Tucker((8, 8, 3)), bias=False)
    calls, ids = calls_for(layer, numpy_ops, "materialised"), np.arange(500) % 3  # the last task has no rows
    params, x = layer.init(0), np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
    text = calls.source("mixed", 500, x, training=training)
    assert text.startswith("# Rows are sorted by task and padded")
    everyone = "those of all tasks" in text
    scope = {name: getattr(numpy_ops, name) for name in CALLS}
    exec(text, scope)
    groups = group([ids], (4,), everyone)
    assert not (everyone and training)
    factors = [
        params[n.name] if n.name != "U_task" else params[n.name][groups.present] for n in layer.network.nodes
    ]
    y = scope["contract"](*factors, x, (ids,), groups.rows, groups.back)
    close(y, tn.apply(layer, params, x, ids), 64 + 8 + 8 + 3)
