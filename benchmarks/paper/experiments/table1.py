"""Table 1 as a command: classic methods on the digits' principal components and on a network's features."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import tqdm

from benchmarks.paper.collected import collect
from benchmarks.paper.finished_runs import Runs, digest
from benchmarks.paper.training.experiment import Draw, drawn_from, trained
from benchmarks.paper.training.tasks import OneAgainstRest

from . import mnist
from .shallow_table import COMPONENTS, FOLDS, GRIDS, Part, cnn_features, pca_features, searched

NETWORK, DEPTH = "UD-MTL-3", 3  # whose 512 activations before the last layer are the features
KINDS = ("PCA", "CNN")


def run(data: Path, work: Path, results: Path, draws: Sequence[tuple[float, int]]) -> None:
    """Every classic method on every kind of features of each draw, of those that are not finished yet."""
    about = settings()
    name = digest(about)
    runs = Runs(work / "table1" / "runs.jsonl", results / "table1.json")
    collect(runs, about, {name})
    jobs = [(draw, kind, method) for draw in draws for kind, method in product(KINDS, GRIDS)]
    left = [(job, key) for job in jobs if not runs.has(**(key := _key(*job, name)))]
    drawn = drawn_from(mnist.load, data)

    @lru_cache(maxsize=1)  # methods on the same features follow each other
    def parts(draw: tuple[float, int], kind: str) -> tuple[list[Part], Part, int]:
        return parts_of(drawn(*draw), kind)

    for (draw, kind, method), key in tqdm.tqdm(left, desc="table1", disable=not left):
        began = time.process_time()  # the first method on a kind of features pays for these
        folds, whole, steps = parts(draw, kind)
        found = searched(method, folds, whole)
        seconds = round(time.process_time() - began, 1)
        runs.add({**key, **found, "steps": steps, "cpu_seconds": seconds})
        collect(runs, about, {name})


def settings() -> dict[str, Any]:
    """All that the results depend on besides the images and the seed, as JSON has it.

    The network has the rate that cross-validation chose, as the runs that the table is set beside.
    """
    return {
        "grids": {name: {k: list(v) for k, v in grid.items()} for name, (_, grid) in GRIDS.items()},
        "folds": FOLDS,
        "features": "of each fold anew, from the images that it trains on",
        "components": COMPONENTS,
        "network": mnist.PROTOCOL.settings(_network()),
    }


def parts_of(draw: Draw, kind: str) -> tuple[list[Part], Part, int]:
    """The folds to search by, all images with those for the test, and the steps of the network on the latter.

    A network that had seen what is held out would separate it by heart, and the search would be blind.
    """
    folds = []
    for number in range(FOLDS):
        train, held = draw.train.fold(number, FOLDS)
        folds.append(_part(replace(draw, train=train, test=held), kind)[0])
    return folds, *_part(draw, kind)


def _part(draw: Draw, kind: str) -> tuple[Part, int]:
    train, test = draw.train, draw.test
    assert isinstance(train, OneAgainstRest)
    assert isinstance(test, OneAgainstRest)
    if kind == "PCA":
        return Part(pca_features(train, test), train, test), 0
    shared, steps = trained(_network(), draw, mnist.PROTOCOL, lambda *_: [])
    return Part(cnn_features(shared, DEPTH, train, test), train, test), steps


def _network() -> Any:
    return mnist.methods(mnist.VALIDATED)[NETWORK]


def _key(draw: tuple[float, int], kind: str, method: str, protocol: str) -> dict[str, Any]:
    return {"method": f"{method}, {kind}", "fraction": draw[0], "seed": draw[1], "protocol": protocol}
