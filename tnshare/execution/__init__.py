"""From a plan to a function of arrays: chosen, timed, remembered, kept."""

from ._array_facts import has_gradient
from ._call_cache import EVERY
from ._call_kind import CallKind
from ._calls import Calls, Decision, Strategy
from ._kept_values import Kept
from ._runners import Inputs, Keeper, Runner, Shape, fixed_axes
from ._timing import time_in_rounds
from ._two_stages import composing_plan, two_stages

__all__ = [
    "EVERY",
    "CallKind",
    "Calls",
    "Decision",
    "Inputs",
    "Keeper",
    "Kept",
    "Runner",
    "Shape",
    "Strategy",
    "composing_plan",
    "fixed_axes",
    "has_gradient",
    "time_in_rounds",
    "two_stages",
]
