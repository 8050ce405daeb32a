"""tnshare for JAX: pure functions on plain pytrees."""

try:
    import jax as _jax
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ImportError('tnshare_jax needs JAX: pip install "tnshare[jax]"') from None

from ._ops import JaxOps, ops
from .layers import apply, fan_out, init, params, source, state, tune, weight
from .shared import Shared, restore, share

__all__ = [
    "JaxOps",
    "Shared",
    "apply",
    "fan_out",
    "init",
    "ops",
    "params",
    "restore",
    "share",
    "source",
    "state",
    "tune",
    "weight",
]
