"""Classic multi-task methods: each against what it must be in the limits, and against another solver."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.svm import LinearSVC

from benchmarks.paper.experiments.shallow_table import GRIDS, Part, pca_features, searched
from benchmarks.paper.training.shallow import GOMTL, Argyriou, EvgeniouPontil, SingleTask
from benchmarks.paper.training.tasks import OneAgainstRest

ALL = [SingleTask(), EvgeniouPontil(), Argyriou(), GOMTL(latent=3)]


def problem(n=80, d=6, tasks=4, rank=2, seed=0):
    """Tasks whose true weights have few directions in common, with some wrong labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.3
    W = rng.standard_normal((d, rank)) @ rng.standard_normal((rank, tasks))
    return X, np.where(X @ W + 0.5 * rng.standard_normal((n, tasks)) > 0, 1.0, -1.0)


def objective(model, X, y, C):
    short = np.maximum(0, 1 - y * model.decision_function(X))
    return C * (short**2).sum()


@pytest.mark.parametrize("C", [0.01, 1.0])
def test_single_tasks_are_those_of_scikit_learn(C):
    X, y = problem()
    found = SingleTask(C).fit(X, y)
    for t in range(y.shape[1]):
        other = LinearSVC(C=C, dual=False, tol=1e-8, max_iter=10_000, intercept_scaling=1e3).fit(X, y[:, t])
        np.testing.assert_allclose(found.coef_[:, t], other.coef_[0], atol=2e-3)
        np.testing.assert_allclose(found.intercept_[t], other.intercept_[0], atol=2e-3)


def test_a_common_part_is_hard_sharing_in_one_limit_and_single_tasks_in_the_other():
    X, y = problem()
    alone = EvgeniouPontil(C=1.0, mu=1e9).fit(X, y)
    np.testing.assert_allclose(alone.coef_, SingleTask(1.0).fit(X, y).coef_, atol=1e-3)
    assert np.abs(alone.common_).max() < 1e-6
    # With a cheap common part and own parts that cost a lot, all tasks have one model.
    together = EvgeniouPontil(C=1e-6, mu=1e-6).fit(X, y)
    assert np.abs(together.own_).max() < 0.01 * np.abs(together.common_).max()


def test_a_common_part_is_the_single_model_on_features_that_say_so():
    X, y = problem(tasks=3)
    mu, C, (n, d) = 0.5, 0.3, X.shape
    wide = np.zeros((3 * n, 4 * d + 3))
    for t in range(3):
        rows = slice(t * n, (t + 1) * n)
        wide[rows, :d] = X / np.sqrt(mu)
        wide[rows, d * (t + 1) : d * (t + 2)] = X
        wide[rows, 4 * d + t] = 1e3  # an intercept for each, nearly free
    other = LinearSVC(C=C, dual=False, fit_intercept=False, tol=1e-9, max_iter=100_000).fit(
        wide, y.T.reshape(-1)
    )
    found = EvgeniouPontil(C, mu).fit(X, y)
    np.testing.assert_allclose(found.common_, other.coef_[0, :d] / np.sqrt(mu), atol=2e-3)
    np.testing.assert_allclose(found.own_.T.reshape(-1), other.coef_[0, d : 4 * d], atol=2e-3)


def test_common_features_make_the_square_of_the_trace_norm_least():
    X, y = problem()

    def value(model):
        return 0.5 * np.linalg.norm(model.coef_, "nuc") ** 2 + objective(model, X, y, 0.5)

    found = Argyriou(0.5, rounds=60).fit(X, y)
    best = value(found)
    rng = np.random.default_rng(1)
    for size in (1e-3, 1e-2, 1e-1):  # convex: nothing near it is better
        for _ in range(30):
            moved = clone(found)
            moved.coef_ = found.coef_ + size * rng.standard_normal(found.coef_.shape)
            moved.intercept_ = found.intercept_ + size * rng.standard_normal(found.intercept_.shape)
            assert value(moved) > best * (1 - 1e-4)
    assert best < value(SingleTask(0.5).fit(X, y))


