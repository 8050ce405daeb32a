"""What is chosen and why, as tables that a user reads."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tnshare as tn
from tnshare.execution import _timing as timing
from tnshare.layers import calls_for
from tnshare.layers._linear_kind import LinearKind
from tnshare.layers.convolution._conv_kind import ConvKind
from tnshare.layers.embedding._lookup_kind import LookupKind
from tnshare.ops import numpy_ops
from tnshare.planning import (
    MOST_KEPT_NUMBERS,
    PROFILES,
    WAYS,
    Job,
    Prices,
    Step,
    candidates,
    explain,
    explain_plan,
)

CPU = PROFILES["cpu"]
LAYER = tn.Linear(64, 48, tasks=5, spec=tn.Tucker((8, 8, 2)))
X = np.ones((1, 64))
TABLES = ["rows looked up, then contracted", "tables composed, then rows looked up"]


def table(lines):
    """Rows of cells; cells are apart by two blanks or more."""
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def seconds(cell):
    return float(cell.removesuffix(" us").replace(",", "")) / 1e6


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_all_candidates_are_listed_with_what_they_cost(way, training):
    job = Job(LAYER.network, way, 32, None, training, 0 if training else MOST_KEPT_NUMBERS)
    found = candidates(job, CPU)
    chosen, times = found[1], {found[1].name: 0.25, found[-1].name: 2e-6}
    text = explain(job, found, chosen, CPU, times)
    head, titles, *rest = text.splitlines()
    what = "a training step" if training else "inference"
    assert head.startswith(f"{way}, 32 rows, {what}; predicted by the profile 'cpu' (measured")
    assert titles.split() == ["candidate", "flops", "bytes", "peak", "predicted", "measured"]
    assert rest[len(found)] == ""
    for candidate, line, cells in zip(found, rest, table(rest[: len(found)]), strict=False):
        assert line.startswith(">") == (candidate is chosen)
        name, flops, moved, peak, predicted, measured = cells[-6:]
        assert name == candidate.name
        numbers = [int(cell.replace(",", "")) for cell in (flops, moved, peak)]
        assert numbers == [candidate.flops, candidate.bytes, candidate.peak]
        assert seconds(predicted) == pytest.approx(candidate.seconds, abs=1e-7)
        took = times.get(candidate.name)
        assert measured == "-" if took is None else seconds(measured) == pytest.approx(took)
    steps = rest[len(found) + 1 :]
    assert (
        steps
        == explain_plan(
            chosen.plan,
            Prices(chosen.plan.network, CPU, training, job.keep if chosen.kept else 0).steps(chosen.plan),
        ).splitlines()
    )


def test_steps_are_explained_one_by_one():
    job = Job(LAYER.network, "mixed", 32, None, False, 0, False)
    for candidate in candidates(job, CPU):
        plan, sizes = candidate.plan, candidate.plan.network.sizes
        lines = explain_plan(plan, Prices(plan.network, CPU, False).steps(plan)).splitlines()
        assert lines[0] == repr(plan.network)
        assert lines[1].startswith(f"{len(plan.steps)} steps, {plan.flops:,} flops, largest intermediate ")
        names = [*plan.network.shapes, *(f"t{n}" for n in range(1, len(plan.steps) + 1))]
        for n, (step, cells) in enumerate(zip(plan.steps, table(lines[3:]), strict=True), 1):
            given = [names[m] for m in step.operands]
            what = " . ".join(given) if isinstance(step, Step) else f"{given[0]}[ids]"
            assert cells[0] == f"t{n} = {what}"
            assert cells[2] == f"{step.flops(sizes):,}"
            assert cells[4] == f"({', '.join(step.result)})"
            assert cells[3] in ("-", "left", "right", "left and right")
            if isinstance(step, Step):
                parts = [
                    int(np.prod([sizes[a] for a in axes]))
                    for axes in (step.batch, step.rows, step.inner, step.columns)
                ]
                assert cells[1] == " x ".join(map(str, parts))
                assert ("left" in cells[3], "right" in cells[3]) == step.copies
            else:
                assert cells[1] == "-"
        assert sum(seconds(cells[-1]) for cells in table(lines[3:])) <= candidate.seconds + 1e-6


def test_what_is_kept_costs_nothing_and_says_so():
    job = Job(LAYER.network, "one", 32, None, False, MOST_KEPT_NUMBERS)
    found = candidates(job, CPU)
    assert found[0].kept
    steps = table(explain(job, found, found[0], CPU).partition("\n\n")[2].splitlines()[3:])
    assert [cells[-1] for cells in steps[:-1]] == ["kept"] * (len(steps) - 1)
    assert steps[-1][-1].endswith(" us")


@pytest.mark.parametrize("way", WAYS)
def test_the_choice_of_a_call_is_marked_and_its_source_can_be_pasted(way):
    calls = calls_for(LAYER, numpy_ops)
    text = calls.explain(way, 500, X, training=True)
    marked = [line for line in text.splitlines() if line.startswith(">")]
    best = candidates(calls.job(way, (500,), training=True, keep=False, concrete=True), CPU)[0]
    assert len(marked) == 1
    assert best.name in marked[0]
    source = calls.source(way, 500, X, training=True)
    assert source.startswith("# Rows are sorted by task") == bool(best.grouped)
    assert source.endswith(best.plan.source(tuple(a for a in best.plan.network.sizes if a not in "bmg")))
    compile(source, "pasted", "exec")


@pytest.mark.parametrize(
    ("way", "batch", "message"),
    [
        ("all", 4, r"^way must be one of \('one', 'mixed', 'each', 'fan_out'\): found 'all'$"),
        ("one", -1, "^batch must be a whole number of at least 0: found -1$"),
        ("one", 2.0, "^batch must be a whole number of at least 0: found 2.0$"),
    ],
)
def test_what_cannot_be_explained_is_refused(way, batch, message):
    calls = calls_for(LAYER, numpy_ops)
    for ask in (calls.explain, calls.source):
        with pytest.raises(tn.TnshareError, match=message):
            ask(way, batch, X, training=True)
    for ask in (LAYER.plan, LAYER.candidates):
        with pytest.raises(tn.TnshareError, match=message):
            ask(way, batch)
    with pytest.raises(tn.TnshareError, match=r"^inner must be a whole number of at least 0: found True$"):
        LAYER.plan("mixed", 4, True)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """The names of what layers were computed by."""
    monkeypatch.setenv("TNSHARE_CACHE", str(tmp_path))
    names = []
    for kind in (LinearKind, ConvKind, LookupKind):

        def noting(self, job, option, rows, made=kind.function):
            run = made(self, job, option, rows)
            return lambda *inputs: names.append(option.name) or run(*inputs)

        monkeypatch.setattr(kind, "function", noting)
    return names


def called(calls, x, task=None, training=True, fan_out=False):
    params = calls.layer.init(0)
    factors = [params[name] for name in calls.layer.network.shapes]
    if fan_out:
        return calls.fan_out(factors, params.get("bias"), x, training)
    return calls.apply(factors, params.get("bias"), x, task, training)


def marked(text):
    """The name of what is said to run, whose code is shown."""
    (line,) = [line for line in text.splitlines() if line.startswith(">")]
    return re.split(r"\s{2,}", line[1:].strip())[0]


@pytest.mark.parametrize("limit", [800_000, 1_500_000, 10_000_000, None])
@pytest.mark.parametrize("way", ["one", "mixed", "fan_out"])
def test_of_a_convolution_within_a_limit_what_runs_is_marked(way, limit, ran):
    layer = tn.Conv(16, 32, (3, 3), tasks=4, spec=tn.Tucker((3, 3, 8, 8, 3)), padding=1)
    calls = calls_for(layer, numpy_ops, "auto", limit)
    x = np.ones((16, 16, 12, 12), np.float32)
    called(calls, x, {"one": 1, "mixed": np.arange(16) % 4}.get(way), fan_out=way == "fan_out")
    text = calls.explain(way, 16, x, training=True, sizes=(12, 12))
    assert {marked(text)} == set(ran)
    assert calls.source(way, 16, x, training=True, sizes=(12, 12)).startswith(f"# {ran[0]}\n")
    parts = re.search(r"\nin chunks of (\d+) rows, ([\d,]+) bytes at once, computed again backwards\n", text)
    assert (len(ran) > 1) == (parts is not None)
    if parts:
        assert len(ran) == -(-16 // int(parts[1]))
        assert int(parts[2].replace(",", "")) <= limit


def test_a_limit_changes_what_is_chosen_for_a_convolution():
    layer = tn.Conv(16, 32, (3, 3), tasks=4, spec=tn.Tucker((3, 3, 8, 8, 3)), padding=1)
    x = np.ones(1, np.float32)
    texts = [
        calls_for(layer, numpy_ops, "auto", limit).explain("fan_out", 16, x, training=True, sizes=(12, 12))
        for limit in (None, 1_500_000)
    ]
    assert marked(texts[0]) != marked(texts[1])


@pytest.mark.parametrize("winner", TABLES)
def test_of_an_embedding_that_was_timed_what_runs_is_marked(winner, ran, monkeypatch):
    monkeypatch.setattr(timing, "time_in_rounds", lambda runs: dict.fromkeys(runs, 2.0) | {winner: 1.0})
    layer = tn.Embedding(200, 32, tasks=5, spec=tn.Tucker((16, 8, 3)))
    calls = calls_for(layer, numpy_ops, "autotune")
    tokens, like = np.arange(512) % 200, np.ones(1, np.float32)
    called(calls, tokens, 2)
    text = calls.explain("one", 512, like, training=True)
    assert [marked(text)] == ran == [winner]
    assert "1,000,000.0 us" in text
    assert calls.source("one", 512, like, training=True).startswith(f"# {winner}\n")


def test_an_embedding_in_parts_says_so(ran):
    layer = tn.Embedding(200, 32, tasks=5, spec=tn.Tucker((16, 8, 3)))
    calls, tokens = calls_for(layer, numpy_ops, "factored", 60_000), np.arange(512) % 200
    called(calls, tokens, training=False, fan_out=True)
    text = calls.explain("fan_out", 512, np.ones(1, np.float32), training=False)
    size = int(re.search(r"\nin chunks of (\d+) rows, [\d,]+ bytes at once", text)[1])
    assert len(ran) == -(-512 // size) > 1
    assert text.startswith("fan_out, 512 tokens, inference; predicted by the profile 'cpu'")


@pytest.mark.parametrize("strategy", ["auto", "factored", "materialised", "autotune"])
@pytest.mark.parametrize("limit", [None, 200_000])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [0, 1, 48])
def test_of_a_linear_layer_what_runs_is_marked(way, rows, limit, strategy, ran, monkeypatch):
    monkeypatch.setattr(timing, "time_in_rounds", lambda runs: {name: len(name) for name in runs})
    calls = calls_for(tn.Linear(16, 32, tasks=6, spec=tn.LAF(5)), numpy_ops, strategy, limit)
    x = np.ones((6, rows, 16) if way == "each" else (rows, 16), np.float32)
    task = {"one": 1, "mixed": np.arange(rows) // 8}.get(way)
    called(calls, x, task, fan_out=way == "fan_out")
    assert set(ran) == {marked(calls.explain(way, rows, x, training=True))}


def test_where_a_framework_says_nothing_of_values_no_rows_are_said_to_be_grouped(ran):
    names = [n for n in dir(numpy_ops) if n[0] != "_" and n != "concrete"]
    bare = type("Bare", (), {name: staticmethod(getattr(numpy_ops, name)) for name in names})()
    calls, x = calls_for(tn.Linear(64, 64, tasks=3, spec=tn.LAF(3)), bare), np.ones((512, 64), np.float32)
    called(calls, x, np.arange(512) % 3)
    assert ran == [marked(calls.explain("mixed", 512, x, training=True))]
