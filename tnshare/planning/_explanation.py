"""Plans and candidates as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ._job import AnyJob, AnyOption
from ._plan import Plan
from ._prices import Prices
from ._row_groups import longest_group
from ._steps import Step, count
from .devices._profile import Profile


def explain_plan(plan: Plan, seconds: Sequence[float] = ()) -> str:
    """What is contracted with what, and what it costs; with the predicted seconds of each step if given."""
    sizes = plan.network.sizes
    names = [node.name for node in plan.network.nodes]
    names += [f"t{n}" for n in range(1, len(plan.steps) + 1)]
    rows = [("step", "batch x rows x inner x columns", "flops", "copies", "result", "elements", "predicted")]
    for n, step in enumerate(plan.steps):
        name = names[len(plan.network.nodes) + n]
        given = [names[operand] for operand in step.operands]
        product, copies = "-", "-"
        if isinstance(step, Step):
            b, r, k, c = (count(part, sizes) for part in (step.batch, step.rows, step.inner, step.columns))
            r *= longest_group(sizes["b"], b) if step.variant == "grouped" else 1
            product = f"{b} x {r} x {k} x {c}"
            copies = " and ".join(s for s, c in zip(("left", "right"), step.copies, strict=True) if c) or "-"
        rows.append(
            (
                f"{name} = {' . '.join(given) if isinstance(step, Step) else f'{given[0]}[ids]'}",
                product,
                f"{step.flops(sizes):,}",
                copies,
                f"({', '.join(step.result)})",
                f"{count(step.result, sizes):,}",
                _time(seconds[n]) if seconds else "-",
            )
        )
    total = f"{len(plan.steps)} step{'' if len(plan.steps) == 1 else 's'}"
    head = (
        f"{plan.network!r}\n{total}, {plan.flops:,} flops, largest intermediate "
        f"{plan.largest_intermediate:,} elements: {plan.why}"
    )
    shown = rows if seconds else [row[:-1] for row in rows]
    return "\n".join([head, *explain_table(shown)])


def explain(
    job: AnyJob,
    found: Sequence[AnyOption],
    chosen: AnyOption,
    profile: Profile,
    measured: Mapping[str, float] | None = None,
    rows_at_a_time: int = 0,
    peak: int = 0,
) -> str:
    """The options for a call, the one that runs marked, and its steps.

    ``peak`` are the bytes alive at once, where it computes some ``rows_at_a_time``.
    """
    table: list[tuple[str, ...]] = [("", "candidate", "flops", "bytes", "peak", "predicted", "measured")]
    for option in found:
        took = (measured or {}).get(option.name)
        table.append(
            (
                ">" if option.name == chosen.name else "",
                option.name,
                f"{option.flops:,}",
                "-" if option.bytes is None else f"{option.bytes:,}",
                f"{option.peak:,}",
                _time(option.seconds),
                "-" if took is None else _time(took),
            )
        )
    what = "a training step" if job.training else "inference"
    head = f"{job.way}, {job.amount}, {what}; predicted by the profile {profile.name!r} ({profile.source})"
    if all(option.bytes is None for option in found):
        table = [(*row[:3], *row[4:]) for row in table]
    lines = [head, *explain_table(table)]
    if rows_at_a_time:
        lines.append(f"in chunks of {rows_at_a_time} rows, {peak:,} bytes at once, computed again backwards")
    for title, plan, kept in chosen.parts:
        prices = Prices(plan.network, profile, job.training, job.keep if kept else 0)
        lines += ["", *([f"{title}:"] if title else []), explain_plan(plan, prices.steps(plan))]
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return "kept" if seconds == 0 else f"{seconds * 1e6:,.1f} us"


def explain_table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines, their cells one below the other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
