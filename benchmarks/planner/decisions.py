"""What the planner decides, in two checkouts: did a change that should change nothing choose other plans?

`python -m benchmarks decisions BEFORE AFTER` asks the planner of each checkout for every point of the grid
and for random ones, for stated devices, so that nothing depends on the machine. All that differs is counted
by what it is, and the first few of each are printed; it fails if anything differs. Instead of a checkout, a
file can be given that `--write FILE` wrote: one line of JSON for each point and device.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tnshare_jax as tnj
from tqdm import tqdm

import tnshare as tn
from benchmarks.grid import Point, points, unseen
from benchmarks.measuring.checkouts import checkout, run_in
from benchmarks.measuring.options import count, pattern, told
from benchmarks.showing.cells import table

DEVICES = ("cpu", "cpu-jax", "a100")
_CLOSE = 1e-9  # relative: sums may be taken in another order
Key = tuple[str, str]  # a point and a device
Rows = Mapping[Key, Mapping[str, Any]]


@dataclass(frozen=True)
class Decision:
    """What is chosen at a point for a device: the fastest candidate, and what stands behind it.

    ``moves`` are the operands and variants of its steps, ``code`` is what they are as a program.
    ``candidates`` are the names of all, in their order; ``traced`` is the code of a call whose ids cannot be
    looked at, ``jax`` that of a compiled call in JAX, for which axes are named.
    """

    point: str
    device: str
    name: str
    grouped: str
    kept: bool
    moves: tuple[tuple[int | str, ...], ...]
    bytes: int
    peak: int
    seconds: float
    code: str
    candidates: tuple[str, ...]
    traced: str
    jax: str


FIELDS = tuple(name for name in Decision.__dataclass_fields__ if name not in ("point", "device"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare two checkouts, or write what this one decides."""
    options = _options(arguments)
    with told():
        if options.write is not None:
            write(options.write, asked(options.only, options.unseen))
            return
        with TemporaryDirectory() as folder:
            before, after = (
                side if side.is_file() else _written(side, Path(folder) / name, options)
                for side, name in zip(options.sides, ("before", "after"), strict=True)
            )
            sides = read(before), read(after)
        found = differences(*sides)
        print(summary(*sides, found, options.show))
        if found:
            raise tn.TnshareError("the two sides decide differently")


def _written(side: Path, file: Path, options: argparse.Namespace) -> Path:
    """The file of what a checkout decides, asked in a process of its own."""
    given = ("--write", str(file), "--only", options.only, "--unseen", str(options.unseen))
    run_in(side, "-m", "benchmarks", "decisions", *given, quiet=False)
    return file


def asked(only: str, random: int) -> list[Point]:
    """The whole grid and so many random points, or those of them whose name has a pattern."""
    found = [*points(quick=False), *unseen(random)]
    return [point for point in found if re.search(only, str(point))]


def write(path: Path, chosen: Iterable[Point]) -> None:
    """One line for each point and device, by the tnshare that Python imports."""
    profiles = _profiles()
    with path.open("w", encoding="utf-8") as file:
        for point in tqdm(list(chosen), desc=Path(tn.__file__).parents[1].name, unit="point"):
            for device in DEVICES:
                file.write(json.dumps(asdict(decided(point, device, profiles[device]))) + "\n")


def decided(point: Point, device: str, profile: Any) -> Decision:
    """What is chosen at a point, asked by public names alone."""
    layer = tn.Linear(*point.shape, spec=point.spec)
    found = layer.candidates(point.way, point.batch, training=point.training, device=profile)
    best = found[0]
    traced = layer.plan(point.way, point.batch, training=point.training, device=profile)
    in_jax = ""
    if device == "cpu-jax":
        in_jax = tnj.source(layer, point.batch, point.way, training=point.training)
    return Decision(
        point=str(point),
        device=device,
        name=best.name,
        grouped=best.grouped,
        kept=best.kept,
        moves=tuple((*step.operands, getattr(step, "variant", "")) for step in best.plan.steps),
        bytes=best.bytes,
        peak=best.peak,
        seconds=best.seconds,
        code=best.plan.source(),
        candidates=tuple(candidate.name for candidate in found),
        traced=traced.source(),
        jax=in_jax,
    )


def read(path: Path) -> Rows:
    """The decisions of a file, by point and device."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {(row["point"], row["device"]): row for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise tn.TnshareError(f"{path.name} must be a file of decisions: {error!r}") from None


def differences(before: Rows, after: Rows) -> dict[str, list[Key]]:
    """The points and devices at which something differs, by what it is."""
    found = {"only one side has the point": sorted(before.keys() ^ after.keys())}
    both = [key for key in before if key in after]
    for field in FIELDS:
        found[field] = [key for key in both if not _same(before[key].get(field), after[key].get(field))]
    return {name: keys for name, keys in found.items() if keys}


def summary(before: Rows, after: Rows, found: Mapping[str, Sequence[Key]], most: int = 5) -> str:
    """How many points were compared, what differs how often, and the first few of each."""
    counts = [{"differs": name, "decisions": len(keys)} for name, keys in found.items()]
    both = len(before.keys() & after.keys())
    lines = [f"compared: {both} decisions, {len(FIELDS)} things of each; what differs:", table(counts)]
    for name, keys in found.items():
        for key in keys[:most]:
            lines += ["", f"{name}: {', '.join(key)}"]
            if name in FIELDS:
                lines += [f"  before: {before[key].get(name)}", f"  after:  {after[key].get(name)}"]
    return "\n".join(lines)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE)
    return bool(one == other)


def _profiles() -> Mapping[str, Any]:
    """The devices that are known by name: where they lie now, and where they lay in one folder of modules."""
    home = "tnshare.planning" if find_spec("tnshare.planning") else "tnshare.profiles"
    found: Mapping[str, Any] = import_module(home).PROFILES
    return found


def _side(text: str) -> Path:
    """A checkout, or a file of what one decided."""
    path = Path(text)
    if path.is_dir():
        return checkout(text)
    if not path.is_file():
        raise ArgumentTypeError(f"must be the folder of a checkout, or a file of --write: found {text}")
    return path


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks decisions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sides", type=_side, nargs="*", metavar="BEFORE AFTER", help="two checkouts or files")
    parser.add_argument("--write", type=Path, metavar="FILE", help="only write what this checkout decides")
    parser.add_argument("--only", type=pattern, default="", help="points whose name has this pattern")
    parser.add_argument("--unseen", type=count, default=200, help="how many random points (200)")
    parser.add_argument("--show", type=count, default=5, help="how many differences of each kind (5)")
    options = parser.parse_args(arguments)
    if len(options.sides) != (0 if options.write else 2):
        parser.error("give two checkouts (or files) to compare, or none and --write")
    return options
