"""The planner against layers written by hand, the paper's authors' way, opt_einsum, einsum and dense weights.

`python -m benchmarks planner` measures the whole grid in torch (768 points, 80 minutes), with --quick 96
stated points of it; --backend jax the same 96 points in JAX; --unseen random shapes; --overheads what a call
and a plan cost; --misses the points at which a limit was not kept (of 700, some by chance), tuned anew and
with four times the seconds. A run that was stopped goes on where it stopped: every point is a line of
results/planner-<commit>-<conditions>.jsonl. At the end all that was measured at this commit is written to
results/planner-<commit>.json and .md; what was in JAX to planner-jax-<commit>.json and .md. --report makes
the tables of planner.json again, which is a copy of a run's.
"""

from __future__ import annotations

import argparse
import os
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks import grid
from benchmarks.grid import Point
from benchmarks.measuring import records, result_files
from benchmarks.measuring.allocator import give_back, keep_memory
from benchmarks.measuring.empty_cache import own_cache
from benchmarks.measuring.options import folder, pattern, positive, told
from benchmarks.measuring.timing import Clock, allot, in_a_row, interleave, once

from . import planner_report, verdicts
from .contestants import EMPTY, Programs

SUITES = {"planner": ("torch", "torch again", "unseen", "overheads"), "planner-jax": ("jax", "jax again")}
_AGAIN, _LONGER = " again", 4  # points that are measured again get so many times the seconds
Job = tuple[str, Callable[[], dict[str, Any]]]


def main(arguments: list[str] | None = None) -> None:
    """Measure what is not among the results yet, and write them."""
    options = _options(arguments)
    suite = next((name for name in ("unseen", "overheads") if getattr(options, name)), options.backend)
    seconds = options.seconds
    if options.misses:
        suite, seconds = suite + _AGAIN, _LONGER * seconds
    file = next(file for file, suites in SUITES.items() if suite in suites)
    if options.report:
        with told():
            result = result_files.read_suites(options.results / f"{file}.json")
        (options.results / f"{file}.md").write_text(planner_report.markdown(result), encoding="utf-8")
        return
    at, machine = records.commit(), records.machine()
    allocator = keep_memory()
    kept = records.kept_in(options.results, "planner", at, {**machine, "allocator": allocator})
    chosen = _chosen(options, kept, jobs(suite, options.quick, seconds))
    with own_cache():  # what autotuning finds is found anew in every run
        run(suite, chosen, kept, seconds)
    if options.only:
        print("measured; run again without --only to measure the rest, and write the results")
        return
    settings = {"threads": 1, "seconds": options.seconds, "allocator": allocator}
    result = {"commit": at, "machine": machine, "settings": settings}
    seconds_of = {name: options.seconds * (_LONGER if name.endswith(_AGAIN) else 1) for name in SUITES[file]}
    suites = {name: rows for name, spent in seconds_of.items() if (rows := kept.of(name, spent))}
    print(planner_report.write(options.results, {**result, "suites": suites}, file))


def _chosen(options: argparse.Namespace, kept: records.Records, found: Iterable[Job]) -> list[Job]:
    """The jobs that are asked for."""
    if options.misses:
        rows = [row for row in kept.of(options.backend, options.seconds) if "error" not in row]
        missed = verdicts.missed(rows, options.backend)
        found = (job for job in found if job[0] in missed)
    chosen = [job for job in found if re.search(options.only, job[0])]
    if not chosen:
        why = ", or missed a limit" if options.misses else ""
        raise SystemExit(f"error: no point has the pattern {options.only!r}{why}")
    return chosen


def run(suite: str, jobs: Iterable[Job], kept: records.Records, budget: float) -> None:
    """Do the jobs that are not done yet. One that fails is written down, and tried again by the next run."""
    done = kept.done(budget)
    left = [(name, measure) for name, measure in jobs if (suite, name) not in done]
    clock = Clock(len(left))
    for name, measure in left:
        give_back()
        try:
            row = measure()
        except Exception as error:  # an hour's run does not end at one point
            traceback.print_exc()
            row = {"error": type(error).__name__}
        kept.add({"suite": suite, "name": name, "budget": budget, **row})
        clock.tick(name)


def jobs(suite: str, quick: bool, seconds: float) -> Iterator[Job]:
    """What there is to measure, by name."""
    backend = suite.removesuffix(_AGAIN)
    one_thread(backend)
    if suite == "overheads":
        from . import overheads

        yield from overheads.jobs()
        return
    make = _maker(backend)
    points = grid.unseen() if suite == "unseen" else grid.points(quick or backend == "jax")
    for point in points:
        yield str(point), partial(measure, point, make, seconds)


def measure(point: Point, make: Callable[[Point], Programs], seconds: float) -> dict[str, Any]:
    """The medians of one point, in as many rounds as the time allows; what comes before is not counted."""
    start = time.perf_counter()
    made = make(point)
    prepared = [name for name in made.run if made.compiled or name.startswith(("tnshare", "own"))]
    first = once(made.run, twice=prepared)
    fastest = min(taken for name, taken in first.items() if not name.startswith(("dense", EMPTY)))
    calls = in_a_row(fastest)
    rounds = allot(first, seconds / calls, reference=fastest, always=["tnshare auto"])
    timings = interleave(made.run, rounds=rounds, calls=calls, warm=False)
    return {
        **asdict(point),
        "medians": first | {name: timing.median for name, timing in timings.items()},
        "rounds": dict.fromkeys(first, 1) | {name: timing.rounds for name, timing in timings.items()},
        "calls": calls,
        "own": made.own,
        "same": made.same,
        "skipped": made.skipped,
        "spent": time.perf_counter() - start,
    }


def one_thread(suite: str) -> None:
    """Keep to one thread; JAX must be told before it is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if suite == "jax":
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["JAX_CPU_ENABLE_ASYNC_DISPATCH"] = "false"  # handing over to a thread may take 50 us
        if hasattr(os, "sched_setaffinity"):  # its pool has a thread for each core that it may use
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        return
    import torch

    torch.set_num_threads(1)


def _maker(suite: str) -> Callable[[Point], Programs]:
    if suite == "jax":
        from . import jax_programs

        return jax_programs.programs
    from . import torch_programs

    return lambda point: torch_programs.programs(point, peers=suite != "unseen")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks planner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="96 points instead of the whole grid")
    parser.add_argument("--backend", choices=("torch", "jax"), default="torch")
    parser.add_argument("--unseen", action="store_true", help="60 random shapes, its own candidates only")
    parser.add_argument("--overheads", action="store_true", help="what a call and a plan cost")
    parser.add_argument("--misses", action="store_true", help="points that missed a limit, again, for longer")
    parser.add_argument(
        "--only",
        type=pattern,
        default="",
        help="points whose name has this pattern, say '^laf': one process for each part",
    )
    parser.add_argument("--report", action="store_true", help="only make planner.md of planner.json")
    parser.add_argument("--seconds", type=positive, default=2.0, help="of rounds for each point (2)")
    parser.add_argument("--results", type=folder, default=records.RESULTS, help="folder (benchmarks/results)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
