"""The laws: functions of an Ops and a random case that raise AssertionError where they do not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tnshare.decomposition import compose
from tnshare.layers import apply, fan_out
from tnshare.ops import NDArray, Ops

from .cases import LinearCase, NetworkCase, linear_cases, network_cases, random_array
from .oracles import close, einsum, gauge_moved, looped, magnitudes, numbers, same, within

Law = Callable[[Ops[Any], Any], None]


def each_operation_is_that_of_numpy(ops: Ops[Any], case: NetworkCase) -> None:
    """matmul, reshape, transpose, multiply, add, take, asarray, values."""
    rng = np.random.default_rng(case.seed)
    b, n, k, m = rng.integers(1, 5, 4)
    a, c = random_array(rng, (b, n, k), case.dtype), random_array(rng, (b, k, m), case.dtype)
    one, two = ops.asarray(a), ops.asarray(c)
    same(ops, one, a)
    assert tuple(one.shape) == a.shape
    close(ops, ops.matmul(one, two), a @ c, np.abs(a) @ np.abs(c), k + 1)
    first = np.abs(a[0]) @ np.abs(c[0])
    close(ops, ops.matmul(ops.take(one, [0]), ops.take(two, [0])), a[0] @ c[0], first, k + 1)
    same(ops, ops.reshape(one, (n * k, b)), a.reshape(n * k, b))
    same(ops, ops.transpose(one, (2, 0, 1)), a.transpose(2, 0, 1))
    same(ops, ops.reshape(ops.transpose(one, (1, 2, 0)), (n, k * b)), a.transpose(1, 2, 0).reshape(n, k * b))
    outer = np.abs(a[..., None] * a[:, :, None])
    product = ops.multiply(ops.asarray(a[..., None]), ops.asarray(a[:, :, None]))
    close(ops, product, a[..., None] * a[:, :, None], outer, 1)
    close(ops, ops.add(one, ops.asarray(a[:, :1])), a + a[:, :1], np.abs(a) + np.abs(a[:, :1]), 1)
    rows, columns = rng.integers(0, b, 3), rng.integers(0, n, 3)
    same(ops, ops.take(one, [rows]), a[rows])
    same(ops, ops.take(one, [rows, columns]), a[rows, columns])
    same(ops, ops.take(one, [int(rows[0]), int(columns[0])]), a[rows[0], columns[0]])
    same(ops, ops.asarray(np.ones(3), like=one), np.ones(3, case.dtype))


def composing_is_one_sum_over_all_bonds(ops: Ops[Any], case: NetworkCase) -> None:
    """The weights of all tasks are the einsum of all factors; those of some tasks are a part of them."""
    factors = case.factors()
    arrays = {name: ops.asarray(value) for name, value in factors.items()}
    dense, bound = einsum(case.network, factors), einsum(case.network, magnitudes(factors))
    shape = tuple(case.network.sizes[axis] for axis in case.network.tasks)
    rng = np.random.default_rng(case.seed)
    ids = np.stack([rng.integers(0, size, 3) for size in shape], axis=-1)
    task = ids if len(shape) > 1 else ids[:, 0]
    every, some, one = (...,), (..., *ids.T), (..., *ids[0])
    for run in _also_compiled(ops, lambda arrays, task: compose(case.network, arrays, task, ops=ops)):
        for given, pick in ((None, every), (task, some), (task[0], one)):
            close(ops, run(arrays, given), dense[pick], bound[pick], case.terms)


def a_change_of_gauge_changes_no_weight(ops: Ops[Any], case: NetworkCase) -> None:
    """An invertible matrix on one side of a bond and its inverse on the other."""
    factors = case.factors()
    moved = gauge_moved(case.network, factors, case.seed)
    largest = gauge_moved(case.network, magnitudes(factors), case.seed, absolute=True)
    expected, bound = einsum(case.network, factors), einsum(case.network, largest)
    arrays = {name: ops.asarray(value) for name, value in moved.items()}
    for run in _also_compiled(ops, lambda arrays: compose(case.network, arrays, ops=ops)):
        close(ops, run(arrays), expected, bound, 3 * case.terms)  # a bond's turn, its way back, its sum


def the_four_ways_are_loops_over_rows_and_tasks(ops: Ops[Any], case: LinearCase) -> None:
    """Applying from the factors gives what dense weights of each task would."""
    params, x = case.params(), case.x()
    operands = [ops.asarray(value) for value in (*params.values(), x)]
    bound = looped(case, magnitudes(params), np.abs(x), absolute=True)
    for run in _also_compiled(ops, _runner(ops, case)):
        close(ops, run(case.task(), *operands), looped(case, params, x), bound, case.terms)


def gradients_are_those_of_the_loop(ops: Ops[Any], case: LinearCase) -> None:
    """The output is affine in every operand: along V its derivative is f(V) - f(0), exactly.

    For backends that have ``gradients(function, arrays, weights)``; others have none to be wrong.
    """
    differentiate = getattr(ops, "gradients", None)
    if differentiate is None:
        return
    names = [*case.layer.shapes, "x"]
    values = [*case.params().values(), case.x()]
    rng = np.random.default_rng([case.seed, 3])

    def loop(operands: Sequence[NDArray], absolute: bool = False) -> NDArray:
        *params, x = operands
        return looped(case, dict(zip(case.layer.shapes, params, strict=True)), x, absolute)

    weights = random_array(rng, loop(values).shape, case.dtype)
    run, given = _runner(ops, case), ([ops.asarray(v) for v in values], ops.asarray(weights))

    def gradients(task: Any, arrays: Sequence[Any], weights: Any) -> Any:
        return differentiate(partial(run, task), arrays, weights)

    every = [compute(case.task(), *given) for compute in _also_compiled(ops, gradients)]
    for n, (name, *found) in enumerate(zip(names, *every, strict=True)):
        along = random_array(rng, values[n].shape, case.dtype)
        moved, still = [*values], [*values]
        moved[n], still[n] = along, np.zeros_like(along)
        expected = np.sum(weights * (loop(moved) - loop(still)))
        magnitude = loop([np.abs(v) for v in moved], absolute=True)
        for gradient in found:
            actual = np.sum(numbers(ops, gradient) * along)
            bound = np.sum(np.abs(weights) * magnitude) + np.sum(np.abs(numbers(ops, gradient) * along))
            assert within(actual, expected, bound, case.dtype, case.terms + weights.size), (
                f"gradient by {name}: {actual}, not {expected}"
            )


def a_change_of_gauge_changes_no_output(ops: Ops[Any], case: LinearCase) -> None:
    """Nor does it, seen from a layer in any of the four ways."""
    params, x = case.params(), case.x()
    if case.layer.frozen:  # given codes leave no freedom
        return
    moved = {**params, **gauge_moved(case.layer.network, params, case.seed)}
    operands = [ops.asarray(value) for value in (*moved.values(), x)]
    sizes = magnitudes(params)
    largest = {**sizes, **gauge_moved(case.layer.network, sizes, case.seed, absolute=True)}
    bound = looped(case, largest, np.abs(x), absolute=True)
    for run in _also_compiled(ops, _runner(ops, case)):
        close(ops, run(case.task(), *operands), looped(case, params, x), bound, 3 * case.terms)


LAWS: dict[Law, Callable[[Sequence[str]], st.SearchStrategy[Any]]] = {
    each_operation_is_that_of_numpy: network_cases,
    composing_is_one_sum_over_all_bonds: network_cases,
    a_change_of_gauge_changes_no_weight: network_cases,
    the_four_ways_are_loops_over_rows_and_tasks: linear_cases,
    a_change_of_gauge_changes_no_output: linear_cases,
    gradients_are_those_of_the_loop: linear_cases,
}


def _runner(ops: Ops[Any], case: LinearCase) -> Callable[..., Any]:
    """The layer as a function of the task, its parameters and the input, positionally."""

    def run(task: Any, *operands: Any) -> Any:
        *params, x = operands
        named = dict(zip(case.layer.shapes, params, strict=True))
        if case.way == "fan_out":
            return fan_out(case.layer, named, x, ops=ops)
        return apply(case.layer, named, x, task, ops=ops)

    return run


def _also_compiled(ops: Ops[Any], function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """A function and, where a backend compiles, the same compiled, all that it is given being traced."""
    compile_ = getattr(ops, "jit", None)
    return [function] if compile_ is None else [function, compile_(function)]
