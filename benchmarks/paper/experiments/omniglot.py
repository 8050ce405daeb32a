"""Omniglot: fifty alphabets, each a task with characters of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.paper.data import Alphabets, omniglot
from benchmarks.paper.finished_runs import digest
from benchmarks.paper.pages.paper_figures import characters
from benchmarks.paper.training.experiment import Draw, Experiment, Protocol
from benchmarks.paper.training.methods import Method, deep_methods
from benchmarks.paper.training.networks import CharacterNet, alike_networks
from benchmarks.paper.training.recipe import Recipe
from benchmarks.paper.training.tasks import OwnClasses

FRACTIONS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SEEDS = tuple(range(5))
QUICK = ("STL", "UD-MTL-3", "DMTRL-TT")
DRAWINGS = 20  # of every character
LAST_SHARED = CharacterNet.layers[-2]
Array = np.ndarray[Any, Any]

PROTOCOL = Protocol(first=Recipe(epochs=4, batch=8, rate=1e-3), second=Recipe(epochs=16, batch=8, rate=1e-3))
SOFT = {"eps": 0.05}
RATES = {"UD-MTL-2": 2e-3}


def methods(alphabets: int = 50) -> dict[str, Method]:
    """The deep methods; heads have other shapes in every alphabet and stay single without being told."""
    shareable = 126_796 * alphabets
    return deep_methods(CharacterNet.layers, (1, 2, 3, 4), None, SOFT, round(0.1 * shareable), RATES)


def drawer(data: Alphabets, alphabets: Sequence[int]) -> Callable[[float, int], Draw]:
    """Draws of some drawings of every character for training; the others are for the test."""

    def draw(fraction: float, seed: int) -> Draw:
        few = max(1, round(fraction * DRAWINGS))
        train, test = (
            own_classes(data, shuffled(data, alphabets, part, seed))
            for part in (slice(few), slice(few, None))
        )
        sizes = [data.characters(a) for a in alphabets]
        return Draw(fraction, seed, train, test, untrained(seed, sizes), shareable=4)

    return draw


def shuffled(data: Alphabets, alphabets: Sequence[int], part: slice, seed: int) -> list[Array]:
    """The rows of a part of the drawings of every character, in an order that depends on the seed."""
    luck = np.random.default_rng(seed).random(len(data.packed))
    found = []
    for alphabet in alphabets:
        rows = np.flatnonzero(data.alphabet == alphabet)
        order = np.lexsort((luck[rows], data.character[rows]))  # by character, the drawings of each at random
        found.append(rows[order].reshape(-1, DRAWINGS)[:, part].reshape(-1))
    return found


def own_classes(data: Alphabets, rows: Sequence[Array]) -> OwnClasses:
    """The drawings of given rows of each alphabet, as bytes."""
    images = [torch.from_numpy(data.images(each))[:, None] for each in rows]
    labels = [torch.from_numpy(data.character[each].astype(np.int64)) for each in rows]
    return OwnClasses(images, labels)


def untrained(seed: int, sizes: Sequence[int]) -> Callable[[int, float], list[nn.Module]]:
    """Networks with torch's own initial values, with heads for so many characters."""
    makes = [partial(CharacterNet, size) for size in sizes]
    return lambda alike, width: alike_networks(makes, CharacterNet.layers[:alike], seed)


def experiment(work: Path, results: Path) -> Experiment:
    """Where its runs are kept."""
    return Experiment("omniglot", PROTOCOL, methods(), work, results)


def load(where: Path) -> Callable[[float, int], Draw]:
    """Draws of all fifty alphabets."""
    data = omniglot(where)
    return drawer(data, range(len(data.names)))


def draw_alphabets(experiment: Experiment, where: Path, path: Path) -> None:
    """Sample characters of the alphabets most and least related at the last shared layer, as a picture.

    Runs of other settings, which a folder of work may have as well, are left out.
    """
    current = {digest(experiment.settings(method)) for method in experiment.methods.values()}
    runs = related_runs([row for row in experiment.runs.rows() if row["protocol"] in current])
    if not runs:
        return
    data = omniglot(where)
    lines = {}
    for row in runs:
        pairs = row["related"][LAST_SHARED]
        both = [*pairs["most"], *pairs["least"]]
        lines[f"seed {row['seed']}"] = [(data.names[a].replace("_", " "), samples(data, a)) for a in both]
    path.write_bytes(
        characters(
            [f"{word} related, by {row['method']}'s {LAST_SHARED}" for word in ("most", "least")], lines
        )
    )


def related_runs(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The runs whose pairs of alphabets are shown: every seed of one method, of Tucker if it was run."""
    known = [row for row in rows if "related" in row and row["fraction"] == 0.1]
    shown = min((row["method"] for row in known), key=lambda name: (name != "DMTRL-Tucker", name), default="")
    return sorted((row for row in known if row["method"] == shown), key=lambda row: row["seed"])


def samples(data: Alphabets, alphabet: int, count: int = 8) -> Array:
    """The first characters of an alphabet as somebody drew them."""
    return data.images(np.flatnonzero((data.alphabet == alphabet) & (data.drawer == 0))[:count])
