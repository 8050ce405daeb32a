"""LoRA-style adapters: a weight for all tasks plus a product of two thin matrices for each.

``y = x W + x A_t B_t``. Another model than a shared factorisation, but what one would use instead for rows of
mixed tasks. PEFT computes the adapters one after the other, on the rows of each; "LoRA, loop" is the same
arithmetic without PEFT, "LoRA, batched" gathers the matrices of each row instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmarks.measuring.meters import Program

from .common import ADAPTER_RANK, NUMBER
from .torch_calls import looped

if TYPE_CHECKING:
    from .in_torch import Applied

_MANY = 256  # adapters; PEFT makes a module for each, and loops over those present


def add(applied: Applied) -> None:
    """All three, for rows of mixed tasks."""
    case = applied.case
    thin = ADAPTER_RANK * (case.i + case.o)
    applied.found.facts["parameters"]["LoRA"] = case.i * case.o + case.tasks * thin
    size = NUMBER * (case.i * case.o + case.tasks * thin) * (3 if case.training else 1)
    applied.add("LoRA, batched", size + NUMBER * case.batch * thin, lambda: _batched(applied))
    if case.present > _MANY:
        applied.skip("LoRA, loop", f"a loop over {case.present} adapters")
    else:
        applied.add("LoRA, loop", size, lambda: _looped(applied))
    if case.tasks > _MANY:
        applied.skip("PEFT", f"{case.tasks} adapters are as many modules")
    elif case.training:
        applied.skip("PEFT", "refuses rows of different adapters in training")
    else:
        applied.add("PEFT", size, lambda: _peft(applied))


def _matrices(applied: Applied) -> list[Tensor]:
    """W (i, o), A (T, i, r), B (T, r, o)."""
    case = applied.case
    shapes = (case.i, case.o), (case.tasks, case.i, ADAPTER_RANK), (case.tasks, ADAPTER_RANK, case.o)
    return [torch.randn(shape, requires_grad=case.training) for shape in shapes]


def _batched(applied: Applied) -> Program:
    W, A, B = _matrices(applied)
    x, ids = applied.x, applied.ids

    def forward() -> Tensor:
        thin = torch.bmm(x.unsqueeze(1), A.index_select(0, ids))
        return torch.mm(x, W) + torch.bmm(thin, B.index_select(0, ids)).squeeze(1)

    return applied.program(forward, [W, A, B])


def _looped(applied: Applied) -> Program:
    """Modules of their own for the tasks that are present, one after the other."""
    case, x, ids = applied.case, applied.x, applied.ids
    W = torch.randn(case.i, case.o, requires_grad=case.training)
    own: dict[int, tuple[Tensor, Tensor]] = {}
    for task in torch.unique(ids).tolist():
        A = torch.randn(case.i, ADAPTER_RANK, requires_grad=case.training)
        own[task] = A, torch.randn(ADAPTER_RANK, case.o, requires_grad=case.training)

    def adapted(rows: Tensor, task: int) -> Tensor:
        A, B = own[task]
        return torch.mm(torch.mm(rows, A), B)

    leaves = [W, *(matrix for pair in own.values() for matrix in pair)]
    return applied.program(lambda: torch.mm(x, W) + looped(x, ids, adapted), leaves)


def _peft(applied: Applied) -> Program:
    """PEFT's own layer, which takes the name of an adapter for each row."""
    from peft import LoraConfig, get_peft_model

    case = applied.case
    base = torch.nn.Sequential(torch.nn.Linear(case.i, case.o, bias=False))
    config = LoraConfig(
        r=ADAPTER_RANK, lora_alpha=ADAPTER_RANK, target_modules=["0"], init_lora_weights=False
    )
    model = get_peft_model(base, config, adapter_name="0")
    for task in range(1, case.tasks):
        model.add_adapter(str(task), config)
    model.eval()
    x, names = applied.x, [str(task) for task in applied.ids.tolist()]
    return applied.program(lambda: model(x, adapter_names=names), list(model.parameters()))
