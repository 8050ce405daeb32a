"""From stacked weights to factors and back: ranks, errors, initial values, task codes."""

from ._compose import checked, chosen_arrays, chosen_network, compose
from ._copies import distinct
from ._decompose import Decomposition, decompose, quietly
from ._initial_values import decomposed_factors, random_factors, random_stream, rounded
from ._sharing_strength import codes, sharing_strength, task_similarity
from ._task_codes import CodeLayout, Fit, code_of, fit_codes

__all__ = [
    "CodeLayout",
    "Decomposition",
    "Fit",
    "checked",
    "chosen_arrays",
    "chosen_network",
    "code_of",
    "codes",
    "compose",
    "decompose",
    "decomposed_factors",
    "distinct",
    "fit_codes",
    "quietly",
    "random_factors",
    "random_stream",
    "rounded",
    "sharing_strength",
    "task_similarity",
]
