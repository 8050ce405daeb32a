"""Which weights of T models are shared, and how; and the table that says what became of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from inspect import signature
from typing import Any

import numpy as np

from tnshare.checks import by_name, flag, patterns, whole
from tnshare.decomposition import Decomposition, codes, quietly, sharing_strength, task_similarity
from tnshare.errors import TnshareError, TnshareWarning
from tnshare.network import METHODS, Network
from tnshare.ops import NDArray
from tnshare.planning import explain_table

from ._as_given import Kept, given_size, is_exact, not_larger

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
    in_all: str = ""

    def report(self) -> str:
        """A table: for each weight what was done, what it keeps and loses; the whole; then the warnings."""
        sizes, errors = ("parameters", "of", "kept"), ("error", "of the deviation")
        lines = explain_table(
            [("weight", "shape", "sharing", *sizes, *errors, "of what came in"), *self.rows]
        )
        return "\n".join(
            [*lines, *filter(None, [self.in_all]), *(f"warning: {text}" for text in self.warnings)]
        )


def share_arrays(
    models: Sequence[Mapping[str, NDArray]],
    orders: Mapping[str, tuple[int, ...]],
    method: str,
    only: Sequence[str] = (),
    except_: Sequence[str] = (),
    layers: Mapping[str, Setting] | None = None,
    *,
    max_parameters: int | None = None,
    **bounds: Any,
) -> SharedModel:
    """Decide for each weight of T models how it is shared, and decompose the stacks.

    ``models`` are the weights of each, by name; ``orders`` names those that may be shared softly. Patterns
    in ``only``, ``except_`` and ``layers`` are names of weights or of modules, with ``*`` and ``?``. The
    first of ``layers`` that matches says how a weight is shared: a method, "hard", "single", or keywords of
    `decompose` with a ``method``. ``bounds`` are ``eps``, ``ranks`` and ``relative_to`` of `decompose`;
    ``max_parameters`` is for all soft weights together that have no bound of their own, divided by size.
    """
    only, except_ = patterns("only", only), patterns("except_", except_)
    layers = by_name("layers", layers or {}, "of patterns and what is to be done")
    if max_parameters is not None:
        whole("max_parameters", max_parameters)
    names = list(models[0])
    _check_patterns(names, (*only, *except_, *layers))
    for pattern, setting in layers.items():
        _check_setting(pattern, setting)
    settings = {name: _setting(name, method, only, except_, layers) for name in names}
    kinds = {name: _kind(name, settings[name], models, orders) for name in names}
    sizes = {name: models[0][name].size for name, kind in kinds.items() if kind not in (HARD, SINGLE)}
    keywords = _bounds_of_each(sizes, settings, bounds, max_parameters)
    found: dict[str, Kept] = {}
    said: list[str] = []
    for name, kind in kinds.items():
        weights = [model[name] for model in models]
        found[name] = _mean(weights) if kind == HARD else None
        if name in keywords:
            found[name], texts = _shared_softly(name, weights, orders[name], kind, keywords[name])
            said += [f"{name}: {text}" for text in texts]
    soft = {name: kept for name, kept in found.items() if isinstance(kept, Decomposition)}
    hard = {name: kept for name, kept in found.items() if isinstance(kept, np.ndarray)}
    single = tuple(name for name, kept in found.items() if kept is None)
    if len(models) > 1 and len(single) == len(names):
        said.append("nothing is shared: every weight stays with each task, as the report says")
    for text in said:
        warnings.warn(text, TnshareWarning, stacklevel=3)
    rows = [_row(name, kept, [model[name] for model in models]) for name, kept in found.items()]
    table = tuple(row.texts for row in rows)
    return SharedModel(soft, hard, single, {n: orders[n] for n in soft}, table, tuple(said), _in_all(rows))


def _bounds_of_each(
    sizes: Mapping[str, int],
    settings: Mapping[str, Setting],
    bounds: Mapping[str, Any],
    max_parameters: int | None,
) -> dict[str, dict[str, Any]]:
    """The keywords of `decompose` for each soft weight; one that has no bound has a part of that of all."""
    free = [name for name in sizes if not _BOUNDS & {*_keywords(settings[name])}]
    total = sum(sizes[name] for name in free)
    found: dict[str, dict[str, Any]] = {}
    for name in sizes:
        own = _keywords(settings[name])
        stays = bounds if name in free else {*bounds} - _BOUNDS if "eps" in own else ()  # relative_to
        found[name] = {k: bounds[k] for k in stays} | own
        if max_parameters is not None and name in free:
            found[name]["max_parameters"] = max_parameters * sizes[name] // total
    return found


def _shared_softly(
    name: str, weights: Sequence[NDArray], order: Sequence[int], method: str, keywords: Mapping[str, Any]
) -> tuple[Kept, tuple[str, ...]]:
    """The weights of all tasks as factors, or as they were if factors are larger; and what to say of it."""
    stack = np.stack([weight.transpose(order) for weight in weights], axis=-1)
    try:
        d: Decomposition = quietly(stack, method, **keywords)
    except TnshareError as error:
        raise TnshareError(f"{name}: {error}") from None
    if is_exact(keywords) or d.given is None or d.network.parameters <= d.given:
        return d, d.warnings
    kept, text = not_larger(d, weights, stack)
    if kept is d:
        return d, d.warnings
    return kept, (*(one for one in d.warnings if one.startswith("unaligned")), text)  # no other holds now


def _mean(weights: Sequence[NDArray]) -> NDArray:
    """The mean of all tasks, summed in float32 at least: half precision ends at 65,504."""
    dtype = weights[0].dtype
    found: NDArray = np.mean(weights, axis=0, dtype=np.result_type(dtype, np.float32)).astype(dtype)
    return found


def sharing_of_layers(weights: Factorised, normalise: bool) -> dict[str, float]:
    """The paper's sharing strength of every softly shared weight, by layer."""
    flag("normalise", normalise)
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
    name: str, method: str, only: Sequence[str], except_: Sequence[str], layers: Mapping[str, Setting]
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
    method = setting.get("method") if isinstance(setting, Mapping) else setting
    if not isinstance(method, str) or method not in (*METHODS, HARD, SINGLE):
        raise TnshareError(f"{name}: a method must be one of {(*METHODS, HARD, SINGLE)}, found {method!r}")
    alike = len({model[name].shape for model in models}) == 1
    if method == HARD and not alike:
        found = ", ".join(sorted({_shape(model[name].shape) for model in models}))
        raise TnshareError(f"{name} cannot be shared by all tasks, its shapes differ: found {found}")
    if method in (HARD, SINGLE):
        return str(method)
    return str(method) if alike and name in orders and models[0][name].size else SINGLE


