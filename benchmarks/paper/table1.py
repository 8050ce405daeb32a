"""Table 1 as a command: classic methods on the digits' principal components and on a network's features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tqdm

from . import mnist
from .collected import collect
from .experiment import trained
from .shallow_table import COMPONENTS, FOLDS, GRIDS, cnn_features, pca_features, shallow_rows
from .store import Runs, digest
from .tasks import OneAgainstRest

NETWORK, DEPTH = "UD-MTL-3", 3  # whose 512 activations before the last layer are the features


def run(data: Path, work: Path, results: Path, draws: Sequence[tuple[float, int]]) -> None:
    """All classic methods on each draw that is not finished yet."""
    method = mnist.methods()[NETWORK]
    grids = {name: {k: list(v) for k, v in grid.items()} for name, (_, grid) in GRIDS.items()}
    settings = {
        "grids": grids,
        "folds": FOLDS,
        "components": COMPONENTS,
        "network": mnist.PROTOCOL.settings(method),
    }
    runs = Runs(work / "table1" / "runs.jsonl", results / "table1.json")
    names = [f"{name}, {kind}" for kind in ("PCA", "CNN") for name in GRIDS]
    left = [d for d in draws if not all(_has(runs, name, d, digest(settings)) for name in names)]
    drawn = mnist.load(data) if left else None
    for fraction, seed in tqdm.tqdm(left, desc="table1"):
        assert drawn is not None
        draw = drawn(fraction, seed)
        assert isinstance(draw.train, OneAgainstRest)
        assert isinstance(draw.test, OneAgainstRest)
        shared, steps = trained(method, draw, mnist.PROTOCOL, lambda *_: [])
        pca, cnn = pca_features(draw.train, draw.test), cnn_features(shared, DEPTH, draw.train, draw.test)
        features = [{"PCA": pca[part], "CNN": cnn[part]} for part in (0, 1)]
        for row in shallow_rows(features[0], features[1], draw.train, draw.test):
            about = {"fraction": fraction, "seed": seed, "protocol": digest(settings)}
            runs.add({**row, **about, "steps": steps if row["method"].endswith("CNN") else 0})
        collect(runs, settings, {digest(settings)})


def _has(runs: Runs, method: str, draw: tuple[float, int], protocol: str) -> bool:
    return runs.has(method=method, fraction=draw[0], seed=draw[1], protocol=protocol)
