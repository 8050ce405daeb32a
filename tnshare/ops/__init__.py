"""What tnshare asks of a framework, and NumPy as the reference that every framework is compared with."""

from ._numpy_convolution import Geometry, NDArray, PaddingMode
from ._operations import Array, Ops, numpy_ops

__all__ = ["Array", "Geometry", "NDArray", "Ops", "PaddingMode", "numpy_ops"]
