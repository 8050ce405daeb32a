"""T trained models in: which of their weights are shared, and how; framework-free."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

from tnshare.decomposition import Decomposition, codes, decompose, sharing_strength, task_similarity
from tnshare.errors import TnshareError, TnshareWarning
from tnshare.network import METHODS, Network
from tnshare.ops import NDArray
from tnshare.planning import explain_table

HARD, SINGLE = "hard", "single"


Setting = str | Mapping[str, Any]


Factorised = Mapping[str, tuple[Network, Mapping[str, NDArray]]]  # networks and factors, by names of weights


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
        lines = explain_table([titles, *self.rows])
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


def share_arrays(
    models: Sequence[Mapping[str, NDArray]],
    orders: Mapping[str, tuple[int, ...]],
    method: str,
    *,
    eps: float | None = None,
    ranks: int | Sequence[int] | None = None,
    max_parameters: int | None = None,
    relative_to: Literal["stack", "deviation"] = "stack",
    only: Sequence[str] = (),
    except_: Sequence[str] = (),
    layers: Mapping[str, Setting] | None = None,
) -> SharedModel:
    """Decide for each weight of T models how it is shared, and decompose the stacks.

    ``models`` are the weights of each, by name; ``orders`` names those that may be shared softly. Patterns
    in ``only``, ``except_`` and ``layers`` are names of weights or of modules, with ``*`` and ``?``. The
    first of ``layers`` that matches says how a weight is shared: a method, "hard", "single", or keywords of
    `decompose` with a ``method``. ``eps``, ``ranks`` and ``relative_to`` are those of `decompose`;
    ``max_parameters`` is for all soft weights together that have no bound of their own, divided by size.
    """
    bounds: dict[str, Any] = {"eps": eps, "ranks": ranks, "relative_to": relative_to}
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
            hard[name] = _mean([model[name] for model in models])
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
    found = [f"{name}: {text}" for name, d in soft.items() for text in (*d.warnings, *_larger(d))]
    if len(models) > 1 and not soft and not hard:
        found.append("nothing is shared: every weight stays with each task, as the report says")
    for text in found:
        warnings.warn(text, TnshareWarning, stacklevel=3)
    return SharedModel(soft, hard, single, {name: orders[name] for name in soft}, tuple(rows), tuple(found))


def _mean(weights: Sequence[NDArray]) -> NDArray:
    """The mean of all tasks, summed in float32 at least: half precision ends at 65,504."""
    dtype = weights[0].dtype
    found: NDArray = np.mean(weights, axis=0, dtype=np.result_type(dtype, np.float32)).astype(dtype)
    return found


def _larger(d: Decomposition) -> list[str]:
    """That factors are larger than what they stand for, if they are."""
    dense = math.prod(d.network.shape)
    if d.network.parameters <= dense:
        return []
    return [
        f"larger than what came in: {d.network.parameters:,} parameters for {dense:,}; ask for less with "
        "eps=, ranks= or max_parameters=, or leave it to each task with layers={...: 'single'}"
    ]


def _decomposed(name: str, stack: NDArray, method: str, keywords: Mapping[str, Any]) -> Decomposition:
    """A stack as factors; what is wrong with it is said with the name of the weight."""
    try:
        return decompose(stack, method, **keywords)
    except TnshareError as error:
        raise TnshareError(f"{name}: {error}") from None


def sharing_of_layers(weights: Factorised, normalise: bool) -> dict[str, float]:
    """The paper's sharing strength of every softly shared weight, by layer."""
    return {
        layer_name(name, weights): sharing_strength(codes(*weight), normalise=normalise)
        for name, weight in weights.items()
    }


def similarity_of_layers(weights: Factorised) -> dict[str, NDArray]:
    """T x T cosines of the tasks' weights, of every softly shared weight, by layer."""
    return {layer_name(name, weights): task_similarity(*weight) for name, weight in weights.items()}


def layer_name(name: str, names: Collection[str]) -> str:
    """The layer of a weight: its name without what frameworks call weights, unless two would be called so."""
    layer, _, last = name.rpartition(".")
    alike = [other for other in names if other.rpartition(".")[0] == layer]
    return layer if layer and last in _WEIGHTS and len(alike) == 1 else name


def added_task(task: int, errors: Mapping[str, float]) -> str:
    """What a report says of a task that was fitted to the weights of a network."""
    found = ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
    return f"\ntask {task} was added, with errors: {found or 'none'}"


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
    wide = np.result_type(mean.dtype, np.float32)
    lost = math.sqrt(sum(float(np.linalg.norm((model[name] - mean).astype(wide))) ** 2 for model in models))
    norm = math.sqrt(sum(float(np.linalg.norm(model[name].astype(wide))) ** 2 for model in models)) or 1.0
    kept = f"{mean.size:,}", f"{size:,}", f"{100 * mean.size / max(size, 1):.1f} %"
    return name, _shape(mean.shape), HARD, *kept, f"{lost / norm:.3g}", "1" if lost else "0"


def _check_patterns(names: Sequence[str], patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise TnshareError(f"no weight matches {pattern!r}: expected names such as {tuple(names[:8])}")


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"
