"""Candidates of a linear layer as functions: what happens in a call around the contraction itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tnshare.execution import Keeper, Runner, Shape, fixed_axes
from tnshare.ops import Ops
from tnshare.planning import Candidate, Job, group, kept_program, program


def runner(job: Job, candidate: Candidate, ops: Ops[Any], rows: Shape | None) -> Runner:
    """A call for inputs whose axes before the last are ``rows``, not counting task axes; None: any."""
    run = _WAYS["grouped" if candidate.grouped else job.way](job, candidate, ops)
    if rows is None:
        return _folding_any(job, run, ops)
    folded = 1 if job.inner is None else 2
    return run if len(rows) == folded else _folding(job, run, ops, rows)


def _folding(job: Job, run: Runner, ops: Ops[Any], lead: Shape) -> Runner:
    """Fold the axes before the last into one, or two, and unfold those of the result."""
    tasks = job.network.task_shape
    before = tasks if job.way == "each" else ()
    after = tasks if job.way in ("each", "fan_out") else ()
    i, o = job.network.sizes["i"], job.network.sizes["o"]
    rows = _two(job, lead)

    def folded(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        y = run(factors, bias, ops.reshape(x, (*before, *rows, i)), ids, keeper)
        return ops.reshape(y, (*after, *lead, o))

    return folded


def _folding_any(job: Job, run: Runner, ops: Ops[Any]) -> Runner:
    """The same for axes that are not known before, or symbols."""
    tasks = job.network.task_shape
    first = len(tasks) if job.way == "each" else 0
    axes = 1 if job.inner is None else 2

    def folded(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        lead = tuple(x.shape[first:-1])
        if len(lead) == axes:
            return run(factors, bias, x, ids, keeper)
        y = run(factors, bias, ops.reshape(x, (*x.shape[:first], *_two(job, lead), x.shape[-1])), ids, keeper)
        return ops.reshape(y, (*y.shape[: y.ndim - 1 - axes], *lead, y.shape[-1]))

    return folded


def _two(job: Job, lead: Shape) -> Shape:
    """The axes that a plan knows: rows, and where each has a task of its own, the vectors of a row."""
    return (math.prod(lead),) if job.inner is None else (lead[0], math.prod(lead[1:]))


def _contract(candidate: Candidate, ops: Ops[Any]) -> tuple[Runner, Runner | None]:
    """The contraction as a function of all operands; and of factors, keeper and the others, if it keeps."""
    plain = program(candidate.plan, ops, fixed_axes(candidate.plan), named=candidate.by_einsum)
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
    network, vectors = job.network, () if candidate.by_einsum else _vectors(job)
    nodes = enumerate(network.nodes)
    parts = [(n, cs, node.name in vectors) for n, node in nodes if (cs := network.task_columns(node))]

    def chosen(factors: Sequence[Any], ids: Any) -> list[Any]:
        found = list(factors)
        for n, cs, vector in parts:
            found[n] = row(found[n], ids[cs[0]]) if vector else take(found[n], [ids[c] for c in cs])
        return found

    fixed = fixed_axes(candidate.plan)
    if not candidate.kept:
        plain = program(candidate.plan, ops, fixed, vectors, candidate.by_einsum)

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
    own = [job.network.task_columns(node) for node in job.network.nodes]
    everyone = candidate.grouped == "all"
    as_they_come = _mixed(job, candidate.ungrouped, ops) if candidate.ungrouped else None
    o, inner = job.network.sizes["o"], job.inner

    def run(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        values = [v for v in map(ops.values, ids) if v is not None]
        if len(values) < len(ids):  # an eager call was planned, and this one of the same shape is traced
            assert as_they_come is not None
            return as_they_come(factors, bias, x, ids, keeper)
        groups = group(values, job.network.task_shape, everyone)
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


_WAYS = {"one": _one, "mixed": _mixed, "each": _each, "fan_out": _each, "grouped": _grouped}


def _vectors(job: Job) -> tuple[str, ...]:
    """The factors of which a task has one vector: it is taken as a row of the factor, which is a view."""
    network = job.network
    return tuple(
        n.name for n in network.nodes if len(n.axes) == 2 and sum(a in network.tasks for a in n.axes) == 1
    )
