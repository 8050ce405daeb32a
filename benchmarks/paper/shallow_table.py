"""Table 1: classic methods on two kinds of features of the same images, chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from tnshare_torch.shared import Shared

from .shallow import GOMTL, Argyriou, EvgeniouPontil, SingleTask
from .tasks import OneAgainstRest

Array = np.ndarray[Any, Any]
COMPONENTS = 64
FOLDS = 3
_C = (0.3, 1.0, 3.0)

# Six settings for each, so that none is searched harder than another.
GRIDS: dict[str, tuple[Any, dict[str, Sequence[float]]]] = {
    "Single task": (SingleTask(), {"C": tuple(np.geomspace(0.03, 10, 6))}),
    "Evgeniou & Pontil": (EvgeniouPontil(), {"C": _C, "mu": (0.1, 3.0)}),
    "Argyriou et al.": (Argyriou(), {"C": tuple(np.geomspace(3, 1000, 6))}),
    "GO-MTL": (GOMTL(latent=10), {"C": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)}),
}


def shallow_rows(
    train: Mapping[str, Array],
    test: Mapping[str, Array],
    train_tasks: OneAgainstRest,
    test_tasks: OneAgainstRest,
) -> list[dict[str, Any]]:
    """The errors of each classic method on each kind of features, with the settings that were chosen."""
    rows = []
    y = train_tasks.signs(train_tasks.labels).numpy().T.astype(float)
    labels, truth = train_tasks.labels.numpy(), test_tasks.labels.numpy()
    for kind, features in train.items():
        for name, (estimator, grid) in GRIDS.items():
            folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(features, labels))
            search = GridSearchCV(estimator, grid, cv=folds).fit(features, y)
            scores = search.decision_function(test[kind])
            wrong = (scores > 0) != (truth[:, None] == np.arange(y.shape[1]))
            rows.append(
                {
                    "method": f"{name}, {kind}",
                    "binary_error": 100 * float(wrong.mean()),
                    "multiclass_error": 100 * float((scores.argmax(1) != truth).mean()),
                    "parameters": search.best_estimator_.coef_.size + y.shape[1],
                    "chosen": {k: float(v) for k, v in search.best_params_.items()},
                }
            )
    return rows


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
