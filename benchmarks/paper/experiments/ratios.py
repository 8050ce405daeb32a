"""How many parameters factors keep of trained digit networks: by one bound, and by the authors' own rule."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import tnshare_torch as tnt
import tqdm
from torch import nn

from benchmarks.paper.collected import collect
from benchmarks.paper.finished_runs import Runs, digest
from benchmarks.paper.training.experiment import drawn_from
from benchmarks.paper.training.methods import FACTORISATIONS
from benchmarks.paper.training.networks import LeNet

from . import mnist

EPS = (0.1, 0.2)
RULES: dict[str, dict[str, Any]] = {"one bound": {}, "per SVD": {"eps_rule": "per_svd"}}


def run(data: Path, work: Path, results: Path, draws: Sequence[tuple[float, int]]) -> None:
    """The first stage's networks of each draw, shared in every way, and not trained further."""
    settings = {"first": mnist.PROTOCOL.settings(mnist.methods()["STL"])["first"], "eps": EPS, "rules": RULES}
    name = digest(settings)
    runs = Runs(work / "ratios" / "runs.jsonl", results / "ratios.json")
    collect(runs, settings, {name})
    jobs = product(draws, product(FACTORISATIONS, RULES, EPS))
    left = [(draw, way, key) for draw, way in jobs if not runs.has(**(key := _key(draw, way, name)))]
    experiment, drawn = mnist.experiment(work, results), drawn_from(mnist.load, data)

    @lru_cache(maxsize=1)  # ways of the same networks follow each other
    def networks(draw: tuple[float, int]) -> list[nn.Module]:
        return experiment.stage_one(drawn(*draw))

    for draw, way, key in tqdm.tqdm(left, desc="ratios", disable=not left):
        began = time.process_time()  # the first way to share networks pays for these
        size = kept_parameters(networks(draw), *way)
        seconds = round(time.process_time() - began, 1)
        runs.add({**key, "parameters": size, "kept": size / mnist.DENSE, "cpu_seconds": seconds})
        collect(runs, settings, {name})


def _key(draw: tuple[float, int], way: tuple[str, str, float], protocol: str) -> dict[str, Any]:
    return {"method": named(*way), "fraction": draw[0], "seed": draw[1], "protocol": protocol}


def named(factorisation: str, rule: str, eps: float) -> str:
    """What such a run is called."""
    return f"{factorisation}, {rule}, eps {eps:g}"


def kept_parameters(nets: list[nn.Module], factorisation: str, rule: str, eps: float) -> int:
    """How many parameters there are when all weights are factors; biases stay with each task."""
    how = {"method": FACTORISATIONS[factorisation], "eps": eps, **RULES[rule]}
    shared = tnt.share(nets, layers={f"{layer}.weight": how for layer in LeNet.layers})
    return sum(p.numel() for p in shared.parameters())
