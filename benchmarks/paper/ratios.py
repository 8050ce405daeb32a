"""How many parameters factors keep of trained digit networks: by one bound, and by the authors' own rule."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import tnshare_torch as tnt
import tqdm
from torch import nn

from . import mnist
from .collected import collect
from .methods import FACTORISATIONS
from .networks import LeNet
from .store import Runs, digest

EPS = (0.1, 0.2)
RULES: dict[str, dict[str, Any]] = {"one bound": {}, "per SVD": {"eps_rule": "per_svd"}}


def run(data: Path, work: Path, results: Path, draws: Sequence[tuple[float, int]]) -> None:
    """The first stage's networks of each draw, shared in every way, and not trained further."""
    settings = {"first": mnist.PROTOCOL.settings(mnist.methods()["STL"])["first"], "eps": EPS, "rules": RULES}
    name = digest(settings)
    runs = Runs(work / "ratios" / "runs.jsonl", results / "ratios.json")
    experiment, drawn = mnist.experiment(work, results), mnist.load(data)
    ways = list(product(FACTORISATIONS, RULES, EPS))
    for fraction, seed in tqdm.tqdm(draws, desc="ratios"):
        keys = {way: {"method": named(*way), "fraction": fraction, "seed": seed} for way in ways}
        left = [way for way in ways if not runs.has(**keys[way], protocol=name)]
        nets = experiment.stage_one(drawn(fraction, seed)) if left else []
        for way in left:
            size = kept_parameters(nets, *way)
            runs.add({**keys[way], "protocol": name, "parameters": size, "kept": size / mnist.DENSE})
        collect(runs, settings, {name})


def named(factorisation: str, rule: str, eps: float) -> str:
    """What such a run is called."""
    return f"{factorisation}, {rule}, eps {eps:g}"


def kept_parameters(nets: list[nn.Module], factorisation: str, rule: str, eps: float) -> int:
    """How many parameters there are when all weights are factors; biases stay with each task."""
    how = {"method": FACTORISATIONS[factorisation], "eps": eps, **RULES[rule]}
    shared = tnt.share(nets, layers={f"{layer}.weight": how for layer in LeNet.layers})
    return sum(p.numel() for p in shared.parameters())
