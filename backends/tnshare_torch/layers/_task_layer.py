"""What layers of many tasks have in common as modules: parameters, the four ways, what inference keeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import is_grad_enabled
from torch.compiler import is_compiling
from torch.fx.experimental.symbolic_shapes import statically_known_true

import tnshare as tn
from tnshare.checks import whole
from tnshare.execution import EVERY, Strategy
from tnshare.layers import calls_for
from tnshare.planning import Candidate, Way, choose
from tnshare_torch._ops import autocasts, check_device, ops

from ._kept_tensors import KeptTensors, alias, mark
from ._layer_state import LayerState

IMPORTS = """\
from torch import matmul, multiply, permute as transpose, reshape


def take(array, ids):
    return array[tuple(ids)]"""


class TaskLayer(LayerState):
    """A layer for every one of many tasks, their weights softly shared: `Linear` says how one is called."""

    description: tn.Layer
    bias: torch.Tensor | None

    def __init__(
        self,
        description: tn.Layer,
        *,
        seed: int = 0,
        scheme: Literal["direct", "decomposed"] = "direct",
        strategy: Strategy | Candidate = "auto",
        memory_limit: int | None = None,
        plan_for: Sequence[int] = (1, 16, 128, 1024),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.description = description
        self.seed, self.scheme = seed, scheme
        dtype = torch.get_default_dtype() if dtype is None else dtype
        check_device(device)
        if not isinstance(dtype, torch.dtype):
            raise tn.TnshareError(f"dtype must be a torch.dtype, as torch.float32: found {dtype!r}")
        if not (dtype.is_floating_point or dtype.is_complex):
            raise tn.TnshareError(f"dtype must be a floating or complex one: found {dtype}")
        for name, shape in description.shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        for name, value in description.frozen.items():
            self.register_buffer(name, torch.tensor(value, device=device, dtype=dtype))
        if not description.bias:
            self.register_parameter("bias", None)
        self._calls = calls_for(description, ops, strategy, memory_limit)
        self._kept = KeptTensors(mark, alias)
        self._names = tuple(description.network.shapes)
        self.reset_parameters()
        self.plan_for = _batches(plan_for)

    def reset_parameters(self) -> None:
        """Start again from the initial values of the seed."""
        first = next(self.parameters())
        double = first.dtype in (torch.float64, torch.complex128)
        plain = np.complex128 if first.is_complex() else np.float64 if double else np.float32
        self._take_over(self.description.init(self.seed, plain, self.scheme))

    def load_decomposition(self, decomposition: tn.Decomposition) -> None:
        """Go on from a decomposition of trained weights with the axes (in, out, task); the bias is kept."""
        self._take_over(self.description.adopt(decomposition))

    def forward(self, x: torch.Tensor, task: Any = None) -> torch.Tensor:
        """The outputs of one task, of a task for each row, or of all tasks, each on its own row of x."""
        if is_compiling():
            return self._compiled(*self._way(task), x, task)
        factors, bias = self._tensors()
        training = is_grad_enabled()
        keeper = None if training or self.training else self._kept
        known = self._calls.cache.find(x, task, training, keeper is None)
        y: torch.Tensor
        if known is not None:
            run, ids = known
            try:
                y = run(factors, bias, x, ids, keeper)
                return y
            except (IndexError, RuntimeError):
                pass  # below everything is looked at, and what is wrong is said
        alike = self._alike(x, factors[0])
        if not alike or (isinstance(task, torch.Tensor) and task.is_meta):
            self._check(x, task, factors[0])
        if task is EVERY:
            y = self._calls.fan_out(factors, bias, x, training, keeper, alike)
        else:
            y = self._calls.apply(factors, bias, x, task, training, keeper, alike)
        return y

    def fan_out(self, x: torch.Tensor) -> torch.Tensor:
        """The same x (..., in) through every task: (T, ..., out)."""
        return self._compiled("fan_out", None, x) if is_compiling() else TaskLayer.forward(self, x, EVERY)

    def weight(self, task: Any = None) -> torch.Tensor:
        """Composed weights in torch's layout, of one task, or with the task axis first for all or a list."""
        self._check_place(task, next(self.parameters()).device)
        factors = dict(zip(self._names, self._tensors()[0], strict=True))
        composed = tn.weight(self.description, factors, task, ops=ops)
        own = len(self.description.weight_sizes)
        return composed.permute(*range(own, composed.ndim), *self._layout())

    def _layout(self) -> tuple[int, ...]:
        """The axes of one task's weights in torch's order."""
        raise NotImplementedError

    def explain(
        self, batch: int, way: Way = "mixed", *, training: bool = True, sizes: Sequence[int] = ()
    ) -> str:
        """What is computed for a batch of that many rows, and what it costs.

        ``sizes`` are those of the axes of x that are neither rows nor features: the places of a convolution.
        """
        like = next(self.parameters())
        return self._calls.explain(way, batch, like, training=training, sizes=sizes or None)

    def source(
        self, batch: int, way: Way = "mixed", *, training: bool = True, sizes: Sequence[int] = ()
    ) -> str:
        """What is computed for a batch of that many rows, as torch code that runs when pasted."""
        like = next(self.parameters())
        text = self._calls.source(way, batch, like, training=training, sizes=sizes or None)
        return f"{IMPORTS}\n\n\n{text}"

    def _tasks_repr(self) -> str:
        tasks = self.description.task_sizes
        return f"tasks={tasks['task'] if list(tasks) == ['task'] else tasks}, spec={self.description.spec!r}"

    def drop_cache(self) -> None:
        """Forget what inference keeps: to be called after writing to a factor where torch does not see it.

        That is through ``.data``, or through memory that it shares with NumPy, a storage or a process. All
        other ways of changing a factor are noticed.
        """
        self._kept.drop()

    def train(self, mode: bool = True) -> Self:
        self._kept.drop()
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._kept.drop()
        self._calls.forget()
        return self

    def __getstate__(self) -> dict[str, Any]:
        calls = self._calls  # has functions, which no pickle holds
        return {**self.__dict__, "_calls": calls.anew()}

    def _tensors(self) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        """The factors in the order of the nodes, and the bias."""
        found = self._parameters
        try:
            return [found[name] for name in self._names], found["bias"]  # type: ignore[misc]
        except KeyError:  # frozen codes are buffers; a parametrised factor (weight_norm, pruning) is computed
            return [getattr(self, name) for name in self._names], self.bias

    @staticmethod
    def _alike(x: Any, factor: torch.Tensor) -> bool:
        """Whether x is a tensor that goes with a factor, as nearly all do; quickly told."""
        return getattr(x, "dtype", None) is factor.dtype and x.device == factor.device

    def _check(self, x: torch.Tensor, task: Any, factor: torch.Tensor) -> None:
        """Say what torch's own errors would not: x and ids that do not go with the layer."""
        if not isinstance(x, torch.Tensor):
            raise tn.TnshareError(f"x must be a torch.Tensor: found {type(x).__name__}")
        self._check_dtype(x, factor)
        device = factor.device
        if x.device != device:
            raise tn.TnshareError(
                f"x must be on the device of the layer, {device}: found {x.device}; "
                f"move it with x.to({str(device)!r})"
            )
        self._check_place(task, device)

    @staticmethod
    def _check_place(task: Any, device: torch.device) -> None:
        if isinstance(task, torch.Tensor) and task.is_meta and task.device != device:
            raise tn.TnshareError(  # ids on the CPU index an array on any device
                f"task ids must be on the device of the layer, {device}: found {task.device}; "
                f"move it with ids.to({str(device)!r})"
            )

    def _check_dtype(self, x: torch.Tensor, factor: torch.Tensor) -> None:
        if x.dtype != factor.dtype and not autocasts(x.device.type):
            raise tn.TnshareError(
                f"x must have the dtype of the layer, {factor.dtype}: found {x.dtype}; "
                f"convert it with x.to({factor.dtype})"
            )

    def _way(self, task: Any) -> tuple[Way, Any]:
        """What a traced call asks for, and its ids."""
        if task is None:
            return "each", None
        sizes = self.description.task_shape
        if isinstance(task, tuple) and [type(part) for part in task] == [int] * len(sizes):
            parts = zip(task, sizes, strict=True)
            if all(0 <= part < size for part, size in parts):
                return "one", task  # Dynamo does not read what `choose` does with it
        choice = choose(task, self.description.network, ops)
        return ("one" if choice.rows is None else "mixed"), choice.ids

    def _compiled(self, way: Way, ids: Any, x: torch.Tensor, task: Any = None) -> torch.Tensor:
        """A call while it is traced."""
        factors, bias = self._tensors()
        if not self._alike(x, factors[0]) or (isinstance(task, torch.Tensor) and task.is_meta):
            self._check(x, task, factors[0])
        return self._traced(way, ids, factors, bias, x, is_grad_enabled(), statically_known_true)

    def _traced(self, way: Way, ids: Any, *inputs: Any) -> torch.Tensor:
        self._plan_ahead()
        y: torch.Tensor = self._calls.traced(way, ids, *inputs)
        return y

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _plan_ahead(self) -> bool:
        """Dynamo runs this while it compiles, instead of tracing it: a plan is found by search.

        All plans at once, since what Dynamo has read once it does not read again.
        """
        self._calls.ahead(next(self.parameters()), self.plan_for)
        return True


def _batches(plan_for: Sequence[int]) -> tuple[int, ...]:
    if isinstance(plan_for, str) or not isinstance(plan_for, Iterable) or not (sizes := tuple(plan_for)):
        raise tn.TnshareError(f"plan_for must be one or more numbers of rows: found {plan_for!r}")
    return tuple(whole("plan_for", rows, least=1) for rows in sizes)
