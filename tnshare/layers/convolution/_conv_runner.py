"""A candidate of a convolution as a function of factors, bias, x, ids and a keeper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tnshare.execution import Keeper, Runner, fixed_axes
from tnshare.ops import Ops
from tnshare.planning import RowGroups, program

from ._conv_candidates import ConvCandidate, ConvJob


def conv_runner(job: ConvJob, candidate: ConvCandidate, ops: Ops[Any]) -> Runner:
    """A call for x of (..., channels, *places); ids are a tuple with an entry for each task axis, or None."""
    return _Runner(job, candidate, ops)


class _Runner:
    """Channels are mixed before, kernels composed, the input convolved, channels mixed behind, biases added.

    Arrays in between have one axis for rows, then channels, then places.
    """

    def __init__(self, job: ConvJob, candidate: ConvCandidate, ops: Ops[Any]) -> None:
        # All is looked up and made here: torch.compile reads what follows, and would not follow that.
        chain = candidate.chain
        self.job, self.candidate, self.ops = job, candidate, ops
        self.layer, self.geometry, self.tasks = job.layer, job.layer.geometry, job.layer.task_shape
        self.late = chain.late
        self.before, self.kernels, self.after = (
            program(candidate.plans[part], ops, fixed_axes(candidate.plans[part]))
            if part in candidate.plans
            else None
            for part in ("before", "kernels", "after")
        )
        self.parts = {
            part: [
                (chain.network.nodes.index(node), chain.network.task_columns(node))
                for node in getattr(chain, part)
            ]
            for part in ("before", "middle", "after")
        }
        sizes = chain.network.sizes
        self.inputs = [sizes[axis] for axis in chain.inputs]
        self.outputs = [sizes[axis] for axis in chain.outputs]
        self.convolve: Any = ops.convolve  # type: ignore[attr-defined]

    def __call__(self, factors: Any, bias: Any, x: Any, ids: Any, keeper: Keeper | None = None) -> Any:
        shape, dims, tasks = tuple(x.shape), len(self.layer.kernel), self.tasks
        lead, sizes = shape[: -dims - 1], shape[len(shape) - dims :]
        places = self.geometry.places(sizes)
        reshape, way, late = self.ops.reshape, self.job.way, self.late
        z = reshape(x, (math.prod(lead), self.layer.in_channels, *sizes))
        if self.before is not None:
            z = self._before(factors, z, sizes)
        early = None if self.after is not None else bias  # the convolution adds it then
        if late or way == "one":
            kernels = self._kernels(factors, ids, keeper)
            y = self.convolve(z, self._by_group(kernels), None, self._row(early, ids), self.geometry)
            y = self._from_groups(y, places, 1)
        elif way == "fan_out":
            y = self._fanned(self._kernels(factors, None, keeper), early, z, places)
        elif way == "each":
            biases = None if early is None else reshape(early, (math.prod(tasks), -1))
            kernels = self._kernels(factors, None, keeper)
            y = self.convolve(z, kernels, None, biases, self.geometry)
        else:
            y = self._sorted(factors, early, z, ids, keeper)
        if self.after is not None:
            y = self._after(factors, bias, y, ids, places)
        before = () if way == "each" else tasks if way == "fan_out" else ()
        return reshape(y, (*before, *lead, self.layer.out_channels, *places))

    def _before(self, factors: Sequence[Any], z: Any, sizes: tuple[int, ...]) -> Any:
        """The factors before, on every place; groups of channels are rows of their own."""
        groups, rows = self.layer.groups, z.shape[0]
        assert self.before is not None
        channels, reshape = self.layer.in_channels // groups, self.ops.reshape
        folded = reshape(z, (rows * groups, channels, math.prod(sizes)))
        mixed = self.before(*self._own(factors, "before"), folded)
        return reshape(mixed, (rows, groups * math.prod(self.inputs), *sizes))

    def _kernels(self, factors: Sequence[Any], ids: Any, keeper: Keeper | None) -> Any:
        """Kernels (n, output channels, input channels, ...) of one task, of all, or of those in ``ids``."""
        late, way, kept = self.late, self.job.way, self.candidate.kept
        chosen = None if late or ids is None or (kept and way == "mixed") else ids

        def made() -> Any:
            assert self.kernels is not None
            kernel = self.kernels(*self._own(factors, "middle", chosen))
            count = 1 if late or way == "one" else math.prod(self.tasks)
            if chosen is not None and way == "mixed":
                count = chosen[0].shape[0]
            shape = (math.prod(self.outputs), math.prod(self.inputs), *self.layer.kernel)
            return self.ops.reshape(kernel, (count, *shape))

        kernels = (
            made() if keeper is None or not kept else keeper((self.candidate.name, chosen), factors, made)
        )
        if way != "mixed" or chosen is not None or late:
            return kernels
        return self.ops.take(self.ops.reshape(kernels, (*self.tasks, *kernels.shape[1:])), ids)

    def _fanned(self, kernels: Any, bias: Any, z: Any, places: tuple[int, ...]) -> Any:
        """The same rows by the kernels of all tasks, as one convolution with more channels."""
        tasks = math.prod(self.tasks)
        joined = self.ops.reshape(kernels, (1, tasks * kernels.shape[1], *kernels.shape[2:]))
        biases = None if bias is None else self._by_group(self.ops.reshape(bias, (1, -1)), tasks)
        y = self.convolve(z, self._by_group(joined, tasks), None, biases, self.geometry)
        y = self._from_groups(y, places, tasks)
        split = self.ops.reshape(y, (y.shape[0], tasks, kernels.shape[1], *places))
        return self.ops.transpose(split, (1, 0, *range(2, 3 + len(places))))

    def _sorted(self, factors: Sequence[Any], bias: Any, z: Any, ids: Any, keeper: Keeper | None) -> Any:
        """Rows sorted by task, so that each kernel meets all of its rows; as they come while tracing."""
        take, geometry, tasks = self.ops.take, self.geometry, self.tasks
        values = [self.ops.values(column) for column in ids]
        if not self.job.concrete or any(value is None for value in values):
            kernels = self._kernels(factors, ids, None)
            return self.convolve(z, kernels, None, None if bias is None else take(bias, ids), geometry)
        groups = RowGroups.of(values, tasks)  # type: ignore[arg-type]
        biases = None if bias is None else take(bias, groups.present)
        kernels = self._kernels(factors, groups.present, keeper)
        counts = tuple(groups.counts.tolist())
        y = self.convolve(take(z, (groups.order,)), kernels, counts, biases, geometry)
        return take(y, (groups.places,))

    def _after(self, factors: Any, bias: Any, y: Any, ids: Any, places: tuple[int, ...]) -> Any:
        """The factors after, on every place of every row, and the bias."""
        way, late, reshape, tasks = self.job.way, self.late, self.ops.reshape, self.tasks
        assert self.after is not None
        own = self._own(factors, "after", ids if late and way == "one" else None)
        rest = (*self.outputs, math.prod(places))
        rows = math.prod(y.shape[: len(y.shape) - 1 - len(places)])
        own_rows = rows if late and way == "fan_out" else rows // math.prod(tasks)
        per = (*tasks, own_rows) if late and way == "each" else (rows,)
        extra = (ids,) if late and way == "mixed" else ()
        result = self.after(*own, reshape(y, (*per, *rest)), *extra)
        if bias is None:
            return result
        if way == "one":
            return self.ops.add(result, reshape(self.ops.take(bias, ids), (-1, 1)))
        if way == "mixed":
            return self.ops.add(result, reshape(self.ops.take(bias, ids), (rows, -1, 1)))
        split = reshape(result, (*tasks, own_rows, self.layer.out_channels, math.prod(places)))
        return self.ops.add(split, reshape(bias, (*tasks, 1, self.layer.out_channels, 1)))

    def _by_group(self, array: Any, repeats: int = 1) -> Any:
        """Output channels, axis 1, in the order that groups of channels need: the group first."""
        groups = self.layer.groups
        repeats *= math.prod(self.outputs[:-1])
        if groups == 1 or repeats == 1:
            return array
        n, channels, *rest = array.shape
        split = self.ops.reshape(array, (n, repeats, groups, channels // repeats // groups, *rest))
        order = (0, 2, 1, *range(3, 4 + len(rest)))
        return self.ops.reshape(self.ops.transpose(split, order), (n, channels, *rest))

    def _from_groups(self, y: Any, places: tuple[int, ...], repeats: int) -> Any:
        """The other way round."""
        groups = self.layer.groups
        repeats *= math.prod(self.outputs[:-1])
        if groups == 1 or repeats == 1:
            return y
        rows, channels = y.shape[:2]
        split = self.ops.reshape(y, (rows, groups, repeats, channels // repeats // groups, *places))
        order = (0, 2, 1, *range(3, 4 + len(places)))
        return self.ops.reshape(self.ops.transpose(split, order), (rows, channels, *places))

    def _row(self, bias: Any, ids: Any) -> Any:
        """The bias of one task as (1, channels)."""
        return None if bias is None else self.ops.reshape(self.ops.take(bias, ids), (1, -1))

    def _own(self, factors: Sequence[Any], part: str, ids: Any = None) -> list[Any]:
        """The arrays of a part, those that have task axes reduced to the tasks of ids, if they are given."""
        return [
            factors[n] if ids is None or not columns else self.ops.take(factors[n], [ids[c] for c in columns])
            for n, columns in self.parts[part]
        ]
