"""Shared linear layers written by hand in torch, as well as we can: what the planner is measured against.

Arrays have the storage order of the specs: LAF L(k, i, o), S(t, k); Tucker core(kt, ki, ko), U_i(i, ki),
U_o(ko, o), U_t(t, kt); TT U_i(i, r), U_o(s, r, o), U_t(t, s). A TT is a LAF of what U_i makes of the input.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Program = Callable[[], Tensor]
Task = Tensor | int | None


def programs(method: str, way: str, factors: list[Tensor], x: Tensor, task: Task) -> dict[str, Program]:
    """All the ways we would write it, by name."""
    if method == "laf":
        L, S = factors
        return _laf(way, lambda: x, L, S, task)
    if method == "tt":
        U_i, U_o, U_t = factors
        found = _laf(way, lambda: x @ U_i, U_o, U_t, task)
        return found | _composed_tt(way, factors, x, task)
    return _tucker(way, factors, x, task)


def _laf(way: str, fed: Callable[[], Tensor], L: Tensor, S: Tensor, task: Task) -> dict[str, Program]:
    k, i, o = L.shape

    def weights(codes: Tensor) -> Tensor:
        return (codes @ L.reshape(k, i * o)).reshape(-1, i, o)

    if way == "one":
        return {
            "compose": lambda: fed() @ weights(S[task][None])[0],
            "input first": lambda: (S[task][None] @ (fed() @ L).reshape(k, -1)).reshape(-1, o),
        }
    if way == "mixed":
        assert isinstance(task, Tensor)
        return {
            "code first": lambda: torch.bmm(fed()[:, None], weights(S[task]))[:, 0],
            "input first": lambda: ((fed() @ L) * S[task].T[:, :, None]).sum(0),
            "outer": lambda: (S[task][:, :, None] * fed()[:, None]).reshape(-1, k * i) @ L.reshape(k * i, o),
            "grouped": lambda: grouped(fed(), weights(S), task),
        }
    if way == "each":
        tasks = len(S)
        return {
            "compose": lambda: torch.bmm(fed(), weights(S)),
            "outer": lambda: (
                (S[:, None, :, None] * fed()[:, :, None]).reshape(-1, k * i) @ L.reshape(k * i, o)
            ).reshape(tasks, -1, o),
        }
    return {
        "compose": lambda: torch.matmul(fed(), weights(S)),
        "input first": lambda: (S @ (fed() @ L).reshape(k, -1)).reshape(len(S), -1, o),
    }


def _composed_tt(way: str, factors: list[Tensor], x: Tensor, task: Task) -> dict[str, Program]:
    U_i, U_o, U_t = factors
    s, r, o = U_o.shape

    def weights(codes: Tensor) -> Tensor:
        return U_i @ (codes @ U_o.reshape(s, r * o)).reshape(-1, r, o)

    return {"compose all": lambda: _multiply(way, x, weights, U_t, task)}


def _tucker(way: str, factors: list[Tensor], x: Tensor, task: Task) -> dict[str, Program]:
    core, U_i, U_o, U_t = factors
    kt, ki, ko = core.shape

    def cores(codes: Tensor) -> Tensor:
        return (codes @ core.reshape(kt, ki * ko)).reshape(-1, ki, ko)

    def weights(codes: Tensor) -> Tensor:
        return U_i @ cores(codes) @ U_o

    found: dict[str, Program] = {"compose all": lambda: _multiply(way, x, weights, U_t, task)}
    if way == "one":
        return found | {"input first": lambda: x @ U_i @ cores(U_t[task][None])[0] @ U_o}
    if way == "mixed":
        assert isinstance(task, Tensor)
        return found | {
            "code first": lambda: torch.bmm((x @ U_i)[:, None], cores(U_t[task]))[:, 0] @ U_o,
            "outer": lambda: (
                (U_t[task][:, :, None] * (x @ U_i)[:, None]).reshape(-1, kt * ki)
                @ core.reshape(kt * ki, ko)
                @ U_o
            ),
            "grouped": lambda: grouped(x @ U_i, cores(U_t), task) @ U_o,
        }
    if way == "each":
        return found | {"input first": lambda: torch.bmm(x @ U_i, cores(U_t)) @ U_o}
    o = U_o.shape[1]
    return found | {
        "task last": lambda: (U_t @ (((x @ U_i) @ core) @ U_o).reshape(kt, -1)).reshape(len(U_t), -1, o),
        "task before output": lambda: (
            (U_t @ ((x @ U_i) @ core).reshape(kt, -1)).reshape(len(U_t), -1, ko) @ U_o
        ),
    }


def _multiply(way: str, x: Tensor, weights: Callable[[Tensor], Tensor], S: Tensor, task: Task) -> Tensor:
    """The input times weights that are built first."""
    if way == "one":
        return x @ weights(S[task][None])[0]
    if way == "mixed":
        assert isinstance(task, Tensor)
        return grouped(x, weights(S), task)
    return torch.bmm(x, weights(S)) if way == "each" else torch.matmul(x, weights(S))


def grouped(x: Tensor, weights: Tensor, task: Tensor) -> Tensor:
    """Rows sorted by task and padded to groups of the same length, times the weights (t, i, o) of each."""
    counts = torch.bincount(task, minlength=len(weights))
    order = torch.argsort(task, stable=True)
    starts = torch.cumsum(counts, 0) - counts
    place = torch.arange(len(task)) - starts[task[order]]
    padded = x.new_zeros(len(weights), int(counts.max()), x.shape[1])
    padded = padded.index_put((task[order], place), x[order])
    result = torch.bmm(padded, weights)[task[order], place]
    return torch.empty_like(result).index_copy(0, order, result)
