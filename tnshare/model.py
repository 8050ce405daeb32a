"""T trained models in: which of their weights are shared, and how; framework-free."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from .checks import fresh
from .compose import compose
from .decompose import Decomposition, decompose
from .errors import TnshareError
from .network import Network, Node
from .ops import NDArray
from .spec import METHODS

HARD, SINGLE = "hard", "single"
Setting = str | Mapping[str, Any]
_WEIGHTS = ("weight", "kernel", "w", "embedding", "embeddings")  # torch and equinox, flax, haiku
_BOUNDS = {"eps", "ranks", "max_parameters"}


@dataclass(frozen=True, eq=False)
class SharedModel:
    """What became of the weights of T models: factors (``soft``), one for all (``hard``), or left alone.

    ``orders`` bring the axes of a weight to those of its stack, without the task axis.
    """

    soft: Mapping[str, Decomposition]
    hard: Mapping[str, NDArray]
    single: tuple[str, ...]
    orders: Mapping[str, tuple[int, ...]]
    rows: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]

    def report(self) -> str:
        """A table: for each weight what was done, what it keeps and loses; then the warnings."""
        titles = ("weight", "shape", "sharing", "parameters", "of", "kept", "error", "of the deviation")
        table = [titles, *self.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


def share_arrays(
    models: Sequence[Mapping[str, NDArray]],
    orders: Mapping[str, tuple[int, ...]],
    method: str,
    *,
    only: Sequence[str] = (),
    except_: Sequence[str] = (),
    layers: Mapping[str, Setting] | None = None,
    max_parameters: int | None = None,
    **bounds: Any,
) -> SharedModel:
    """Decide for each weight of T models how it is shared, and decompose the stacks.

    ``models`` are the weights of each, by name; ``orders`` names those that may be shared softly. Patterns
    in ``only``, ``except_`` and ``layers`` are names of weights or of modules, with ``*`` and ``?``. The
    first of ``layers`` that matches says how a weight is shared: a method, "hard", "single", or keywords of
    `decompose` with a ``method``. ``max_parameters`` is for all soft weights together that have no bound of
    their own, divided by size.
    """
    names = list(models[0])
    _check_patterns(names, (*only, *except_, *(layers or {})))
    settings = {name: _setting(name, method, only, except_, layers or {}) for name in names}
    kinds = {name: _kind(name, settings[name], models, orders) for name in names}
    free = [
        n
        for n, kind in kinds.items()
        if kind not in (HARD, SINGLE) and not _BOUNDS & {*_keywords(settings[n])}
    ]
    total = sum(models[0][name].size for name in free)
    soft: dict[str, Decomposition] = {}
    hard: dict[str, NDArray] = {}
    rows: list[tuple[str, ...]] = []
    for name, kind in kinds.items():
        if kind == SINGLE:
            rows.append(_single_row(name, models))
        elif kind == HARD:
            hard[name] = np.mean([model[name] for model in models], axis=0, dtype=models[0][name].dtype)
            rows.append(_hard_row(name, hard[name], models))
        else:
            own = _keywords(settings[name])
            stays = bounds if name in free else {*bounds} - _BOUNDS if "eps" in own else ()  # relative_to
            keywords = {k: bounds[k] for k in stays} | own
            if max_parameters is not None and name in free:
                keywords["max_parameters"] = max_parameters * models[0][name].size // total
            stack = np.stack([model[name].transpose(orders[name]) for model in models], axis=-1)
            soft[name] = _decomposed(name, stack, kind, keywords)
            rows.append(_soft_row(name, soft[name], models))
    single = tuple(name for name, kind in kinds.items() if kind == SINGLE)
    warnings = tuple(f"{name}: {text}" for name, d in soft.items() for text in d.warnings)
    return SharedModel(soft, hard, single, {name: orders[name] for name in soft}, tuple(rows), warnings)


def _decomposed(name: str, stack: NDArray, method: str, keywords: Mapping[str, Any]) -> Decomposition:
    """A stack as factors; what is wrong with it is said with the name of the weight."""
    try:
        return decompose(stack, method, **keywords)
    except TnshareError as error:
        raise TnshareError(f"{name}: {error}") from None


def code_of(
    network: Network, factors: Mapping[str, NDArray], weight: NDArray
) -> tuple[dict[str, NDArray], float]:
    """The code with which the shared factors come closest to a weight, and the relative error.

    Least squares over the one factor that has the task axis; ``weight`` has the axes of the stack without it.
    """
    (node,) = (node for node in network.nodes if set(node.axes) & set(network.tasks))
    rank = math.prod(node.shape[1:])
    unit = np.eye(rank, dtype=factors[node.name].dtype).reshape(rank, *node.shape[1:])
    wide = network.rename(network.tasks, fresh("basis", network.sizes), rank)
    precise = np.complex128 if unit.dtype.kind == "c" else np.float64
    basis = compose(wide, {**factors, node.name: unit}).reshape(-1, rank).astype(precise)
    target = weight.reshape(-1).astype(precise)
    if not np.isfinite(target).all():
        raise TnshareError("the weights of a network must be finite: found NaN or infinity")
    code, *_ = np.linalg.lstsq(basis, target, rcond=None)
    error = float(np.linalg.norm(basis @ code - target)) / (float(np.linalg.norm(target)) or 1.0)
    return {node.name: code.astype(factors[node.name].dtype).reshape(node.shape[1:])}, error


@dataclass(frozen=True)
class CodePart:
    """The codes of one weight: which factor holds them, their shape in it, and where they begin in a row."""

    weight: str
    factor: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """Where those of the next weight begin."""
        return self.start + math.prod(self.shape)


def code_parts(networks: Mapping[str, Network]) -> tuple[CodePart, ...]:
    """Where the codes of each weight are in the code of a task, which has all of them in a row."""
    parts: list[CodePart] = []
    for name, network in networks.items():
        (node,) = (node for node in network.nodes if has_task(network, node))
        parts.append(CodePart(name, node.name, node.shape[1:], parts[-1].stop if parts else 0))
    return tuple(parts)


def has_task(network: Network, node: Node) -> bool:
    """Whether a factor holds the codes of tasks."""
    return bool(set(node.axes) & set(network.tasks))


def for_tasks(network: Network, tasks: int) -> Network:
    """The same network for another number of tasks."""
    (axis,) = network.tasks
    other = fresh(axis, network.sizes)
    renamed = network.rename(axis, other, tasks).rename(other, axis)
    return Network(renamed.nodes, renamed.output, (axis,))


def layer_name(name: str, names: Collection[str]) -> str:
    """The layer of a weight: its name without what frameworks call weights, unless two would be called so."""
    layer, _, last = name.rpartition(".")
    alike = [other for other in names if other.rpartition(".")[0] == layer]
    return layer if layer and last in _WEIGHTS and len(alike) == 1 else name


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern means a weight: by its name, or by that of a module it is in."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _setting(
    name: str,
    method: str,
    only: Sequence[str],
    except_: Sequence[str],
    layers: Mapping[str, Setting],
) -> Setting:
    for pattern, setting in layers.items():
        if matches(name, pattern):
            return setting
    if (only and not any(matches(name, p) for p in only)) or any(matches(name, p) for p in except_):
        return SINGLE
    return method


def _kind(
    name: str,
    setting: Setting,
    models: Sequence[Mapping[str, NDArray]],
    orders: Mapping[str, tuple[int, ...]],
) -> str:
    """The method, "hard" or "single": weights that cannot be stacked or are no matrices stay single."""
    method = setting if isinstance(setting, str) else setting.get("method")
    if method not in (*METHODS, HARD, SINGLE):
        raise TnshareError(f"{name}: a method must be one of {(*METHODS, HARD, SINGLE)}, found {method!r}")
    alike = len({model[name].shape for model in models}) == 1
    if method == HARD and not alike:
        found = ", ".join(sorted({_shape(model[name].shape) for model in models}))
        raise TnshareError(f"{name} cannot be shared by all tasks, its shapes differ: found {found}")
    if method in (HARD, SINGLE):
        return str(method)
    return str(method) if alike and name in orders and models[0][name].size else SINGLE


def _keywords(setting: Setting) -> dict[str, Any]:
    return {} if isinstance(setting, str) else {k: v for k, v in setting.items() if k != "method"}


def _single_row(name: str, models: Sequence[Mapping[str, NDArray]]) -> tuple[str, ...]:
    size = sum(model[name].size for model in models)
    alike = len({model[name].shape for model in models}) == 1
    shape = _shape(models[0][name].shape) if alike else "differs"
    return name, shape, SINGLE, f"{size:,}", f"{size:,}", "100.0 %", "-", "-"


def _soft_row(name: str, d: Decomposition, models: Sequence[Mapping[str, NDArray]]) -> tuple[str, ...]:
    size = sum(model[name].size for model in models)
    kept = f"{d.network.parameters:,}", f"{size:,}", f"{100 * d.kept:.1f} %"
    errors = f"{d.error:.3g}", f"{d.deviation_error:.3g}"
    return name, _shape(models[0][name].shape), repr(d.spec), *kept, *errors


def _hard_row(name: str, mean: NDArray, models: Sequence[Mapping[str, NDArray]]) -> tuple[str, ...]:
    size = sum(model[name].size for model in models)
    lost = math.sqrt(sum(float(np.linalg.norm(model[name] - mean)) ** 2 for model in models))
    norm = math.sqrt(sum(float(np.linalg.norm(model[name])) ** 2 for model in models)) or 1.0
    kept = f"{mean.size:,}", f"{size:,}", f"{100 * mean.size / max(size, 1):.1f} %"
    return name, _shape(mean.shape), HARD, *kept, f"{lost / norm:.3g}", "1" if lost else "0"


def _check_patterns(names: Sequence[str], patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise TnshareError(f"no weight matches {pattern!r}: expected names such as {tuple(names[:8])}")


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"
