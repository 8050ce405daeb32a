"""What the planner promised, against what was measured: each sentence with its value, limit and worst points.

A ratio of two medians is compared with its limit times the noise floor of its own point, a geometric mean
with its limit times the geometric mean of the noise floors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.grid import Point
from benchmarks.measuring.timing import AGAIN

from .contestants import EMPTY

Row = Mapping[str, Any]
SMALL = 50e-6  # seconds; where tnshare takes less, a point is reported apart


@dataclass(frozen=True)
class Verdict:
    """A sentence, what was found and is allowed, whether it holds (None: not measured), the worst points.

    ``missed`` names all points beyond a limit that each has to keep.
    """

    claim: str
    found: str
    limit: str
    holds: bool | None
    points: int
    worst: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


def small(row: Row) -> bool:
    """Whether the point is one of those that are reported apart."""
    return float(row["medians"]["tnshare"]) < SMALL


def mostly_call(row: Row) -> bool:
    """Whether, of a compiled program, little but the call is measured: an empty one takes nearly as long."""
    return float(row["medians"]["tnshare"] - row["medians"].get(EMPTY, 0.0)) < SMALL


def noise(row: Row) -> float:
    """How far apart the first program, timed twice, is from itself (at least 1).

    Programs that were compiled to the very same are the same program, timed once more: where the memory of
    one lies may make it half as long again.
    """
    (again,) = (name for name in row["medians"] if name.endswith(AGAIN))
    ours = row["medians"][again.removesuffix(AGAIN)]
    found = [float(row["medians"][name] / ours) for name in (again, *row.get("same", ()))]
    return max(max(ratio, 1 / ratio) for ratio in found)


def best(row: Row, start: str) -> float | None:
    """The least median among the programs whose name starts so; None if there is none."""
    name = _best(row, start)
    return None if name is None else float(row["medians"][name])


def _best(row: Row, start: str) -> str | None:
    names = (name for name in row["medians"] if name.startswith(start))
    return min(names, key=row["medians"].__getitem__, default=None)


def fastest(row: Row, peer: str) -> float | None:
    """The least median of all programs that compute the factored layer, if this peer is among them."""
    names = [name for name in row["medians"] if not name.startswith(("dense", EMPTY))]
    return min(float(row["medians"][name]) for name in names) if peer in names else None


def mean(values: Iterable[float]) -> float:
    """The geometric mean; 1 of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def ratios(rows: Iterable[Row], peer: str, ours: str = "tnshare") -> list[tuple[Row, float]]:
    """Ours / the best of the peers of that name, at every point where both were measured.

    It is 1 where that peer was compiled to the very same program, whatever the clock says.
    """
    found = []
    for row in rows:
        name, own = _best(row, peer), row["medians"].get(ours)
        if name is not None and own is not None:
            equal = ours == "tnshare" and name in row.get("same", ())
            found.append((row, 1.0 if equal else float(own / row["medians"][name])))
    return found


def share_within(claim: str, pairs: Sequence[tuple[Row, float]], limit: float, share: float) -> Verdict:
    """At least this share of the points has a ratio of at most the limit times its noise floor."""
    inside = sum(r <= limit * noise(row) for row, r in pairs)
    found = inside / len(pairs) if pairs else 0.0
    outside = [(row, r) for row, r in pairs if r > limit * noise(row)]
    text = f"{found:.1%}, worst {max((r for _, r in pairs), default=0):.2f}"
    holds = found >= share if pairs else None
    missed = tuple(str(Point.read(row)) for row, _ in outside)
    return Verdict(claim, text, f"{share:.0%} within {limit:.2f}", holds, len(pairs), _worst(outside), missed)


def mean_at_most(claim: str, pairs: Sequence[tuple[Row, float]], limit: float) -> Verdict:
    """The geometric mean of the ratios is at most the limit times that of the noise floors."""
    value, allowed = mean(r for _, r in pairs), limit * mean(noise(row) for row, _ in pairs)
    holds = value <= allowed if pairs else None
    return Verdict(claim, f"{value:.3f}", f"at most {allowed:.3f}", holds, len(pairs), _worst(pairs))


def faster(claim: str, pairs: Sequence[tuple[Row, float]], times: float) -> Verdict:
    """In geometric mean the peer takes at least so many times as long."""
    value, allowed = 1 / mean(r for _, r in pairs), times / mean(noise(row) for row, _ in pairs)
    holds = value >= allowed if pairs else None
    return Verdict(claim, f"{value:.2f} times", f"at least {allowed:.2f}", holds, len(pairs), _worst(pairs))


