"""From a network to a plan: which products, in which order and layout, and what they cost."""

from ._candidates import candidates
from ._explanation import explain, explain_plan, explain_table
from ._generated_code import kept_program, program
from ._job import MOST_KEPT_NUMBERS, READ, AnyJob, AnyOption, Candidate, Job, OnePlan, check_fits, keep_limit
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
from .devices._profile import Profile, check_profile
