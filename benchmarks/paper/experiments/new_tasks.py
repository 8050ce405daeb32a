"""New alphabets for a shared network: only their codes and heads are fitted, everything, or from scratch."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tnshare_torch as tnt
import torch
import tqdm
from tnshare_torch.shared import Shared
from torch import nn

from benchmarks.paper.collected import collect
from benchmarks.paper.data import Alphabets, omniglot
from benchmarks.paper.finished_runs import Runs, digest
from benchmarks.paper.training.experiment import Experiment, Protocol, trained
from benchmarks.paper.training.networks import CharacterNet, alike_networks
from benchmarks.paper.training.recipe import Recipe, fit

from .omniglot import DRAWINGS, drawer, methods, own_classes, shuffled

CODES, SCRATCH, EVERYTHING = "codes only", "from scratch", "fine-tuned"
WAYS = (CODES, SCRATCH, EVERYTHING)
DRAWN = (1, 2, 5, 10)  # drawings of every character for training
SEEDS = tuple(range(5))


@dataclass(frozen=True)
class NewTasks:
    """The settings: so many alphabets are held out, and the last of their drawings are for the test.

    The others are shared by ``method`` with ``eps``, from ``fraction`` of their drawings, by the protocol
    ``known``. ``fitted`` is for one drawing of every character; with more of them there are as many steps.
    ``rates`` are those of the ways that need another one than the recipe's.
    """

    known: Protocol
    fitted: Recipe
    rates: Mapping[str, float] = field(default_factory=dict)
    method: str = "DMTRL-TT"
    eps: float = 0.2
    fraction: float = 0.5  # who has new tasks with few images had others before, with more of them
    held_out: int = 10
    test_drawings: int = 10


SETTINGS = NewTasks(
    Protocol(first=Recipe(epochs=2, batch=8, rate=1e-3), second=Recipe(epochs=8, batch=8, rate=2e-3)),
    Recipe(epochs=40, batch=4, rate=1e-3),
    {CODES: 1e-2},
)


def run(where: Path, work: Path, results: Path, seeds: Sequence[int], settings: NewTasks = SETTINGS) -> None:
    """Train on the known alphabets and fit the new ones, for each seed that is not finished yet."""
    about = asdict(settings)
    name = digest(about)
    runs = Runs(work / "new-tasks" / "runs.jsonl", results / "new-tasks.json")
    collect(runs, about, {name})
    jobs = product(seeds, DRAWN, WAYS)
    left = [(job, key) for job in jobs if not runs.has(**(key := _key(*job, name)))]
    read = cache(omniglot)  # when something is left to be done

    @lru_cache(maxsize=1)  # the ways of a seed follow each other
    def known(seed: int) -> tuple[Shared, list[int]]:
        return known_alphabets(read(where), work, settings, seed)

    with tqdm.tqdm(total=len(left), desc="new-tasks", disable=not left) as bar:
        for (seed, drawn, way), key in left:
            bar.set_postfix_str(f"seed {seed}, {drawn} drawings, {way}")
            shared, new = known(seed)
            found = tested(read(where), settings, shared, new, seed, drawn, way)
            runs.add({**key, **found, "alphabets": new})
            collect(runs, about, {name})
            bar.update()


def known_alphabets(data: Alphabets, work: Path, settings: NewTasks, seed: int) -> tuple[Shared, list[int]]:
    """A network that shares all alphabets but those held out, and which these are."""
    method = methods(len(data.names) - settings.held_out)[settings.method]
    method = replace(method, share={**method.share, "eps": settings.eps})
    known, new = split(len(data.names), settings.held_out, seed)
    # Networks of the first stage are kept under this name, and there is one of each known alphabet.
    name = f"known-alphabets-without-{settings.held_out}"
    experiment = Experiment(name, settings.known, {method.name: method}, work, work)
    draw = drawer(data, known)(settings.fraction, seed)
    return trained(method, draw, settings.known, experiment.stage_one)[0], new


def split(alphabets: int, held_out: int, seed: int) -> tuple[list[int], list[int]]:
    """Alphabets that are known, and those that are new."""
    order = np.random.default_rng(seed).permutation(alphabets).tolist()
    return sorted(order[held_out:]), sorted(order[:held_out])


def tested(
    data: Alphabets, settings: NewTasks, known: Shared, new: Sequence[int], seed: int, drawn: int, way: str
) -> dict[str, Any]:
    """Errors of one way on the new alphabets, with so many drawings of every character."""
    test = own_classes(data, shuffled(data, new, slice(DRAWINGS - settings.test_drawings, None), seed))
    train = own_classes(data, shuffled(data, new, slice(drawn), seed))
    fitted = settings.fitted
    epochs, rate = max(1, fitted.epochs // drawn), settings.rates.get(way, fitted.rate)
    began = time.process_time()
    shared = started(way, known, [data.characters(alphabet) for alphabet in new], seed)
    trains = sum(p.numel() for p in shared.parameters() if p.requires_grad)
    steps = fit(shared, 0, train, replace(fitted, epochs=epochs, rate=rate), seed)
    return {
        "drawings": drawn,
        **test.errors(shared, 0),
        "parameters": trains,
        "steps": steps,
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def _key(seed: int, drawn: int, way: str, protocol: str) -> dict[str, Any]:
    return {"method": way, "fraction": drawn / DRAWINGS, "seed": seed, "protocol": protocol}


def started(way: str, known: Shared, sizes: Sequence[int], seed: int) -> Shared:
    """Networks of the new alphabets before they are fitted."""
    makes = [lambda size=size: CharacterNet(size) for size in sizes]
    nets = alike_networks(makes, CharacterNet.layers[:-1], seed)
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
