"""Whether two runs of a shared network give the same: outputs, gradients, buffers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tnshare_torch.shared.running._replacing import Trial
from tnshare_torch.shared.template._containers import flatten

from ._task_calls import Call, Mixed

# How far apart numbers may be, relative to the largest: both runs round, in another order.
_TOLERANCE = {torch.float64: 1e-8, torch.complex128: 1e-8, torch.float32: 1e-3, torch.complex64: 1e-3}


@dataclass(frozen=True)
class Found:
    """Why tasks cannot run at once, and why a row cannot run alone; "" if they can, None if not tried."""

    reason: str
    dependent: str | None = None


def compared(call: Call, trial: Trial) -> Found:
    """Whether the fast path of a call can be taken, and whether each row can be taken alone.

    Outputs, gradients and buffers of both are compared, with the same random state; it and the buffers are
    restored afterwards. The exact one is the ``trial``.
    """
    held = {name: buffer.clone() for name, buffer in _buffers(call)}
    assert call.x is not None
    state = _random_state(call.x)
    dependent: str | None = None
    try:
        expected = _of(call, call.one_by_one, trial)
        if any(not torch.equal(a, b) for a, b in zip(state, _random_state(call.x), strict=True)):
            return Found("the network draws random numbers, so that no two runs are the same")
        if expected.error:
            return Found(expected.error)
        if isinstance(call, Mixed):
            dependent = _dependent(call, held, expected)
            if dependent:
                return Found(dependent, dependent)
        _restore(call, held)
        with warnings.catch_warnings():
            # That a function has no batching rule is a warning; others, that it is slow, say, do not matter.
            warnings.filterwarnings("error", message=".*[Bb]atching rule.*")
            found = _of(call, call.at_once)
        alike = found.alike(expected)
        return Found("" if alike else "the numbers differ from those of one task at a time", dependent)
    except Exception as error:  # whatever a user's network and vmap say to each other
        return Found(f"{type(error).__name__}: {error}".splitlines()[0], dependent)
    finally:
        _restore(call, held)
        torch.set_rng_state(state[0])
        if len(state) > 1:
            torch.cuda.set_rng_state(state[1], call.x.device)


def _dependent(call: Mixed, held: dict[str, torch.Tensor], expected: Measured) -> str:
    """Why rows cannot run alone; "" if they can."""
    if any(not torch.equal(b, held[n]) for n, b in _buffers(call)):
        return "the network writes to buffers, and what it writes depends on how rows are grouped"
    if not _of(call, call.row_by_row).alike(expected):
        return "what becomes of a row depends on the other rows"
    return ""


@dataclass(frozen=True)
class Measured:
    """What a run gave: outputs, gradients of some weighted sum of them, and buffers."""

    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]
    buffers: list[torch.Tensor]
    error: str = ""  # of the backward pass

    def alike(self, other: Measured) -> bool:
        """Whether another run gave the same, up to rounding."""
        # Gradients that are zero but for rounding are compared with the others.
        least = 1e-2 * max([float(g.abs().max()) for g in other.gradients if g.numel()], default=0.0)
        groups = [(self.outputs, other.outputs, 0.0), (self.gradients, other.gradients, least)]
        groups.append((self.buffers, other.buffers, 0.0))
        return all(
            len(ours) == len(theirs) and all(_close(a, b, floor) for a, b in zip(ours, theirs, strict=True))
            for ours, theirs, floor in groups
        )


def measured(
    run: Callable[[], Any], parameters: Iterable[torch.Tensor], buffers: Iterable[torch.Tensor], graded: bool
) -> Measured:
    """Run something, and take down what it gave."""
    wanted = [p for p in parameters if p.requires_grad]
    with torch.set_grad_enabled(graded):
        outputs = [leaf for leaf in flatten(run())[0] if isinstance(leaf, torch.Tensor)]
        found = [leaf for leaf in outputs if leaf.requires_grad]
        gradients: Sequence[torch.Tensor] = ()
        error = ""
        if found and wanted:
            sums = [_weighted(leaf) for leaf in found]
            try:  # Inputs may come from an earlier call of the same network, whose graph is still the user's.
                gradients = torch.autograd.grad(
                    sums, wanted, retain_graph=True, allow_unused=True, materialize_grads=True
                )
            except RuntimeError as refusal:  # of a checkpoint with use_reentrant=True, say
                error = f"{type(refusal).__name__}: {refusal}".splitlines()[0]
    return Measured([y.detach() for y in outputs], list(gradients), [b.clone() for b in buffers], error)


def _of(call: Call, run: Callable[[Trial], Any], trial: Trial | None = None) -> Measured:
    common, kept = call.tasks.common, call.tasks.kept
    parameters, graded = [*common.parameters(), *kept.parameters()], torch.is_grad_enabled()
    return measured(lambda: run(trial or Trial(still=True)), parameters, kept.buffers(), graded)


def _weighted(leaf: torch.Tensor) -> torch.Tensor:
    """A sum in which every entry counts otherwise, so that a permutation is noticed."""
    weights = torch.linspace(0.5, 1.5, leaf.numel(), device=leaf.device).view(leaf.shape)
    return (leaf * weights.to(leaf.dtype)).sum().abs()


def _random_state(like: torch.Tensor) -> list[torch.Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(like.device)] if like.is_cuda else [])]


def _buffers(call: Call) -> list[tuple[str, torch.Tensor]]:
    return list(call.tasks.kept.named_buffers())


def _restore(call: Call, held: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, buffer in _buffers(call):
            buffer.copy_(held[name])


def _close(a: torch.Tensor, b: torch.Tensor, floor: float) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.numel() or not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    scale = max(float(b.abs().max()), floor)
    return torch.allclose(a, b, rtol=0, atol=_TOLERANCE.get(a.dtype, 0.05) * scale, equal_nan=True)
