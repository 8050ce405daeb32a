"""T networks of one architecture as one module."""

from ._restore import restore
from ._share import replicate, share
from ._shared_network import Shared

__all__ = [
    "Shared",
    "replicate",
    "restore",
    "share",
]
