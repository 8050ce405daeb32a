"""Classic multi-task methods for linear models, as scikit-learn estimators.

All four have the same loss, squared hinge, on the same images: ``X`` (n, d), ``Y`` (n, T) of +1 and -1, and
the model ``X W + b``. They differ in what they ask of ``W`` (d, T).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, ClassifierMixin

Array = np.ndarray[Any, Any]
_STEPS = 200


class _Linear(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What linear models of T tasks have in common: ``coef_`` (d, T) and ``intercept_`` (T,)."""

    coef_: Array
    intercept_: Array

    def decision_function(self, X: Array) -> Array:
        """Scores (n, T)."""
        found: Array = X @ self.coef_ + self.intercept_
        return found

    def predict(self, X: Array) -> Array:
        """+1 or -1 for every task: (n, T)."""
        return np.where(self.decision_function(X) > 0, 1.0, -1.0)

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """How many answers are right, of all tasks: in [0, 1]."""
        right = (self.predict(X) == y).mean(axis=1)
        return float(np.average(right, weights=sample_weight))


class SingleTask(_Linear):
    """Every task on its own: ``1/2 ||W||^2 + C loss``."""

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Array, y: Array) -> SingleTask:
        """Train on all tasks."""
        self.coef_, self.intercept_ = _ridge(X, y, self.C)
        return self


class EvgeniouPontil(_Linear):
    """A common part and one of each task, ``w_t = w_0 + v_t`` (Evgeniou & Pontil, 2004).

    ``1/2 (sum_t ||v_t||^2 + mu ||w_0||^2) + C loss``: a large mu gives single tasks, a large mu's inverse one
    model for all.
    """

    def __init__(self, C: float = 1.0, mu: float = 1.0) -> None:
        self.C, self.mu = C, mu

    def fit(self, X: Array, y: Array) -> EvgeniouPontil:
        """Train on all tasks."""
        tasks, d = y.shape[1], X.shape[1]
        root = np.sqrt(self.mu)

        def objective(u: Array, V: Array, b: Array) -> tuple[float, list[Array]]:
            """With ``u = sqrt(mu) w_0`` all parts cost the same, which solvers like."""
            value, into, slope = _loss(X @ (u / root + V) + b, y, self.C)
            gradient = X.T @ into
            value += 0.5 * float((V**2).sum() + (u**2).sum())
            return value, [gradient.sum(1, keepdims=True) / root + u, gradient + V, slope]

        u, V, self.intercept_ = _minimum(objective, np.zeros((d, 1)), np.zeros((d, tasks)), np.zeros(tasks))
        self.common_, self.own_ = u[:, 0] / root, V
        self.coef_ = u / root + V
        return self


class Argyriou(_Linear):
    """Few features in common (Argyriou, Evgeniou & Pontil, 2008): ``1/2 ||W||_*^2 + C loss``.

    The square of the trace norm is the least ``trace(W' D^-1 W)`` over D with trace 1, and the two are solved
    in turn: given D, a ridge on features ``X D^1/2``; given W, ``D = (W W')^1/2 / trace``.
    """

    def __init__(self, C: float = 1.0, rounds: int = 10, smooth: float = 1e-6) -> None:
        self.C, self.rounds, self.smooth = C, rounds, smooth

    def fit(self, X: Array, y: Array) -> Argyriou:
        """Train on all tasks."""
        d = X.shape[1]
        U, sides, side = (
            np.zeros((d, 0)),
            np.zeros(0),
            1 / np.sqrt(d),
        )  # D^1/2 on the columns of U, and beside them
        start: tuple[Array, ...] = ()
        for _ in range(self.rounds):
            W, b = _ridge(_stretched(X.T, U, sides, side).T, y, self.C, *start)
            self.coef_, self.intercept_ = _stretched(W, U, sides, side), b
            U, s, _ = np.linalg.svd(self.coef_, full_matrices=False)
            least = np.sqrt(self.smooth) * max(float(s[0]), 1e-15)
            lengths = np.sqrt(s**2 + least**2)
            total = lengths.sum() + (d - len(s)) * least
            sides, side = np.sqrt(lengths / total), np.sqrt(least / total)
            start = (_stretched(self.coef_, U, 1 / sides, 1 / side), b)
        return self


