"""tnshare for PyTorch."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError('tnshare_torch needs PyTorch: pip install "tnshare[torch]"') from None

from .calibrate import calibrate
from .conv import Conv1d, Conv2d, Conv3d
from .embedding import Embedding
from .linear import Linear
from .ops import TorchOps, ops
from .restore import restore
from .share import replicate, share
from .shared import Shared

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Embedding",
    "Linear",
    "Shared",
    "TorchOps",
    "calibrate",
    "ops",
    "replicate",
    "restore",
    "share",
]
