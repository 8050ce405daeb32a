"""Layers of many tasks as functions of pytrees."""

from . import _modules as modules
from ._functions import apply, fan_out, init, params, state, weight
from ._tuning import source, tune

__all__ = [
    "apply",
    "fan_out",
    "init",
    "modules",
    "params",
    "source",
    "state",
    "tune",
    "weight",
]
