"""Random modules of the frameworks of JAX as pytrees, each with its own function of a tree and rows of 4."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import flax.linen as linen
import haiku as hk
import jax
from flax import nnx

jnp = jax.numpy
WIDTH = 4


@dataclass
class Made:
    """A tree, what it computes of rows, and what it is."""

    tree: Any
    run: Callable[[Any, Any], Any]
    text: str


def of_linen(rng: random.Random) -> Made:
    """Layers in a sequence, with statistics."""
    kinds = [
        rng.choice(["dense", "conv", "norm", "batch", "attention", "twice"])
        for _ in range(rng.choice([1, 2, 3]))
    ]

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            twice = linen.Dense(WIDTH)
            for kind in kinds:
                match kind:
                    case "dense":
                        x = jnp.tanh(linen.Dense(WIDTH)(x))
                    case "conv":
                        x = linen.Conv(2, (2,))(x[..., None]).mean(-1)
                    case "norm":
                        x = linen.LayerNorm()(x)
                    case "batch":
                        x = linen.BatchNorm(use_running_average=True)(x)
                    case "attention":
                        x = linen.MultiHeadDotProductAttention(2, qkv_features=4)(x[:, None])[:, 0]
                    case _:
                        x = jnp.tanh(twice(jnp.tanh(twice(x))))
            return linen.Dense(3)(x)

    net = Net()
    tree = net.init(jax.random.key(rng.randrange(99)), jnp.ones((2, WIDTH)))
    return Made(tree, net.apply, f"linen {kinds}")


def of_nnx(rng: random.Random) -> Made:
    """The state of a module, whose layers may be one."""
    kinds = [rng.choice(["linear", "conv", "norm", "batch", "twice"]) for _ in range(rng.choice([1, 2, 3]))]

    class Net(nnx.Module):
        def __init__(self, rngs):
            makers = {
                "linear": lambda: nnx.Linear(WIDTH, WIDTH, rngs=rngs),
                "conv": lambda: nnx.Conv(1, 2, (2,), rngs=rngs),
                "norm": lambda: nnx.LayerNorm(WIDTH, rngs=rngs),
                "batch": lambda: nnx.BatchNorm(WIDTH, use_running_average=True, rngs=rngs),
                "twice": lambda: nnx.Linear(WIDTH, WIDTH, rngs=rngs),
            }
            self.parts = nnx.List([makers[kind]() for kind in kinds])
            self.same = self.parts[0]
            self.head = nnx.Linear(WIDTH, 3, rngs=rngs)

        def __call__(self, x):
            for kind, part in zip(kinds, self.parts, strict=True):
                x = part(x[..., None]).mean(-1) if kind == "conv" else part(x)
                x = jnp.tanh(part(x)) if kind == "twice" else x
            return self.head(x)

    graph, state = nnx.split(Net(nnx.Rngs(rng.randrange(99))))
    return Made(state, lambda tree, x: nnx.merge(graph, tree)(x), f"nnx {kinds}")


def of_equinox(rng: random.Random) -> Made:
    """A module with functions in it."""
    kinds = [rng.choice(["linear", "conv", "norm", "mlp", "cell"]) for _ in range(rng.choice([1, 2, 3]))]
    keys = iter(jax.random.split(jax.random.key(rng.randrange(99)), 9))

    class Net(eqx.Module):
        parts: list[Any]
        head: eqx.nn.Linear
        act: Callable[[Any], Any]
        names: tuple[str, ...] = eqx.field(static=True)

        def __call__(self, x):
            for kind, part in zip(self.names, self.parts, strict=True):
                match kind:
                    case "conv":
                        x = part(x[None])[0]
                    case "cell":
                        x = part(x, x)
                    case _:
                        x = part(x)
                x = self.act(x)
            return self.head(x)

    makers = {
        "linear": lambda: eqx.nn.Linear(WIDTH, WIDTH, key=next(keys)),
        "conv": lambda: eqx.nn.Conv1d(1, 1, 3, padding=1, key=next(keys)),
        "norm": lambda: eqx.nn.LayerNorm(WIDTH),
        "mlp": lambda: eqx.nn.MLP(WIDTH, WIDTH, 5, 1, key=next(keys)),
        "cell": lambda: eqx.nn.GRUCell(WIDTH, WIDTH, key=next(keys)),
    }
    net = Net(
        [makers[kind]() for kind in kinds], eqx.nn.Linear(WIDTH, 3, key=next(keys)), jnp.tanh, tuple(kinds)
    )
    return Made(net, lambda tree, x: jax.vmap(tree)(x), f"equinox {kinds}")


def of_haiku(rng: random.Random) -> Made:
    """Parameters and state of a transformed function."""
    kinds = [rng.choice(["linear", "conv", "norm", "batch", "mlp"]) for _ in range(rng.choice([1, 2, 3]))]

    def net(x, training):
        for kind in kinds:
            match kind:
                case "linear":
                    x = jnp.tanh(hk.Linear(WIDTH)(x))
                case "conv":
                    x = hk.Conv1D(2, 2)(x[..., None]).mean(-1)
                case "norm":
                    x = hk.LayerNorm(-1, True, True)(x)
                case "batch":
                    x = hk.BatchNorm(True, True, 0.9)(x, is_training=training)
                case _:
                    x = hk.nets.MLP([5, WIDTH])(x)
        return hk.Linear(3)(x)

    both = hk.transform_with_state(net)
    tree = both.init(jax.random.key(rng.randrange(99)), jnp.ones((2, WIDTH)), True)
    return Made(tree, lambda tree, x: both.apply(*tree, None, x, False)[0], f"haiku {kinds}")


MODULES = (of_linen, of_nnx, of_equinox, of_haiku)
