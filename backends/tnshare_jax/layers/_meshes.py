"""Meshes whose axes are Explicit, JAX's default: there a gather or a reshape asks what is to come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec


def on_any_mesh(
    function: Callable[..., jax.Array], x: jax.Array, task: Any, params: Any, leading: int
) -> Any:
    """A function of x, task and parameters; on Explicit axes XLA finds the shardings inside, as on Auto ones.

    What comes out is sharded by rows as x is; ``leading`` axes before them are in one piece.
    """
    mesh = _explicit_mesh((x, task, *(params.values() if isinstance(params, Mapping) else ())))
    if mesh is None:
        return function(x, task, params)
    rows = jax.typeof(x).sharding.spec[:1]
    out = NamedSharding(mesh, PartitionSpec(*(None,) * leading, *rows))  # type: ignore[no-untyped-call]
    traced = task if isinstance(task, jax.Array) else None

    def inside(x: jax.Array, ids: Any, params: Any) -> jax.Array:
        return function(x, task if ids is None else ids, params)

    with jax.sharding.use_abstract_mesh(mesh):
        return jax.sharding.auto_axes(inside, out_sharding=out)(x, traced, params)


def _explicit_mesh(values: tuple[Any, ...]) -> AbstractMesh | None:
    """The mesh of Explicit axes that one of the arrays is sharded over, if any is."""
    for value in values:
        traced = isinstance(value, jax.core.Tracer)
        if traced or isinstance(getattr(value, "sharding", None), NamedSharding):  # the rest is on one device
            mesh = jax.typeof(value).sharding.mesh
            if not mesh.empty and AxisType.Explicit in mesh.axis_types:
                found: AbstractMesh = mesh
                return found
    return None
