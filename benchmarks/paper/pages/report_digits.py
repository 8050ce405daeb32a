"""The part of the page that is about digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paper.experiments import ratios
from benchmarks.paper.experiments.shallow_table import GRIDS
from benchmarks.paper.training.methods import FACTORISATIONS, LARGE, STL

from . import claims, html, paper_figures, published
from .sections import BINARY, MULTI, errors, marked, pairs, rivals, verdicts
from .stats import Row, mean_of

HARD = ("UD-MTL-1", "UD-MTL-2", "UD-MTL-3")
PAPERS = published.HARD["mnist"]
FEATURES = ("PCA", "CNN")
FEW = 0.01
METHODS = (STL, *HARD, LARGE, *claims.SOFT, *(f"{name} random" for name in claims.SOFT))


def digits(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """All that files of results say of digits."""
    rows = collected(found)
    if not rows:
        return []
    roles = rivals(rows, _runs(found, "mnist-validation"), HARD, (LARGE,), FEW, PAPERS)
    soft = [name for base in claims.SOFT for name in variants(rows, base)]
    return [
        html.heading("MNIST: ten digits, each against the rest"),
        _picture(rows, roles),
        html.paragraph(
            "The paper calls the errors of its appendix binary. Always answering no would score 10 % in that "
            "measure, so they can only be multi-class errors, and stand here beside ours. Its network has "
            "558,977 parameters as described, without padding; its table implies about 435,000. "
            f"{LARGE} is as wide as to have as many parameters as the paper's, which is fewer than our "
            "factors have."
        ),
        _deep_table(rows, roles, _eps(found)),
        _fractions(rows),
        _classic_table(rows),
        pairs("Paired differences, multi-class error, 1 % of the images", rows, FEW, roles, soft),
        pairs("Paired differences, mean binary error, 1 % of the images", rows, FEW, roles, soft, BINARY),
        verdicts(
            [*claims.mnist_claims(rows, list(roles)), *claims.order_claims(rows, FEATURES, tuple(GRIDS))]
        ),
        _thousand(rows),
    ]


def collected(found: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Runs of one page: with validated settings where there are some, with each eps, and classic methods."""
    rows = validated(_runs(found, "mnist"), _runs(found, "mnist-validated"))
    return [*rows, *_with_eps(found), *_runs(found, "table1")]


def validated(rows: Sequence[Row], again: Sequence[Row]) -> list[Row]:
    """Runs with validated settings, and of the others those that were not run with these."""
    known = {(row["method"], row["fraction"]) for row in again}
    return [*again, *(row for row in rows if (row["method"], row["fraction"]) not in known)]


def variants(rows: Sequence[Row], base: str) -> list[str]:
    """A method and, after it, runs of it with other settings: "method, eps 0.1"."""
    return [base, *sorted({r["method"] for r in rows if r["method"].startswith(f"{base}, ")})]


def _runs(found: Mapping[str, Mapping[str, Any]], name: str) -> list[Row]:
    return list(found.get(name, {}).get("runs", []))


