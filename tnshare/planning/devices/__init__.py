"""What a device takes for an operation: profiles, measured here or published; and what is kept of them."""

from . import _cache_folder as store

__all__ = ["store"]
