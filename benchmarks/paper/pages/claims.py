"""What the paper says and what we want, judged by the results: holds, fails, or not known yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.paper.training.methods import FACTORISATIONS, STL

from .published import DEEP, THOUSAND, THOUSAND_IMAGES
from .stats import Estimate, Row, best_of, by_layer, by_seed, estimate, fall, mean_of, paired

SOFT = tuple(f"DMTRL-{name}" for name in FACTORISATIONS)
MULTI = "multiclass_error"


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds in the mean (None: there are no runs), and the figures behind it.

    ``beyond_chance`` is whether the 95 % interval of a difference leaves 0 out; None where nothing is
    compared, or with one seed.
    """

    text: str
    holds: bool | None
    figures: str
    beyond_chance: bool | None = None

    @property
    def verdict(self) -> str:
        """In words."""
        if self.holds is None:
            return "not run"
        word = "holds" if self.holds else "fails"
        return (
            word
            if self.beyond_chance is None
            else f"{word}, {'beyond' if self.beyond_chance else 'within'} chance"
        )


def mnist_claims(rows: Sequence[Row], rivals: Sequence[str]) -> list[Claim]:
    """At 1 % of the images: against the paper's figures, single tasks and hard sharing, the best first."""
    found = [_at_most(rows, name, 0.01, min(DEEP[name][0], 5.5)) for name in SOFT]
    found += [_better(rows, name, other, 0.01) for name in SOFT for other in (STL, *rivals)]
    best = best_of(rows, SOFT, 0.01, MULTI)
    return found + ([_below(rows, best, other, 0.01, 0.15) for other in (STL, *rivals[:1])] if best else [])


def thousand_claims(rows: Sequence[Row], others: Sequence[str]) -> list[Claim]:
    """With 1,000 images: below 6 %, where methods for linear models had 13 to 14 %; below other methods."""
    found = [
        _at_most(rows, name, THOUSAND, THOUSAND_IMAGES["DMTRL (below)"], "1,000 images") for name in SOFT
    ]
    return found + [_better(rows, name, other, THOUSAND, "1,000 images") for name in SOFT for other in others]


def order_claims(rows: Sequence[Row], features: Sequence[str], classic: Sequence[str]) -> list[Claim]:
    """Table 1: each classic method beats single tasks on the same features, soft sharing beats them all."""
    single, *others = classic
    found = [_better(rows, f"{m}, {kind}", f"{single}, {kind}", 0.01) for kind in features for m in others]
    names = [f"{m}, {features[-1]}" for m in classic]
    best = best_of(rows, names, 0.01, MULTI)
    return found + ([_better(rows, name, best, 0.01) for name in SOFT] if best else [])


def omniglot_claims(rows: Sequence[Row], rivals: Sequence[str]) -> list[Claim]:
    """At 10 %: soft sharing beats all others; lower layers share more, by rho and by similarity."""
    few = "10 % of the drawings"
    found = [_better(rows, name, other, 0.1, few) for name in SOFT for other in (STL, *rivals)]
    for measure, words in (("sharing", "rho"), ("similarity", "the mean cosine of weights")):
        found += [_falls(rows, name, 0.1, measure, words) for name in SOFT]
    return found


def new_task_claims(rows: Sequence[Row], codes: str, scratch: str) -> list[Claim]:
    """With one and two drawings of every character, fitting codes beats training from scratch."""
    words = {1: "one drawing of every character", 2: "two drawings of every character"}
    return [_better(rows, codes, scratch, drawn / 20, few) for drawn, few in words.items()]


def _at_most(rows: Sequence[Row], name: str, fraction: float, limit: float, few: str = "") -> Claim:
    found = mean_of(rows, name, fraction, MULTI)
    text = f"{name} has an error of at most {limit:g} % with {few or _images(fraction)}"
    return Claim(text, found.mean <= limit if found else None, _figures(found))


def _better(rows: Sequence[Row], ours: str, other: str, fraction: float, few: str = "") -> Claim:
    """Holds if the mean difference is above zero, beyond chance if its interval is, too."""
    found = paired(rows, ours, other, fraction, MULTI)
    text = f"{ours} beats {other} with {few or _images(fraction)}"
    if found is None:
        return Claim(text, None, "")
    return Claim(text, found.mean > 0, _signed(found, "lower", "higher"), found.beyond_chance)


def _below(rows: Sequence[Row], ours: str, other: str, fraction: float, share: float) -> Claim:
    """Judged, seed by seed, by how far ours is under what that share below the other would be."""
    mine, theirs = (by_seed(rows, name, fraction, MULTI) for name in (ours, other))
    text = f"the best, {ours}, is {100 * share:g} % below {other} with {_images(fraction)}"
    margin = estimate([(1 - share) * theirs[seed] - mine[seed] for seed in mine if seed in theirs])
    difference = paired(rows, ours, other, fraction, MULTI)
    if margin is None or difference is None:
        return Claim(text, None, "")
    ratio = difference.mean * difference.count / sum(theirs[seed] for seed in theirs if seed in mine)
    figures = f"{100 * ratio:.1f} % below: {_signed(margin, 'more', 'too little')}"
    return Claim(text, margin.mean >= 0, figures, margin.beyond_chance)


def _falls(rows: Sequence[Row], name: str, fraction: float, measure: str, words: str) -> Claim:
    """Holds if the first layer's mean is above the last one's; the difference is paired, run by run."""
    layers, found = by_layer(rows, name, fraction, measure), fall(rows, name, fraction, measure)
    if found is None:
        return Claim(f"{name}: {words} falls with depth", None, "")
    first, *_, last = layers
    means = ", ".join(f"{layer} {sum(each) / len(each):.3f}" for layer, each in layers.items())
    text = f"{name}: {words} falls from {first} to {last}"
    return Claim(text, found.mean > 0, f"by {found:.4f} ({_seeds(found)}): {means}", found.beyond_chance)


def _images(fraction: float) -> str:
    return f"{100 * fraction:g} % of the images"


def _signed(found: Estimate, above: str, below: str) -> str:
    """A difference without a sign: a word says which way it goes."""
    return f"{above} by {_figures(found)}" if found.mean >= 0 else f"{below} by {_figures(_turned(found))}"


def _turned(found: Estimate) -> Estimate:
    return Estimate(-found.mean, found.half, found.count)


def _figures(found: Estimate | None) -> str:
    return f"{found} ({_seeds(found)})" if found else ""


def _seeds(found: Estimate) -> str:
    return "1 seed" if found.count == 1 else f"{found.count} seeds"