class GOMTL(_Linear):
    """Few latent tasks, of which each task takes few: ``W = L S`` (Kumar & Daume, 2012).

    ``1/2 ||L||^2 + C loss + sparsity ||S||_1``, L and S in turn, from the singular vectors of single
    tasks.
    """

    def __init__(self, C: float = 1.0, latent: int = 5, sparsity: float = 0.1, rounds: int = 10) -> None:
        self.C, self.latent, self.sparsity, self.rounds = C, latent, sparsity, rounds

    def fit(self, X: Array, y: Array) -> GOMTL:
        """Train on all tasks."""
        W, b = _ridge(X, y, self.C)
        U, s, V = np.linalg.svd(W, full_matrices=False)
        K = min(self.latent, len(s))
        half = np.sqrt(s[:K])
        L, S = U[:, :K] * half, half[:, None] * V[:K]
        for _ in range(self.rounds):
            S, b = self._codes(X @ L, y, S, b)
            L = self._latent(X, y, L, S, b)
        self.latent_, self.codes_ = L, S
        self.coef_, self.intercept_ = L @ S, b
        return self

    def _latent(self, X: Array, y: Array, L: Array, S: Array, b: Array) -> Array:
        def objective(L: Array) -> tuple[float, list[Array]]:
            value, into, _ = _loss(X @ L @ S + b, y, self.C)
            return value + 0.5 * float((L**2).sum()), [X.T @ into @ S.T + L]

        return _minimum(objective, L)[0]

    def _codes(self, Z: Array, y: Array, S: Array, b: Array, steps: int = 50) -> tuple[Array, Array]:
        """Accelerated proximal gradients; the slope of the smooth part changes by at most 2 C ||Z||^2."""
        wide = np.hstack([Z, np.ones((len(Z), 1))])
        step = 1 / (2 * self.C * np.linalg.norm(wide, 2) ** 2)
        now, momentum, t = np.vstack([S, b]), np.vstack([S, b]), 1.0
        for _ in range(steps):
            _, into, _ = _loss(wide @ momentum, y, self.C)
            moved = momentum - step * (wide.T @ into)
            shrunk = np.sign(moved[:-1]) * np.maximum(np.abs(moved[:-1]) - step * self.sparsity, 0)
            before, now = now, np.vstack([shrunk, moved[-1:]])
            t, last = (1 + np.sqrt(1 + 4 * t**2)) / 2, t
            momentum = now + (last - 1) / t * (now - before)
        return now[:-1], now[-1]


def _stretched(A: Array, U: Array, sides: Array, side: float) -> Array:
    """A symmetric matrix times A; it has eigenvalues ``sides`` on the columns of U and ``side`` elsewhere."""
    found: Array = side * A + U @ ((sides - side)[:, None] * (U.T @ A))
    return found


def _loss(scores: Array, y: Array, C: float) -> tuple[float, Array, Array]:
    """``C sum max(0, 1 - y score)^2``, its gradient by the scores, and that by the intercepts."""
    short = np.maximum(0, 1 - y * scores)
    into = -2 * C * y * short
    return C * float((short**2).sum()), into, into.sum(0)


def _ridge(X: Array, y: Array, C: float, *start: Array) -> tuple[Array, Array]:
    def objective(W: Array, b: Array) -> tuple[float, list[Array]]:
        value, into, slope = _loss(X @ W + b, y, C)
        return value + 0.5 * float((W**2).sum()), [X.T @ into + W, slope]

    W, b = _minimum(objective, *(start or (np.zeros((X.shape[1], y.shape[1])), np.zeros(y.shape[1]))))
    return W, b


def _minimum(objective: Callable[..., tuple[float, list[Array]]], *start: Array) -> list[Array]:
    """Where a function of several arrays is least, by L-BFGS."""
    cuts = np.cumsum([a.size for a in start])[:-1]

    def arrays(flat: Array) -> list[Array]:
        return [part.reshape(a.shape) for part, a in zip(np.split(flat, cuts), start, strict=True)]

    def of_flat(flat: Array) -> tuple[float, Array]:
        value, gradients = objective(*arrays(flat))
        return value, np.concatenate([g.reshape(-1) for g in gradients])

    flat = np.concatenate([a.reshape(-1) for a in start])
    found = minimize(of_flat, flat, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "ftol": 1e-8})
    return arrays(found.x)
