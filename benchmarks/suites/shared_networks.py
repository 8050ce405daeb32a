"""Ten softly shared LeNets against ten plain ones: a training step, its peak memory, and the conversion; and
rows of mixed tasks against a loop over tasks.

`python -m benchmarks share` takes a few minutes on one core and writes results/share-<commit>.json; --part
measures and writes one part alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tnshare_torch as tnt
import torch
from threadpoolctl import threadpool_limits
from torch import nn

import tnshare as tn
from benchmarks.measuring import records, result_files
from benchmarks.measuring.allocator import keep_memory
from benchmarks.measuring.options import count, folder
from benchmarks.measuring.peak import peak_bytes
from benchmarks.measuring.timing import Timing, interleave, laps, noise_floor
from benchmarks.showing.cells import table

from .decompose import textbook_svds
from .lenets import Step, batches, hinge, plain_ways, sgd, step, trained

METHODS = ("tucker", "laf", "tt")
EPS = 0.1
SUM, LOOP = "sum of ten losses", "loop over tasks"
PARTS = ("steps", "conversions", "mixed")


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks share", description=__doc__)
    parser.add_argument(
        "--rounds", type=count, default=15, help="rounds in which every program runs once (15)"
    )
    parser.add_argument("--results", type=folder, default=records.RESULTS, help="folder (benchmarks/results)")
    parser.add_argument("--part", choices=PARTS, help="what to measure (all)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    settings = {"threads": 1, "rounds": options.rounds}
    about = {"commit": records.commit(), "machine": records.machine(), "settings": settings}
    found = measured(PARTS if options.part is None else (options.part,), options.rounds)
    for rows in found.values():
        print(table(rows), end="\n\n")
    suites = {f"share: {part}": rows for part, rows in found.items()}  # "mixed" is another suite's name
    print(f"wrote {result_files.write(options.results, 'share', {**about, 'suites': suites}).name}")


def measured(parts: Sequence[str], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """The parts by name, and whether goals are met, if all are there."""
    nets = trained()
    measure: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "steps": lambda: steps(nets, rounds),
        "conversions": lambda: conversions(nets, rounds),
        "mixed": lambda: mixed(rounds),
    }
    with threadpool_limits(1):
        found = {part: measure[part]() for part in parts}
    return {**found, "verdicts": verdicts(found)} if found.keys() >= set(PARTS) else found


def steps(nets: Sequence[nn.Module], rounds: int) -> list[dict[str, Any]]:
    """Seconds and bytes of a training step in every way."""
    ((xs, targets),) = batches(1, seed=1)
    plain = plain_ways(nets, xs, targets)
    shared = {f"shared, {method}": tnt.share(nets, method, eps=EPS).train() for method in METHODS}
    runs = {**plain, **{name: shared_step(one, xs, targets) for name, one in shared.items()}}
    for run in runs.values():
        run()  # plans, and gradients that are there from then on
    # One thread, so that its own time is the whole of it, whatever else the machine does.
    timings = interleave(runs, rounds=rounds, label="steps", clock=time.process_time)
    parameters = {name: sum(p.numel() for p in one.parameters()) for name, one in shared.items()}
    numbers = dict.fromkeys(plain, sum(p.numel() for net in nets for p in net.parameters())) | parameters
    return [_row(name, timings, numbers[name], peak_bytes(run)) for name, run in runs.items()]


def shared_step(shared: nn.Module, xs: torch.Tensor, targets: torch.Tensor) -> Step:
    """A training step of a shared network: every task on its own batch."""
    optimiser = sgd(shared.parameters())
    return lambda: step(optimiser, lambda: hinge(shared(xs), targets))


def conversions(nets: Sequence[nn.Module], rounds: int) -> list[dict[str, Any]]:
    """How long `share` takes, and the SVDs alone of what it decomposes."""
    found = []
    for method in METHODS:

        def convert(method: str = method) -> None:
            tnt.share(nets, method, eps=EPS)

        programs: dict[str, Callable[[], object]] = {"share": convert, "SVDs": svds(nets, method)}
        timings = interleave(
            programs, rounds=max(rounds // 5, 3), label=f"share {method}", clock=time.process_time
        )
        ratio = timings["share"].median / timings["SVDs"].median
        found.append({"method": method, "share / SVDs": ratio, "noise floor": noise_floor(timings)})
    return found


def svds(nets: Sequence[nn.Module], method: str) -> Callable[[], None]:
    """The textbook's SVDs of all weights that `share` decomposes, on matrices that lie ready."""
    runs = []
    for name, orders in (("conv1", (2, 3, 1, 0)), ("conv2", (2, 3, 1, 0)), ("fc1", (1, 0)), ("fc2", (1, 0))):
        weights = [net.get_parameter(f"{name}.weight").detach().permute(orders).numpy() for net in nets]
        runs.append(textbook_svds(np.stack(weights, -1), method))

    def run() -> None:
        for one in runs:
            one()

    return run


