"""The array operations of PyTorch."""

from ._calibration import calibrate
from ._torch_ops import TorchOps, array_of, autocasts, ops, out_of_range_refused

__all__ = [
    "TorchOps",
    "array_of",
    "autocasts",
    "calibrate",
    "ops",
    "out_of_range_refused",
]
