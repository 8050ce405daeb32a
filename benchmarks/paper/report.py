"""All results on one page, beside the paper's own figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import claims, figures, html, published, ratios
from .methods import FACTORISATIONS, LARGE, STL
from .networks import CharacterNet
from .new_tasks import CODES, EVERYTHING, SCRATCH
from .shallow_table import GRIDS
from .stats import Row, best_of, by_seed, mean_of, paired
from .store import write_whole

MULTI, BINARY = claims.MULTI, "binary_error"
MNIST_HARD = ("UD-MTL-1", "UD-MTL-2", "UD-MTL-3")
OMNIGLOT_HARD = (*MNIST_HARD, "UD-MTL-4")
FEATURES = ("PCA", "CNN")
_SEARCHES = ("-validation", "-search")  # by --folds, and by hand


def write(results: Path) -> Path:
    """The report on what is in a folder of results."""
    found = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))
    }
    rows = {name: each["runs"] for name, each in found.items()}
    digits = [*_validated(rows.get("mnist", []), rows.get("mnist-validated", [])), *rows.get("table1", [])]
    parts = [
        html.paragraph(
            "Errors in per cent, means over seeds with 95 % intervals (Student's t). Differences are paired: "
            "the same images, the same seed. All methods of an experiment take the same number of steps, and "
            "single-task networks are given those of the second stage too. Rates were chosen by "
            "cross-validation on the images of a fraction, of draws that no run here has (digits: at 1 % for "
            "all fractions; alphabets: at 10 %). The best hard sharing is the best of these runs: it is "
            "favoured."
        ),
        *_mnist(digits),
        _in_jax(rows.get("mnist-jax", []), rows.get("mnist", [])),
        _ratios(rows.get("ratios", [])),
        *_omniglot(rows.get("omniglot", []), found.get("omniglot", {}), results),
        *_new_tasks(rows.get("new-tasks", [])),
        *_adience(rows.get("adience", [])),
        *(_validation(name, each["runs"]) for name, each in found.items() if name.endswith(_SEARCHES)),
        *(_protocol(name, each) for name, each in found.items()),
    ]
    path = results / "report.html"
    write_whole(path, html.page("The paper's experiments, run again with tnshare", parts))
    return path


def _validated(rows: Sequence[Row], validated: Sequence[Row]) -> list[Row]:
    """Runs with validated settings, and of the others those that were not run with these."""
    again = {(row["method"], row["fraction"]) for row in validated}
    return [*validated, *(row for row in rows if (row["method"], row["fraction"]) not in again)]


def _mnist(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    rival = best_of(rows, MNIST_HARD, 0.01, MULTI) or MNIST_HARD[-1]
    shown = {STL: STL, rival: f"{rival} (best hard sharing)", **{name: name for name in claims.SOFT}}
    measures = {MULTI: "multi-class error, %", BINARY: "mean binary error, %"}
    parts = [row for row in rows if row["fraction"] != published.THOUSAND]
    return [
        html.heading("MNIST: ten digits, each against the rest"),
        html.picture(
            "Error against the part of the 60,000 training images",
            figures.curves(parts, shown, measures, "training images, %"),
        ),
        html.paragraph(
            "The paper calls the errors of its appendix binary. Always answering no would score 10 % in that "
            "measure, so they can only be multi-class errors, and stand here beside ours. Its network has "
            "558,977 parameters as described, without padding; its table implies about 435,000."
        ),
        _deep_table(rows),
        _classic_table(rows),
        _pairs("Paired differences, multi-class error, 1 % of the images", rows, 0.01, rival),
        _pairs("Paired differences, mean binary error, 1 % of the images", rows, 0.01, rival, BINARY),
        _verdicts(
            [*claims.mnist_claims(rows, MNIST_HARD), *claims.order_claims(rows, FEATURES, tuple(GRIDS))]
        ),
        _thousand(rows),
    ]


def _thousand(rows: Sequence[Row]) -> str:
    """The paper's comparison with methods for linear models on 1,000 images."""
    names = [*(f"{name}, PCA" for name in GRIDS), *claims.SOFT]
    paper = {"GO-MTL, PCA": "13.4", **dict.fromkeys(claims.SOFT, "below 6")}
    found = {name: mean_of(rows, name, published.THOUSAND, MULTI) for name in names}
    lines = [[name, str(mean), paper.get(name, "")] for name, mean in found.items() if mean]
    if not lines:
        return ""
    table = html.table("With 1,000 images, multi-class error", ["method", "error", "paper"], lines)
    return table + _verdicts(claims.thousand_claims(rows))


