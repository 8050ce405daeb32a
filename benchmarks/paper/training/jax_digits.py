"""The digits in JAX: the same methods, images, initial values and batches, the same call of `share`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
import tnshare_jax as tnj
import tqdm
from torch import Generator, nn

from benchmarks.paper.collected import collect
from benchmarks.paper.experiments import mnist
from benchmarks.paper.finished_runs import Runs

from .experiment import Draw, Protocol, drawn_from
from .methods import Method
from .recipe import Recipe
from .tasks import OneAgainstRest

Tree = dict[str, dict[str, Any]]


def run(
    data: Path, work: Path, results: Path, methods: Sequence[Method], draws: Sequence[tuple[float, int]]
) -> None:
    """Every method on every draw that is not finished yet."""
    runs = Runs(work / "mnist-jax" / "runs.jsonl", results / "mnist-jax.json")
    settings = {name: mnist.PROTOCOL.settings(method) for name, method in mnist.methods().items()}
    digests = {name: mnist.PROTOCOL.digest(method) for name, method in mnist.methods().items()}
    collect(runs, settings, set(digests.values()))
    keys = [
        {"method": method.name, "fraction": fraction, "seed": seed, "protocol": digests[method.name]}
        for fraction, seed in draws
        for method in methods
    ]
    left = [key for key in keys if not runs.has(**key)]
    named, drawn = {method.name: method for method in methods}, drawn_from(mnist.load, data)
    for key in tqdm.tqdm(left, desc="mnist in JAX", disable=not left):
        began = time.process_time()
        found = tested(named[key["method"]], drawn(key["fraction"], key["seed"]), mnist.PROTOCOL)
        runs.add({**key, **found, "cpu_seconds": round(time.process_time() - began, 1)})
        collect(runs, settings, set(digests.values()))


def tested(method: Method, draw: Draw, protocol: Protocol) -> dict[str, Any]:
    """Train a method in both stages, and count its errors."""
    assert isinstance(draw.train, OneAgainstRest)
    assert isinstance(draw.test, OneAgainstRest)
    alike = method.hard if method.untrained else draw.shareable
    trees = [tree_of(net) for net in draw.networks(alike, method.width)]
    first = method.recipe(protocol.first) if method.untrained else protocol.first
    shared = tnj.share(trees, **(method.share if method.untrained else {"layers": {"*": "single"}}))
    shared, before = fit(shared, draw.train, first, draw.seed)
    if not method.untrained:
        shared = tnj.share(shared.unshare(), **method.share)
    shared, after = fit(shared, draw.train, method.recipe(protocol.second), draw.seed + 1000)
    size = sum(leaf.size for leaf in jax.tree.leaves(shared))
    return {**errors(shared, draw.test), "parameters": size, "steps": before + after}


def fit(shared: Any, tasks: OneAgainstRest, recipe: Recipe, seed: int) -> tuple[Any, int]:
    """Adam, a rate that falls along half a cosine; the batches are those of torch."""
    generator = Generator().manual_seed(seed)
    batches = [rows.numpy() for _ in range(recipe.epochs) for rows in tasks.batches(recipe.batch, generator)]
    images, signs = arrays(tasks)
    optimiser = optax.adamw(optax.cosine_decay_schedule(recipe.rate, len(batches)), weight_decay=recipe.decay)

    @jax.jit
    def step(shared: Any, state: Any, x: Any, y: Any) -> tuple[Any, Any]:
        updates, state = optimiser.update(jax.grad(loss)(shared, x, y), state, shared)
        return optax.apply_updates(shared, updates), state

    state = optimiser.init(shared)
    for rows in batches:
        shared, state = step(shared, state, images[rows], signs[:, rows])
    return shared, len(batches)


def loss(shared: Any, images: Any, signs: Any) -> Any:
    """The sum over tasks of the mean hinge loss."""
    return jax.nn.relu(1 - scores(shared, images) * signs).mean(1).sum()


def scores(shared: Any, images: Any) -> Any:
    """Classes x n. One task after the other, so that there are patches of one at a time."""
    return jax.lax.map(lambda tree: lenet(tree, images), shared.compose())


def lenet(tree: Tree, x: Any) -> Any:
    """The modified LeNet, on images (n, 28, 28, 1): scores (n,)."""
    for layer in ("conv1", "conv2"):
        x = jax.nn.relu(pooled(convolved(x, tree[layer]["kernel"]) + tree[layer]["bias"]))
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ tree["fc1"]["kernel"] + tree["fc1"]["bias"])
    return (x @ tree["fc2"]["kernel"] + tree["fc2"]["bias"])[:, 0]


def convolved(x: Any, kernel: Any) -> Any:
    """x (n, h, w, in) by a kernel (kh, kw, in, out), without padding, as a product of patches.

    On a CPU, XLA takes eight times as long for the gradients of its own convolutions.
    """
    kh, kw, _, out = kernel.shape
    h, w = x.shape[1] - kh + 1, x.shape[2] - kw + 1
    patches = jnp.concatenate([x[:, p : p + h, q : q + w] for p in range(kh) for q in range(kw)], axis=3)
    return patches @ kernel.reshape(-1, out)


def pooled(x: Any) -> Any:
    """The largest of every two by two places; what is left over at the border is not seen."""
    n, h, w, channels = x.shape
    return x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, channels).max((2, 4))


def tree_of(net: nn.Module) -> Tree:
    """The values of a LeNet of torch, as flax would lay them out: (h, w, in, out) and (in, out)."""
    found: Tree = {}
    for name in ("conv1", "conv2", "fc1", "fc2"):
        weight, bias = (p.detach().numpy() for p in net.get_submodule(name).parameters())
        if name == "fc1":  # torch flattens (channels, 4, 4), we (4, 4, channels)
            weight = weight.reshape(len(weight), -1, 4, 4).transpose(0, 2, 3, 1).reshape(len(weight), -1)
        found[name] = {"kernel": weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T, "bias": bias}
    return found


def errors(shared: Any, tasks: OneAgainstRest, at_once: int = 500) -> dict[str, Any]:
    """Errors in per cent, as `OneAgainstRest.errors` counts them."""
    images, signs = arrays(tasks)
    score: Callable[[Any, Any], Any] = jax.jit(scores)
    parts = [score(shared, images[n : n + at_once]) for n in range(0, len(images), at_once)]
    found = np.concatenate([np.asarray(part) for part in parts], axis=1)
    wrong = (found > 0) != (signs > 0)
    return {
        "binary_error": 100 * float(wrong.mean()),
        "multiclass_error": 100 * float((found.argmax(0) != tasks.labels.numpy()).mean()),
        "task_errors": (100 * wrong.mean(1)).tolist(),
    }


def arrays(tasks: OneAgainstRest) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images with channels last, and the classes x n signs."""
    return tasks.images.permute(0, 2, 3, 1).numpy(), tasks.signs(tasks.labels).numpy()
