"""Whether two runs of a shared network give the same: outputs, gradients, buffers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tnshare_torch.shared.running._replacing import Trial

from ._task_calls import Call, Mixed

# How far apart numbers may be, relative to the largest: both runs round, in another order.
_TOLERANCE = {torch.float64: 1e-8, torch.complex128: 1e-8, torch.float32: 1e-3, torch.complex64: 1e-3}


def compared(call: Call, trial: Trial) -> str:
    """Why the fast path of a call cannot be taken; "" if it can.

    Outputs, gradients and buffers of both are compared, with the same random state; it and the buffers are
    restored afterwards. The exact one is the ``trial``.
    """
    held = {name: buffer.clone() for name, buffer in _buffers(call)}
    state = _random_state(call.x)
    try:
        expected = _of(call, call.one_by_one, trial)
        if any(not torch.equal(a, b) for a, b in zip(state, _random_state(call.x), strict=True)):
            return "the network draws random numbers, so that no two runs are the same"
        if isinstance(call, Mixed) and any(not torch.equal(b, held[n]) for n, b in _buffers(call)):
            return "the network writes to buffers, and what it writes depends on how rows are grouped"
        _restore(call, held)
        if isinstance(call, Mixed):
            if not _of(call, call.row_by_row).alike(expected):
                return "what becomes of a row depends on the other rows"
            _restore(call, held)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # that a function has no batching rule is a warning
            found = _of(call, call.at_once)
        return "" if found.alike(expected) else "the numbers differ from those of one task at a time"
    except Exception as error:  # whatever a user's network and vmap say to each other
        return f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        _restore(call, held)
        torch.set_rng_state(state[0])
        if len(state) > 1:
            torch.cuda.set_rng_state(state[1], call.x.device)


@dataclass(frozen=True)
class Measured:
    """What a run gave: outputs, gradients of some weighted sum of them, and buffers."""

    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]
    buffers: list[torch.Tensor]

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
    run: Callable[[], Any], parameters: Iterable[torch.Tensor], buffers: Iterable[torch.Tensor]
) -> Measured:
    """Run something, and take down what it gave."""
    wanted = [p for p in parameters if p.requires_grad]
    with torch.enable_grad():
        outputs = [leaf for leaf in tree_leaves(run()) if isinstance(leaf, torch.Tensor)]
        found = [leaf for leaf in outputs if leaf.requires_grad]
        gradients: Sequence[torch.Tensor] = ()
        if found and wanted:
            sums = [_weighted(leaf) for leaf in found]
            # Inputs may come from an earlier call of the same network, whose graph is still the user's.
            gradients = torch.autograd.grad(
                sums, wanted, retain_graph=True, allow_unused=True, materialize_grads=True
            )
    return Measured([leaf.detach() for leaf in outputs], list(gradients), [b.clone() for b in buffers])


def _of(call: Call, run: Callable[[Trial], Any], trial: Trial | None = None) -> Measured:
    common, kept = call.tasks.common, call.tasks.kept
    parameters = [*common.parameters(), *kept.parameters()]
    return measured(lambda: run(trial or Trial(still=True)), parameters, kept.buffers())


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
