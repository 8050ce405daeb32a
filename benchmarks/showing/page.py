"""The report of a result file: as text, and as one HTML file with its figures in it."""

from __future__ import annotations

import argparse
import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import result_files
from benchmarks.measuring.options import told

from . import comparison
from .cells import cell, duration, memory, table

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; display: block; overflow-x: auto }
td, th { padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; border-bottom: 1px solid #ddd }
figure { margin: 2rem 0 }
img { max-width: 100% }
figcaption, .where { color: #555; font-size: 0.9rem }
.no { color: #a33; font-weight: bold }
"""
_ABOUT = {
    "compose": "The weights of all tasks, or of one, from the factors, and back to the factors.",
    "apply": "A layer called in the four ways of choosing tasks.",
    "conv": "Convolutions: all rows of one task, each task on its own, and rows of mixed tasks.",
    "mixed": "Rows with a task of their own, as rows and tasks grow.",
    "memory": "Parameters, their gradients, and the peak beyond these, input and output, with what is kept.",
    "scale": "1,024 rows of different tasks, as the number of tasks grows.",
}
_SETTINGS = ("backend", "device", "threads", "limit", "clock", "memory", "allocator")
Rows = Sequence[Mapping[str, Any]]


def write(path: Path) -> list[Path]:
    """Figures and an HTML page beside a result file; the files that were written."""
    from . import figures

    result = result_files.read_suites(path, _SETTINGS)
    pictures = figures.draw(result, path.parent, path.stem)
    page = path.with_suffix(".html")
    page.write_text(as_html(result, pictures), encoding="utf-8")
    return [page, *(picture.path for picture in pictures)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the reports of result files again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks report", description=main.__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="of results, as quick.json")
    files = parser.parse_args(arguments).files
    with told():
        for path in files:
            print(f"wrote {', '.join(p.name for p in write(path))}")


def as_text(result: Mapping[str, Any]) -> str:
    """The tables that a run prints."""
    parts = [where(result)]
    for title, text, rows in _sections(result):
        parts.append(f"\n{title}\n{text}\n{table(rows)}" if text else f"\n{title}\n{table(rows)}")
    return "\n".join(parts)


def as_html(result: Mapping[str, Any], pictures: Sequence[Any]) -> str:
    """One file that needs no other."""
    parts = [f"<h1>tnshare: benchmarks</h1><p class=where>{html.escape(where(result))}</p>"]
    for picture in pictures:
        data = base64.b64encode(picture.path.read_bytes()).decode()
        parts.append(
            f"<figure><img alt='{html.escape(picture.title)}' src='data:image/png;base64,{data}'>"
            f"<figcaption>{html.escape(picture.caption)}</figcaption></figure>"
        )
    for title, text, rows in _sections(result):
        parts.append(f"<h2>{html.escape(title)}</h2><p>{html.escape(text)}</p>{_html_table(rows)}")
    body = "\n".join(parts)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>tnshare: benchmarks</title>"
        f"<style>{_STYLE}</style>{body}</html>\n"
    )


def where(result: Mapping[str, Any]) -> str:
    """What was measured, on what, and how."""
    machine, settings, at = result["machine"], result["settings"], result["commit"]
    device = machine["gpu"]["model"] if "gpu" in machine else machine["cpu"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items() if v)
    noise = comparison.noise(result)
    floor = f"noise floor {noise['median']:.2f} (worst {noise['worst']:.2f}); " if noise else ""
    changed = " with changes" if at["dirty"] else ""
    return (
        f"Measured on {device}, {machine['cores']} cores, {machine['memory_gib']} GiB, with "
        f"{settings['threads']} thread(s) in {settings['backend']} on {settings['device']}, programs of up "
        f"to {memory(settings['limit'])}; medians of shuffled rounds, {floor}clock: {settings['clock']}; "
        f"peaks: {settings['memory']}; allocator: {settings['allocator']}. Commit {at['commit'][:12]}"
        f"{changed}, {machine['date']}; Python {machine['python']}, {versions}."
    )


def _sections(result: Mapping[str, Any]) -> list[tuple[str, str, Rows]]:
    suites = result["suites"]
    found: list[tuple[str, str, Rows]] = []
    for name in comparison.COMPARED:
        groups = _groups(suites.get(name, []))
        for kind, rows in groups.items():
            title = f"{name}: {kind}, {len(rows)} points" if kind != name else f"{name}: {len(rows)} points"
            found.append((title, _ABOUT[name], comparison.compared(rows)))
        gone = comparison.left_out(suites.get(name, []))
        if gone:
            found.append((f"{name}: what is not there, and why", "", gone))
    points = comparison.of(result, "memory", "memory")
    found.append(("memory: bytes", _ABOUT["memory"], comparison.bytes_held(points)))
    found.append(("too slow for rounds", "The quickest of the first runs.", comparison.single_runs(result)))
    found.append(
        ("roofline", "Times the least that the machine allows.", _roofline(suites.get("roofline", [])))
    )
    found.append(("predicted, not measured", "By published figures of devices.", _predicted(suites)))
    for name in ("imports", "decompose"):
        rows = [own for row in suites.get(name, []) if "facts" in row for own in row["facts"]["rows"]]
        found.append((name, "", rows))
    failed = [
        {"job": row["name"], "error": row["error"]}
        for rows in suites.values()
        for row in rows
        if "error" in row
    ]
    found.append(("what failed", "", failed))
    found.append(("what must hold", "Limits are multiplied by the noise of the point.", _promises(result)))
    return [section for section in found if section[2]]


def _groups(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    """Rows that were measured, by kind; training and inference together."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if "error" in row or not row["programs"] or row["kind"] == "per row":
            continue
        found.setdefault(row["kind"], []).append(row)
    return found


def _roofline(rows: Rows) -> Rows:
    found = []
    for row in rows:
        if "error" not in row:
            facts = row["facts"]
            others = {n: r for n, r in facts["times the least"].items() if n != comparison.OURS}
            best = min(others, key=others.__getitem__)
            found.append(
                {
                    "what": row["name"],
                    "tnshare": facts["times the least"][comparison.OURS],
                    "quartiles": _quartiles(facts, comparison.OURS),
                    "best other": f"{others[best]:.2f} ({best})",
                    "bound by": facts["bound by"],
                    "least": duration(facts["least seconds"]),
                    "flops, then bytes": facts["one after the other"],
                    "thin product": comparison.product_alone(facts),
                    "GB/s": facts["bandwidth"] / 1e9,
                    "Gflop/s": facts["peak flops"] / 1e9,
                    "Gflop/s, quartiles": _quartiles(facts, "peak flops", 1e9),
                }
            )
    return found


def _quartiles(facts: Mapping[str, Any], name: str, unit: float = 1.0) -> str | None:
    low, high = facts["quartiles"][name]
    return None if low is None else f"{low / unit:.2f} to {high / unit:.2f}"


def _predicted(suites: Mapping[str, Rows]) -> Rows:
    found = []
    for row in suites.get("predicted", []):
        if "error" not in row:
            told = {name: duration(s) for name, s in row["facts"]["predicted seconds"].items()}
            found.append({"predicted for": row["name"], **told})
    return found


def _promises(result: Mapping[str, Any]) -> Rows:
    words = {True: "holds", False: "does not hold", None: "-"}
    return [{"claim": v.claim, "found": v.found, "": words[v.holds]} for v in comparison.verdicts(result)]


def _html_table(rows: Rows) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    lines = []
    for row in rows:
        cells = "".join(
            f"<td class={'no' if value == 'does not hold' else 'yes'}>{html.escape(cell(value))}</td>"
            for value in row.values()
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"
