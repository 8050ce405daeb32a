"""tnshare for JAX: pure functions on plain pytrees."""

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ImportError('tnshare_jax needs JAX: pip install "tnshare[jax]"') from None

from .functions import apply, fan_out, init, source, weight
from .ops import JaxOps, ops

__all__ = ["JaxOps", "apply", "fan_out", "init", "ops", "source", "weight"]