def mixed(rounds: int) -> list[dict[str, Any]]:
    """Seconds of 1,024 rows over 100 tasks through a layer, by one call and by a call for each task.

    With memory that is kept, as in the other measurements of layers: see `keep_memory`.
    """
    keep_memory()
    layer = tnt.Linear(256, 256, tasks=100, spec=tn.Tucker((32, 64, 25)))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1024, 256, generator=generator)
    ids = torch.randint(100, (1024,), generator=generator)

    def loop() -> torch.Tensor:
        return torch.cat([layer(x[ids == t], t) for t in range(100)])

    def lap(run: Callable[[], torch.Tensor]) -> tuple[float, float]:
        layer.zero_grad()
        start = time.process_time()
        y = run()
        forward = time.process_time()
        y.backward(torch.ones_like(y))  # type: ignore[no-untyped-call]
        return forward - start, time.process_time() - forward

    found = laps({LOOP: loop, "mixed": lambda: layer(x, ids)}, lap, rounds=5 * rounds, label="mixed")
    taken = {name: list(own.values()) for name, own in found.items()}
    parts = {name: [Timing.of(part).median for part in zip(*own, strict=True)] for name, own in taken.items()}
    whole = {name: Timing.of([sum(lap) for lap in own]) for name, own in taken.items()}
    return [
        {
            "way": name,
            "forward": parts[name][0],
            "backward": parts[name][1],
            "/ mixed": whole[name].median / whole["mixed"].median,
            "noise floor": noise_floor(whole),
        }
        for name in (LOOP, "mixed")
    ]


def verdicts(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The goals: time against the fastest plain way, memory against the sum of ten losses, conversion."""
    ways = {row["way"]: row for row in result["steps"]}
    fastest = min(row["seconds"] for way, row in ways.items() if not way.startswith("shared"))
    ours, summed = ways["shared, tucker"], ways[SUM]
    by_task = next(row for row in result["mixed"] if row["way"] == LOOP)
    conversion = next(row for row in result["conversions"] if row["method"] == "tucker")
    found = {
        "a step / the fastest plain way": (ours["seconds"] / fastest, 1.25),
        "peak memory, parameters included / that of the sum": (ours["peak"] / summed["peak"], 1.1),
        "peak memory beyond parameters / that of the sum": (ours["beyond"] / summed["beyond"], None),
        "share / its SVDs": (conversion["share / SVDs"], 1.2),
        "rows of mixed tasks / loop over tasks": (1 / by_task["/ mixed"], 1 / 5),
    }
    return [
        {"goal": name, "found": value, "at most": most, "holds": None if most is None else value <= most}
        for name, (value, most) in found.items()
    ]


def _row(name: str, timings: Mapping[str, Timing], parameters: int, beyond: int) -> dict[str, Any]:
    return {
        "way": name,
        "seconds": timings[name].median,
        "/ loop": timings[name].median / timings["loop"].median,
        "noise floor": noise_floor(timings),
        "parameters": parameters,
        "beyond": beyond,
        "peak": 4 * parameters + beyond,
    }
