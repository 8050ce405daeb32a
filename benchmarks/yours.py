"""`python -m benchmarks yours`: contract or materialise, for one linear layer of your own, on this machine.

    python -m benchmarks yours --sizes i=512,o=256,task=40 --batch 128 --method tucker --ranks 64,64,8
    python -m benchmarks yours --stack weights.npy --batch 128 --method tt --eps 0.1

A stack is an array (in, out, task) of trained weights, from which --eps finds the ranks. With --eps and
--sizes alone a synthetic one is taken: a task mean plus a deviation of 10 % of its norm whose singular values
fall as 1/k along every axis, from a fixed seed. Of it --eps 0.1 keeps little more than the mean, in which all
tasks are the same: --eps 0.03 or less says more about a layer that is to tell tasks apart. The last line is
`winner: <strategy> <ratio>`: which of "factored" and "materialised" is faster, and how many times as long the
other takes.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tnshare as tn
from benchmarks.measuring.allocator import keep_memory
from benchmarks.measuring.options import count, device, error, gibibytes, positive, ranks, threads, told
from benchmarks.measuring.rounds import Row, in_rounds, measure, median, spread
from benchmarks.peers.common import NUMBER
from benchmarks.peers.frameworks import fix_threads, make_bench
from benchmarks.showing.cells import duration, memory, table
from benchmarks.showing.comparison import HELD
from benchmarks.suites.decompose import aligned
from tnshare.planning import PROFILES, WAYS

from .case import METHODS, Case, spec_of

STRATEGIES = ("factored", "materialised")
_AXES = ("i", "o", "task")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and say what is best."""
    options = _options(arguments)
    with told():
        case, notes = read(options)
        row = _measured(case, options)
    print("\n".join([*notes, *answer(case, row, options.device), *predictions(case, options.predict)]))
    print("\n".join(conclusion(case, row)))


def _measured(case: Case, options: argparse.Namespace) -> Row:
    _check_arrays(case, options.memory)
    fix_threads(options.threads, "torch")
    keep_memory()
    bench = make_bench("torch", options.device, int(options.memory * 2**30))
    made = bench.apply(case)
    if "tnshare" not in made.run:
        raise tn.TnshareError(
            f"{case} {made.skipped['tnshare']}, more than --memory {options.memory:g} GiB: give more, "
            "or fewer rows, or lower ranks"
        )
    return measure(made, bench.meter, options.seconds)


def read(options: argparse.Namespace) -> tuple[Case, list[str]]:
    """The layer that is asked about, and what to say of how its ranks were found."""
    stack = None if options.stack is None else load(options.stack)
    sizes = parse_sizes(options.sizes) if options.sizes else {}
    if stack is not None:
        own = dict(zip(_AXES, stack.shape, strict=True))
        if sizes and sizes != own:
            raise tn.TnshareError(f"--sizes {options.sizes} do not agree with the stack's {stack.shape}")
        sizes = own
    if not sizes:
        raise tn.TnshareError("give --sizes i=...,o=...,task=..., or a --stack")
    notes = []
    if options.ranks is not None:
        spec = spec_of(options.method, options.ranks)
        clipped = spec.clipped({"i": sizes["i"], "o": sizes["o"]}, {"task": sizes["task"]})
        if clipped != spec:
            notes.append(f"ranks {options.ranks} are more than useful: {tuple(clipped.ranks)} are taken")
        ranks = tuple(clipped.ranks)
    else:
        _check_room(stack, sizes, options.memory)
        ranks, notes = decomposed(stack, sizes, options.method, options.eps)
    training = not options.inference
    i, o, tasks = (sizes[axis] for axis in _AXES)
    return Case(options.method, ranks, i, o, tasks, options.way, options.batch, training), notes


def _check_room(stack: Any, sizes: dict[str, int], gigabytes: float) -> None:
    """Refuse to make a synthetic stack for which there is no room."""
    needs = 8 * math.prod(sizes.values())  # bytes, in double precision
    if stack is None and needs > gigabytes * 2**30:
        raise tn.TnshareError(
            f"--eps without --stack makes a synthetic one, here of {needs / 2**30:.1f} GiB, more than "
            f"--memory {gigabytes:g} GiB: give --ranks, or more"
        )


def _check_arrays(case: Case, gigabytes: float) -> None:
    """Refuse to make what every program needs, where there is no room for it."""
    network = case.layer.network
    needs = NUMBER * (math.prod(case.x_shape) + math.prod(case.y_shape) + network.parameters)
    if needs > gigabytes * 2**30:
        raise tn.TnshareError(
            f"{case}: its input, output and factors are {needs / 2**30:.1f} GiB, more than --memory "
            f"{gigabytes:g} GiB: give more, or fewer rows, or lower ranks"
        )


def decomposed(
    stack: Any, sizes: dict[str, int], method: str, eps: float
) -> tuple[tuple[int, ...], list[str]]:
    """The ranks that eps takes, for a stack or else for a synthetic one."""
    notes = []
    if stack is None:
        i, o, tasks = (sizes[axis] for axis in _AXES)
        stack = aligned((i, o, tasks))
        notes.append(
            "no --stack: ranks are those of a synthetic one (a task mean plus a deviation of 10 % of its "
            "norm, singular values falling as 1/k, seed 0); yours may differ"
        )
    found = tn.decompose(stack, method, eps=eps)
    notes.append(
        f"eps={eps}: {found.spec!r}, error {found.error:.3f}, {100 * found.kept:.1f} % of the parameters"
    )
    return tuple(found.spec.ranks), [*notes, *(str(warning) for warning in found.warnings)]


