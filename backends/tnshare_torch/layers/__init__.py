"""Layers of many tasks as modules of PyTorch."""

from ._conv import Conv1d, Conv2d, Conv3d
from ._embedding import Embedding
from ._layer_state import SpecInState, shape_of
from ._linear import Linear

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Embedding",
    "Linear",
    "SpecInState",
    "shape_of",
]
