"""A shared network and the plain ones, called in one sequence, and compared after each call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from random_blocks import WIDTH
from torch import nn

import tnshare as tn


class Walk:
    """A shared network and the plain ones, called one call after the other."""

    def __init__(self, case: Any, shared: Any, plains: list[nn.Module]) -> None:
        self.case, self.shared, self.plains, self.rng = case, shared, plains, case.rng
        self.refused, self.refusals, self.text = 0, [], ""

    def step(self, number: int, compiled: bool) -> str:
        """What is wrong about one call; "" if nothing is."""
        rng = self.rng
        mode = rng.random() < 0.5
        for module in (self.shared, *self.plains):
            module.train(mode)
        if rng.random() < 0.25:
            self._trained()
        way = rng.choice(["task", "ids", "xs", "fan_out"])
        x, named, task = self._inputs(way)
        graded = rng.random() < 0.7
        self.text = (
            f"{way} {'training' if mode else 'evaluation'} {tuple(x.shape)} {sorted(named)} "
            f"{'graded' if graded else 'inference'}{f' task={task}' if task is not None else ''}"
        )
        shared = torch.compile(self.shared, backend="eager") if compiled else self.shared
        ours = [x.detach().clone().requires_grad_(graded), named]
        theirs = [x.detach().clone().requires_grad_(graded), named]
        held = {n: b.clone() for n, b in self.shared.named_buffers()}
        with torch.set_grad_enabled(graded):
            found, error = _attempt(lambda: self._ours(shared, way, ours, task))
            if isinstance(error, tn.TnshareError):
                return self._refused(error, way, held)
            expected, refusal = _attempt(lambda: self._theirs(way, theirs, task))
            if error or refusal:
                if error and refusal and type(error) is type(refusal):
                    return ""
                return f"ours: {_told(error)}, theirs: {_told(refusal)}"
            return self._compared(found, expected, ours[0], theirs[0], graded)

    def _inputs(self, way: str) -> tuple[torch.Tensor, dict[str, Any], Any]:
        rng, tasks = self.rng, len(self.plains)
        rows = rng.choice([2, 3, 4, 6, 9])
        several = tasks if way == "xs" else 0
        x = torch.randn(*[several] * bool(several), rows, WIDTH, dtype=torch.float64)
        named: dict[str, Any] = {}
        if rng.random() < 0.3 and way != "xs":
            named["scale"] = torch.rand(rows, dtype=torch.float64)
        elif rng.random() < 0.15:
            named["scale"] = torch.rand(tasks, rows, dtype=torch.float64)[: several or None]
            named["scale"] = named["scale"] if several else named["scale"][0]
        if rng.random() < 0.3:
            named["shift"] = torch.randn(WIDTH, dtype=torch.float64)
        if rng.random() < 0.1 and way != "xs":
            named["mask"] = {"rows": [torch.rand(rows, dtype=torch.float64)]}
        task: Any = None
        if way == "task":
            task = rng.randrange(tasks)
        if way == "ids":
            task = [rng.randrange(tasks) for _ in range(rows)]
        return x, named, task

    def _ours(self, shared: Any, way: str, given: list[Any], task: Any) -> Any:
        x, named = given
        if way == "fan_out":
            return shared.fan_out(x, **named)
        return shared(x, **named) if way == "xs" else shared(x, task, **named)

    def _theirs(self, way: str, given: list[Any], task: Any) -> Any:
        """What is meant: a list of outputs, of each task or of groups of rows with their places."""
        x, named = given
        if way == "task":
            return self.plains[task](x, **named)
        if way == "fan_out":
            return [plain(x, **named) for plain in self.plains]
        if way == "xs":
            return [
                plain(x[t], **{n: v[t] if n == "scale" else v for n, v in named.items()})
                for t, plain in enumerate(self.plains)
            ]
        groups = []
        for t in sorted(set(task)):
            rows = [n for n, own in enumerate(task) if own == t]
            split = {n: v if n == "shift" else _tree_map(lambda v: v[rows], v) for n, v in named.items()}  # noqa: B023
            groups.append((rows, self.plains[t](x[rows], **split)))
        return _Grouped(len(task), groups)

    def _compared(self, found: Any, expected: Any, x: Any, own: Any, graded: bool) -> str:
        if isinstance(expected, _Grouped):
            joined, wrong = expected.joined(_leaves(found))
            if wrong:
                return wrong
            ours, theirs = _leaves(found), joined
        elif isinstance(expected, list) and not (isinstance(found, list) and _same_kind(found, expected)):
            every = [_leaves(part) for part in expected]
            ours = _leaves(found)
            if any(len(part) != len(every[0]) for part in every):
                return "plain outputs differ in structure"
            theirs = [None if c[0] is None else torch.stack(c) for c in zip(*every, strict=True)]
        else:
            ours, theirs = _leaves(found), _leaves(expected)
        if len(ours) != len(theirs):
            return f"{len(ours)} outputs for {len(theirs)}"
        for n, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if wrong := self._unequal(f"output {n}", a, b, self.case.tolerance):
                return wrong
        return self._buffers() or (self._gradients(ours, theirs, x, own) if graded else "")

    def _gradients(self, ours: list[Any], theirs: list[Any], x: Any, own: Any) -> str:
        """Of the input, of what tasks have alone, and of factors: as of the weights that they compose."""
        loss, other = _loss(ours), _loss(theirs)
        parameters = [p for p in self.shared.parameters() if p.requires_grad]
        plain = [dict(model.named_parameters()) for model in self.plains]
        wanted = [p for each in plain for p in each.values() if p.requires_grad]
        if not isinstance(other, torch.Tensor) or not other.requires_grad:
            return (
                ""
                if not isinstance(loss, torch.Tensor) or not loss.requires_grad
                else "gradients of constants"
            )
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            return "no gradients"
        expected, theirs_failed = _attempt(lambda: _backward(other, [own, *wanted]))
        found, ours_failed = _attempt(lambda: _backward(loss, [x, *parameters]))
        if theirs_failed:  # what these networks do not train, the shared one may or may not
            return ""
        if ours_failed:
            return f"backward: {_told(ours_failed)}"
        gradients = {id(p): g for p, g in zip(wanted, expected[1:], strict=True)}
        total = torch.zeros((), dtype=torch.float64)
        for task, each in enumerate(plain):
            weights = self.shared.weights(task)
            for name, p in each.items():
                if id(p) in gradients and weights[name].requires_grad:
                    total = total + (weights[name] * gradients[id(p)]).sum()
        through = _backward(total, parameters)
        scale = max([float(g.abs().max()) for g in (*through, expected[0]) if g.numel()], default=0.0)
        names = ["the input", *(n for n, p in self.shared.named_parameters() if p.requires_grad)]
        for name, a, b in zip(names, found, [expected[0], *through], strict=True):
            if wrong := self._unequal(f"gradient of {name}", a, b, 10 * self.case.tolerance, scale):
                return wrong
        return ""

    def _buffers(self) -> str:
        for task, plain in enumerate(self.plains):
            weights = self.shared.weights(task)
            for name, buffer in plain.named_buffers():
                wrong = self._unequal(
                    f"buffer {name} of task {task}", weights[name], buffer, self.case.tolerance
                )
                if wrong:
                    return wrong
        return ""

    def _unequal(self, what: str, a: Any, b: Any, tolerance: float, scale: float = 0.0) -> str:
        if a is None or b is None:
            return "" if a is b else f"{what} is {a} for {b}"
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{what} is {a.dtype} {tuple(a.shape)} for {b.dtype} {tuple(b.shape)}"
        if not a.numel():
            return ""
        a, b = a.detach().double(), b.detach().double()
        scale = max(scale, float(b.abs().nan_to_num().max()), 1e-3)
        if torch.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True):
            return ""
        return f"{what} differs by {float((a - b).abs().max() / scale):.2g} of {scale:.3g}"

    def _refused(self, error: tn.TnshareError, way: str, held: dict[str, torch.Tensor]) -> str:
        """A refusal names a place, and leaves nothing half done."""
        self.refused += 1
        self.refusals.append(f"{self.text}: {str(error)[:160]}")
        if way == "task" and self.case.regular:
            return f"one task of a regular network is refused: {error}"
        now = dict(self.shared.named_buffers())
        if any(not torch.equal(now[n], b) for n, b in held.items()):
            return f"buffers were written by a refused call: {error}"
        return ""

    def _trained(self) -> None:
        """A step of an optimiser, which what is kept must not outlive."""
        with torch.no_grad():
            for parameter in self.shared.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.05 * torch.randn_like(parameter))
            for task, plain in enumerate(self.plains):
                weights = self.shared.weights(task)
                for name, parameter in plain.named_parameters():
                    parameter.copy_(weights[name])


class _Grouped:
    """Outputs of groups of rows."""

    def __init__(self, rows: int, groups: list[tuple[list[int], Any]]) -> None:
        self.rows, self.groups = rows, groups

    def joined(self, found: list[Any]) -> tuple[list[Any], str]:
        """As one, row by row."""
        columns = list(zip(*(_leaves(y) for _, y in self.groups), strict=True))
        if len(columns) != len(found):
            return [], f"{len(found)} outputs for {len(columns)}"
        made: list[Any] = []
        for column in columns:
            if column[0] is None:
                made.append(None)
                continue
            fits = all(
                c.ndim and len(c) == len(rows) for c, (rows, _) in zip(column, self.groups, strict=True)
            )
            if not fits:
                return [], "outputs without rows were given for mixed tasks"
            order = torch.tensor([row for rows, _ in self.groups for row in rows])
            made.append(torch.cat(column)[order.argsort()])
        return made, ""


def _attempt(run: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return run(), None
    except Exception as error:
        return None, error


def _backward(loss: torch.Tensor, wanted: list[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients by ``backward``, which a checkpoint with ``use_reentrant=True`` needs."""
    for tensor in wanted:
        tensor.grad = None
    if loss.requires_grad:
        loss.backward()
    found = [torch.zeros_like(t) if t.grad is None else t.grad for t in wanted]
    for tensor in wanted:
        tensor.grad = None
    return found