def _deep_table(rows: Sequence[Row]) -> str:
    names = [STL, *MNIST_HARD, LARGE, *claims.SOFT, *(f"{name} random" for name in claims.SOFT)]
    lines = []
    dense = mean_of(rows, STL, 0.01, "parameters")
    for name in names:
        error, binary = (mean_of(rows, name, 0.01, m) for m in (MULTI, BINARY))
        size = mean_of(rows, name, 0.01, "parameters")
        if not (error and binary and size):
            continue
        paper = published.DEEP.get("UD-MTL" if name == "UD-MTL-3" else name)
        ratio = f"{size.mean / dense.mean:.2f}" if dense else ""
        theirs = [f"{paper[0]:.2f}", f"{paper[1]:,} K", f"{paper[2]:.2f}"] if paper else ["", "", ""]
        ours = [str(error), str(binary), f"{size.mean / 1e3:,.0f} K", ratio, str(error.count)]
        lines.append([name, *ours, *theirs])
    titles = [
        "method",
        "multi-class",
        "binary",
        "parameters",
        "ratio",
        "seeds",
        "paper: error",
        "parameters",
        "ratio",
    ]
    return html.table(
        "Error and number of parameters, 1 % of the images (the paper's Table 2)", titles, lines
    )


def _classic_table(rows: Sequence[Row]) -> str:
    lines = []
    for name, theirs in published.CLASSIC.items():
        cells = [str(mean_of(rows, f"{name}, {kind}", 0.01, MULTI) or "") for kind in FEATURES]
        if any(cells):
            lines.append([name, *cells, *(f"{theirs[kind]:.2f}" for kind in FEATURES)])
    titles = ["method", "PCA", "CNN", "paper: PCA", "paper: CNN"]
    return html.table("Classic methods, multi-class error, 1 % of the images (Table 1)", titles, lines)


def _pairs(caption: str, rows: Sequence[Row], fraction: float, rival: str, measure: str = MULTI) -> str:
    lines = []
    for name in claims.SOFT:
        found = [paired(rows, name, other, fraction, measure) for other in (STL, rival)]
        if any(found):
            lines.append([name, *(str(each or "") for each in found)])
    return html.table(caption, ["method", f"{STL} minus it", f"{rival} minus it"], lines)


def _in_jax(rows: Sequence[Row], in_torch: Sequence[Row]) -> str:
    """Runs in JAX, each beside the one in torch of the same images, batches, initial values and settings."""
    if not rows:
        return ""
    same = ("method", "fraction", "seed", "protocol")
    others = {tuple(row[key] for key in same): row for row in in_torch}
    lines = []
    for row in rows:
        other = others.get(tuple(row[key] for key in same), {})
        cells = (f"{each[m]:.2f}" if m in each else "" for m in (MULTI, BINARY) for each in (row, other))
        lines.append([row["method"], f"{100 * row['fraction']:g} %", str(row["seed"]), *cells])
    titles = ["method", "images", "seed", "multi-class: JAX", "torch", "binary: JAX", "torch"]
    return html.table("The same digits in JAX and in torch, rates found on other images", titles, lines)


def _ratios(rows: Sequence[Row]) -> str:
    lines = []
    for factorisation in FACTORISATIONS:
        for eps in ratios.EPS:
            found = [mean_of(rows, ratios.named(factorisation, r, eps), 0.01, "kept") for r in ratios.RULES]
            if any(found):
                paper = f"{published.DEEP[f'DMTRL-{factorisation}'][2]:.2f}" if eps == 0.1 else ""
                lines.append([factorisation, f"{eps:g}", *(str(each or "") for each in found), paper])
    caption = "Parameters kept of the single-task networks after the first stage, as a ratio"
    return html.table(caption, ["method", "eps", *ratios.RULES, "paper"], lines)


