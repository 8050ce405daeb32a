"""Ten one-vs-rest networks on digits: trained alone, shared by LAF, Tucker and TT, fine-tuned. In JAX."""

from __future__ import annotations

import math
import statistics
import time
from functools import partial
from typing import Any

import digits
import jax
import jax.numpy as jnp
import optax
import tnshare_jax as tnj
from digits import FIRST, HARD, SINGLE, Result, Settings, Split
from tqdm import tqdm

SHAPES = {"conv": (3, 3, 1, 16), "hidden": (16 * 4 * 4, 32), "head": (32, 1)}
LAYOUT = "NCHW", "HWIO", "NCHW"
Tree = Any  # the parameters of one network, or of all, stacked with the task axis first


def initial(seed: int) -> Tree:
    """The parameters of one network, drawn as torch.nn draws its own."""
    tree = {}
    for key, (name, shape) in zip(jax.random.split(jax.random.key(seed), 3), SHAPES.items(), strict=True):
        bound = 1 / math.sqrt(math.prod(shape[:-1]))
        drawn = [
            jax.random.uniform(k, s, minval=-bound, maxval=bound)
            for k, s in zip(jax.random.split(key), (shape, shape[-1:]), strict=True)
        ]
        tree[name] = dict(zip(("kernel", "bias"), drawn, strict=True))
    return tree


def net(tree: Tree, x: jax.Array) -> jax.Array:
    """Is it this digit? The logit of the answer, (N,): an ordinary function, which knows nothing of tasks."""
    conv, hidden, head = tree["conv"], tree["hidden"], tree["head"]
    x = jax.lax.conv_general_dilated(x, conv["kernel"], (1, 1), "SAME", dimension_numbers=LAYOUT)
    x = jax.nn.relu(x + conv["bias"][:, None, None])
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = jax.nn.relu(x.reshape(len(x), -1) @ hidden["kernel"] + hidden["bias"])
    return (x @ head["kernel"] + head["bias"])[:, 0]


def trees_of(model: Tree | tnj.Shared) -> Tree:
    """The parameters of all networks, stacked: as they are, or composed."""
    return model.compose() if isinstance(model, tnj.Shared) else model


fan_out = jax.jit(jax.vmap(net, in_axes=(0, None)))  # the same images through all networks: (T, N)


@partial(jax.jit, static_argnames="rate")
def step(model: Tree, state: Any, x: jax.Array, answers: jax.Array, rate: float) -> tuple[Tree, Any]:
    """One step of one optimiser for all tasks: Adam works on every number for itself."""

    def loss(model: Tree) -> jax.Array:
        each = optax.sigmoid_binary_cross_entropy(fan_out(trees_of(model), x), answers)
        return each.mean(1).sum()  # each task has its own loss

    updates, state = optax.adam(rate).update(jax.grad(loss)(model), state)
    return optax.apply_updates(model, updates), state


def train(model: Tree, data: Split, s: Settings, seed: int, bar: tqdm) -> tuple[Tree, float]:
    """One stage; returns what was trained, and the median milliseconds of a step."""
    answers, state, times = digits.answers(data.digits), optax.adam(s.rate).init(model), []
    for rows in digits.batches(len(data.images), s.batch, s.steps, seed):
        start = time.perf_counter()
        batch = data.images[rows], answers[:, rows]
        model, state = jax.block_until_ready(step(model, state, *batch, rate=s.rate))
        times.append(1e3 * (time.perf_counter() - start))
        bar.update()
    return model, statistics.median(times)


def measured(method: str, model: Tree, data: Split, ms: float) -> Result:
    """Errors on the images that nobody trained on, and how alike the tasks are in every layer."""
    trees = jax.device_get(jax.jit(trees_of)(model))
    outputs = jax.device_get(fan_out(trees, data.test_images))
    cosine = {layer: digits.mean_cosine(list(trees[layer]["kernel"])) for layer in SHAPES}
    strength = model.sharing() if isinstance(model, tnj.Shared) else {}
    count = sum(leaf.size for leaf in jax.tree.leaves(model))
    return Result(method, *digits.errors(outputs, data.test_digits), count, ms, strength, cosine)


def run(s: Settings, seed: int, bar: tqdm) -> tuple[list[Result], dict[str, digits.NDArray]]:
    """All methods on the split of one seed; and which tasks are alike in the layers of the last."""
    data = digits.split(s.images, seed)
    trees = [initial(seed)] * digits.TASKS  # of one initial state: only then do weights stay alike
    results = []

    def stage(method: str, model: Tree, number: int) -> Tree:
        bar.set_description(f"seed {seed}, {method}")
        model, ms = train(model, data, s, 2 * seed + number, bar)
        results.append(measured(method, model, data, ms))
        return model

    alone = stage(FIRST, jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees), 0)
    stage(SINGLE, alone, 1)
    hard = stage(HARD, tnj.share(trees, "hard", layers={"head": "single"}), 0)
    results.pop()  # its first stage is no result: it was shared from the start
    stage(HARD, hard, 1)
    trained = [jax.tree.map(lambda leaf, t=t: leaf[t], alone) for t in range(digits.TASKS)]
    for name in digits.METHODS:
        shared = tnj.share(trained, name, eps=s.eps, relative_to="deviation")
        shared = stage(digits.NAMES[name], shared, 1)
    similarity = shared.similarity()
    return results, {layer: similarity[layer] for layer in SHAPES}


def main(s: Settings) -> list[Result]:
    """Run it, and print the table."""
    return digits.shown(run, s, "digits_jax.png", f"JAX on {jax.devices()[0].platform}, compiling included")


if __name__ == "__main__":
    main(Settings.parsed(__doc__))
