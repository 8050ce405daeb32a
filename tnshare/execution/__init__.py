"""From a plan to a function of arrays: chosen, timed, remembered, kept."""

from ._call_cache import EVERY
from ._call_kind import CallKind
from ._calls import Calls, Decision, Strategy
from ._kept_values import Kept
from ._runners import Keeper, Runner, Shape, fixed_axes, has_gradient
from ._timing import time_in_rounds
from ._two_stages import composing_plan, two_stages
