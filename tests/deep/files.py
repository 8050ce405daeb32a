"""Damaged files by the thousand, for as long as one likes: ``python tests/deep/files.py --minutes 60``.

10,000 files of each kind (see `helpers/damaged_files.py`) and 200 writers that are killed. Each hundred seeds
are a line of the log, so what was interrupted goes on where it was; what broke the law is in it by its seed,
which makes the same file again: ``--seed 1234 --kinds array`` shows one. It fails if the log has any.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT), str(ROOT / "backends")]

import kinds_of_files  # noqa: E402
import law_of_files  # noqa: E402
from resumed import done  # noqa: E402

CHUNK = 100
KINDS = (*kinds_of_files.PLAIN, *kinds_of_files.TORCH, *kinds_of_files.JAX)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES", 60)))
    parser.add_argument("--count", type=int, default=10_000, help="files of each kind")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "deep" / "files.jsonl")
    parser.add_argument("--seed", type=int, help="one file of each kind, and what comes of it")
    return parser.parse_args()


def chunk(judge: law_of_files.Judge, first: int, count: int) -> dict[str, Any]:
    """The verdicts on some seeds."""
    verdicts: Counter[str] = Counter()
    broken, slowest = [], 0.0
    for seed in range(first, first + count):
        began = time.perf_counter()
        mutation, verdict = judge.of_seed(seed)
        slowest = max(slowest, time.perf_counter() - began)
        verdicts[verdict.partition(":")[0]] += 1
        if verdict.startswith("BROKEN"):
            broken.append({"seed": seed, "mutation": mutation[:200], "verdict": verdict[:300]})
    kind = judge.kind.name
    return {"kind": kind, "first": first, "count": count, **verdicts, "slowest": slowest, "broken": broken}


def kills(folder: Path, first: int, count: int) -> dict[str, Any]:
    """Writers that are killed; see `helpers/killed_writers.py`."""
    where = folder / f"kills {first}"
    where.mkdir()
    program = str(ROOT / "tests" / "helpers" / "killed_writers.py")
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, program, str(where), str(count), str(first)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    found = [json.loads(line) for line in run.stdout.splitlines()]
    broken = [one for one in found if one["found"] != "whole" or one["left for good"]]
    return {"kind": "kills", "first": first, "count": len(found), "broken": broken}


def main() -> int:
    given = options()
    warnings.simplefilter("ignore")
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.seed is None:
            given.log.parent.mkdir(parents=True, exist_ok=True)
        seen: Counter[str] = Counter()
        for line in done(given.log):
            seen[line["kind"]] = max(seen[line["kind"]], line["first"] + line["count"])
        if given.seed is None:
            while seen["kills"] < given.kills and time.monotonic() < end:
                line = kills(folder, seen["kills"], min(20, given.kills - seen["kills"]))
                seen["kills"] += line["count"]
                _write(given.log, line)
        kinds = kinds_of_files.kinds(*given.kinds)
        others = law_of_files.every_file(kinds, folder)
        judges = [law_of_files.Judge(kind, folder, others) for kind in kinds]
        if given.seed is not None:
            for judge in judges:
                _say(judge.kind.name, *judge.of_seed(given.seed))
            return 0
        while time.monotonic() < end and any(seen[kind.name] < given.count for kind in kinds):
            for judge in judges:
                first = seen[judge.kind.name]
                if first < given.count and time.monotonic() < end:
                    _write(given.log, chunk(judge, first, min(CHUNK, given.count - first)))
                    seen[judge.kind.name] = first + CHUNK
    return summary(given.log)


def _write(log: Path, line: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")
    counts = {key: value for key, value in line.items() if key not in ("broken", "kind", "slowest")}
    _say(f"{line['kind']}: {counts}, {len(line['broken'])} broken")


def _say(first: str, *more: object) -> None:
    sys.stdout.write("\n  ".join(map(str, (first, *more))) + "\n")
    sys.stdout.flush()


def summary(log: Path) -> int:
    """All that the log has, a line a kind; how many broke the law."""
    lines = done(log)
    for kind in dict.fromkeys(line["kind"] for line in lines):
        own = [line for line in lines if line["kind"] == kind]
        broken = [one for line in own for one in line["broken"]]
        count = sum(line["count"] for line in own)
        _say(f"{kind}: {count:,} done, {len(broken)} broken", *broken[:5])
    return int(any(line["broken"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
