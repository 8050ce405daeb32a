"""T networks of one architecture as one module."""

from ._restore import restore
from ._share import replicate, share
from ._shared_network import Shared
from .running._weights import key_of

__all__ = [
    "Shared",
    "key_of",
    "replicate",
    "restore",
    "share",
]
