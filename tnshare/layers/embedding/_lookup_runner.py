"""A candidate of an embedding as a function of factors, bias (None), tokens, ids and a keeper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tnshare.errors import TnshareError
from tnshare.execution import Keeper, Runner, fixed_axes
from tnshare.ops import Ops
from tnshare.planning import program

from ._lookup_candidates import LookupCandidate, LookupJob, holder


def lookup_runner(job: LookupJob, candidate: LookupCandidate, ops: Ops[Any]) -> Runner:
    """A call for tokens of any shape; ids are a tuple with an entry for each task axis, or None."""
    look = (_tables if candidate.table else _rows)(job, candidate, ops)
    layer = job.layer

    def run(factors: Any, bias: Any, x: Any, ids: Any, keeper: Keeper | None = None) -> Any:
        _check_tokens(x, layer.num_embeddings, ops)
        y = look(factors, x, ids, keeper)
        if layer.padding_idx is None:
            return y
        return ops.multiply(y, ops.reshape(x != layer.padding_idx, (*x.shape, 1)))

    return run


def _rows(job: LookupJob, candidate: LookupCandidate, ops: Ops[Any]) -> Runner:
    """Rows of one factor looked up, and contracted with the other factors."""
    network, way = job.layer.network, job.way
    tasks, own = network.task_shape, holder(network)
    at = own.axes.index("n")
    turned = (at, *(n for n in range(len(own.axes)) if n != at))
    width = tuple(own.shape[n] for n in turned[1:])
    contract = program(candidate.plan, ops, fixed_axes(candidate.plan))
    columns = [network.task_columns(node) for node in network.nodes]
    # torch.compile reads what follows, and would not follow what is looked up here.
    place, dim = network.nodes.index(own), job.layer.embedding_dim
    others = [(n, cs) for n, cs in enumerate(columns) if n != place]

    def run(factors: Any, x: Any, ids: Any, keeper: Any) -> Any:
        shape = tuple(x.shape)
        lead = shape[len(tasks) :] if way == "each" else shape
        table = factors[place]
        rows = ops.take(ops.transpose(table, turned) if at else table, (ops.reshape(x, (math.prod(shape),)),))
        before = tasks if way == "each" else ()
        split = (lead[0], math.prod(lead[1:])) if way == "mixed" else (math.prod(lead),)
        rows = ops.reshape(rows, (*before, *split, *width))
        rest = [
            ops.take(factors[n], [ids[c] for c in cs]) if cs and way == "one" else factors[n]
            for n, cs in others
        ]
        y = contract(*rest, rows, *((ids,) if way == "mixed" else ()))
        after = tasks if way in ("each", "fan_out") else ()
        return ops.reshape(y, (*after, *lead, dim))

    return run


def _tables(job: LookupJob, candidate: LookupCandidate, ops: Ops[Any]) -> Runner:
    """Tables composed, and rows looked up in them."""
    network, way = job.layer.network, job.way
    tasks = network.task_shape
    contract = program(candidate.plan, ops, fixed_axes(candidate.plan))
    columns = [network.task_columns(node) for node in network.nodes]
    every = np.ix_(*map(np.arange, tasks))

    def run(factors: Any, x: Any, ids: Any, keeper: Keeper | None) -> Any:
        def made() -> Any:
            if way != "one":
                return contract(*factors)
            return contract(
                *(
                    ops.take(f, [ids[c] for c in cs]) if cs else f
                    for f, cs in zip(factors, columns, strict=True)
                )
            )

        key = ("tables", way, ids if way == "one" else None)
        table = made() if keeper is None or not candidate.kept else keeper(key, factors, made)
        shape = tuple(x.shape)
        if way in ("one", "fan_out"):
            rows = ops.take(table, (ops.reshape(x, (math.prod(shape),)),))
            if way == "one":
                return ops.reshape(rows, (*shape, job.layer.embedding_dim))
            count = len(tasks)
            turned = ops.transpose(rows, (*range(1, 1 + count), 0, 1 + count))
            return ops.reshape(turned, (*tasks, *shape, job.layer.embedding_dim))
        lead = shape[len(tasks) :] if way == "each" else shape[1:]
        if way == "each":
            ids = [column.reshape(*column.shape, *[1] * len(lead)) for column in every]
        else:
            ids = [column.reshape(shape[0], *[1] * len(lead)) for column in ids]  # may be NumPy's
        return ops.take(table, (*ids, x))

    return run


def _check_tokens(x: Any, count: int, ops: Ops[Any]) -> None:
    """Whole numbers from 0 on; while tracing, values cannot be looked at."""
    name = str(getattr(x, "dtype", type(x).__name__)).rpartition(".")[2]
    if not name.startswith(("int", "uint")):
        raise TnshareError(f"x must be whole numbers, the rows of the table: found dtype {name}")
    values = ops.values(x)
    if values is None or not values.size or (values.min() >= 0 and values.max() < count):
        return
    wrong = values[(values < 0) | (values >= count)].reshape(-1)[0]
    raise TnshareError(f"x has {wrong}, which is out of range: expected 0 <= x <= {count - 1}")
