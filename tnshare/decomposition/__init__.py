"""From stacked weights to factors and back: ranks, errors, initial values, task codes."""

from ._compose import checked, chosen_arrays, chosen_network, compose
from ._decompose import Decomposition, decompose
from ._initial_values import decomposed_factors, random_factors, random_stream, rounded
from ._sharing_strength import codes, sharing_strength, task_similarity
from ._task_codes import CodeLayout, CodePart, code_of, code_parts

__all__ = [
    "CodeLayout",
    "CodePart",
    "Decomposition",
    "checked",
    "chosen_arrays",
    "chosen_network",
    "code_of",
    "code_parts",
    "codes",
    "compose",
    "decompose",
    "decomposed_factors",
    "random_factors",
    "random_stream",
    "rounded",
    "sharing_strength",
    "task_similarity",
]
