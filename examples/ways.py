"""Ten related tasks from scikit-learn's digits, softly shared, in three frameworks.

Task t: from the upper half of an image of the digit t (32 pixels) predict the lower half (32 pixels). The
linear maps of the ten digits, each fitted from the same start, are stacked to 32 x 32 x 10.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax.numpy as jnp
import numpy as np
import tnshare_jax as tnj
import tnshare_torch as tnt
import torch
from sklearn.datasets import load_digits

import tnshare as tn

NDArray = np.ndarray[Any, Any]
EPS = 0.1


def fitted_maps() -> tuple[NDArray, NDArray, NDArray]:
    """The stacked maps (32, 32, 10), the upper halves of all images, and their digits."""
    digits = load_digits()
    pixels = (digits.data / 16).astype(np.float32)
    upper, lower = pixels[:, :32], pixels[:, 32:]
    start = ridge(upper, lower)
    maps = []
    for digit in range(10):
        x, y = upper[digits.target == digit], lower[digits.target == digit]
        maps.append(start + ridge(x, y - x @ start))
    return np.stack(maps, axis=-1).astype(np.float32), upper, digits.target


def ridge(x: NDArray, y: NDArray, penalty: float = 20.0) -> NDArray:
    """The linear map from x to y with the least squared error and a penalty on its size."""
    solution: NDArray = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y)
    return solution


def show_decompositions(stack: NDArray) -> dict[str, tn.Decomposition]:
    """What one eps keeps of the stack, for each method."""
    heading(f"A stack {' x '.join(map(str, stack.shape))}, decomposed by one eps = {EPS}")
    found = {}
    print(f"{'method':8}{'ranks':16}{'parameters':>12}{'kept':>7}{'error':>8}{'sharing':>9}")
    for method in ("laf", "tucker", "tt"):
        d = tn.decompose(stack, method, eps=EPS, axes=("i", "o", "task"))
        rho = tn.sharing_strength(tn.codes(d.network, d.factors))
        ranks = " ".join(map(str, d.spec.ranks))
        print(f"{method:8}{ranks:16}{d.network.parameters:12,}{d.kept:7.0%}{d.error:8.3f}{rho:9.3f}")
        for text in d.warnings:
            print(f"        {text}")
        found[method] = d
    similarity = tn.task_similarity(d.network, d.factors) - np.eye(10)
    near = np.unravel_index(similarity.argmax(), similarity.shape)
    far = np.unravel_index((similarity + 2 * np.eye(10)).argmin(), similarity.shape)
    print(f"most alike: {near[0]} and {near[1]} (cosine {similarity[near]:.2f}); ", end="")
    print(f"least alike: {far[0]} and {far[1]} ({similarity[far]:.2f})")
    return found


def show_network(d: tn.Decomposition) -> None:
    """The contraction graph and a plan with its cost."""
    heading("The contraction graph of Tucker, as an equation " + d.network.equation)
    print(d.network.describe())
    layer = tn.Linear(32, 32, tasks=10, spec=d.spec, bias=False)
    heading("A plan: 128 rows, each with a task of its own, without building any weight")
    print(layer.plan("mixed", 128).explain())


def show_ways(d: tn.Decomposition, stack: NDArray, upper: NDArray, digit: NDArray) -> float:
    """The four ways in three frameworks, against weights that were built; returns the largest difference."""
    heading("The four ways of choosing tasks, against a loop over built weights (largest difference)")
    layer = tn.Linear(32, 32, tasks=10, spec=d.spec, bias=False)
    dense = tn.compose(d.network, d.factors)
    x, ids = upper[:128], digit[:128]
    xs = np.stack([upper[digit == t][:16] for t in range(10)])
    expected = {
        "layer(x, 3)": x @ dense[..., 3],
        "layer(x, ids)": np.stack([row @ dense[..., t] for row, t in zip(x, ids, strict=True)]),
        "layer(xs)": np.stack([xs[t] @ dense[..., t] for t in range(10)]),
        "layer.fan_out(x)": np.stack([x @ dense[..., t] for t in range(10)]),
    }
    module = tnt.Linear(32, 32, tasks=10, spec=d.spec, bias=False)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in d.factors.items()})
    params = {name: jnp.asarray(value) for name, value in d.factors.items()}
    tx, tids, txs = torch.from_numpy(x), torch.from_numpy(ids), torch.from_numpy(xs)
    with torch.no_grad():
        frameworks: dict[str, list[Any]] = {
            "NumPy": [
                tn.apply(layer, d.factors, x, 3),
                tn.apply(layer, d.factors, x, ids),
                tn.apply(layer, d.factors, xs),
                tn.fan_out(layer, d.factors, x),
            ],
            "torch": [module(tx, 3), module(tx, tids), module(txs), module.fan_out(tx)],
            "JAX": [
                tnj.apply(layer, params, x, 3),
                tnj.apply(layer, params, x, ids),
                tnj.apply(layer, params, xs),
                tnj.fan_out(layer, params, x),
            ],
        }
    print(f"{'':18}{'gives':18}" + "".join(f"{name:>10}" for name in frameworks))
    worst = 0.0
    for n, (way, dense_result) in enumerate(expected.items()):
        gaps = [np.abs(np.asarray(results[n]) - dense_result).max() for results in frameworks.values()]
        worst = max(worst, *map(float, gaps))
        print(f"{way:18}{dense_result.shape!s:18}" + "".join(f"{gap:10.1e}" for gap in gaps))
    return worst


def heading(text: str) -> None:
    """A title with a line under it."""
    print(f"\n{text}\n{'-' * len(text)}")


def main() -> int:
    """Run the whole demonstration."""
    start = time.perf_counter()
    stack, upper, digit = fitted_maps()
    found = show_decompositions(stack)
    show_network(found["tucker"])
    worst = show_ways(found["tucker"], stack, upper, digit)
    print(f"\nAll ways agree to {worst:.0e}. {time.perf_counter() - start:.1f} s.")
    return 0 if worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
