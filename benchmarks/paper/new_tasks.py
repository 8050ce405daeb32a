"""New alphabets for a shared network: only their codes and heads are fitted, everything, or from scratch."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tnshare_torch as tnt
import torch
from tnshare_torch.shared import Shared
from torch import nn

from .data import Alphabets
from .networks import CharacterNet, alike_networks
from .omniglot import DRAWINGS, own_classes
from .tasks import OwnClasses
from .training import Recipe, fit

CODES, SCRATCH, EVERYTHING = "codes only", "from scratch", "fine-tuned"
DRAWN = (1, 2, 5, 10)  # drawings of every character for training


@dataclass(frozen=True)
class NewTasks:
    """The settings: so many alphabets are held out, and their last drawings are for the test."""

    base: Recipe
    fitted: Recipe
    method: str
    soft: dict[str, Any]
    held_out: int = 10
    test_drawings: int = 10


def split(alphabets: int, held_out: int, seed: int) -> tuple[list[int], list[int]]:
    """Alphabets that are known, and those that are new."""
    order = np.random.default_rng(seed).permutation(alphabets).tolist()
    return sorted(order[held_out:]), sorted(order[:held_out])


def drawings(data: Alphabets, alphabets: Sequence[int], first: int, last: int, seed: int) -> OwnClasses:
    """Some of the drawings of every character, in a random order that depends on the seed."""
    luck = np.random.default_rng(seed).random(len(data.packed))
    rows = []
    for alphabet in alphabets:
        own = np.flatnonzero(data.alphabet == alphabet)
        order = own[np.lexsort((luck[own], data.character[own]))].reshape(-1, DRAWINGS)
        rows.append(order[:, first:last].reshape(-1))
    return own_classes(data, rows)


def rows(
    data: Alphabets, settings: NewTasks, known: Shared, new: Sequence[int], seed: int
) -> list[dict[str, Any]]:
    """Errors of the three ways on the new alphabets, for each number of drawings."""
    test = drawings(data, new, DRAWINGS - settings.test_drawings, DRAWINGS, seed)
    sizes = [data.characters(alphabet) for alphabet in new]
    found = []
    for drawn in DRAWN:
        train = drawings(data, new, 0, drawn, seed)
        for way in (CODES, SCRATCH, EVERYTHING):
            began = time.process_time()
            shared = started(way, known, sizes, seed)
            trains = sum(p.numel() for p in shared.parameters() if p.requires_grad)
            steps = fit(shared, 0, train, settings.fitted, seed)
            found.append(
                {
                    "method": way,
                    "fraction": drawn / DRAWINGS,
                    "drawings": drawn,
                    "seed": seed,
                    **test.errors(shared, 0),
                    "parameters": trains,
                    "steps": steps,
                    "cpu_seconds": round(time.process_time() - began, 1),
                }
            )
    return found


def started(way: str, known: Shared, sizes: Sequence[int], seed: int) -> Shared:
    """Networks of the new alphabets before they are fitted."""
    makes = [lambda size=size: CharacterNet(size) for size in sizes]
    nets = alike_networks(makes, CharacterNet.layers[:-1], seed)  # type: ignore[arg-type]
    if way == SCRATCH:
        return tnt.share(nets, layers={"*": "single"})
    shared = with_new_tasks(known, nets)
    if way == EVERYTHING:
        return tnt.share(shared.unshare(), layers={"*": "single"})
    for parameter in shared.shared_parameters():
        parameter.requires_grad_(False)
    return shared


def with_new_tasks(known: Shared, heads: Sequence[nn.Module]) -> Shared:
    """A shared network of new tasks alone: bodies are the mean of those known, as near as codes allow."""
    means = _mean_body(known)
    grown = copy.deepcopy(known)
    old = len(grown.tasks)
    for net in heads:
        net.load_state_dict(means, strict=False)
        grown.add_task(net)
    for _ in range(old):
        grown.remove_task(0)
    return grown


def _mean_body(known: Shared) -> dict[str, torch.Tensor]:
    states = [net.state_dict() for net in known.unshare()]
    names = [name for name in states[0] if not name.startswith(CharacterNet.layers[-1])]
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in names}
