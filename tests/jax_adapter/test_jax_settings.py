"""What JAX can be set to: strict promotion of ranks, meshes with Explicit axes, symbolic export."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tnshare as tn

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")
export = pytest.importorskip("jax.export")

ROOT = Path(__file__).resolve().parents[2]
T = 4
X = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
IDS = np.array([0, 1, 2, 3, 3, 2, 1, 0], np.int32)
LINEAR = tn.Linear(6, 4, tasks=T, spec=tn.Tucker((3, 2, 2)))
CONV = tn.Conv(2, 3, kernel=(2,), tasks=T, spec=tn.LAF(2))
TABLE = tn.Embedding(7, 4, tasks=T, spec=tn.TT((2, 2)))
LAYERS = {
    "linear": (LINEAR, X),
    "conv": (CONV, np.ones((8, 2, 5), np.float32)),
    "table": (TABLE, np.arange(8) % 7),
}
WAYS = {
    "one": lambda layer, params, x, ids: tnj.apply(layer, params, x, 1),
    "mixed": lambda layer, params, x, ids: tnj.apply(layer, params, x, ids),
    "fan_out": lambda layer, params, x, ids: tnj.fan_out(layer, params, x),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS)
def test_strict_promotion_of_ranks(kind, way):
    layer, x = LAYERS[kind]
    params = tnj.init(layer)
    expected = WAYS[way](layer, params, x, IDS)
    with jax.numpy_rank_promotion("raise"):
        found = WAYS[way](layer, params, x, IDS)
        jax.grad(lambda params: WAYS[way](layer, params, x, IDS).sum())(params)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_shared_tree_under_strict_promotion_of_ranks():
    trees = [{"k": np.random.default_rng(n).standard_normal((6, 4)).astype(np.float32)} for n in range(T)]
    with jax.numpy_rank_promotion("raise"):
        shared = tnj.share(trees, eps=0)
        for task in (1, None, IDS):
            shared.compose(task)
        shared.add_task(trees[0]).remove_task(0).compose(code=shared.code(1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS)
def test_symbolic_export(kind, way):
    layer, x = LAYERS[kind]
    params = tnj.init(layer)
    (rows,) = export.symbolic_shape("rows")
    symbolic = [jax.ShapeDtypeStruct((rows, *given.shape[1:]), given.dtype) for given in (np.asarray(x), IDS)]
    program = export.export(jax.jit(lambda x, ids: WAYS[way](layer, params, x, ids)))(*symbolic)
    again = export.deserialize(program.serialize())
    for count in (8, 3):
        expected = WAYS[way](layer, params, x[:count], IDS[:count])
        np.testing.assert_allclose(again.call(x[:count], IDS[:count]), expected, rtol=1e-5, atol=1e-6)


def test_symbolic_export_of_a_shared_tree():
    trees = [{"k": np.random.default_rng(n).standard_normal((6, 4)).astype(np.float32)} for n in range(T)]
    shared = tnj.share(trees, eps=0)
    (rows,) = export.symbolic_shape("rows")
    program = export.export(jax.jit(lambda ids: shared.compose(ids)["k"]))
    found = program(jax.ShapeDtypeStruct((rows,), np.int32)).call(IDS)
    np.testing.assert_allclose(found, [trees[t]["k"] for t in IDS], rtol=1e-4, atol=1e-5)


MESH = """
import jax, numpy as np, tnshare as tn, tnshare_jax as tnj
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2, 2), ("data", "task"), axis_types=(AxisType.Explicit,) * 2)
X = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
IDS, done = np.array([0, 1, 2, 3, 3, 2, 1, 0], np.int32), 0
for spec, coded, rows in ((tn.LAF(2), 1, 1), (tn.Tucker((3, 2, 2)), 1, 0), (tn.TT((3, 2)), 0, 1)):
    layer = tn.Linear(6, 4, tasks=4, spec=spec)
    plain = layer.init(0)
    def put(value, sharded, axis):
        return jax.device_put(value, NamedSharding(mesh, P(axis) if sharded else P()))
    params = {n: put(v, coded and n in ("S", "U_task", "bias"), "task") for n, v in plain.items()}
    x, ids = put(X, rows, "data"), put(IDS, rows, "data")
    ways = {
        "one": (lambda p, x, i: tnj.apply(layer, p, x, 1), tn.apply(layer, plain, X, 1)),
        "mixed": (lambda p, x, i: tnj.apply(layer, p, x, i), tn.apply(layer, plain, X, IDS)),
        "fan": (lambda p, x, i: tnj.fan_out(layer, p, x), tn.fan_out(layer, plain, X)),
    }
    for way, expected in ways.values():
        np.testing.assert_allclose(np.asarray(way(params, x, ids)), expected, atol=1e-5)
        with jax.set_mesh(mesh):
            np.testing.assert_allclose(np.asarray(jax.jit(way)(params, x, ids)), expected, atol=1e-5)
            jax.jit(jax.grad(lambda p: way(p, x, ids).sum()))(params)
        done += 1
assert done == 9
print("all the same")
"""


def test_meshes_with_explicit_axes():
    """In a process of its own, which has four devices."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "backends"), os.environ.get("PYTHONPATH", "")])
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "PYTHONPATH": path, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-c", MESH], capture_output=True, text=True, env=environment, check=False
    )
    assert run.stdout == "all the same\n", run.stderr[-2000:]
