"""Shared linear layers written by hand in torch, as well as we can: what the planner is measured against.

Arrays have the storage order of the specs: LAF L(k, i, o), S(t, k); Tucker core(kt, ki, ko), U_i(i, ki),
U_o(ko, o), U_t(t, kt); TT U_i(i, r), U_o(s, r, o), U_t(t, s). A TT is a LAF of what U_i makes of the input, a
Tucker the same with U_o behind it. So there is one set of programs, for a middle (k, i, o) that the codes
(t, k) choose from, between what is done to the input before and to the output after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .contestants import groups

Task = Tensor | int | None
_FEW = 16  # groups of rows up to which a loop over them is worth trying


@dataclass(frozen=True)
class Program:
    """What runs, the elements of its largest intermediate, and about how many flops its forward pass has."""

    run: Callable[[], Tensor]
    elements: int
    flops: int


@dataclass(frozen=True)
class _Level:
    """How much of the weights is composed: matrices (n, rows, columns) from codes (n, k).

    ``before`` takes the input to the rows of these matrices, ``after`` their columns to the output. Composing
    takes ``flops`` for each of the n and ``shared`` once.
    """

    before: Callable[[Tensor], Tensor]
    weights: Callable[[Tensor], Tensor]
    after: Callable[[Tensor], Tensor]
    shape: tuple[int, int]
    flops: int
    shared: int = 0


def programs(method: str, way: str, factors: list[Tensor], x: Tensor, task: Task) -> dict[str, Program]:
    """All the ways we would write it, by name: how much is composed, then what is done with it."""
    middle, codes = (factors[1] if method == "tt" else factors[0]), factors[-1]
    levels = _levels(method, factors)
    inner = next(iter(levels.values()))
    found = {"input first": _input_first, "outer": _outer}
    named = {name: make(way, inner, middle, codes, x, task) for name, make in found.items()}
    if way == "mixed":
        named["code first"] = _code_first(inner, middle, codes, x, task)
    for name, level in levels.items():
        for kind, program in _composed(way, level, middle, codes, x, task).items():
            named[f"{kind}{name}"] = program
    if method == "tucker" and way == "fan_out":
        named["task last"] = _task_last(factors, x)
    return named


def grouped(x: Tensor, task: Tensor, weights: Callable[[Tensor], Tensor]) -> Tensor:
    """Rows brought together by task, padded to groups of one length, times the weights of the tasks present.

    ``weights`` gives (n, i, o) for n tasks. Padding is with some row, whose product nobody reads.
    """
    present, source, position = groups(task.numpy())
    places = torch.from_numpy(position)
    together = x.index_select(0, torch.from_numpy(source)).view(len(present), -1, x.shape[1])
    y = torch.bmm(together, weights(torch.from_numpy(present)))
    return y.view(-1, y.shape[2]).index_select(0, places)


def looped(x: Tensor, task: Tensor, weights: Callable[[Tensor], Tensor]) -> Tensor:
    """The same with a product for each of the tasks present, and no padding."""
    ids = task.numpy()
    order = ids.argsort(kind="stable")
    present, counts = np.unique(ids, return_counts=True)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    parts = x.index_select(0, torch.from_numpy(order)).split(counts.tolist())  # type: ignore[no-untyped-call]
    matrices = weights(torch.from_numpy(present)).unbind(0)
    y = torch.cat([torch.mm(part, matrix) for part, matrix in zip(parts, matrices, strict=True)])
    return y.index_select(0, torch.from_numpy(back))


def _levels(method: str, factors: list[Tensor]) -> dict[str, _Level]:
    """From composing only what the codes belong to, which is the first, to composing all.

    What is shared may be composed before the codes ("codes last") or behind them, for each task.
    """
    if method == "laf":
        k, i, o = factors[0].shape
        flat = factors[0].view(k, -1)
        cost = 2 * k * i * o
        return {"": _Level(_same, lambda codes: torch.mm(codes, flat).view(-1, i, o), _same, (i, o), cost)}
    U_i, middle = (factors[0], factors[1]) if method == "tt" else (factors[1], factors[0])
    k, r, c = middle.shape
    flat, i = middle.view(k, -1), len(U_i)
    U_o = factors[2] if method == "tucker" else None
    o = c if U_o is None else U_o.shape[1]
    cost, out, full = 2 * k * r * c, 2 * r * c * o, 2 * i * r * o

    def before(x: Tensor) -> Tensor:
        return torch.mm(x, U_i)

    def small(codes: Tensor) -> Tensor:
        return torch.mm(codes, flat).view(-1, r, c)

    def outputs(cores: Tensor) -> Tensor:
        return cores if U_o is None else torch.mm(cores.view(-1, c), U_o).view(-1, r, o)

    def late(codes: Tensor) -> Tensor:
        return torch.mm(codes, outputs(middle).view(k, -1)).view(-1, r, o)

    def latest(codes: Tensor) -> Tensor:
        return torch.mm(codes, _left(U_i, outputs(middle)).view(k, -1)).view(-1, i, o)

    found = {"": _Level(before, small, _same if U_o is None else lambda y: torch.mm(y, U_o), (r, c), cost)}
    if U_o is not None:
        half = cost + out
        found[" with outputs"] = _Level(before, lambda codes: outputs(small(codes)), _same, (r, o), half)
        found[" with outputs, codes last"] = _Level(before, late, _same, (r, o), 2 * k * r * o, k * out)
    else:
        out = 0
    all_of_it = cost + out + full
    found[" all"] = _Level(_same, lambda codes: _left(U_i, outputs(small(codes))), _same, (i, o), all_of_it)
    found[" all, codes last"] = _Level(_same, latest, _same, (i, o), 2 * k * i * o, k * (out + full))
    return found


def _same(x: Tensor) -> Tensor:
    return x


def _left(matrix: Tensor, many: Tensor) -> Tensor:
    """The matrix times every one of many, which may be one."""
    if len(many) == 1:
        return torch.mm(matrix, many.view(many.shape[1:])).unsqueeze(0)
    return torch.bmm(matrix.expand(len(many), -1, -1), many)


def _composed(
    way: str, level: _Level, middle: Tensor, codes: Tensor, x: Tensor, task: Task
) -> dict[str, Program]:
    """Compose, then multiply; rows of mixed tasks are grouped."""
    before, weights, after = level.before, level.weights, level.after
    (rows, columns), tasks, count = level.shape, len(codes), _rows(way, x, codes)
    size = rows * columns
    flops = level.shared + 2 * size * count
    if way == "one":
        assert isinstance(task, int)

        def one() -> Tensor:
            matrix = weights(codes[task : task + 1]).view(rows, -1)
            return after(torch.mm(before(x), matrix))

        return {"compose": Program(one, size, flops + level.flops)}
    if way == "mixed":
        assert isinstance(task, Tensor)
        ids, present = task, len(np.unique(task.numpy()))

        def chosen(present: Tensor) -> Tensor:
            return weights(codes.index_select(0, present))

        found = {"grouped": lambda: after(grouped(before(x), ids, chosen))}
        if present <= _FEW and not level.shared:
            found["grouped, loop"] = lambda: after(looped(before(x), ids, chosen))
        return {
            name: Program(run, present * size, flops + present * level.flops) for name, run in found.items()
        }

    def many() -> Tensor:
        fed = before(x.view(-1, x.shape[-1]))
        shape = (tasks, -1, rows) if way == "each" else (1, -1, rows)
        y = torch.bmm(fed.view(shape).expand(tasks, -1, -1), weights(codes))
        return after(y.view(-1, y.shape[2])).view(tasks, x.shape[-2], -1)

    return {"compose": Program(many, tasks * size, flops + tasks * level.flops)}


def _input_first(way: str, level: _Level, middle: Tensor, codes: Tensor, x: Tensor, task: Task) -> Program:
    """The input with all that the codes choose from, then each row's code."""
    k, i, o = middle.shape
    before, after, tasks = level.before, level.after, len(codes)
    batch = x.numel() // x.shape[-1]

    def fed() -> Tensor:  # (k, batch, o)
        return torch.bmm(before(x.view(batch, -1)).expand(k, -1, -1), middle)

    def one() -> Tensor:
        assert isinstance(task, int)
        return after(torch.mm(codes[task : task + 1], fed().view(k, -1)).view(batch, o))

    def mixed() -> Tensor:
        assert isinstance(task, Tensor)
        own = codes.index_select(0, task)
        return after((fed() * own.t().unsqueeze(2)).sum(0))

    def each() -> Tensor:
        weighted = fed().view(k, tasks, -1) * codes.t().unsqueeze(2)
        return after(weighted.sum(0).view(batch, o)).view(tasks, x.shape[1], -1)

    def fan_out() -> Tensor:
        y = torch.mm(codes, fed().view(k, -1)).view(-1, o)
        return after(y).view(tasks, batch, -1)

    run = {"one": one, "mixed": mixed, "each": each, "fan_out": fan_out}[way]
    late = tasks if way == "fan_out" else 1
    return Program(run, k * batch * o, 2 * k * batch * o * (i + late))


