"""The array operations of JAX."""

from ._jax_ops import JaxOps, Precision, is_key, ops, ops_with
