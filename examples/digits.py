"""Ten one-vs-rest tasks from the 8 x 8 digits of scikit-learn: data, errors and tables, for any framework."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

NDArray = np.ndarray[Any, Any]
TASKS = 10
METHODS = ("laf", "tucker", "tt")
NAMES = {"laf": "LAF", "tucker": "Tucker", "tt": "TT"}
FIRST, SINGLE, HARD = "single-task, first stage", "single-task", "hard sharing"


@dataclass(frozen=True)
class Settings:
    """What a run is made of; all methods get the same images, batches and number of steps."""

    seeds: int = 3
    steps: int = 200  # in each of two stages
    images: int = 5  # of each digit, to train on; all others are for the test
    batch: int = 25
    rate: float = 3e-3
    eps: float = 0.4  # of what differs between the tasks
    folder: Path = Path("build/demo")

    @classmethod
    def parsed(cls, about: str | None) -> Settings:
        """The settings that the command line asks for."""
        parser = argparse.ArgumentParser(description=about)
        for name, default in vars(cls()).items():
            parser.add_argument(f"--{name}", type=type(default), default=default)
        return cls(**vars(parser.parse_args()))


@dataclass(frozen=True)
class Split:
    """Images (N, 1, 8, 8) between 0 and 1 and their digits, to train on and to test with."""

    images: NDArray
    digits: NDArray
    test_images: NDArray
    test_digits: NDArray


@dataclass(frozen=True)
class Result:
    """What became of one method on one split."""

    method: str
    multiclass: float  # fraction of images whose largest output is not that of their digit's task
    binary: float  # fraction of wrong answers of ten networks to "is it your digit?"
    parameters: int
    milliseconds: float  # median time of a step
    strength: Mapping[str, float]  # the paper's rho of each layer
    cosine: Mapping[str, float]  # mean cosine of two tasks' weights in each layer


Run = Callable[[Settings, int, tqdm], tuple[list[Result], dict[str, NDArray]]]  # of one seed


def split(images: int, seed: int) -> Split:
    """So many images of each digit to train on, drawn by the seed."""
    data = load_digits()
    pixels, digits = (data.images[:, None] / 16).astype(np.float32), data.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(digits))
    train = np.concatenate([order[digits[order] == t][:images] for t in range(TASKS)])
    rest = np.setdiff1d(order, train)
    return Split(pixels[train], digits[train], pixels[rest], digits[rest])


def batches(count: int, size: int, steps: int, seed: int) -> Iterator[NDArray]:
    """The rows of each step, the same for every method and framework."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        yield rng.choice(count, min(size, count), replace=False)


def answers(digits: NDArray) -> NDArray:
    """Right answers (T, N): 1 where an image is the digit of a task."""
    return (digits == np.arange(TASKS)[:, None]).astype(np.float32)


def errors(outputs: NDArray, digits: NDArray) -> tuple[float, float]:
    """Fractions of wrong digits and of wrong answers, of outputs (T, N) whose sign is the answer."""
    multiclass = (outputs.argmax(0) != digits).mean()
    return float(multiclass), float(((outputs > 0) != (answers(digits) > 0)).mean())


def mean_cosine(weights: Sequence[NDArray]) -> float:
    """The mean cosine of two tasks' weights."""
    flat = np.stack([weight.ravel() for weight in weights]).astype(np.float64)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    return mean_off_diagonal(flat @ flat.T)


def mean_off_diagonal(matrix: NDArray) -> float:
    """The mean over pairs of different tasks."""
    count = len(matrix)
    return float((matrix.sum() - np.trace(matrix)) / (count * (count - 1)))


def table(results: Sequence[Result]) -> str:
    """Means over the seeds, with the standard deviation of the errors."""
    layers = list(results[0].cosine)
    titles = f"{'':25}{'multi-class %':>14}{'binary %':>13}{'parameters':>12}{'ms a step':>11}"
    lines = [titles + "".join(f"{layer:>13}" for layer in layers)]
    for method in dict.fromkeys(result.method for result in results):
        own = [result for result in results if result.method == method]
        errors = f"{_spread(own, 'multiclass'):>14}{_spread(own, 'binary'):>13}"
        costs = f"{_mean(own, 'parameters'):12,.0f}{_mean(own, 'milliseconds'):11.1f}"
        lines.append(
            f"{method:25}{errors}{costs}" + "".join(f"{_sharing(own, layer):>13}" for layer in layers)
        )
    return "\n".join(lines)


def shown(run: Run, s: Settings, name: str, where: str) -> list[Result]:
    """Run every seed, print the table, and draw the picture of that name."""
    start = time.perf_counter()
    results: list[Result] = []
    with tqdm(total=s.seeds * s.steps * (4 + len(METHODS)), unit="step") as bar:
        for seed in range(s.seeds):
            found, similarity = run(s, seed, bar)
            results += found
    print(f"\n{table(results)}\n\n{explained(s)}")
    path = s.folder / name
    picture(results, similarity, path)
    print(f"\nA picture of it, and of which digits TT keeps alike: {path}")
    print(f"{time.perf_counter() - start:.0f} s with {where}.")
    return results


def explained(s: Settings) -> str:
    """What the table compares, and what its columns are."""
    return f"""\
Ten networks, one for each digit, and {TASKS * s.images} images to train on. All train alone for {s.steps}
steps (first stage), then for {s.steps} more: alone (single-task), or shared by one call and fine-tuned (LAF,
Tucker, TT). Hard sharing: all layers but the head are one for all, from the first of {2 * s.steps} steps on.

multi-class: the network with the largest output is that of another digit. binary: wrong answers of ten
networks to "is it your digit?". Both on all other images, mean and standard deviation over seeds ({s.seeds}).
Layer by layer: the paper's sharing strength (with its softmax; "-" where a layer has no codes), and the mean
cosine of two tasks' weights, which needs no convention."""


def picture(results: Sequence[Result], similarity: Mapping[str, NDArray], path: Path) -> None:
    """Errors of all methods against their parameters, and which tasks share in the layers of one of them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, 1 + len(similarity), figsize=(4 + 3 * len(similarity), 3.4), layout="constrained"
    )
    for method in dict.fromkeys(result.method for result in results if result.method != FIRST):
        own = [result for result in results if result.method == method]
        wrong = [100 * result.binary for result in own]
        axes[0].scatter([result.parameters for result in own], wrong, label=method, s=18)
    axes[0].set(xlabel="parameters of ten networks", ylabel="binary error, %", xlim=(0, None))
    axes[0].legend(fontsize=7)
    for axis, (layer, cosines) in zip(axes[1:], similarity.items(), strict=True):
        shown = axis.imshow(cosines, vmin=-1, vmax=1, cmap="RdBu_r")
        axis.set(title=f"{layer}: cosine of weights", xticks=range(TASKS), yticks=range(TASKS))
    figure.colorbar(shown, ax=axes[1:], shrink=0.8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _mean(results: Sequence[Result], name: str) -> float:
    return statistics.mean(getattr(result, name) for result in results)


def _spread(results: Sequence[Result], name: str) -> str:
    values = [100 * getattr(result, name) for result in results]
    return f"{statistics.mean(values):.2f} ± {statistics.pstdev(values):.2f}"


def _sharing(results: Sequence[Result], layer: str) -> str:
    def mean(pick: Callable[[Result], Mapping[str, float]]) -> str:
        found = [pick(result)[layer] for result in results if layer in pick(result)]
        return f"{statistics.mean(found):.2f}" if found else "-"

    return f"{mean(lambda r: r.strength)} / {mean(lambda r: r.cosine)}"