def _check_setting(pattern: str, setting: Any) -> None:
    """Refuse keywords of `decompose` that there are not."""
    known = (
        "method",
        *(name for name, p in signature(quietly).parameters.items() if p.kind == p.KEYWORD_ONLY),
    )
    for name in setting if isinstance(setting, Mapping) else ():
        if name not in known:
            raise TnshareError(f"layers[{pattern!r}] has the keyword {name!r}: expected some of {known}")


def _keywords(setting: Setting) -> dict[str, Any]:
    return {} if isinstance(setting, str) else {k: v for k, v in setting.items() if k != "method"}


@dataclass(frozen=True)
class _Row:
    """A weight in the report; ``stored``, ``dense`` and ``given`` are numbers of parameters."""

    name: str
    shape: str
    sharing: str
    stored: int
    dense: int
    given: int
    lost: tuple[str, str] = ("-", "-")

    @property
    def texts(self) -> tuple[str, ...]:
        """What stands in the table."""
        fractions = _percent(self.stored, self.dense), *self.lost, _percent(self.stored, self.given)
        return self.name, self.shape, self.sharing, f"{self.stored:,}", f"{self.dense:,}", *fractions


def _row(name: str, kept: Kept, weights: Sequence[NDArray]) -> _Row:
    shapes = {weight.shape for weight in weights}
    shape = _shape(weights[0].shape) if len(shapes) == 1 else "differs"
    dense, given = sum(weight.size for weight in weights), given_size(weights)
    if kept is None:
        return _Row(name, shape, SINGLE, dense, dense, given)
    if isinstance(kept, Decomposition):
        lost = f"{kept.error:.3g}", f"{kept.deviation_error:.3g}"
        return _Row(name, shape, repr(kept.spec), kept.network.parameters, dense, given, lost)
    wide = np.result_type(kept.dtype, np.float32)
    off = math.sqrt(sum(float(np.linalg.norm((weight - kept).astype(wide))) ** 2 for weight in weights))
    norm = math.sqrt(sum(float(np.linalg.norm(weight.astype(wide))) ** 2 for weight in weights)) or 1.0
    return _Row(name, shape, HARD, kept.size, dense, given, (f"{off / norm:.3g}", "1" if off else "0"))


def _in_all(rows: Sequence[_Row]) -> str:
    """How large all of it is, of T dense networks and of what came in."""
    stored, dense, given = (sum(getattr(row, k) for row in rows) for k in ("stored", "dense", "given"))
    return (
        f"in all {stored:,} parameters: {_percent(stored, dense)} of the {dense:,} of dense networks, "
        f"{_percent(stored, given)} of the {given:,} that came in, copies counted once"
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):,.1f} %"


def _check_patterns(names: Sequence[str], patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise TnshareError(f"no weight matches {pattern!r}: expected names such as {tuple(names[:8])}")


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"
