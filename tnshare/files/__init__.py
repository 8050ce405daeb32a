"""What is saved, in one file for every framework, and names that mean the same in each."""

from ._checkpoint import load, save
from ._exchange import layer_params, layer_state, stacked, task_count, translated, unstacked, with_constants
from ._state import Keys, State

__all__ = [
    "Keys",
    "State",
    "layer_params",
    "layer_state",
    "load",
    "save",
    "stacked",
    "task_count",
    "translated",
    "unstacked",
    "with_constants",
]
