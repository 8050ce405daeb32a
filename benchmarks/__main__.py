"""`python -m benchmarks`: contract or materialise, what it costs, and what one would use instead.

Without names a quick run of all suites (under five minutes); `--full` the whole. Each prints a table and
writes benchmarks/results/<name>-<commit>.json, .html and figures, beside those of other runs. A run that was
stopped goes on where it stopped, if nothing has changed that it depends on.

`python -m benchmarks yours --help` answers for a layer of your own, `python -m benchmarks report FILE.json`
makes the report of a result file again, `python -m benchmarks.planner --help` is about the planner.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring.options import device, positive, threads, told
from benchmarks.measuring.records import RESULTS
from benchmarks.peers.common import not_here, number_of

QUICK = ("imports", "compose", "apply", "conv", "mixed", "memory", "scale", "roofline", "predicted")
FULL = (*QUICK, "decompose")
JAX = ("compose", "apply", "mixed")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suites that were asked for."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["yours"]:
        from .yours import main as yours

        yours(given[1:])
    elif given[:1] == ["report"]:
        from benchmarks.showing.page import again

        with told():
            again(given[1:])
    else:
        options = _options(given)
        with told():
            _measure(options)


def fix_threads(threads: int, backend: str) -> None:
    """As many threads as asked for, in every library; JAX must be told before it is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    if backend == "jax":
        eigen = "true" if threads > 1 else "false"
        os.environ["XLA_FLAGS"] = (
            f"--xla_cpu_multi_thread_eigen={eigen} intra_op_parallelism_threads={threads}"
        )
        if hasattr(os, "sched_setaffinity"):  # its pool has a thread for each core that it may use
            allowed = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, set(allowed[-threads:]))
        return
    import torch

    torch.set_num_threads(threads)


def make_bench(backend: str, device: str, limit: int = 2**30) -> Any:
    """A framework on a device, which must be here; what needs more bytes than ``limit`` is left out."""
    if backend == "jax":
        if device == "cpu":
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
        from .peers import in_jax

        return in_jax.Bench(device, limit)
    import torch

    from .peers import in_torch

    if device.startswith("cuda"):
        number = number_of(device)
        if not torch.cuda.is_available() or number >= torch.cuda.device_count():
            raise not_here("torch", torch.__version__, device)
        torch.cuda.set_device(number)  # of which events and statistics of memory are
    return in_torch.Bench(device, limit)


def suite_jobs(name: str, bench: Any, full: bool) -> list[Any]:
    """The jobs of a suite."""
    from importlib import import_module

    if name in ("imports", "decompose"):
        tables = import_module("benchmarks.suites.core_ratios")
        return list(getattr(tables, name)(bench, full))
    module = {"conv": "convolutions", "memory": "memory_limits"}.get(name, name)
    return list(import_module(f"benchmarks.suites.{module}").jobs(bench, full))


def _measure(options: argparse.Namespace) -> None:
    from benchmarks.measuring.allocator import keep_memory
    from benchmarks.measuring.empty_cache import own_cache
    from benchmarks.measuring.resuming import progress, run

    from .measuring import records, result_files
    from .showing import page

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


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"any of {', '.join(FULL)}")
    parser.add_argument("--full", action="store_true", help="all points of the suites (an hour or two)")
    parser.add_argument("--backend", choices=("torch", "jax"), default="torch")
    parser.add_argument("--device", type=device, default="cpu", help="cpu, cuda, cuda:1, ... (cpu)")
    parser.add_argument("--seconds", type=positive, help="of rounds for each point (0.2, with --full 2)")
    parser.add_argument("--threads", type=threads, default=1, help="threads of the linear algebra (1)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (benchmarks/results)")
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
