"""T trained models in: which of their weights are shared, and how; the tasks by name."""

from ._comparing import Difference, Pair, Verdict, differences_of, is_ignored, named_pairs
from ._roster import Roster
from ._shared_model import HARD, SINGLE, Setting, SharedModel, layer_name, matches, share_arrays

__all__ = [
    "HARD",
    "SINGLE",
    "Difference",
    "Pair",
    "Roster",
    "Setting",
    "SharedModel",
    "Verdict",
    "differences_of",
    "is_ignored",
    "layer_name",
    "matches",
    "named_pairs",
    "share_arrays",
]
