"""From a plan to a function of arrays: chosen, timed, remembered, kept."""

from ._calls import Calls, Strategy, in_order
from ._kept_values import Kept
from ._known_calls import EVERY
from ._runners import Inputs, Keeper, Runner, chunked, fixed_axes
from ._timing import KIND, Contest, fastest, measured, placed, smooth, timed
from ._two_stages import composing, halves

__all__ = [
    "EVERY",
    "KIND",
    "Calls",
    "Contest",
    "Inputs",
    "Keeper",
    "Kept",
    "Runner",
    "Strategy",
    "chunked",
    "composing",
    "fastest",
    "fixed_axes",
    "halves",
    "in_order",
    "measured",
    "placed",
    "smooth",
    "timed",
]
