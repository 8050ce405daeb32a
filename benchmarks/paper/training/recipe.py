"""Train a shared network: Adam, a rate that falls to zero along half a cosine, all tasks in each step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tnshare_torch.shared import Shared

from .tasks import Tasks


@dataclass(frozen=True)
class Recipe:
    """How one stage is trained: ``batch`` is of each task; ``code_rate`` multiplies the rate of the codes."""

    epochs: int
    batch: int
    rate: float
    code_rate: float = 1.0
    decay: float = 0.0


def fit(
    shared: Shared,
    hard: int,
    tasks: Tasks,
    recipe: Recipe,
    seed: int,
    progress: Callable[[], object] = lambda: None,
) -> int:
    """Train, and say in how many steps."""
    codes = [p for task in shared.tasks for name, p in task.named_parameters() if ":" in name]
    known = {id(code) for code in codes}
    others = [p for p in shared.parameters() if id(p) not in known]
    groups = [{"params": others, "lr": recipe.rate}]
    if codes:
        groups.append({"params": codes, "lr": recipe.rate * recipe.code_rate})
    optimiser = torch.optim.AdamW(groups, weight_decay=recipe.decay, fused=True)
    generator = torch.Generator().manual_seed(seed)
    epochs = [list(tasks.batches(recipe.batch, generator)) for _ in range(recipe.epochs)]
    total = sum(map(len, epochs))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: half_cosine(step / max(1, total)))
    shared.train()
    for epoch in epochs:
        for batch in epoch:
            optimiser.zero_grad()
            tasks.loss(shared, hard, batch).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
        progress()
    shared.eval()
    return total


def half_cosine(done: float) -> float:
    """From 1 at the start to 0 at the end."""
    return 0.5 * (1 + math.cos(math.pi * done))
