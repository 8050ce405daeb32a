"""What is timed at a point in torch: tnshare, its candidates, and everything that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import opt_einsum
import tnshare_torch as tnt
import torch
from torch import Tensor

from benchmarks.grid import Point

from . import handwritten
from .contestants import MEMORY, Programs, one_task
from .handwritten import Program, Task

_FLOPS = ((16, 5 * 10**8), (4, 10**10))  # left out: so many times the fewest, and more than this


@dataclass(frozen=True)
class Sourced:
    """A program that says what it is: programs of one text are the same program."""

    run: Callable[[], object]
    text: Callable[[], str]

    def __call__(self) -> object:
        return self.run()


class _Bare(tnt.Linear):
    """A layer that draws no initial values: it is given the factors of another."""

    def reset_parameters(self) -> None:
        """Leave them as they are."""


def programs(point: Point, *, peers: bool = True) -> Programs:
    """tnshare first, then the others, on the same arrays; without ``peers``, only its own candidates."""
    torch.manual_seed(0)
    factors, x, task = arrays(point)
    found = Programs()
    leaves = [x, *factors]
    above = torch.randn(*x.shape[:-1], point.shape[1])
    if point.way == "fan_out":
        above = above.repeat(point.shape[2], 1, 1)

    def ours(strategy: Any) -> Callable[[], object]:
        made = layer(point, factors, strategy)
        run = timed(called(point, made, x, task), leaves, above if point.training else None)
        return Sourced(run, lambda: made.source(point.batch, point.way, training=point.training))

    found.run |= {"tnshare": ours("autotune"), "tnshare auto": ours("auto")}
    description = layer(point, factors, "auto").description
    found.propose(description.candidates(point.way, point.batch, training=point.training), ours)
    if peers:
        _add(found, point, leaves, above, others(point, factors, x, task))
        dense, weights = dense_programs(point, x, task)
        _add(found, point, [x, weights], above, dense)
    return found


def arrays(point: Point) -> tuple[list[Tensor], Tensor, Task]:
    """Factors in their storage order, inputs, and tasks."""
    i, _, tasks = point.shape
    network = point.spec.network(i=i, o=point.shape[1], task=tasks)
    factors: list[Tensor] = [
        torch.nn.Parameter(torch.randn(shape) / shape[-1] ** 0.5) for shape in network.shapes.values()
    ]
    shape = (tasks, point.batch, i) if point.way == "each" else (point.batch, i)
    x = torch.randn(shape, requires_grad=point.training)
    if point.way == "mixed":
        return factors, x, torch.randint(tasks, (point.batch,))
    return factors, x, one_task(point) if point.way == "one" else None


def layer(point: Point, factors: Iterable[Tensor], strategy: Any) -> tnt.Linear:
    """A layer of the point with these factors, in training or not."""
    made = _Bare(*point.shape, point.spec, bias=False, strategy=strategy)
    for name, factor in zip(made.description.shapes, factors, strict=True):
        setattr(made, name, factor)
    return made.train(point.training)


def called(point: Point, layer: tnt.Linear, x: Tensor, task: Task) -> Callable[[], Tensor]:
    """The call of a layer in the way of the point."""
    return (lambda: layer.fan_out(x)) if point.way == "fan_out" else (lambda: layer(x, task))


def others(point: Point, factors: list[Tensor], x: Tensor, task: Task) -> dict[str, Program]:
    """Written by hand, as the paper's authors do, along opt_einsum's best path, and by einsum."""
    made = handwritten.programs(point.method, point.way, factors, x, task)
    found = {f"by hand: {name}": program for name, program in made.items()}
    i, o, tasks = point.shape
    found["authors"] = Program(lambda: _authors(point, factors, x, task), i * o * tasks, 0)
    equation = point.equation
    shapes = [tuple(a.shape) for a in _operands(factors, x, task)]
    expression = opt_einsum.contract_expression(equation, *shapes, optimize="optimal")
    for name, path, run in (
        ("opt_einsum", "optimal", lambda: expression(*_operands(factors, x, task), backend="torch")),
        ("einsum", "auto", lambda: torch.einsum(equation, *_operands(factors, x, task))),
    ):
        info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=path)[1]
        found[name] = Program(run, int(info.largest_intermediate), int(info.opt_cost))
    return found


def dense_programs(point: Point, x: Tensor, task: Task) -> tuple[dict[str, Program], Tensor]:
    """A dense weight for each task, with the one tensor that the gradient is taken of.

    For one task that is its own weight alone, as if every task had a module; else all are stacked.
    """
    i, o, tasks = point.shape
    if isinstance(task, int):
        W = torch.randn(i, o, requires_grad=point.training)
        return {"dense": Program(lambda: torch.mm(x, W), 0, 0)}, W
    W = torch.randn(tasks, i, o, requires_grad=point.training)
    return {name: Program(run, 0, 0) for name, run in _dense(point.way, W, x, task).items()}, W


def timed(program: Callable[[], Tensor], leaves: list[Tensor], above: Tensor | None) -> Callable[[], object]:
    """The program with the backward pass from ``above`` to all leaves; without it, without gradients."""
    if above is not None:
        return lambda: torch.autograd.grad(program(), leaves, above)

    def inference() -> object:
        with torch.no_grad():
            return program()

    return inference


def _add(
    found: Programs, point: Point, leaves: list[Tensor], above: Tensor, made: dict[str, Program]
) -> None:
    """Add programs, but those that are out of the question: too large, or with many times the flops."""
    fewest = min((p.flops for p in made.values() if p.flops), default=0)
    for name, program in made.items():
        size = 4 * program.elements * (3 if point.training else 1)
        if size > MEMORY:
            found.skipped[name] = f"{size / 2**30:.1f} GiB"
        elif any(program.flops > max(times * fewest, many) for times, many in _FLOPS):
            found.skipped[name] = f"{program.flops / fewest:.0f} times the flops of another"
        else:
            found.run[name] = timed(program.run, leaves, above if point.training else None)


def _operands(factors: list[Tensor], x: Tensor, task: Task) -> list[Tensor]:
    """The operands of the whole equation; the last factor holds the tasks, and only the chosen are used."""
    *shared, codes = factors
    if isinstance(task, Tensor):
        codes = codes.index_select(0, task)
    elif task is not None:
        codes = codes[task]
    return [*shared, codes, x]


def _authors(point: Point, factors: list[Tensor], x: Tensor, task: Task) -> Tensor:
    """Build the weights of all tasks from left to right, then multiply, as the paper's authors do."""
    if point.method == "laf":
        L, S = factors
        W = torch.tensordot(L, S, dims=([0], [1]))
    elif point.method == "tt":
        U_i, U_o, U_t = factors
        W = torch.tensordot(torch.tensordot(U_i, U_o, dims=([1], [1])), U_t, dims=([1], [1]))
    else:
        core, U_i, U_o, U_t = factors
        W = torch.tensordot(core, U_i, dims=([1], [1]))  # (kt, ko, i)
        W = torch.tensordot(W, U_o, dims=([1], [0]))  # (kt, i, o)
        W = torch.tensordot(W, U_t, dims=([0], [1]))  # (i, o, t)
    weights = W.permute(2, 0, 1)
    if isinstance(task, int):
        return torch.mm(x, weights[task])
    return _dense(point.way, weights, x, task)["dense"]()


def _dense(way: str, W: Tensor, x: Tensor, task: Task) -> dict[str, Callable[[], Tensor]]:
    """Products with stacked dense weights (t, i, o)."""
    if way == "mixed":
        assert isinstance(task, Tensor)
        ids = task

        def chosen(present: Tensor) -> Tensor:
            return W if len(present) == len(W) else W.index_select(0, present)

        found = {"dense": lambda: handwritten.grouped(x, ids, chosen)}
        if len(W) <= 16:
            found["dense, loop"] = lambda: handwritten.looped(x, ids, chosen)
        return found
    if way == "each":
        return {"dense": lambda: torch.bmm(x, W)}
    return {"dense": lambda: torch.bmm(x.expand(len(W), -1, -1), W)}
