"""From a network to a plan: which products, in which order and layout, and what they cost."""

from ._candidates import candidates
from ._explanation import explain, explain_plan, explain_table
from ._generated_code import kept_program, program
from ._job import KEPT, Candidate, Job, check_fits, room
from ._memory_limit import fitting, within
from ._plan import Plan
from ._prices import Prices
from ._row_groups import RowGroups, group
from ._search import Form, Goal, best_plans
from ._steps import BATCH_AXES, IDS, Move, Step, Take, depends_on_batch
from ._task_ids import Choice, choose, read_tasks, take_rows
from ._ways import GROUP_AXIS, WAYS, Way, bucket, leading_axes, with_input
from .devices._known_devices import PROFILES, Device, calibrate, cpu_model, profile, profile_for
from .devices._measuring import measure
from .devices._profile import Profile

__all__ = [
    "BATCH_AXES",
    "GROUP_AXIS",
    "IDS",
    "KEPT",
    "PROFILES",
    "WAYS",
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
    "fitting",
    "group",
    "kept_program",
    "leading_axes",
    "measure",
    "profile",
    "profile_for",
    "program",
    "read_tasks",
    "room",
    "take_rows",
    "with_input",
    "within",
]
