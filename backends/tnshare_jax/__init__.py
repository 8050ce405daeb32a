"""tnshare for JAX: pure functions on plain pytrees."""

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ImportError('tnshare_jax needs JAX: pip install "tnshare[jax]"') from None

from .functions import apply, fan_out, init, params, state, weight
from .ops import JaxOps, ops
from .restore import restore
from .share import share
from .shared import Shared
from .tune import source, tune

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
