"""Contract or materialise, what it costs, and what one would use instead.

Without names a quick run of all suites (under five minutes); `--full` the whole. Each prints a table and
writes benchmarks/results/<name>-<commit>.json, .html and figures, beside those of other runs. A run that was
stopped goes on where it stopped, if nothing has changed that it depends on.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from benchmarks.measuring import records, result_files
from benchmarks.measuring.allocator import keep_memory
from benchmarks.measuring.empty_cache import own_cache
from benchmarks.measuring.options import device, folder, positive, threads, told
from benchmarks.measuring.records import RESULTS
from benchmarks.measuring.resuming import progress, run
from benchmarks.peers.frameworks import fix_threads, make_bench
from benchmarks.showing import page

from . import FULL, JAX, QUICK, core_ratios

_RATIOS = ("imports", "decompose")  # two tables of ratios, in one module
_MODULES = {"conv": "convolutions", "memory": "memory_limits"}  # of the others: a suite has its module's name


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suites that were asked for."""
    options = _options(arguments)
    with told():
        _measure(options)


def suite_jobs(name: str, bench: Any, full: bool) -> list[Any]:
    """The jobs of a suite."""
    if name in _RATIOS:
        return list(getattr(core_ratios, name)(bench, full))
    return list(import_module(f"benchmarks.suites.{_MODULES.get(name, name)}").jobs(bench, full))


def _measure(options: argparse.Namespace) -> None:
    fix_threads(options.threads, options.backend)
    allocator = keep_memory()
    bench = make_bench(options.backend, options.device)
    at, machine = records.commit(), records.machine(options.device, options.backend)
    bench.limit = limit(machine, options.full)
    conditions = {
        "backend": options.backend,
        "device": options.device,
        "threads": options.threads,
        "limit": bench.limit,
        "clock": bench.meter.clock,
        "memory": bench.meter.memory,
        "allocator": allocator,
    }
    kept = records.kept_in(options.results, "bench", at, {**machine, **conditions})
    jobs = {name: suite_jobs(name, bench, options.full) for name in options.suites}
    # With a cache of its own: a profile that was calibrated here is another experiment.
    with own_cache(), progress(sum(map(len, jobs.values()))) as bar:
        for name, own in jobs.items():
            run(name, own, kept, options.seconds, bar)
    suites = {}
    for name, own in jobs.items():
        asked = {job for job, _ in own}
        suites[name] = [row for row in kept.of(name, options.seconds) if row["name"] in asked]
    took = result_files.rounded(sum(row["took"] for rows in suites.values() for row in rows))
    settings = {**conditions, "seconds": options.seconds, "full": options.full, "took seconds": took}
    result = {"commit": at, "machine": machine, "settings": settings, "suites": suites}
    path = result_files.write(options.results, _stem(options), result)
    print(page.as_text(result_files.read(path)))
    print(f"wrote {', '.join(p.name for p in (path, *page.write(path)))}")


def limit(machine: Mapping[str, Any], full: bool) -> int:
    """Bytes that a single program may need: little in a quick run, else a quarter of the device's memory."""
    if not full:
        return 2**29
    size = machine.get("gpu", machine)["memory_gib"] or machine["memory_gib"]
    return max(int(size * 2**30) // 4, 2**30)


def _stem(options: argparse.Namespace) -> str:
    whole = set(options.suites) >= set(JAX if options.backend == "jax" else QUICK)
    name = ("full" if options.full else "quick") if whole else "-".join(options.suites)
    backend = "" if options.backend == "torch" else f"-{options.backend}"
    device = "" if options.device == "cpu" else f"-{options.device.replace(':', '')}"
    return f"{name}{backend}{device}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks suites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"any of {', '.join(FULL)}")
    parser.add_argument("--full", action="store_true", help="all points of the suites (an hour or two)")
    parser.add_argument("--backend", choices=("torch", "jax"), default="torch")
    parser.add_argument("--device", type=device, default="cpu", help="cpu, cuda, cuda:1, ... (cpu)")
    parser.add_argument("--seconds", type=positive, help="of rounds for each point (0.2, with --full 2)")
    parser.add_argument("--threads", type=threads, default=1, help="threads of the linear algebra (1)")
    parser.add_argument("--results", type=folder, default=RESULTS, help="folder (benchmarks/results)")
    options = parser.parse_args(arguments)
    known = JAX if options.backend == "jax" else FULL
    for name in options.suites:
        if name not in known:
            parser.error(f"no suite for {options.backend} is called {name!r}: expected {', '.join(known)}")
    every = JAX if options.backend == "jax" else FULL if options.full else QUICK
    options.suites = tuple(dict.fromkeys(options.suites)) or every
    options.seconds = options.seconds or (2.0 if options.full else 0.2)
    return options


if __name__ == "__main__":
    main()
