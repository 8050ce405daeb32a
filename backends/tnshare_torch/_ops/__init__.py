"""The array operations of PyTorch."""

from ._torch_ops import TorchOps, array_of, autocasts, calibrate, check_device, ops, out_of_range_refused
