"""tnshare for PyTorch."""

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError('tnshare_torch needs PyTorch: pip install "tnshare[torch]"') from None

from ._ops import TorchOps, calibrate, ops
from .layers import Conv1d, Conv2d, Conv3d, Embedding, Linear
from .shared import Shared, replicate, restore, share

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
