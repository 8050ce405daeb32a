"""Candidates as functions: what happens in a call around the contraction itself.

Every runner takes the factors in the order of the nodes, the bias or None, x, ids, and a keeper or None. Ids
are a tuple with one entry for each task axis: a whole number, or an array (b,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tnshare.errors import TnshareError
from tnshare.ops import Ops
from tnshare.planning import BATCH_AXES, GROUP_AXIS, Candidate, Job, Plan, Way, group, kept_program, program

Runner = Callable[..., Any]
# Factors in the order of the nodes, bias, x, ids, keeper.
Inputs = tuple[Sequence[Any], Any, Any, Any, "Keeper | None"]


class Keeper(Protocol):
    """Keeps what was prepared from factors, for as long as the factors stay what they were."""

    def __call__(self, key: Any, factors: Sequence[Any], prepare: Callable[[], Any]) -> Any:
        """What is kept under the key, or else what ``prepare`` makes."""

    def empty(self) -> Keeper:
        """Another one of the same kind, with nothing in it."""


def runner(job: Job, candidate: Candidate, ops: Ops[Any], lead: tuple[int, ...]) -> Runner:
    """A call for inputs whose axes before the last are ``lead``, not counting task axes."""
    run = _WAYS["grouped" if candidate.grouped else job.way](job, candidate, ops)
    if candidate.chunk:
        run = chunked(run, ops, job.way, len(job.network.tasks), candidate.chunk)
    folded = 1 if job.inner is None else 2
    return run if len(lead) == folded and lead else _folding(job, run, ops, lead)


def _folding(job: Job, run: Runner, ops: Ops[Any], lead: tuple[int, ...]) -> Runner:
    """Fold the axes before the last into one, or two, and unfold those of the result."""
    tasks = job.network.task_shape
    before = tasks if job.way == "each" else ()
    after = tasks if job.way in ("each", "fan_out") else ()
    i, o = job.network.sizes["i"], job.network.sizes["o"]
    rows = (math.prod(lead),) if job.inner is None else (lead[0], math.prod(lead[1:]))

    def folded(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        y = run(factors, bias, ops.reshape(x, (*before, *rows, i)), ids, keeper)
        return ops.reshape(y, (*after, *lead, o))

    return folded


def _contract(candidate: Candidate, ops: Ops[Any]) -> tuple[Runner, Runner | None]:
    """The contraction as a function of all operands; and of factors, keeper and the others, if it keeps."""
    plain = program(candidate.plan, ops, fixed_axes(candidate.plan), named=candidate.named)
    if not candidate.kept:
        return plain, None
    prepare, contract, text = kept_program(candidate.plan, ops, fixed_axes(candidate.plan))

    def kept(factors: Any, keeper: Keeper | None, *rest: Any) -> Any:
        if keeper is None:
            return plain(*factors, *rest)
        return contract(*keeper(text, factors, lambda: prepare(*factors)), *rest)

    return plain, kept


def _one(job: Job, candidate: Candidate, ops: Ops[Any]) -> Runner:
    take, add = ops.take, ops.add
    row = getattr(ops, "row", None) or (lambda a, i: ops.reshape(take(a, [i]), (1, *a.shape[1:])))
    own, vectors = _own_columns(job), () if candidate.named else _vectors(job)
    nodes = enumerate(zip(job.network.nodes, own, strict=True))
    parts = [(n, cs, node.name in vectors) for n, (node, cs) in nodes if cs]

    def chosen(factors: Sequence[Any], ids: Any) -> list[Any]:
        found = list(factors)
        for n, cs, vector in parts:
            found[n] = row(found[n], ids[cs[0]]) if vector else take(found[n], [ids[c] for c in cs])
        return found

    fixed = fixed_axes(candidate.plan)
    if not candidate.kept:
        plain = program(candidate.plan, ops, fixed, vectors, candidate.named)

        def run(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
            y = plain(*chosen(factors, ids), x)
            return y if bias is None else add(y, take(bias, ids))

        return run
    prepare, again, text = kept_program(candidate.plan, ops, fixed, vectors)

    def run_kept(factors: Any, bias: Any, x: Any, ids: Any, keeper: Keeper | None = None) -> Any:
        def made() -> Any:
            return prepare(*chosen(factors, ids)), None if bias is None else take(bias, ids)

        every = factors if bias is None else (*factors, bias)
        prepared, row = made() if keeper is None else keeper((text, ids), every, made)
        y = again(*prepared, x)
        return y if bias is None else add(y, row)

    return run_kept


def _mixed(job: Job, candidate: Candidate, ops: Ops[Any]) -> Runner:
    (plain, kept), take, add, reshape = _contract(candidate, ops), ops.take, ops.add, ops.reshape
    o = job.network.sizes["o"]

    def run(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        y = plain(*factors, x, ids) if kept is None else kept(factors, keeper, x, ids)
        if bias is None:
            return y
        rows = take(bias, ids)
        return add(y, rows if job.inner is None else reshape(rows, (rows.shape[0], 1, o)))

    return run


def _each(job: Job, candidate: Candidate, ops: Ops[Any]) -> Runner:
    (plain, kept), add, reshape = _contract(candidate, ops), ops.add, ops.reshape
    shape = (*job.network.task_shape, 1, job.network.sizes["o"])

    def run(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        y = plain(*factors, x) if kept is None else kept(factors, keeper, x)
        return y if bias is None else add(y, reshape(bias, shape))

    return run


def _grouped(job: Job, candidate: Candidate, ops: Ops[Any]) -> Runner:
    """Find out which rows belong together; where grouping is mostly padding, run them as they come."""
    (plain, kept), take, reshape = _contract(candidate, ops), ops.take, ops.reshape
    own, tasks = _own_columns(job), job.network.task_shape
    everyone = candidate.grouped == "all"
    as_they_come = _mixed(job, candidate.otherwise, ops) if candidate.otherwise else None
    o, inner = job.network.sizes["o"], job.inner

    def run(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        values = [v for v in map(ops.values, ids) if v is not None]
        if len(values) < len(ids):  # an eager call was planned, and this one of the same shape is traced
            assert as_they_come is not None
            return as_they_come(factors, bias, x, ids, keeper)
        if any(v.min() < 0 or v.max() >= size for v, size in zip(values, tasks, strict=True)):
            raise IndexError("a task id is out of range")  # the caller finds out which
        groups = group(values, tasks, everyone)
        if groups is None and as_they_come is not None:
            return as_they_come(factors, bias, x, ids, keeper)
        assert groups is not None
        if not everyone:
            present = groups.present
            factors = [
                take(f, [present[c] for c in cs]) if cs else f for f, cs in zip(factors, own, strict=True)
            ]
        rest = x, ids, groups.rows, groups.back
        y = plain(*factors, *rest) if kept is None else kept(factors, keeper, *rest)
        if bias is None:
            return y
        added = take(bias, ids)
        return ops.add(y, added if inner is None else reshape(added, (added.shape[0], 1, o)))

    return run


def chunked(run: Runner, ops: Ops[Any], way: Way, tasks: int, size: int) -> Runner:
    """Some rows at a time; nothing is kept for the backward pass, which computes them again."""
    in_chunks = getattr(ops, "in_chunks", None)
    if in_chunks is None:
        raise TnshareError(f"memory_limit asks for chunks of the batch, which {type(ops).__name__} cannot do")
    axis = tasks if way == "each" else 0
    result_axis = tasks if way in ("each", "fan_out") else 0

    def in_parts(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        def part(arrays: Sequence[Any], x: Any, rows: Any) -> Any:
            own = arrays[-1] if bias is not None else None
            return run(arrays[: len(factors)], own, x, rows or ids, keeper)

        arrays = [*factors, *(() if bias is None else (bias,))]
        rows = ids if way == "mixed" else ()
        return in_chunks(part, arrays, x, rows, axis, result_axis, size)

    return in_parts


_WAYS = {"one": _one, "mixed": _mixed, "each": _each, "fan_out": _each, "grouped": _grouped}


def fixed_axes(plan: Plan) -> tuple[str, ...]:
    """The axes whose sizes are the same in every call."""
    return tuple(axis for axis in plan.network.sizes if axis not in (*BATCH_AXES, GROUP_AXIS))


def _vectors(job: Job) -> tuple[str, ...]:
    """The factors of which a task has one vector: it is taken as a row of the factor, which is a view."""
    network = job.network
    return tuple(
        n.name for n in network.nodes if len(n.axes) == 2 and sum(a in network.tasks for a in n.axes) == 1
    )


def _own_columns(job: Job) -> list[tuple[int, ...]]:
    """For every factor, the numbers of its task axes among those of the network."""
    network = job.network
    return [tuple(network.tasks.index(a) for a in n.axes if a in network.tasks) for n in network.nodes]
