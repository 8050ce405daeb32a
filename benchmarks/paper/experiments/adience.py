"""AdienceFaces: age group and gender, two tasks with heads of different sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.paper.data.adience_files import AGES, GENDERS, UNKNOWN, Face, adience, pixels
from benchmarks.paper.training.experiment import Draw, Experiment, Protocol
from benchmarks.paper.training.methods import Method, deep_methods
from benchmarks.paper.training.networks import FaceNet, alike_networks
from benchmarks.paper.training.recipe import Recipe
from benchmarks.paper.training.tasks import OwnClasses

SIZE = 227
TEST_FOLDS, TRAIN_FOLDS = (0,), (1, 2, 3, 4)
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SEEDS = tuple(range(5))
# Ten faces take 0.8 s of one core, forward and backward. So three methods take about half an hour with 150
# faces to train on, some of it for the 4,500 of the test, and more than three hours with 10 % of the faces.
QUICK = ("STL", "UD-MTL-5", "DMTRL-Tucker")
QUICK_FRACTION = 0.01
SOFT = {"eps": 0.2}

# Not tuned: the faces were not at hand. The recipe is that of the other experiments, for more images.
PROTOCOL = Protocol(
    first=Recipe(epochs=4, batch=50, rate=3e-4), second=Recipe(epochs=16, batch=50, rate=3e-4)
)


def methods(size: int = SIZE) -> dict[str, Method]:
    """The deep methods; all layers but the last can be shared."""
    with torch.device("meta"):
        weights = sum(p.numel() for p in FaceNet(1, size).parameters())
    return deep_methods(FaceNet.layers, (1, 2, 3, 4, 5), None, SOFT, round(0.6 * 2 * weights), {})


def drawer(train: Sequence[Face], test: Sequence[Face], size: int) -> Callable[[float, int], Draw]:
    """Draws of a fraction of the faces that are labelled for each task."""
    tested = faces_of(test, size)

    def draw(fraction: float, seed: int) -> Draw:
        rng = np.random.default_rng(seed)
        few = [train[n] for n in np.sort(rng.permutation(len(train))[: round(fraction * len(train))])]
        return Draw(fraction, seed, faces_of(few, size), tested, untrained(seed, size), shareable=5)

    return draw


def faces_of(faces: Sequence[Face], size: int) -> OwnClasses:
    """Faces labelled with an age, and those labelled with a gender, as bytes."""
    images, labels = [], []
    for task in ("age", "gender"):
        known = [face for face in faces if getattr(face, task) != UNKNOWN]
        stacked = np.stack([pixels(face, size) for face in known])
        images.append(torch.from_numpy(stacked).permute(0, 3, 1, 2))
        labels.append(torch.tensor([getattr(face, task) for face in known]))
    return OwnClasses(images, labels, scale=1 / 255)


def untrained(seed: int, size: int) -> Callable[[int, float], list[nn.Module]]:
    """A network for ages and one for genders, with torch's own initial values."""
    makes = [partial(FaceNet, len(classes), size) for classes in (AGES, GENDERS)]
    return lambda alike, width: alike_networks(makes, FaceNet.layers[:alike], seed)


def experiment(work: Path, results: Path, size: int = SIZE) -> Experiment:
    """Where its runs are kept."""
    return Experiment("adience", PROTOCOL, methods(size), work, results)


def load(where: Path) -> Callable[[float, int], Draw]:
    """Draws of the real faces."""
    return drawer(adience(where, TRAIN_FOLDS), adience(where, TEST_FOLDS), SIZE)