def _outer(way: str, level: _Level, middle: Tensor, codes: Tensor, x: Tensor, task: Task) -> Program:
    """Each row times its code, entry by entry, then one product with all that the codes choose from."""
    k, i, o = middle.shape
    before, after, tasks = level.before, level.after, len(codes)
    flat, count = middle.view(k * i, o), _rows(way, x, codes)

    def one() -> Tensor:
        assert isinstance(task, int)
        fed = before(x).unsqueeze(1) * codes[task].unsqueeze(1)
        return after(torch.mm(fed.view(-1, k * i), flat))

    def mixed() -> Tensor:
        assert isinstance(task, Tensor)
        fed = before(x).unsqueeze(1) * codes.index_select(0, task).unsqueeze(2)
        return after(torch.mm(fed.view(-1, k * i), flat))

    def each() -> Tensor:
        fed = before(x.view(-1, x.shape[-1])).view(tasks, -1, 1, i) * codes.view(tasks, 1, k, 1)
        return after(torch.mm(fed.view(-1, k * i), flat)).view(tasks, x.shape[1], -1)

    def fan_out() -> Tensor:
        fed = before(x).view(1, -1, 1, i) * codes.view(tasks, 1, k, 1)
        return after(torch.mm(fed.view(-1, k * i), flat)).view(tasks, len(x), -1)

    run = {"one": one, "mixed": mixed, "each": each, "fan_out": fan_out}[way]
    return Program(run, count * k * i, 2 * count * k * i * o)


