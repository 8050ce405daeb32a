"""Omniglot: fifty alphabets, each a task with characters of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .data import Alphabets, omniglot
from .experiment import Draw, Experiment, Protocol
from .methods import Method, deep_methods
from .networks import CharacterNet, alike_networks
from .tasks import OwnClasses
from .training import Recipe

FRACTIONS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SEEDS = range(5)
DRAWINGS = 20  # of every character
Array = np.ndarray[Any, Any]

PROTOCOL = Protocol(
    first=Recipe(epochs=20, batch=16, rate=1e-3),
    second=Recipe(epochs=20, batch=16, rate=1e-3),
)
SOFT = {"eps": 0.2}
RATES: dict[str, float] = {}


def methods(alphabets: int = 50) -> dict[str, Method]:
    """The deep methods; heads have other shapes in every alphabet and stay single without being told."""
    shareable = 129_000 * alphabets
    return deep_methods(CharacterNet.layers, (1, 2, 3, 4), None, SOFT, round(0.1 * shareable), RATES)


def drawer(data: Alphabets, alphabets: Sequence[int]) -> Callable[[float, int], Draw]:
    """Draws of some drawings of every character for training; the others are for the test."""

    def draw(fraction: float, seed: int) -> Draw:
        few = max(1, round(fraction * DRAWINGS))
        luck = np.random.default_rng(seed).random(len(data.packed))
        train, test = [], []
        for alphabet in alphabets:
            rows = np.flatnonzero(data.alphabet == alphabet)
            order = np.lexsort(
                (luck[rows], data.character[rows])
            )  # by character, the drawings of each shuffled
            drawings = rows[order].reshape(-1, DRAWINGS)
            train.append(drawings[:, :few].reshape(-1))
            test.append(drawings[:, few:].reshape(-1))
        sizes = [data.characters(a) for a in alphabets]
        return Draw(
            fraction,
            seed,
            own_classes(data, train),
            own_classes(data, test),
            untrained(seed, sizes),
            shareable=4,
        )

    return draw


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
