"""T trained models in: which of their weights are shared, and how; the tasks by name."""

from ._comparing import Difference, Pair, Verdict, differences_of, is_ignored, named_pairs
from ._roster import Roster
from ._shared_model import (
    HARD,
    SINGLE,
    Setting,
    SharedModel,
    added_task,
    layer_name,
    matches,
    share_arrays,
    sharing_of_layers,
    similarity_of_layers,
)
