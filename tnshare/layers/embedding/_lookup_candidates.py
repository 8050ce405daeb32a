"""The two ways to compute a call of an embedding, with what each costs.

Rows of the one factor that has the axis of tokens are looked up, and contracted with the other factors as if
they were an input; or tables are composed, and their rows looked up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from tnshare.network import Network, Node
from tnshare.planning import (
    IDS,
    Form,
    Goal,
    Plan,
    Profile,
    Way,
    best_plans,
    plan_peak,
    priced,
    task_gradients,
)

from ._embedding import Embedding


@dataclass(frozen=True)
class LookupJob:
    """What is to be computed: ``rows`` of ``inner`` tokens each (of each task for ``"each"``).

    ``keep``: tables may be kept between calls, as long as they have no more numbers than that.
    """

    layer: Embedding
    way: Way
    rows: int
    inner: int | None
    training: bool
    keep: int
    concrete: bool = True

    @property
    def tokens(self) -> int:
        """How many there are (of each task for ``"each"``)."""
        return self.rows * (self.inner or 1)

    @property
    def amount(self) -> str:
        """How much is computed, as users read it."""
        return f"{self.tokens} tokens"


@dataclass(frozen=True)
class LookupCandidate:
    """Rows looked up in a factor and contracted, or in tables that are composed first."""

    name: str
    plan: Plan
    table: bool
    seconds: float
    kept: bool = False
    peak: int = 0

    bytes = None  # that are moved: not predicted

    @property
    def flops(self) -> int:
        """Multiplications and additions of the contraction."""
        return self.plan.flops

    @property
    def parts(self) -> tuple[tuple[str, Plan, bool], ...]:
        """Its only part: the plan, and whether its result is kept."""
        return (("", self.plan, self.kept),)


@lru_cache(maxsize=4096)
def lookup_candidates(job: LookupJob, profile: Profile, form: Form = "any") -> tuple[LookupCandidate, ...]:
    """Both, the one that is predicted to be the faster first."""
    tables = {"any": (False, True), "factored": (False,), "materialised": (True,)}[form]
    found = [lookup_candidate(job, profile, table) for table in tables]
    return tuple(sorted(found, key=lambda candidate: candidate.seconds))


def lookup_candidate(
    job: LookupJob, profile: Profile, table: bool, plan: Plan | None = None
) -> LookupCandidate:
    """One of both, by a plan that was made for other rows, or else by the best."""
    layer, passes = job.layer, 3 if job.training else 1
    network, tasks = (table_network if table else rows_network)(job), math.prod(layer.task_shape)
    if plan is None:
        seconds, plan = best_plans(network, profile, Goal(job.training), 1)[0]
    else:
        seconds, plan = priced(plan, network, profile, job.training)
    kept = table and 0 < math.prod(layer.network.shape) <= job.keep
    copies = tasks if job.way == "each" or (table and job.way == "fan_out") else 1
    width = layer.embedding_dim if table else math.prod(holder(layer.network).shape) // layer.num_embeddings
    looking = passes * profile.stream(copies * job.tokens * width)
    if table and job.training:  # the gradient of a table is as large as the table
        looking += profile.stream(math.prod(network.shape))
    name = "tables composed, then rows looked up" if table else "rows looked up, then contracted"
    found = LookupCandidate(name, plan, table, looking + (0.0 if kept else seconds), kept)
    return replace(found, peak=lookup_bytes(job, found, job.rows, False, 4))


def lookup_bytes(job: LookupJob, candidate: LookupCandidate, rows: int, part: bool, itemsize: int) -> int:
    """A bound on the bytes alive at once for so many rows, which are all or a part of them.

    Rows are tokens, or of mixed tasks rows of tokens. All parts of a call are counted as if alive together.
    """
    layer, network, training = job.layer, job.layer.network, job.training
    tasks = math.prod(network.task_shape)
    tokens = rows * (job.inner or 1) * (tasks if job.way == "each" else 1)
    own = tokens * (tasks if job.way == "fan_out" else 1) * layer.embedding_dim
    spread = {"b": rows} if job.inner is None else {"b": rows, "m": job.inner}
    if candidate.table:
        whole = math.prod(candidate.plan.network.shape)
        alive = plan_peak(candidate.plan, {}, training, part) + whole * (2 if training else 1)
    else:
        whole = math.prod(holder(network).shape)
        width = whole // layer.num_embeddings
        alive = plan_peak(candidate.plan, spread, training, part) + tokens * width * (2 if training else 1)
        if training and holder(network).axes[0] != "n":
            alive += whole  # its gradient, with tokens first
    alive += own * (3 if training else 1) * (1 if layer.padding_idx is None else 2)
    alive += task_gradients(network, part) if training else 0
    indices = 8 * tokens * (1 + 2 * len(network.tasks)) * (2 if training else 1)  # of 8 bytes each
    return (alive + (own if part else 0)) * itemsize + indices


def holder(network: Network) -> Node:
    """The factor that has the axis of tokens."""
    (node,) = (node for node in network.nodes if "n" in node.axes)
    return node


def rows_network(job: LookupJob) -> Network:
    """The factors with the rows that were looked up, called x."""
    network, tasks = job.layer.network, job.layer.network.tasks
    own = holder(network)
    lead = {"one": ("b",), "fan_out": ("b",), "mixed": ("b", "m"), "each": (*tasks, "b")}[job.way]
    axes = (*lead, *(axis for axis in own.axes if axis != "n"))
    sizes = {**network.sizes, "b": job.rows, "m": job.inner or 1}
    x = Node("x", axes, tuple(sizes[axis] for axis in axes), learnt=False)
    nodes = (*(node for node in network.nodes if node is not own), x)
    if job.way == "mixed":
        ids = Node(IDS, (*tasks, "b"), (*network.task_shape, job.rows), learnt=False)
        return Network((*nodes, ids), ("b", "m", "e"), tasks)
    every = Network(nodes, (*tasks, "b", "e"), tasks)
    return every.drop(*tasks) if job.way == "one" else every


def table_network(job: LookupJob) -> Network:
    """The factors, composed to tables whose axes come in the order in which rows are looked up."""
    network, tasks = job.layer.network, job.layer.network.tasks
    if job.way == "one":
        return network.drop(*tasks).to("n", "e")
    return network.to("n", *tasks, "e") if job.way == "fan_out" else network.to(*tasks, "n", "e")
