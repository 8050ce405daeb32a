"""Made results of benchmarks: entries of programs, rows of suites, whole files."""

from __future__ import annotations

from benchmarks.case import Case
from benchmarks.measuring import records
from benchmarks.showing import looks


def entry(total, forward=None, peak=1000, parameters=100, rounds=5):
    forward = total / 2 if forward is None else forward
    ends = (0.9, 1.1) if rounds else ()
    spread = lambda value: [value, *(end * value for end in ends), None, None][:3]  # noqa: E731
    return {
        "total": spread(total),
        "forward": spread(forward),
        "backward": spread(total - forward),
        "rounds": rounds,
        "parameters": parameters,
        "gradients": parameters,
        "peak": peak,
    }


def row(kind, way="each", programs=None, *, ranks=(8, 8, 4), batch=16, tasks=16, noise=1.0, **facts):
    case = Case("tucker", ranks, 64, 64, tasks, way, batch, True)
    programs = {"tnshare": entry(1e-3), "dense": entry(4e-3, peak=3000)} if programs is None else programs
    return {
        "suite": "any",
        "name": f"{kind} {case}",
        "budget": 1.0,
        "case": case.json,
        "kind": kind,
        "programs": programs,
        "noise": noise,
        "skipped": {"PEFT": "is not installed"},
        "facts": facts,
    }


def roofline_row(times, kind="compose"):
    facts = {"times the least": {"tnshare": times, "einsum": 3.0}, "bound by": "bytes", "least seconds": 1e-3}
    facts |= {"one after the other": 2.0, "thin product": 1.7}
    facts["quartiles"] = {"tnshare": [1.2, 1.9], "peak flops": [9e10, 1.1e11]}
    return row(kind, **facts, bandwidth=1e10, **{"peak flops": 1e11})


def process_row(size):
    facts = {"process bytes": size, "of it imports": 3e8, "dense bytes": 4.2e10}
    return row("process", programs={}, noise=None, **facts)


def per_row(times, noise=1.0):
    return row("per row", programs={f"T={n}": entry(t, t) for n, t in enumerate(times)}, noise=noise)


def result(**suites):
    at = {"commit": "a" * 40, "dirty": False}
    settings = {"backend": "torch", "device": "cpu", "threads": 1, "seconds": 1.0, "full": False}
    settings |= {"limit": 2**29, "took seconds": 90.0}
    settings |= {"clock": "time.perf_counter", "memory": "events", "allocator": "glibc"}
    return {"commit": at, "machine": records.machine(), "settings": settings, "suites": suites}


def full_result():
    both = {"tnshare factored": entry(1e-3), "tnshare materialised": entry(2e-3)}
    programs = {"tnshare": entry(1e-3), **both, "dense": entry(4e-3, peak=3000)}
    limited = {**programs, "tnshare within 1/2": entry(2e-3, peak=400)}
    slow = {**programs, "authors": entry(0.7, rounds=0)}
    maps = [row("map", programs=programs, ranks=(r, r, 4), batch=b) for r in (8, 16) for b in (1, 64)]
    ways = [row("way", way, programs) for way in looks.WAYS]
    scale = [row("scale", "mixed", slow, tasks=t) for t in (1, 1000)]
    return result(
        apply=[*ways, *maps],
        memory=[*(row("memory", way, limited) for way in looks.WAYS), process_row(1e9)],
        mixed=[row("mixed", "mixed", programs, batch=b) for b in (16, 128)],
        scale=[*scale, per_row([1e-3, 1.1e-3])],
        roofline=[roofline_row(1.4)],
        predicted=[
            row("predicted", programs={}, **{"predicted seconds": {"tnshare": 1e-3}, "profile": "a100"})
        ],
        conv=[{"suite": "conv", "name": "lost", "budget": 1.0, "error": "ValueError"}],
    )
