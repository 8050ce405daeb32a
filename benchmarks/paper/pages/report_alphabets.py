"""The part of the page that is about alphabets, those of all tasks and new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.paper.experiments.new_tasks import CODES, EVERYTHING, SCRATCH
from benchmarks.paper.experiments.omniglot import LAST_SHARED, related_runs
from benchmarks.paper.training.methods import STL

from . import claims, html, paper_figures, published
from .sections import MULTI, errors, marked, pairs, rivals, verdicts
from .stats import Row, by_layer, by_seed, estimate, fall, mean_of

HARD = ("UD-MTL-1", "UD-MTL-2", "UD-MTL-3", "UD-MTL-4")
PAPERS = published.HARD["omniglot"]
FEW = 0.1
MEASURES = {"sharing": "sharing strength rho", "similarity": "mean cosine of the weights of two tasks"}


def alphabets(rows: Sequence[Row], validation: Sequence[Row], results: Path) -> list[str]:
    """Fifty alphabets."""
    if not rows:
        return []
    roles = rivals(rows, validation, HARD, (), FEW, PAPERS)
    names = {name: marked(name, roles) for name in (STL, *HARD, *claims.SOFT)}
    fractions = sorted({row["fraction"] for row in rows})
    seeds = {f: len({row["seed"] for row in rows if row["fraction"] == f}) for f in fractions}
    counted = ", ".join(f"{100 * f:g} %: {n} seed{'s' * (n > 1)}" for f, n in seeds.items())
    bars = [
        html.picture(
            f"By layer, 10 % of the drawings: {title}. {paper_figures.BARS}",
            paper_figures.sharing_bars(rows, claims.SOFT, FEW, measure, title),
        )
        for measure, title in MEASURES.items()
        if any(measure in row for row in rows)
    ]
    caption = f"Mean error of all alphabets (multi-class, each among its own characters; {counted})"
    return [
        html.heading("Omniglot: fifty alphabets"),
        _picture(rows, roles),
        errors(caption, rows, names, fractions, {MULTI: ""}),
        errors("Number of parameters", rows, names, [FEW], {"parameters": ""}, ",.0f"),
        pairs("Paired differences, 10 % of the drawings", rows, FEW, roles, claims.SOFT),
        *bars,
        _layers(rows),
        _related(rows, results / "alphabets.png"),
        verdicts(claims.omniglot_claims(rows, list(roles))),
    ]


def _picture(rows: Sequence[Row], roles: Mapping[str, str]) -> str:
    shown = {name: marked(name, roles) for name in (STL, *roles, *claims.SOFT)}
    measures = {MULTI: "mean error of 50 alphabets, %"}
    picture = paper_figures.curves(rows, shown, measures, "drawings for training, %", base=STL)
    caption = (
        f"Error against the part of the drawings, and paired differences from {STL}. {paper_figures.BARS}"
    )
    return html.picture(caption, picture)


def _layers(rows: Sequence[Row]) -> str:
    """How much each layer shares, with intervals, and the paired difference of the first and the last."""
    lines: list[list[str]] = []
    titles: list[str] = []
    for measure, words in MEASURES.items():
        for name in claims.SOFT:
            layers, drop = by_layer(rows, name, FEW, measure), fall(rows, name, FEW, measure)
            if drop:
                titles = [*layers, f"{next(iter(layers))} minus {list(layers)[-1]}"]
                means = [f"{estimate(values):.3f}" for values in layers.values()]
                lines.append([name, words, *means, f"{drop:.4f}"])
    return html.table("Sharing by layer, 10 % of the drawings", ["method", "", *titles], lines)


def _related(rows: Sequence[Row], samples: Path) -> str:
    """The picture of the pairs of alphabets, and how many of them differ from seed to seed."""
    runs = related_runs(rows)
    if not runs or not samples.exists():
        return ""
    found = {word: {tuple(r["related"][LAST_SHARED][word]) for r in runs} for word in ("most", "least")}
    caption = (
        f"The most and the least related alphabets, by the cosine of {LAST_SHARED}'s weights: "
        f"{runs[0]['method']}, 10 % of the drawings, a line for each seed. In {len(runs)} runs "
        f"{len(found['most'])} different pairs come out as the most and {len(found['least'])} as the least "
        f"related. The paper shows one run's: {published.RELATED['most']} as the most, "
        f"{published.RELATED['least']} as the least related."
    )
    return html.picture(caption, samples.read_bytes())


def new_alphabets(rows: Sequence[Row]) -> list[str]:
    """Alphabets that a shared network has not seen."""
    if not rows:
        return []
    ways = (CODES, SCRATCH, EVERYTHING)
    fractions = sorted({row["fraction"] for row in rows})
    drawn = {f: round(20 * f) for f in fractions}
    cells = [[way, *(str(mean_of(rows, way, f, MULTI) or "") for f in fractions)] for way in ways]
    for line, way in zip(cells, ways, strict=True):
        sizes = by_seed(rows, way, fractions[0], "parameters").values()
        line.append(f"{min(sizes):,} to {max(sizes):,}" if sizes else "")
    titles = ["way", *(f"{n} drawing{'s' * (n > 1)}" for n in drawn.values()), "parameters trained"]
    picture = paper_figures.curves(
        rows,
        {way: way for way in ways},
        {MULTI: "mean error, %"},
        "drawings of every character",
        drawn,
        base=SCRATCH,
    )
    seeds = len({row["seed"] for row in rows})
    return [
        html.heading("New alphabets for a shared network"),
        html.paragraph(
            "The second protocol: under a first one, whose test errors had been read, codes alone were worse "
            "than training from scratch (new-tasks-first.json, docs/paper.md)."
        ),
        html.picture(
            "Error against the drawings of every character, and paired differences from training from "
            f"scratch. {paper_figures.BARS} Those of the left side are wide because each seed holds out "
            "other alphabets.",
            picture,
        ),
        html.table(f"Mean error of alphabets that were held out, {seeds} seeds", titles, cells),
        verdicts(claims.new_task_claims(rows, CODES, SCRATCH)),
    ]
