"""Table 1: classic methods on two kinds of features of the same images, chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import ParameterGrid
from tnshare_torch.shared import Shared

from benchmarks.paper.training.shallow import GOMTL, Argyriou, EvgeniouPontil, SingleTask
from benchmarks.paper.training.tasks import OneAgainstRest

Array = np.ndarray[Any, Any]
COMPONENTS = 64
FOLDS = 3


def _spaced(first: float, last: float, count: int) -> tuple[float, ...]:
    return tuple(float(f"{value:.3g}") for value in np.geomspace(first, last, count))


# 27 settings for each, so that none is searched harder than another, each as far as the held-out error of a
# draw that no final run has rises again; latent tasks are at most as many as tasks. GO-MTL's sparsity and C
# are nearly one setting: a longer L and a shorter S are the same W, so that at the minimum nothing but
# C / sparsity^(2/3) matters, and three of each make nine values of it.
GRIDS: dict[str, tuple[Any, dict[str, Sequence[float]]]] = {
    "Single task": (SingleTask(), {"C": _spaced(0.01, 1000, 27)}),
    "Evgeniou & Pontil": (
        EvgeniouPontil(),
        {"C": _spaced(0.1, 30, 9), "mu": (0.01, 1.0, 100.0)},
    ),
    "Argyriou et al.": (Argyriou(), {"C": _spaced(1, 500, 27)}),
    "GO-MTL": (
        GOMTL(),
        {"latent": (3, 5, 10), "sparsity": (0.01, 0.1, 1.0), "C": (0.01, 0.1, 1.0)},
    ),
}


@dataclass(frozen=True, eq=False)
class Part:
    """Images to train on and images to judge by: features of both, and the tasks that they are of."""

    features: tuple[Array, Array]
    train: OneAgainstRest
    held: OneAgainstRest

    def scores(self, model: Any) -> Array:
        """What a model that is trained on the first says of the others: (n, T)."""
        y = self.train.signs(self.train.labels).numpy().T.astype(float)
        found: Array = model.fit(self.features[0], y).decision_function(self.features[1])
        return found

    def errors(self, scores: Array) -> dict[str, float]:
        """Errors in per cent, as the deep methods' are counted."""
        truth = self.held.labels.numpy()
        wrong = (scores > 0) != (truth[:, None] == np.arange(self.held.classes))
        return {
            "binary_error": 100 * float(wrong.mean()),
            "multiclass_error": 100 * float((scores.argmax(1) != truth).mean()),
        }


def searched(name: str, folds: Sequence[Part], whole: Part) -> dict[str, Any]:
    """The errors of one method on ``whole``, with the setting that has the least mean binary error on folds.

    The features of every fold must stem from the images that it trains on alone. Of settings that are level
    the first counts.
    """
    estimator, grid = GRIDS[name]
    settings = list(ParameterGrid(grid))
    held = [_held_out(clone(estimator).set_params(**setting), folds) for setting in settings]
    best = int(np.argmin(held))
    model = clone(estimator).set_params(**settings[best])
    errors = whole.errors(whole.scores(model))
    return {
        **errors,
        "parameters": model.coef_.size + model.intercept_.size,
        "chosen": {k: float(v) for k, v in settings[best].items()},
        "held_out_binary_error": held[best],
    }


def _held_out(model: Any, folds: Sequence[Part]) -> float:
    return sum(part.errors(part.scores(model))["binary_error"] for part in folds) / len(folds)


def pca_features(train: OneAgainstRest, test: OneAgainstRest) -> tuple[Array, Array]:
    """Images as vectors, reduced by the principal components of those for training."""
    flat = train.images.flatten(1).double().numpy()
    pca = PCA(min(COMPONENTS, *flat.shape), random_state=0).fit(flat)
    return _scaled(pca.transform(flat), pca.transform(test.images.flatten(1).double().numpy()))


@torch.no_grad()
def cnn_features(
    shared: Shared, depth: int, train: OneAgainstRest, test: OneAgainstRest
) -> tuple[Array, Array]:
    """What a network with the first ``depth`` layers in common makes of the images before its last layer."""

    def features(tasks: OneAgainstRest) -> Array:
        parts = [shared(part, 0, last=depth) for part in torch.split(tasks.images, 100)]
        found: Array = torch.cat(parts).double().numpy()
        return found

    return _scaled(features(train), features(test))


def _scaled(train: Array, test: Array) -> tuple[Array, Array]:
    """Both divided by one number, so that C means the same for all features: the mean length is 1."""
    centre = train.mean(0)
    length = np.linalg.norm(train - centre, axis=1).mean()
    return (train - centre) / length, (test - centre) / length