def _with_eps(found: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Soft sharing of files mnist-eps...: each run named after its eps, if it is not already."""
    rows: list[Row] = []
    for name in (name for name in found if name.startswith("mnist-eps")):
        known = _eps({"mnist": found[name]})
        for row in found[name]["runs"]:
            if eps := known.get(row["method"]):
                base = row["method"].partition(", ")[0]
                rows.append({**row, "method": f"{base}, eps {eps}"})
    return rows


def _eps(found: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The eps of each method that has one, by the settings of the files."""
    known: dict[str, str] = {}
    for name in ("mnist", "mnist-validated"):
        for method, settings in found.get(name, {}).get("protocol", {}).items():
            eps = settings["method"]["share"].get("eps")
            known |= {method: f"{eps:g}"} if eps is not None else {}
    return known


def _picture(rows: Sequence[Row], roles: Mapping[str, str]) -> str:
    best = next(iter(roles), PAPERS)
    names = {best: marked(best, roles), PAPERS: marked(PAPERS, roles)}
    shown = {STL: STL, **names, **{name: name for name in claims.SOFT}}
    measures = {MULTI: "multi-class error, %", BINARY: "mean binary error, %"}
    parts = [row for row in rows if row["fraction"] != published.THOUSAND]
    caption = f"Error against the part of the 60,000 training images. {paper_figures.BARS}"
    return html.picture(caption, paper_figures.curves(parts, shown, measures, "training images, %"))


def _deep_table(rows: Sequence[Row], roles: Mapping[str, str], eps: Mapping[str, str]) -> str:
    lines = []
    dense = mean_of(rows, STL, FEW, "parameters")
    for name in (each for base in METHODS for each in variants(rows, base)):
        error, binary = (mean_of(rows, name, FEW, m) for m in (MULTI, BINARY))
        size = mean_of(rows, name, FEW, "parameters")
        if not (error and binary and size):
            continue
        paper = published.DEEP.get("UD-MTL" if name == PAPERS else name)
        ratio = f"{size.mean / dense.mean:.2f}" if dense else ""
        theirs = [f"{paper[0]:.2f}", f"{paper[1]:,} K", f"{paper[2]:.2f}"] if paper else ["", "", ""]
        part = name.partition(", eps ")[2] or eps.get(name, "")
        ours = [part, str(error), str(binary), f"{size.mean / 1e3:,.0f} K", ratio, str(error.count)]
        lines.append([marked(name, roles), *ours, *theirs])
    ours = ["eps", "multi-class", "binary", "parameters", "ratio", "seeds"]
    titles = ["method", *ours, "paper: error", "parameters", "ratio"]
    return html.table(
        "Error and number of parameters, 1 % of the images (the paper's Table 2; its eps is 0.1)",
        titles,
        lines,
    )


def _fractions(rows: Sequence[Row]) -> str:
    """Both errors with more of the images."""
    few = [row for row in rows if row["fraction"] not in (FEW, published.THOUSAND) and BINARY in row]
    fractions = sorted({row["fraction"] for row in few})
    names = {m: m for m in (each for base in METHODS for each in variants(few, base))}
    known = {m: label for m, label in names.items() if any(row["method"] == m for row in few)}
    seeds = sorted({len({r["seed"] for r in few if r["fraction"] == f}) for f in fractions})
    caption = f"Errors with more of the images, {' or '.join(map(str, seeds))} seeds"
    return errors(caption, few, known, fractions, {MULTI: "multi-class, ", BINARY: "binary, "})


def _classic_table(rows: Sequence[Row]) -> str:
    """Table 1: linear methods on features, and below them the deep ones, which make their own."""
    lines = []
    for name, theirs in published.CLASSIC.items():
        cells = [str(mean_of(rows, f"{name}, {kind}", FEW, MULTI) or "") for kind in FEATURES]
        if any(cells):
            lines.append([name, *cells, *(f"{theirs[kind]:.2f}" for kind in FEATURES)])
    for name in (*claims.SOFT, PAPERS) if lines else ():
        if found := mean_of(rows, name, FEW, MULTI):
            paper = published.DEEP["UD-MTL" if name == PAPERS else name]
            lines.append([name, "", str(found), "", f"{paper[0]:.2f}"])
    titles = ["method", "PCA", "CNN", "paper: PCA", "paper: CNN"]
    caption = "Classic methods, and deep ones on their own features, multi-class error, 1 % of the images"
    return html.table(f"{caption} (Table 1)", titles, lines)


def _thousand(rows: Sequence[Row]) -> str:
    """The paper's comparison with methods for linear models on 1,000 images."""
    if not any(row["fraction"] == published.THOUSAND for row in rows):
        return ""
    deep, theirs = (STL, *HARD, LARGE, *claims.SOFT), published.THOUSAND_IMAGES
    kang = "Kang et al. 2011, PCA (not built here)"
    paper = {kang: f"{theirs['Kang et al. 2011']:g}", "GO-MTL, PCA": f"{theirs['GO-MTL']:g}"}
    paper |= dict.fromkeys(claims.SOFT, f"below {theirs['DMTRL (below)']:g}")
    lines = []
    for name in (kang, *(f"{name}, {kind}" for kind in FEATURES for name in GRIDS), *deep):
        found = [mean_of(rows, name, published.THOUSAND, measure) for measure in (MULTI, BINARY)]
        seeds = str(found[0].count) if found[0] else ""
        if seeds or name in paper:
            lines.append([name, *(str(each or "") for each in found), seeds, paper.get(name, "")])
    titles = ["method", "multi-class", "binary", "seeds", "paper"]
    table = html.table("With 1,000 images, rates found on other images", titles, lines)
    others = [name for name in (STL, *HARD, LARGE) if mean_of(rows, name, published.THOUSAND, MULTI)]
    note = "The paper's figures for linear methods are those of others, on another subset of the images."
    return table + html.paragraph(note) + verdicts(claims.thousand_claims(rows, others))


def in_jax(rows: Sequence[Row], in_torch: Sequence[Row]) -> str:
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


def kept(rows: Sequence[Row]) -> str:
    """The parameters that factors keep, by two rules."""
    lines = []
    for factorisation in FACTORISATIONS:
        for eps in ratios.EPS:
            found = [mean_of(rows, ratios.named(factorisation, r, eps), FEW, "kept") for r in ratios.RULES]
            if any(found):
                paper = f"{published.DEEP[f'DMTRL-{factorisation}'][2]:.2f}" if eps == 0.1 else ""
                lines.append([factorisation, f"{eps:g}", *(str(each or "") for each in found), paper])
    caption = "Parameters kept of the single-task networks after the first stage, as a ratio"
    return html.table(caption, ["method", "eps", *ratios.RULES, "paper"], lines)