def _omniglot(rows: Sequence[Row], found: Mapping[str, Any], results: Path) -> list[str]:
    if not rows:
        return []
    fraction, layers = 0.1, CharacterNet.layers[:-1]
    rival = best_of(rows, OMNIGLOT_HARD, fraction, MULTI) or OMNIGLOT_HARD[2]
    shown = {STL: STL, rival: f"{rival} (best hard sharing)", **{name: name for name in claims.SOFT}}
    names = [STL, *OMNIGLOT_HARD, *claims.SOFT]
    fractions = sorted({row["fraction"] for row in rows})
    cells = [[n, *(str(mean_of(rows, n, f, MULTI) or "") for f in fractions)] for n in names]
    bars = [
        html.picture(title, figures.sharing_bars(rows, claims.SOFT, layers, fraction, measure, title))
        for measure, title in (
            ("sharing", "sharing strength rho"),
            ("similarity", "mean cosine between tasks"),
        )
        if any(measure in row for row in rows)
    ]
    samples = results / "alphabets.png"
    pairs = (
        [html.picture("The most and the least related alphabets", samples.read_bytes())]
        if samples.exists()
        else []
    )
    return [
        html.heading("Omniglot: fifty alphabets"),
        html.picture(
            "Error against the part of the drawings",
            figures.curves(rows, shown, {MULTI: "mean error of 50 alphabets, %"}, "drawings for training, %"),
        ),
        html.table("Mean error of all alphabets", ["method", *(f"{100 * f:g} %" for f in fractions)], cells),
        _pairs("Paired differences, 10 % of the drawings", rows, fraction, rival),
        *bars,
        *pairs,
        _verdicts(claims.omniglot_claims(rows, OMNIGLOT_HARD, layers)),
    ]


def _new_tasks(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    ways = (CODES, SCRATCH, EVERYTHING)
    fractions = sorted({row["fraction"] for row in rows})
    drawn = {f: round(20 * f) for f in fractions}
    cells = [[way, *(str(mean_of(rows, way, f, MULTI) or "") for f in fractions)] for way in ways]
    for line, way in zip(cells, ways, strict=True):
        line.append(f"{next(iter(by_seed(rows, way, fractions[0], 'parameters').values())):,}")
    titles = ["way", *(f"{n} drawing{'s' * (n > 1)}" for n in drawn.values()), "parameters trained"]
    picture = figures.curves(
        rows, {way: way for way in ways}, {MULTI: "mean error, %"}, "drawings of every character", drawn
    )
    return [
        html.heading("New alphabets for a shared network"),
        html.paragraph(
            "The second protocol: under a first one, whose test errors had been read, codes alone were worse "
            "than training from scratch (new-tasks-first.json, docs/paper.md)."
        ),
        html.picture("Error against the drawings of every character", picture),
        html.table("Mean error of alphabets that were held out", titles, cells),
        _verdicts(claims.new_task_claims(rows, CODES, SCRATCH)),
    ]


def _adience(rows: Sequence[Row]) -> list[str]:
    text = (
        "The faces are handed out by their authors on request, and were not at hand: the loader and the "
        "network are tested on made images in the official layout, and nothing was measured."
    )
    lines = [
        [r["method"], f"{100 * r['fraction']:g} %", *(f"{e:.2f}" for e in r["task_errors"])] for r in rows
    ]
    titles = ["method", "images", "age", "gender"]
    body = html.table("Error of each task", titles, lines) if rows else html.paragraph(text)
    return [html.heading("AdienceFaces: age and gender"), body]


def _validation(name: str, rows: Sequence[Row]) -> str:
    """Every setting that was tried, and for each method the best of them."""
    fractions, names = sorted({r["fraction"] for r in rows}), list(dict.fromkeys(r["method"] for r in rows))
    cells = [[n, *(str(mean_of(rows, n, f, MULTI) or "") for f in fractions)] for n in names]
    for method in dict.fromkeys(n.partition(",")[0] for n in names):
        tried = [n for n in names if n.partition(",")[0] == method]
        best = [best_of(rows, tried, f, MULTI) or "" for f in fractions]
        if len(tried) > 1:
            cells.append([f"best of {method}", *(found.partition(", ")[2] for found in best)])
    titles = ["method", *(f"{100 * f:g} %" for f in fractions)]
    return html.table(f"{name}: error on training images that were held out", titles, cells)


def _verdicts(found: Sequence[claims.Claim]) -> str:
    lines = [[claim.text, claim.verdict, claim.figures] for claim in found]
    return html.table("Claims", ["claim", "", "figures"], lines)


def _protocol(name: str, found: Mapping[str, Any]) -> str:
    about = {key: found[key] for key in ("commit", "dirty", "machine", "protocol") if key in found}
    hours = sum(row.get("cpu_seconds", 0) for row in found["runs"]) / 3600
    text = f"{name}: {len(found['runs'])} runs, {hours:.2f} hours of one processor core"
    return html.heading(text) + html.code(json.dumps(about, indent=1))
