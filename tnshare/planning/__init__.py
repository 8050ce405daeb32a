"""From a network to a plan: which products, in which order and layout, and what they cost."""

from ._candidates import candidates
from ._explanation import explain, explain_plan, explain_table
from ._generated_code import kept_program, program
from ._job import MOST_KEPT_NUMBERS, READ, AnyJob, AnyOption, Candidate, Job, check_fits, keep_limit
from ._memory_limit import fastest_within, seconds_in_parts
from ._peak_memory import linear_peak, plan_peak, task_gradients
from ._plan import Plan
from ._prices import Prices, priced
from ._row_groups import RowGroups, group
from ._search import Form, Goal, best_plans
from ._steps import BATCH_AXES, IDS, Move, Step, Take, depends_on_batch
from ._task_ids import Choice, choose, read_tasks, take_rows
from ._ways import GROUP_AXIS, USUAL_PLACES, WAYS, Way, bucket, with_input
from .devices._known_devices import PROFILES, Device, calibrate, cpu_model, profile, profile_for
from .devices._measuring import measure
from .devices._profile import Profile

__all__ = [
    "BATCH_AXES",
    "GROUP_AXIS",
    "IDS",
    "MOST_KEPT_NUMBERS",
    "PROFILES",
    "READ",
    "USUAL_PLACES",
    "WAYS",
    "AnyJob",
    "AnyOption",
    "Candidate",
    "Choice",
    "Device",
    "Form",
    "Goal",
    "Job",
    "Move",
    "Plan",
    "Prices",
    "Profile",
    "RowGroups",
    "Step",
    "Take",
    "Way",
    "best_plans",
    "bucket",
    "calibrate",
    "candidates",
    "check_fits",
    "choose",
    "cpu_model",
    "depends_on_batch",
    "explain",
    "explain_plan",
    "explain_table",
    "fastest_within",
    "group",
    "keep_limit",
    "kept_program",
    "linear_peak",
    "measure",
    "plan_peak",
    "priced",
    "profile",
    "profile_for",
    "program",
    "read_tasks",
    "seconds_in_parts",
    "take_rows",
    "task_gradients",
    "with_input",
]
