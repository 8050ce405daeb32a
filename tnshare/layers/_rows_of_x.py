"""Which axes of an input are rows."""

from __future__ import annotations

from tnshare.errors import TnshareError
from tnshare.execution import Shape
from tnshare.planning import Way


def leading_axes(
    way: Way,
    ids: int | None,
    shape: Shape,
    tasks: Shape,
    own: tuple[int | str, ...] = (),
    where: str = "",
    most: int | None = None,
) -> Shape:
    """The axes of x before its ``own``, without those of tasks; refuses an x that does not fit.

    Of its own axes the first has a size, the others names. ``ids`` is how many there are, where every row has
    a task of its own; a row of an x has at most so many axes before its own ones then.
    """
    if len(shape) < len(own) or (own and shape[-len(own)] != own[0]):
        raise TnshareError(f"expected x of shape {_text('...', *own)}, {where}: found {shape}")
    rows = shape[: len(shape) - len(own)]
    if way == "mixed" and (
        not rows or (ids is not None and rows[0] != ids) or (most is not None and len(rows) > most)
    ):
        expected = _text(ids, *([] if most == 1 else ["..."]), *own)
        raise TnshareError(
            f"one task id for each row: expected x of shape {expected} with {ids} ids, found {shape}"
        )
    if way != "each":
        return rows
    if rows[: len(tasks)] != tasks:
        raise TnshareError(
            "without a task, row t of x belongs to task t: expected x of shape "
            f"{_text(*tasks, '...', *own)}, found {shape}; give a task, or ids, or use fan_out"
        )
    return rows[len(tasks) :]


def _text(*axes: int | str | None) -> str:
    return f"({', '.join(map(str, axes))})"