def answer(case: Case, row: Row, device: str) -> list[str]:
    """A table of all programs, the fastest first."""
    rows = []
    for name in sorted(row["programs"], key=lambda name: median(row, name)):
        entry = row["programs"][name]
        rows.append(
            {
                "program": name,
                "time": duration(entry["total"][0]),
                "quartiles": _quartiles(row, name),
                "forward": duration(entry["forward"][0]),
                "backward": duration(entry["backward"][0]) if case.training else "-",
                **{title: memory(entry[part]) for part, title in HELD.items()},
                "/ tnshare": median(row, name) / median(row, "tnshare"),
            }
        )
    left = [f"left out: {name}: {why}" for name, why in row["skipped"].items()]
    return [f"\n{case}, measured on {device}, noise floor {row['noise']:.2f}", table(rows), *left]


def _quartiles(row: Row, name: str) -> str:
    if not in_rounds(row["programs"][name]):
        return "none, a single run"
    _, low, high = spread(row, name)
    return f"{duration(low)} to {duration(high)}"


def predictions(case: Case, devices: Sequence[str]) -> list[str]:
    """What named profiles say, marked as such."""
    from benchmarks.suites.predicted import predict

    rows = []
    for name in devices:
        told = {program: duration(s) for program, s in predict(case, PROFILES[name]).items()}
        rows.append({"predicted, not measured": name, **told})
    return ["", table(rows)] if rows else []


def conclusion(case: Case, row: Row) -> list[str]:
    """The line of code that uses the winner, and the winner."""
    ran = [name for name in STRATEGIES if f"tnshare {name}" in row["programs"]]
    times = {name: median(row, f"tnshare {name}") for name in ran}
    best = min(times, key=times.__getitem__)
    ratio = max(times.values()) / times[best]
    lines = [""]
    if len(times) < len(STRATEGIES):
        (other,) = set(STRATEGIES) - set(times)
        lines.append(f"{other} was not measured: {row['skipped'].get(f'tnshare {other}', 'it did not run')}")
    auto = median(row, "tnshare") / times[best]
    lines.append(f'strategy="auto" takes {auto:.2f} times as long as the winner')
    if ratio < row["noise"]:
        lines.append(f"the two do not differ by more than the noise, {row['noise']:.2f}")
    lines.append(
        f"layer = tnt.Linear({case.i}, {case.o}, tasks={case.tasks}, spec=tn.{case.spec!r}, "
        f'strategy="{best}")'
    )
    return [*lines, f"winner: {best} {ratio:.2f}"]


def load(path: Path) -> Any:
    """A stack of weights from a file of NumPy's."""
    try:
        stack = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        # NumPy takes for a pickle whatever it does not know, and tells how to load it: not what is wanted.
        why = "no array in it" if "allow_pickle" in str(error) else error
        raise tn.TnshareError(f"--stack must be a file of numpy.save: {why}") from None
    if not isinstance(stack, np.ndarray):
        stack.close()
        raise tn.TnshareError(f"--stack must be one array, of numpy.save: found an archive of {stack.files}")
    if stack.ndim != 3 or not np.issubdtype(stack.dtype, np.floating) or 0 in stack.shape:
        raise tn.TnshareError(
            "--stack must be a floating array (in, out, task), the weights of a linear layer of every task: "
            f"found shape {stack.shape}, {stack.dtype}"
        )
    return stack


def parse_sizes(text: str) -> dict[str, int]:
    """``i=512,o=256,task=40`` as numbers."""
    pairs = [part.partition("=") for part in text.split(",")]
    sizes = {name.strip(): value for name, _, value in pairs}
    whole = all(re.fullmatch("[0-9]+", value.strip()) and int(value) > 0 for _, _, value in pairs)
    if sorted(sizes) != sorted(_AXES) or len(pairs) > len(sizes) or not whole:
        raise tn.TnshareError(
            "--sizes must read i=...,o=...,task=... with whole numbers, the sizes of a linear layer: "
            f"found {text!r}"
        )
    return {axis: int(sizes[axis]) for axis in _AXES}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks yours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", help="i=...,o=...,task=...: inputs, outputs, tasks")
    parser.add_argument("--batch", type=count, required=True, help="rows; of each task, for --way each")
    parser.add_argument("--method", choices=METHODS, required=True)
    found = parser.add_mutually_exclusive_group(required=True)
    found.add_argument("--ranks", type=ranks, help="k for laf; k_i,k_o,k_task for tucker; r_i,r_o for tt")
    found.add_argument("--eps", type=error, help="relative error that ranks are to keep")
    parser.add_argument("--stack", type=Path, help="trained weights (in, out, task), a .npy file")
    parser.add_argument("--way", choices=WAYS, default="mixed", help="how tasks are chosen (mixed)")
    parser.add_argument("--inference", action="store_true", help="no backward pass, and weights kept")
    parser.add_argument("--device", type=device, default="cpu", help="cpu, cuda, cuda:1, ... (cpu)")
    parser.add_argument("--threads", type=threads, default=1, help="threads of the linear algebra (1)")
    parser.add_argument("--seconds", type=positive, default=3.0, help="of rounds (3)")
    parser.add_argument("--memory", type=gibibytes, default=2.0, help="GiB that a program may need (2)")
    devices = sorted(PROFILES)
    parser.add_argument("--predict", nargs="*", choices=devices, default=[], help="devices that are not here")
    return parser.parse_args(arguments)
