"""What tnshare asks of a framework, and NumPy as the reference that every framework is compared with."""

from ._numpy_convolution import Geometry, NDArray, PaddingMode, convolve
from ._operations import Array, HasShape, NumpyOps, Ops, check_ops, numpy_ops

__all__ = [
    "Array",
    "Geometry",
    "HasShape",
    "NDArray",
    "NumpyOps",
    "Ops",
    "PaddingMode",
    "check_ops",
    "convolve",
    "numpy_ops",
]
