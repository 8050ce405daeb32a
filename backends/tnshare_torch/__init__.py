"""tnshare for PyTorch."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError('tnshare_torch needs PyTorch: pip install "tnshare[torch]"') from None

from .calibrate import calibrate
from .linear import Linear
from .ops import TorchOps, ops
from .share import replicate, share
from .shared import Shared

__all__ = ["Linear", "Shared", "TorchOps", "calibrate", "ops", "replicate", "share"]
