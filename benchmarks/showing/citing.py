"""Numbers in documents that stem from a result file: each is followed by a comment that says where from.

`2.6<!-- quick.json: apply dense -->` is a number of benchmarks/results/quick.json; `disagreements` finds
those that are not what the file says, to as many digits as are written. `python -m benchmarks cite` prints
all numbers that can be cited, `python -m benchmarks cite README.md docs/*.md` puts those of new runs in their
place.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import result_files
from benchmarks.measuring.options import told
from benchmarks.measuring.records import RESULTS
from benchmarks.paper.pages import cited as paper
from benchmarks.planner import verdicts
from tnshare.errors import TnshareError

from . import comparison

_CITED = re.compile(
    r"(?P<number>\d[\d,]*(?:\.\d+)?)(?P<unit>[ \w%]*)"
    r"<!-- (?P<file>(?:paper/)?[\w.-]+\.json): (?P<key>[^>]+?) -->"
)
_PLANNED = ("torch", "jax")  # suites of the planner, of which a file has one


def facts_in(path: Path) -> dict[str, float]:
    """All numbers of a file of results, of those in the folder ``paper`` too, that a document may cite."""
    if not path.exists():
        return {}
    return paper.facts(path) if path.parent.name == "paper" else facts(result_files.read(path))


def disagreements(text: str, folder: Path = RESULTS) -> list[str]:
    """The cited numbers of a text that are not those of their files."""
    found, known = [], _Files(folder)
    for cited in _CITED.finditer(text):
        value = known[cited["file"]].get(cited["key"])
        if value is None:
            found.append(f"{cited['file']} says nothing of {cited['key']!r}")
        elif not agrees(cited["number"], value):
            found.append(f"{cited['key']}: {cited['number']} is written, {value:.5g} was found")
    return found


def citations(text: str) -> int:
    """How many numbers of a text are cited."""
    return len(_CITED.findall(text))


def agrees(written: str, value: float) -> bool:
    """Whether a number is that value, rounded to the digits that are written."""
    plain = written.replace(",", "")
    digits = len(plain.partition(".")[2])
    unit = 10.0**-digits
    return abs(float(plain) - value) <= unit / 2 * (1 + 1e-9)


def facts(result: Mapping[str, Any]) -> dict[str, float]:
    """All numbers of a result that a document may cite."""
    if "suites" not in result:
        return {}
    return _measured(result) if result["suites"].keys().isdisjoint(_PLANNED) else _planner(result)


def _measured(result: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for suite in comparison.COMPARED:
        rows = [
            r for r in result["suites"].get(suite, []) if r.get("kind") not in ("map", "process", "per row")
        ]
        if rows:
            found[f"{suite}, points"] = sum("error" not in row for row in rows)
        for entry in comparison.compared(rows):
            name = f"{suite} {entry['program']}"
            found[name] = entry["time / tnshare"]
            found[f"{name}, points"] = entry["points"]
            if entry["memory / tnshare"] is not None:
                found[f"{name}, memory"] = entry["memory / tnshare"]
                found[f"{name}, memory, points"] = entry["points of memory"]
    if "took seconds" in result["settings"]:
        found["took, minutes"] = result["settings"]["took seconds"] / 60
    return found | _promised(result)


def _promised(result: Mapping[str, Any]) -> dict[str, float]:
    """The noise floor, and what must hold."""
    suites, noise = result["suites"], comparison.noise(result)
    found = {"noise": noise["median"], "noise at worst": noise["worst"]} if noise else {}
    for row in comparison.of(result, "memory", "process"):
        found["process, GB"] = row["facts"]["process bytes"] / 1e9
        found["process, dense, GB"] = row["facts"]["dense bytes"] / 1e9
    scale = {row["case"]["method"]: row for row in comparison.of(result, "scale", "per row")}
    for method, row in scale.items():
        times = [entry["forward"][0] for entry in row["programs"].values()]
        found[f"scale per row {method}"] = max(times) / min(times)
    if scale:
        found["scale per row, worst"] = max(found[f"scale per row {method}"] for method in scale)
    for row in (row for row in suites.get("roofline", []) if "facts" in row):
        found[f"roofline {row['name']}"] = row["facts"]["times the least"][comparison.OURS]
        alone = comparison.product_alone(row["facts"])
        if alone is not None:
            found[f"roofline {row['name']}, product alone"] = alone
    composed = [found[f"roofline {row['name']}"] for row in comparison.of(result, "roofline", "compose")]
    if composed:
        found |= {"roofline compose, least": min(composed), "roofline compose, most": max(composed)}
    return found


def _planner(result: Mapping[str, Any]) -> dict[str, float]:
    """Of `python -m benchmarks planner`: tuned layers against the best version by hand, and the others."""
    name = next(name for name in _PLANNED if name in result["suites"])
    measured, second = (
        [row for row in result["suites"].get(suite, []) if "error" not in row]
        for suite in (name, f"{name} again")
    )
    found = _compared(measured)
    names, rows = verdicts.again(measured, second, name)
    if names:
        found |= {f"{key}, again": value for key, value in _compared(rows).items()}
        found["missed"], found["missed, again"] = (
            len(verdicts.missed(each, name)) for each in (measured, rows)
        )
    return found


def _compared(measured: Sequence[verdicts.Row]) -> dict[str, float]:
    """Of the points that count."""
    rows = [row for row in measured if not verdicts.small(row)]
    pairs = verdicts.ratios(rows, "by hand")
    over = [ratio > 1.1 for _, ratio in pairs]
    beyond = [ratio > 1.1 * verdicts.noise(row) for row, ratio in pairs]
    found = {
        "points": len(pairs),
        "by hand": verdicts.mean(ratio for _, ratio in pairs),
        "by hand, worst": max((ratio for _, ratio in pairs), default=0.0),
        "by hand, over 1.1, %": 100 * sum(over) / max(len(over), 1),
        "by hand, over 1.1 and noise, %": 100 * sum(beyond) / max(len(beyond), 1),
        "by hand, over 1.3 and noise": sum(ratio > 1.3 * verdicts.noise(row) for row, ratio in pairs),
    }
    for peer in ("authors", "opt_einsum", "einsum"):
        ratios = verdicts.ratios(rows, peer)
        found[peer] = 1 / verdicts.mean(ratio for _, ratio in ratios)
        found[f"{peer}, the same program"] = sum(peer in row.get("same", ()) for row in rows)
        slower = [ratio > verdicts.noise(row) for row, ratio in ratios]
        found[f"{peer}, faster beyond noise"] = sum(slower)
        fastest = [(row["medians"][peer], verdicts.fastest(row, peer)) for row, _ in ratios]
        found[f"{peer}, by the fastest of all"] = verdicts.mean(t / best for t, best in fastest if best)
    return found


def updated(text: str, folder: Path = RESULTS) -> str:
    """The text with every cited number as its file has it, to as many digits as were written."""
    known = _Files(folder)

    def current(cited: re.Match[str]) -> str:
        value = known[cited["file"]].get(cited["key"])
        if value is None:
            raise TnshareError(f"{cited['file']} says nothing of {cited['key']!r}, which the text cites")
        digits = len(cited["number"].partition(".")[2])
        return f"{value:,.{digits}f}{cited[0][len(cited['number']) :]}"

    return _CITED.sub(current, text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what can be cited, or put it into the documents named: into all of them, or into none."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cite", description=main.__doc__)
    parser.add_argument("documents", nargs="*", help="in which cited numbers are replaced")
    names = parser.parse_args(arguments).documents
    with told():
        try:
            texts = {Path(name): updated(Path(name).read_text(encoding="utf-8")) for name in names}
        except (OSError, UnicodeDecodeError) as error:
            raise TnshareError(str(error)) from None
    for document, text in texts.items():
        document.write_text(text, encoding="utf-8")
    for path in () if names else sorted([*RESULTS.glob("*.json"), *RESULTS.glob("paper/*.json")]):
        for key, value in facts_in(path).items():
            print(f"{value:.5g}<!-- {path.relative_to(RESULTS)}: {key} -->")


class _Files(dict[str, Mapping[str, float]]):
    """The numbers of files in a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> Mapping[str, float]:
        return self.setdefault(name, facts_in(self._folder / name))
