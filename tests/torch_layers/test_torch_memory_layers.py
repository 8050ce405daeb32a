"""memory_limit of convolutions and embeddings: no more is alive at once, and every number is the same."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import close, terms_of

import tnshare as tn
from tnshare.planning import WAYS
from tnshare.testing.cases import specs

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

from benchmarks.measuring.peak import peak_bytes  # noqa: E402

EXAMPLES = max(15, settings().max_examples // 4)


@dataclass(frozen=True)
class Case:
    """A layer without its limit, and a call of it."""

    kind: Any
    options: Any
    way: str
    lead: tuple[int, ...]
    dtype: torch.dtype
    training: bool

    def layer(self, **options):
        return self.kind(**dict(self.options), dtype=self.dtype, seed=1, plan_for=(8,), **options)

    def call(self, layer, of=lambda drawn: drawn):
        """The call and its backward pass; everything that they give."""
        torch.manual_seed(0)
        tasks = layer.description.task_shape
        lead = (*tasks, *self.lead) if self.way == "each" else self.lead
        x = self.input(layer, lead, of)
        columns = [torch.randint(size, (self.lead[0],)) for size in tasks]
        one = tuple(int(column[0]) for column in columns) if len(tasks) > 1 else int(columns[0][0])
        ids = torch.stack(columns, 1) if len(tasks) > 1 else columns[0]
        gradient = None

        def run():
            nonlocal gradient
            with torch.set_grad_enabled(self.training):
                chosen = {"one": one, "mixed": ids}.get(self.way)
                y = layer.fan_out(x) if self.way == "fan_out" else layer(x, chosen)
            if not self.training:
                return [y]
            gradient = of(torch.randn(y.shape, dtype=self.dtype))
            y.backward(gradient)
            return [y.detach(), gradient, *(t.grad for t in (x, *layer.parameters()) if t.requires_grad)]

        return run

    def input(self, layer, lead, of):
        if isinstance(layer, tnt.Embedding):
            return torch.randint(layer.description.num_embeddings, lead)
        places = (6, 5, 4)[: len(layer.description.kernel)]
        x = torch.randn(*lead, layer.description.in_channels, *places, dtype=self.dtype)
        return of(x).requires_grad_(self.training)

    def sizes(self):
        """What a call gives if nothing that it adds has a sign: of this size are the sums that round."""
        layer = self.layer().double()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.abs_()
        return self.call(layer, lambda drawn: drawn.abs().double())()

    @property
    def terms(self):
        """Of the sums behind a gradient: rows, tasks, places, and those of the output."""
        described = self.layer().description
        rows = math.prod(self.lead) * math.prod(described.task_shape)
        return terms_of(described.network, *described.network.shape, rows * 6 * 5 * 4)

    def smallest(self, **options):
        """The smallest limit, by the error of a layer that has less."""
        with pytest.raises(tn.TnshareError, match="is too little") as caught:
            self.call(self.layer(memory_limit=0, **options))()
        (number,) = re.findall(r"the smallest that works is (\d+) bytes", str(caught.value))
        return int(number)


@st.composite
def tasks_and_specs(draw, weights):
    names = draw(st.sampled_from([("task",), ("task",), ("site", "user")]))
    tasks = {name: draw(st.integers(1, 4)) for name in names}
    return tasks, draw(specs(weights, tasks))


@st.composite
def convolutions(draw):
    dims, groups = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2)))
    channels, outputs = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 4))
    kernel = draw(st.tuples(*[st.integers(1, 3)] * dims))
    names = dict(zip("dhw"[-dims:], kernel, strict=True))
    tasks, spec = draw(tasks_and_specs({**names, "c": channels // groups, "m": outputs}))
    options = {
        "in_channels": channels,
        "out_channels": outputs,
        "kernel_size": kernel,
        "tasks": tasks,
        "spec": spec,
        "groups": groups,
        "bias": draw(st.booleans()),
        "padding": draw(st.sampled_from((0, 1, "same"))),
        "padding_mode": draw(st.sampled_from(("zeros", "circular"))),
    }
    way = draw(st.sampled_from(WAYS))
    lead = (draw(st.integers(1, 13)), *(draw(st.sampled_from([(), (2,)])) if way != "mixed" else ()))
    dtype = draw(st.sampled_from((torch.float32, torch.float64)))
    return Case(
        (tnt.Conv1d, tnt.Conv2d, tnt.Conv3d)[dims - 1],
        tuple(options.items()),
        way,
        lead,
        dtype,
        draw(st.booleans()),
    )


@st.composite
def embeddings(draw):
    count, size = draw(st.integers(1, 20)), draw(st.integers(1, 9))
    tasks, spec = draw(tasks_and_specs({"n": count, "e": size}))
    padding = draw(st.sampled_from((None, 0)))
    options = {
        "num_embeddings": count,
        "embedding_dim": size,
        "tasks": tasks,
        "spec": spec,
        "padding_idx": padding,
    }
    lead = (draw(st.integers(1, 30)), *draw(st.sampled_from([(), (3,)])))
    dtype = draw(st.sampled_from((torch.float32, torch.float64)))
    return Case(
        tnt.Embedding, tuple(options.items()), draw(st.sampled_from(WAYS)), lead, dtype, draw(st.booleans())
    )


STRATEGIES = st.sampled_from(("auto", "factored", "materialised"))


def check(case, strategy, share):
    plain = case.layer(strategy=strategy)
    expected = case.call(plain)()
    smallest = case.smallest(strategy=strategy)
    for limit in (smallest, int(smallest * (1 + 3 * share))):
        limited = case.layer(strategy=strategy, memory_limit=limit)
        assert peak_bytes(case.call(limited)) <= limit
        limited.zero_grad()
        for a, b, size in zip(case.call(limited)(), expected, case.sizes(), strict=True):
            close(a, b, case.terms, scale=size)
    with pytest.raises(
        tn.TnshareError, match=f"memory_limit={smallest - 1} is too little .* {smallest} bytes"
    ):
        case.call(case.layer(strategy=strategy, memory_limit=smallest - 1))()


@settings(max_examples=EXAMPLES)
@given(convolutions(), st.sampled_from(("auto", "materialised")), st.floats(0, 1))
def test_limits_of_convolutions_are_kept_and_change_no_number(case, strategy, share):
    check(case, strategy, share)


@settings(max_examples=EXAMPLES)
@given(embeddings(), STRATEGIES, st.floats(0, 1))
def test_limits_of_embeddings_are_kept_and_change_no_number(case, strategy, share):
    check(case, strategy, share)


def test_work_space_of_small_convolutions_counts():
    options = {"in_channels": 2, "out_channels": 2, "kernel_size": 2, "tasks": 2, "spec": tn.TT((1, 2, 1))}
    check(
        Case(tnt.Conv1d, (*options.items(), ("bias", False)), "each", (1,), torch.float32, False), "auto", 0.0
    )
