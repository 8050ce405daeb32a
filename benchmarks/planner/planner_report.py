"""The results of the planner's benchmark as one file of JSON and one of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import result_files

from . import verdicts
from .contestants import EMPTY
from .verdicts import Row, Verdict

PEERS = {
    "by hand": "by hand: ",
    "own": "own: ",
    "auto": "tnshare auto",
    "authors": "authors",
    "opt_einsum": "opt_einsum",
    "einsum": "einsum",
    "dense": "dense",
    "again": "tnshare (again)",
    "empty": EMPTY,
}
_EMPTY = (
    "An empty call is a compiled program with the same operands and results that computes nothing. Where it "
    "takes most of the time, no program can be much faster than another."
)


def write(folder: Path, result: Mapping[str, Any], file: str = "planner") -> str:
    """Write both files under a name of their own, and say which."""
    data = result_files.write(folder, file, result)
    table = data.with_suffix(".md")
    table.write_text(markdown(result), encoding="utf-8")
    return f"wrote {data.name} and {table.name}"


def markdown(result: Mapping[str, Any]) -> str:
    """Verdicts, geometric means and all points."""
    suites, machine, at = result["suites"], result["machine"], result["commit"]
    settings = result["settings"]
    lines = [
        "# The planner, measured",
        "",
        f"Commit `{at['commit']}`{' with changes' if at['dirty'] else ''}, {machine['date']}; "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{settings['threads']} thread, allocator: {settings.get('allocator', 'default')}; "
        f"Python {machine['python']}, " + ", ".join(f"{k} {v}" for k, v in machine["versions"].items()) + ".",
        "",
        "Medians over rounds in which the programs are shuffled anew; where the fastest of a point takes "
        "half a millisecond or less, each is called several times in its turn and the mean is taken. "
        "Limits are multiplied by the noise floor (the same program timed twice; in JAX, compiled twice; and "
        "whatever else is the very same program). Points where tnshare takes under 50 us are reported apart. "
        "JAX computes in the thread that calls it.",
    ]
    for backend in ("torch", "jax"):
        lines += _grid(backend, suites.get(backend, []))
        lines += _again(backend, suites.get(backend, []), suites.get(f"{backend} again", []))
    for name, judge in (("unseen", verdicts.unseen), ("overheads", verdicts.overheads)):
        rows, failed = _split(suites.get(name, []))
        if rows or failed:
            lines += ["", f"## {name}", "", *_verdicts(judge(rows)), *_after_others(rows), *_errors(failed)]
    for name in ("torch", "jax", "unseen"):
        rows, _ = _split(suites.get(name, []))
        if rows:
            lines += ["", f"## All points: {name}", "", *_all_points(rows)]
    return "\n".join(lines) + "\n"


def _grid(backend: str, measured: Sequence[Row]) -> list[str]:
    rows, failed = _split(measured)
    if not rows and not failed:
        return []
    large = [row for row in rows if not verdicts.small(row)]
    small = [row for row in rows if verdicts.small(row)]
    lines = ["", f"## {backend}: {len(large)} points of 50 us or more", ""]
    lines += [*_verdicts(verdicts.grid(large, backend)), *_fastest(large), *_errors(failed), *_means(large)]
    busy = [row for row in large if not verdicts.mostly_call(row)]
    if len(busy) < len(large):
        title = f"## {backend}: {len(busy)} of these that take 50 us or more beyond an empty call"
        lines += ["", title, "", _EMPTY, "", *_verdicts(verdicts.grid(busy, backend)), *_fastest(busy)]
        lines += _means(busy)
    if small:
        lines += ["", f"## {backend}: {len(small)} points under 50 us, apart", ""]
        lines += [*_verdicts(verdicts.grid(small, backend)), *_means(small)]
    return lines


def _again(backend: str, measured: Sequence[Row], again: Sequence[Row]) -> list[str]:
    """The verdicts with the second measurement of what missed a limit in the first."""
    first, failed = _split(measured)
    names, rows = verdicts.again(first, _split(again)[0], backend)
    if not names:
        return []
    missed, still = (len(verdicts.missed(each, backend)) for each in (first, rows))
    large = [row for row in rows if not verdicts.small(row)]
    text = (
        f"{missed} points missed a limit above or below 50 us, some of them by chance. {len(names)} of these "
        f"were tuned and measured again, for longer, after which {still} miss a limit. With the second "
        "measurement in place of the first (what kept its limits was measured once), of 50 us and more:"
    )
    title = f"## {backend}: the points that missed a limit, measured again"
    return ["", title, "", text, "", *_verdicts(verdicts.grid(large, backend)), *_errors(failed)]


def _verdicts(found: Sequence[Verdict]) -> list[str]:
    words = {True: "holds", False: "**fails**", None: "not measured"}
    cells = [(v.claim, v.found if v.points else "", v.limit, words[v.holds], str(v.points)) for v in found]
    lines = _table(("against", "found", "limit", "", "points"), cells)
    for verdict in found:
        if verdict.holds is False and verdict.worst:
            lines += ["", f'Worst of "{verdict.claim}":', "", *(f"- {name}" for name in verdict.worst)]
    return lines


def _after_others(rows: Sequence[Row]) -> list[str]:
    """What a single call takes longer than one by hand, if other programs ran just before."""
    found = sorted(1e6 * row["after others"] for row in rows if "after others" in row)
    if not found:
        return []
    text = f"{found[len(found) // 2]:.1f} us more than by hand in the median, at most {found[-1]:.1f}"
    return ["", f"A single call right after other programs, which have filled the caches, takes {text}."]


def _fastest(rows: Sequence[Row]) -> list[str]:
    """How far einsum could be outdone: by whatever was the fastest at each point. What is the same anyway."""
    texts, lines = [], []
    counts = {
        kind: sum(_same(row, PEERS[kind]) for row in rows) for kind in ("opt_einsum", "einsum", "by hand")
    }
    if any(counts.values()):
        said = ", ".join(f"{kind} at {count}" for kind, count in counts.items())
        lines += ["", f"Points where a peer is compiled to the very same program as tnshare: {said}."]
    for name in ("opt_einsum", "einsum"):
        pairs = [(best, row["medians"][name]) for row in rows if (best := verdicts.fastest(row, name))]
        if pairs:
            texts.append(f"{verdicts.mean(time / best for best, time in pairs):.2f} times faster than {name}")
    if texts:
        lines += ["", f"The fastest of all programs of a point, dense weights apart, is {', '.join(texts)}."]
    return lines


def _same(row: Row, start: str) -> bool:
    return any(name.startswith(start) for name in row.get("same", ()))


def _means(rows: Sequence[Row]) -> list[str]:
    """Peer / tnshare in geometric mean, by method and way, by shape, by batch, by mode and by ranks."""
    lines = ["", "Peer / tnshare in geometric mean (over 1: tnshare is faster):", ""]
    kinds: dict[str, Callable[[Row], str]] = {
        "method, way": lambda r: f"{r['method']}, {r['way']}",
        "shape": lambda r: "{}->{}, T = {}".format(*r["shape"]),
        "batch": lambda r: f"batch {r['batch']}",
        "mode": lambda r: "training" if r["training"] else "inference",
        "ranks": lambda r: f"{r['level']} ranks",
    }
    cells, peers = [], _measured(rows)
    for kind in kinds.values():
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(kind(row), []).append(row)
        cells += [_mean_cells(name, group, peers.values()) for name, group in groups.items()]
    cells.append(_mean_cells("all", rows, peers.values()))
    return lines + _table(("points", "number", *peers), cells)


def _measured(rows: Sequence[Row]) -> dict[str, str]:
    """The peers that there are times of."""
    return {name: start for name, start in PEERS.items() if any(verdicts.best(r, start) for r in rows)}


def _mean_cells(name: str, rows: Sequence[Row], peers: Iterable[str]) -> tuple[str, ...]:
    cells = [name, str(len(rows))]
    for start in peers:
        pairs = verdicts.ratios(rows, start)
        cells.append(f"{1 / verdicts.mean(r for _, r in pairs):.2f}" if pairs else "")
    return tuple(cells)


def _all_points(rows: Sequence[Row]) -> list[str]:
    """Microseconds; of several programs of a kind, those of the fastest."""
    cells, peers = [], _measured(rows)
    for row in rows:
        times = [row["medians"].get("tnshare"), *(verdicts.best(row, start) for start in peers.values())]
        texts = ["" if t is None else f"{t * 1e6:.1f}" for t in times]
        cells.append((row["name"], *texts, f"{verdicts.noise(row):.2f}"))
    return ["Microseconds.", "", *_table(("point", "tnshare", *peers, "noise"), cells)]


def _errors(rows: Sequence[Row]) -> list[str]:
    return ["", "Failed:", "", *(f"- {row['name']}: {row['error']}" for row in rows)] if rows else []


def _split(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """What was measured, and what failed."""
    return [r for r in rows if "error" not in r], [r for r in rows if "error" in r]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines]