def _told(error: Exception | None) -> str:
    return "nothing" if error is None else f"{type(error).__name__}: {str(error)[:300]}"


def _leaves(tree: Any) -> list[Any]:
    if dataclasses.is_dataclass(tree):
        return [leaf for f in dataclasses.fields(tree) for leaf in _leaves(getattr(tree, f.name))]
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in _leaves(part)]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in _leaves(part)]
    return [tree] if tree is None or isinstance(tree, torch.Tensor) else []


def _tree_map(change: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _tree_map(change, part) for name, part in tree.items()}
    return [_tree_map(change, part) for part in tree] if isinstance(tree, list) else change(tree)


def _same_kind(found: list[Any], expected: list[Any]) -> bool:
    """Whether a list is one of tasks, and not the network's own list of stacked outputs."""
    if len(found) != len(expected):
        return False
    pairs = [(_leaves(a), _leaves(b)) for a, b in zip(found, expected, strict=True)]
    return all(
        [getattr(x, "shape", None) for x in a] == [getattr(x, "shape", None) for x in b] for a, b in pairs
    )


def _loss(leaves: list[Any]) -> Any:
    graded = [leaf for leaf in leaves if leaf is not None and leaf.is_floating_point() and leaf.requires_grad]
    return sum(
        (
            (y.double() * torch.linspace(0.5, 2, y.numel(), dtype=torch.float64).view(y.shape)).sum()
            for y in graded
        ),
        0,
    )