def test_common_features_have_a_lower_rank_where_they_cost_more():
    X, y = problem()

    def rank(C):
        s = np.linalg.svd(Argyriou(C, rounds=40).fit(X, y).coef_, compute_uv=False)
        return (s > 1e-2 * s[0]).sum()

    assert rank(0.003) < rank(30.0) == 4


def test_latent_tasks_are_few_and_sparse():
    X, y = problem()
    dense, sparse = (GOMTL(1.0, latent=3, sparsity=s).fit(X, y) for s in (0.0, 20.0))
    assert np.linalg.matrix_rank(dense.coef_) == 3
    np.testing.assert_allclose(dense.coef_, dense.latent_ @ dense.codes_)
    assert (sparse.codes_ == 0).mean() > (dense.codes_ == 0).mean() == 0


def test_rounds_of_latent_tasks_lower_what_they_minimise():
    X, y = problem()

    def value(rounds):
        m = GOMTL(1.0, latent=2, sparsity=0.5, rounds=rounds).fit(X, y)
        return 0.5 * (m.latent_**2).sum() + objective(m, X, y, 1.0) + 0.5 * np.abs(m.codes_).sum()

    values = [value(rounds) for rounds in (1, 2, 4, 8)]
    assert all(b <= a + 1e-6 for a, b in pairwise(values))
    assert values[-1] < values[0]


@pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)
def test_they_are_estimators(model):
    X, y = problem()
    fitted = clone(model).fit(X, y)
    assert fitted.predict(X).shape == y.shape
    assert fitted.score(X, y) == pytest.approx((np.sign(fitted.decision_function(X)) == y).mean())
    assert fitted.score(X, y) > 0.8
    assert clone(fitted).get_params() == model.get_params()


def test_no_method_is_searched_harder_than_another():
    sizes = {int(np.prod([len(values) for values in grid.values()])) for _, grid in GRIDS.values()}
    assert len(sizes) == 1


def made(images=60, seed=0):
    """Images of three classes, a bright pixel each, to train on and to judge by."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(3).repeat(images // 3)
    bright = torch.nn.functional.one_hot(labels, 9).view(-1, 1, 3, 3)
    pixels = torch.rand(images, 1, 3, 3, generator=rng) + bright
    half = 3 * images // 4
    return (OneAgainstRest(pixels[part], labels[part], 3) for part in (slice(half), slice(half, None)))


@pytest.mark.parametrize("name", GRIDS)
def test_a_method_of_the_table_is_searched_on_folds_and_judged_on_the_test(name, monkeypatch):
    model, grid = GRIDS[name]
    few = {name: (model, {k: v[-3:-1] for k, v in grid.items()})}
    monkeypatch.setattr("benchmarks.paper.experiments.shallow_table.GRIDS", few)
    train, test = made()
    features = pca_features(train, test)
    assert features[0].shape == (45, 9)
    assert np.linalg.norm(features[0], axis=1).mean() == pytest.approx(1)
    folds = [Part(pca_features(*train.fold(n, 3)), *train.fold(n, 3)) for n in range(3)]
    found = searched(name, folds, Part(features, train, test))
    assert found["multiclass_error"] < 20
    assert set(found["chosen"]) == set(grid)
    assert found["parameters"] == 9 * 3 + 3


def test_the_setting_with_the_least_error_on_the_folds_is_taken_whatever_the_test_says(monkeypatch):
    class Asked(SingleTask):
        """Wrong everywhere but with C = 2."""

        def decision_function(self, X):
            return super().decision_function(X) * (1 if self.C == 2 else -1)

    grids = {"it": (Asked(), {"C": (1.0, 2.0, 3.0)})}
    monkeypatch.setattr("benchmarks.paper.experiments.shallow_table.GRIDS", grids)
    train, test = made()
    backwards = OneAgainstRest(test.images, (test.labels + 1) % 3, 3)
    folds = [Part(pca_features(*train.fold(n, 3)), *train.fold(n, 3)) for n in range(3)]
    found = searched("it", folds, Part(pca_features(train, backwards), train, backwards))
    assert found["chosen"] == {"C": 2.0}
    assert found["held_out_binary_error"] < 20 < found["binary_error"]
