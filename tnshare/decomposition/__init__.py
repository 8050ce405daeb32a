"""From stacked weights to factors and back: ranks, errors, initial values, task codes."""

from ._compose import chosen_arrays, chosen_network, compose, factors_in_order
from ._copies import distinct
from ._decompose import Decomposition, decompose, quietly
from ._initial_values import decomposed_factors, random_factors, random_stream, rounded
from ._sharing_strength import codes, sharing_strength, task_similarity
from ._task_codes import CodeLayout, Fit, code_of, fit_codes
