"""Tables that several parts of the page on the paper have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.paper.training.methods import STL

from . import claims, html
from .stats import Row, best_of, chosen_by, mean_of, paired

MULTI, BINARY = claims.MULTI, "binary_error"
BEST, CHOSEN, PAPERS = "best hard sharing", "N by cross-validation", "the paper's N"


def rivals(
    rows: Sequence[Row],
    validation: Sequence[Row],
    hard: Sequence[str],
    others: Sequence[str],
    fraction: float,
    papers: str,
) -> dict[str, str]:
    """The hard sharing to compare with, and why each: the best first, then the two choices of N.

    ``hard`` share the first N layers, for some N, ``others`` are hard sharing that is no choice of N, and
    ``papers`` is the paper's choice. The best is that of the test errors: it is favoured.
    """
    roles = (
        (best_of(rows, [*hard, *others], fraction, MULTI), BEST),
        (chosen_by(validation, hard, fraction, MULTI), CHOSEN),
        (papers, PAPERS),
    )
    found: dict[str, str] = {}
    for name, role in roles:
        if name and mean_of(rows, name, fraction, MULTI):
            found[name] = f"{found[name]}, {role}" if name in found else role
    return found


def marked(name: str, roles: Mapping[str, str]) -> str:
    """A method's name, and why it is compared with."""
    return f"{name} ({roles[name]})" if name in roles else name


def pairs(
    caption: str,
    rows: Sequence[Row],
    fraction: float,
    roles: Mapping[str, str],
    names: Sequence[str],
    measure: str = MULTI,
) -> str:
    """Paired differences of methods from single tasks and from hard sharing."""
    others, lines = [STL, *roles], []
    for name in names:
        found = [paired(rows, name, other, fraction, measure) for other in others]
        if any(found):
            lines.append([name, *(str(each or "") for each in found)])
    titles = ["method", *(f"{marked(other, roles)} minus it" for other in others)]
    return html.table(f"{caption}: above 0 it is better", titles, lines)


def errors(
    caption: str,
    rows: Sequence[Row],
    names: Mapping[str, str],
    fractions: Sequence[float],
    measures: Mapping[str, str],
    spec: str = ".2f",
) -> str:
    """What was measured of methods, named as ``names`` says, for each fraction and measure."""
    columns = [(fraction, measure) for measure in measures for fraction in fractions]
    lines: list[list[str | html.Cell]] = []
    for name, label in names.items():
        found = [mean_of(rows, name, fraction, measure) for fraction, measure in columns]
        absent = "" if any(found) else "not run"
        cells: list[str | html.Cell] = [
            f"{mean:{spec}}" if mean else html.Cell(absent, "open") for mean in found
        ]
        lines.append([label, *cells])
    titles = ["method", *(f"{measures[m]}{100 * f:g} %" for f, m in columns)]
    return html.table(caption, titles, lines) if columns else ""


def verdicts(found: Sequence[claims.Claim]) -> str:
    """Claims as a table."""
    kinds = {None: "open", True: "holds", False: "fails"}
    lines: list[list[str | html.Cell]] = [
        [c.text, html.Cell(c.verdict, kinds[c.holds]), c.figures] for c in found
    ]
    return html.table("Claims", ["claim", "verdict", "figures"], lines)
