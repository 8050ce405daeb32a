"""The two ways to compute a call of an embedding, with what each costs.

Rows of the one factor that has the axis of tokens are looked up, and contracted with the other factors as if
they were an input; or tables are composed, and their rows looked up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from tnshare.network import Network, Node
from tnshare.planning import IDS, KEPT, Form, Goal, Plan, Profile, Way, best_plans

from ._table import Embedding


@dataclass(frozen=True)
class LookupJob:
    """What is to be computed: ``rows`` of ``inner`` tokens each (of each task for ``"each"``)."""

    layer: Embedding
    way: Way
    rows: int
    inner: int | None
    training: bool
    keep: bool


@dataclass(frozen=True)
class LookupCandidate:
    """Rows looked up in a factor and contracted, or in tables that are composed first."""

    name: str
    plan: Plan
    table: bool
    seconds: float
    kept: bool = False


@lru_cache(maxsize=4096)
def lookup_candidates(job: LookupJob, profile: Profile, form: Form = "any") -> tuple[LookupCandidate, ...]:
    """Both, the one that is predicted to be the faster first."""
    network, training = job.layer.network, job.training
    tokens = job.rows * (job.inner or 1)
    seconds, plan = best_plans(rows_network(job), profile, Goal(training), 1)[0]
    width = math.prod(holder(network).shape) // job.layer.num_embeddings
    copies = math.prod(network.task_shape) if job.way == "each" else 1
    passes = 3 if training else 1
    seconds += passes * profile.stream(copies * tokens * width)
    rows = LookupCandidate("rows looked up, then contracted", plan, False, seconds)
    composing, whole = best_plans(table_network(job), profile, Goal(training), 1)[0]
    kept = job.keep and math.prod(network.shape) <= KEPT
    copies = math.prod(network.task_shape) if job.way in ("each", "fan_out") else 1
    looking = passes * profile.stream(copies * tokens * job.layer.embedding_dim)
    if training:  # the gradient of a table is as large as the table
        looking += profile.stream(math.prod(whole.network.shape))
    table = LookupCandidate(
        "tables composed, then rows looked up", whole, True, looking + (0.0 if kept else composing), kept
    )
    found = {"any": (rows, table), "factored": (rows,), "materialised": (table,)}[form]
    return tuple(sorted(found, key=lambda candidate: candidate.seconds))


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
