"""One of every kind of thing that is saved, made of numbers that a formula gives.

``python tests/helpers/written_before.py FOLDER`` writes them with the tnshare that is installed: so were the
files of tests/files/written_by_0_1_0, which every later version reads.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tnshare as tn

T = 3
SPECS = {"laf": tn.LAF(2), "tucker": tn.Tucker((3, 2, 2)), "tt": tn.TT((3, 2)), "ones": tn.LAF.hard_sharing()}
NAMES = ("red", "green", "blau")


def numbers(start, *shape):
    """Numbers of float32 that no other ``start`` gives."""
    count = int(np.prod(shape))
    return np.sin((1 + 0.1 * start) * np.arange(1, count + 1) ** 1.1).astype(np.float32).reshape(shape)


def plain():
    """Decompositions and arrays, as `tnshare.save` takes them without any framework."""
    stack = numbers(1, 5, 4, T)
    found = {f"{name} of a stack": tn.decompose(stack, name, eps=0) for name in ("laf", "tucker", "tt")}
    spec = SPECS["ones"]
    factors = {"L": numbers(2, 1, 5, 4), "S": np.ones((T, 1), np.float32)}
    ones = tn.Decomposition(spec, spec.network(i=5, o=4, task=T), factors, 0.5, 1.0)
    arrays = {"array": numbers(3, 2, 3), "int": np.arange(4), "complex": 1j + numbers(4, 3)}
    return {**found, "ones": ones, **arrays}


def layer_numbers(layer):
    """The parameters of a layer."""
    return {name: numbers(n, *shape) for n, (name, shape) in enumerate(layer.shapes.items(), 1)}


def leaves(task, head=2):
    """Weights and biases of a network of one task, by (layer, kind), with kernels (in, out)."""
    kernel = {"conv": (3, 2, 4), "fc": (12, 5), "tied": (5, 5), "head": (5, head)}
    return {
        **{(layer, "kernel"): numbers(n + 10 * task, *s) for n, (layer, s) in enumerate(kernel.items())},
        **{(layer, "bias"): numbers(n + 10 * task + 5, s[-1]) for n, (layer, s) in enumerate(kernel.items())},
    }


OPTIONS = {"eps": 0, "layers": {"tied*": "hard", "fc*": "tt", "conv*": "tucker", "head*": "single"}}


def torch_network(task=0, head=2):
    """That network in torch, with a counter of its own."""
    import torch
    from torch import nn

    net = nn.Module()
    net.conv, net.fc, net.tied = nn.Conv1d(2, 4, 3), nn.Linear(12, 5), nn.Linear(5, 5)
    net.head, net.norm = nn.Linear(5, head), nn.BatchNorm1d(5)
    net.norm.num_batches_tracked.fill_(7 + task)
    with torch.no_grad():
        for (layer, kind), value in leaves(task, head).items():
            own = net.get_submodule(layer)
            getattr(own, kind.replace("kernel", "weight")).copy_(torch.from_numpy(value.T.copy()))
    return net


def jax_tree(task=0, head=2):
    """That network as a tree, with leaves that are not trained."""
    import jax

    tree = {name: {} for name, _ in leaves(task)}
    for (layer, kind), value in leaves(task, head).items():
        tree[layer][kind] = value
    constants = {"steps": 7 + task, "key": jax.random.key(task), "word": "gelu"}
    return {**tree, **constants, "table": np.arange(3) + task}


def torch_layer(name):
    """A layer of torch."""
    import tnshare_torch as tnt
    import torch

    layer = tnt.Linear(5, 4, T, SPECS[name])
    layer.load_state_dict(
        {n: torch.from_numpy(v) for n, v in layer_numbers(layer.description).items()}, False
    )
    return layer


def jax_layer(name):
    """The description and the parameters of a layer of JAX."""
    layer = tn.Linear(5, 4, tasks=T, spec=SPECS[name])
    return layer, layer_numbers(layer)


def write(folder):
    """All of them."""
    import tnshare_jax as tnj
    import tnshare_torch as tnt
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    tn.save(folder / "decomposition.safetensors", plain()["tucker of a stack"])
    tn.save(folder / "dict.safetensors", plain())
    for name in SPECS:
        tn.save(folder / f"torch_layer_{name}.safetensors", torch_layer(name))
        tn.save(folder / f"jax_layer_{name}.safetensors", tnj.state(*jax_layer(name)))
    torch.save(torch_layer("tucker").state_dict(), folder / "torch_layer_tucker.pt")
    nets = [torch_network(task) for task in range(T)]
    shared = tnt.share(dict(zip(NAMES, nets, strict=True)), **OPTIONS)
    tn.save(folder / "torch_shared.safetensors", shared)
    torch.save(shared.state_dict(), folder / "torch_shared.pt")
    heads = tnt.share([torch_network(task, 2 + task) for task in range(T)], **OPTIONS)
    tn.save(folder / "torch_heads.safetensors", heads)
    trees = [jax_tree(task) for task in range(T)]
    tn.save(folder / "jax_shared.safetensors", tnj.share(dict(zip(NAMES, trees, strict=True)), **OPTIONS))
    trees = [jax_tree(task, 2 + task) for task in range(T)]
    tn.save(folder / "jax_heads.safetensors", tnj.share(trees, **OPTIONS))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