def _code_first(level: _Level, middle: Tensor, codes: Tensor, x: Tensor, task: Task) -> Program:
    """The weights of each row by its code, then a product for each row."""
    assert isinstance(task, Tensor)
    ids, before, weights, after = task, level.before, level.weights, level.after
    k, i, o = middle.shape

    def run() -> Tensor:
        own = weights(codes.index_select(0, ids))
        return after(torch.bmm(before(x).unsqueeze(1), own).view(len(x), o))

    return Program(run, len(x) * i * o, 2 * len(x) * i * o * (k + 1))


def _task_last(factors: list[Tensor], x: Tensor) -> Program:
    """Input and output sides first, then the codes: the tasks appear as late as they can."""
    core, U_i, U_o, U_t = factors
    kt, ki, ko = core.shape
    tasks, o = len(U_t), U_o.shape[1]

    def run() -> Tensor:
        fed = torch.bmm(torch.mm(x, U_i).expand(kt, -1, -1), core)
        y = torch.mm(fed.view(-1, ko), U_o).view(kt, -1)
        return torch.mm(U_t, y).view(tasks, -1, o)

    return Program(run, kt * len(x) * o, 2 * kt * len(x) * (ki * ko + ko * o + tasks * o))


def _rows(way: str, x: Tensor, codes: Tensor) -> int:
    """The rows of the output."""
    return x.numel() // x.shape[-1] * (len(codes) if way == "fan_out" else 1)