def grid(rows: Sequence[Row], backend: str) -> list[Verdict]:
    """The verdicts on the points of the grid, of one framework; ``rows`` are those that count."""
    by_hand, own = ratios(rows, "by hand: "), ratios(rows, "own: ")
    authors, dense = ratios(rows, "authors"), [p for p in ratios(rows, "dense") if _half_of_dense(p[0])]
    low = [p for p in authors if p[0]["level"] == "low"]
    whole = "torch.einsum" if backend == "torch" else "jnp.einsum"
    found = [
        share_within("the best by hand: within 1.10 at 95 %", by_hand, 1.10, 0.95),
        share_within("the best by hand: within 1.3 at all", by_hand, 1.3, 1.0),
        mean_at_most("the best by hand: at most 1.00 in geometric mean", by_hand, 1.0),
        mean_at_most("the best own candidate: at most 1.05 in geometric mean", own, 1.05),
        share_within("the authors: never slower", authors, 1.0, 1.0),
        faster(
            "the authors: 10 times faster, Tucker and TT, low ranks",
            [p for p in low if p[0]["method"] != "laf"],
            10.0,
        ),
        faster(
            "the authors: 2.5 times faster, LAF, low ranks", [p for p in low if p[0]["method"] == "laf"], 2.5
        ),
    ]
    for name, peer in (("opt_einsum", "opt_einsum"), (whole, "einsum")):
        pairs = ratios(rows, peer)
        found.append(share_within(f"{name}: never slower", pairs, 1.0, 1.0))
        found.append(faster(f"{name}: 1.5 times faster in geometric mean", pairs, 1.5))
    claim = "dense: no slower where flops and bytes are at most half of its own"
    found.append(share_within(claim, dense, 1.0, 1.0))
    return found + (_untuned(rows) if backend == "jax" else [])


def missed(rows: Sequence[Row], backend: str) -> set[str]:
    """The names of the points of the grid at which a limit was not kept."""
    large, few = [row for row in rows if not small(row)], [row for row in rows if small(row)]
    found = [verdict for part in (large, few) for verdict in grid(part, backend)]
    return {name for verdict in found for name in verdict.missed}


def again(first: Sequence[Row], second: Sequence[Row], backend: str) -> tuple[set[str], list[Row]]:
    """What was measured a second time of what missed a limit: its names, and all rows with it in place."""
    names = missed(first, backend)
    found = {row["name"]: row for row in second if row["name"] in names}
    return set(found), [found.get(row["name"], row) for row in first]


def unseen(rows: Sequence[Row]) -> list[Verdict]:
    """The verdict on the cost model alone, at shapes that it was not fitted to."""
    pairs = ratios(rows, "own: ", "tnshare auto")
    claim = "cost model alone, unseen shapes: within 1.25 of the best own candidate at 90 %"
    return [share_within(claim, pairs, 1.25, 0.9)]


def overheads(rows: Sequence[Row]) -> list[Verdict]:
    """The verdicts on what a call and a plan cost; rows have a kind, a name and microseconds or seconds."""
    calls, cold, warm, again = (
        [r for r in rows if r["kind"] == kind] for kind in ("call", "plan", "cached plan", "one task again")
    )
    return [
        _each(
            "a call: at most 15 us more than by hand",
            calls,
            lambda r: r["seconds"],
            lambda r: 15e-6 * r["noise"],
        ),
        _middle("making a plan: under 50 ms in the median", cold, 50e-3),
        _middle("a plan from the cache: under 1 ms in the median", warm, 1e-3),
        _each(
            "one task in inference, called again: a dense layer x 1.1 + 15 us",
            again,
            lambda r: r["seconds"],
            lambda r: (1.1 * r["dense"] + 15e-6) * r["noise"],
        ),
    ]


def _untuned(rows: Sequence[Row]) -> list[Verdict]:
    """What runs in JAX where nobody called `tune`: torch measures by itself, a traced call cannot."""
    own, by_hand = (ratios(rows, peer, "tnshare auto") for peer in ("own: ", "by hand: "))
    return [
        share_within("untuned: within 1.25 of the best own candidate at 90 %", own, 1.25, 0.9),
        mean_at_most("untuned: the best by hand, at most 1.00 in geometric mean", by_hand, 1.0),
    ]


def _each(
    claim: str, rows: Sequence[Row], value: Callable[[Row], float], limit: Callable[[Row], float]
) -> Verdict:
    over = sorted((r for r in rows if value(r) > limit(r)), key=lambda r: value(r) / limit(r), reverse=True)
    worst = max(rows, key=lambda r: value(r) / limit(r), default=None)
    found = "" if worst is None else f"worst {_us(value(worst))}, {worst['name']}"
    names = tuple(f"{r['name']}: {_us(value(r))} for {_us(limit(r))}" for r in over[:8])
    allowed = "" if worst is None else f"{_us(limit(worst))} there"
    return Verdict(claim, found, allowed, not over if rows else None, len(rows), names)


def _middle(claim: str, rows: Sequence[Row], limit: float) -> Verdict:
    values = sorted(float(r["seconds"]) for r in rows)
    median = values[len(values) // 2] if values else 0.0
    text = f"median {_us(median)}, longest {_us(max(values, default=0.0))}"
    worst = sorted(rows, key=lambda r: float(r["seconds"]), reverse=True)[:3]
    names = tuple(f"{r['name']}: {_us(r['seconds'])}" for r in worst)
    return Verdict(claim, text, f"under {_us(limit)}", median < limit if rows else None, len(rows), names)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if abs(seconds) < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _worst(pairs: Sequence[tuple[Row, float]], count: int = 8) -> tuple[str, ...]:
    ranked = sorted(pairs, key=lambda pair: pair[1] / noise(pair[0]), reverse=True)
    return tuple(f"{Point.read(row)}: {r:.2f}, noise {noise(row):.2f}" for row, r in ranked[:count])


def _half_of_dense(row: Row) -> bool:
    """Whether the plan that the model chooses has at most half of the flops and of the bytes of dense."""
    if not row["own"]:
        return False
    plan, point = next(iter(row["own"].values())), Point.read(row)
    return bool(2 * plan["flops"] <= point.dense_flops and 2 * plan["bytes"] <= point.dense_bytes)
