"""Layers of many tasks as modules of PyTorch."""

from ._conv import Conv1d, Conv2d, Conv3d
from ._embedding import Embedding
from ._linear import Linear

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Embedding",
    "Linear",
]
