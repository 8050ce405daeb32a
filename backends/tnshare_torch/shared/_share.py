"""T trained networks in, one softly shared network out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from torch import nn

import tnshare as tn
from tnshare.checks import whole
from tnshare.models import Roster, Setting, SharedModel, is_ignored, share_arrays
from tnshare_torch._ops import array_of

from ._example import try_out
from ._shared_network import Shared
from .paths._path_choice import Strategy
from .template._template import check_alike, check_module, named_tensors, orders_of, template_of


def replicate(model: nn.Module, tasks: int) -> list[nn.Module]:
    """T copies of one network, to be trained one by one: only from the same values do weights stay alike."""
    check_module(model, "the network")
    return [copy.deepcopy(model) for _ in range(whole("tasks", tasks))]


def share(
    models: Sequence[nn.Module] | Mapping[str, nn.Module],
    method: str = "tucker",
    *,
    eps: float | None = None,
    ranks: int | Sequence[int] | None = None,
    max_parameters: int | None = None,
    relative_to: Literal["stack", "deviation"] = "stack",
    only: Sequence[str] = (),
    except_: Sequence[str] = (),
    layers: Mapping[str, Setting] | None = None,
    batch_dim: int = 0,
    batch_dims: Mapping[str, int | str | None] | None = None,
    scratch: Sequence[str] = (),
    ignore: Sequence[str] = (),
    strategy: Strategy = "auto",
    example: Any = None,
) -> Shared:
    """One module for T networks of one architecture, which are left as they are.

    Weights of linear, convolutional, embedding, recurrent and attention layers become factors, by ``method``:
    "laf", "tucker" or "tt", as close as ``eps``, ``ranks`` or ``max_parameters`` say (see
    `tnshare.decompose`; the last is for all together). Biases, norms, buffers, and whatever differs in shape
    between the networks, stay with each task. ``only`` and ``except_`` are patterns of names, of modules or
    parameters, to share or to leave. ``layers`` says for patterns what is to be done instead: a method,
    "hard" (one weight for all tasks), "single" (one for each), or keywords: ``{"fc*": {"method": "tt",
    "eps": 0.05}}``. Networks in a dict give tasks their names.

    Networks that differ in anything but tensors, a number, an activation, a mode, a hook, are refused: all
    would have it from the first. ``ignore`` names what does not matter, ``"scale"`` or ``"blocks.*.scale"``.

    Rows of mixed tasks lie along ``batch_dim`` of the input and of every output; ``batch_dims`` says so of
    keyword arguments, by name: the axis of rows, "tasks" for an entry for each task, None for what is the
    same for all. Containers are split like their tensors. ``scratch`` names attributes, by pattern, that a
    network may assign to in its forward because no task reads what another left there.

    ``strategy`` says how several tasks run: "loop", one after the other; "vmap", all at once, or an error;
    "auto", at once where that is faster and a probe has found the same numbers, else one after the other
    (``shared.explain()`` says why). Dropout draws other numbers at once than one after the other. An
    ``example`` input of one task, or (input, keyword arguments), has all ways compared now with the networks
    given, and lets compiled code mix tasks in a batch.
    """
    given = _listed(models)
    roster = Roster.of(models if isinstance(models, Mapping) else given, "models")
    check_given(given)
    check_alike(given, ignore)
    weights = [_numbers(model) for model in given]
    if not weights[0]:
        raise tn.TnshareError("models must have parameters to share: found none in model 0")
    bounds: Any = {"eps": eps, "ranks": ranks, "max_parameters": max_parameters, "relative_to": relative_to}
    model = share_arrays(weights, orders_of(given[0]), method, only, except_, layers, **bounds)
    shared = Shared(
        _template(given, model, ignore),
        model,
        [named_tensors(one) for one in given],
        roster,
        batch_dim=whole("batch_dim", batch_dim, least=0),
        batch_dims=batch_dims,
        scratch=scratch,
        ignore=ignore,
        strategy=strategy,
    )
    if example is None:
        return shared
    with said_of(example):
        return try_out(shared, given, example)


def _template(models: Sequence[nn.Module], model: SharedModel, ignore: Sequence[str]) -> nn.Module:
    """That of all networks; a weight which they have in common is trained in all of them, or frozen."""
    trained = [{name: p.requires_grad for name, p in model.named_parameters()} for model in models]
    for name in (*model.soft, *model.hard):
        path, flags = f"{name}.requires_grad", [each[name] for each in trained]
        if len(set(flags)) > 1 and not is_ignored(path, ignore):
            other = flags.index(not flags[0])
            raise tn.TnshareError(
                f"models must have one architecture: model {other} differs from the first in {path}, which "
                f"is {flags[0]} in the first, {flags[other]} in model {other}; leave it to each task with "
                f"layers={{{name!r}: 'single'}}, or say share(..., ignore=[{path!r}])"
            )
    return template_of(models[0])


def _listed(models: Any) -> list[nn.Module]:
    """The networks that were given, in order."""
    if not isinstance(models, Sequence | Mapping | nn.ModuleList) or isinstance(models, str | bytes):
        raise tn.TnshareError(
            "models must be a list of networks, one for each task, or a dict of them by name: "
            f"found {type(models).__name__}"
        )
    return list(models.values() if isinstance(models, Mapping) else models)


def check_given(models: Sequence[Any]) -> None:
    """Refuse what is no network with numbers of its own."""
    for number, model in enumerate(models):
        called = f"model {number}"
        check_module(model, called)
        twin = next(n for n, other in enumerate(models) if other is model)
        if twin != number:
            raise tn.TnshareError(
                f"each task needs a network of its own: found the same one as model {twin} and {called}; "
                "copy it with tnshare_torch.replicate"
            )
        if isinstance(model, Shared):
            raise tn.TnshareError(
                f"models must be plain networks: found a shared one as {called}; its unshare() gives plain "
                "ones"
            )
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_meta:
                raise tn.TnshareError(
                    f"models must have numbers: found {name} of {called} on the device meta, which has none"
                )


def _numbers(model: nn.Module) -> dict[str, np.ndarray[Any, Any]]:
    return {name: array_of(p) for name, p in model.named_parameters()}


@contextmanager
def said_of(example: Any) -> Iterator[None]:
    """What the networks themselves say of an example that they cannot take, as an error about it."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        if isinstance(error, tn.TnshareError):
            raise
        found = getattr(example, "dtype", type(example).__name__), tuple(getattr(example, "shape", ()))
        raise tn.TnshareError(
            f"the example must be an input that the networks take: found {found[0]} {found[1]}, and they "
            f"say: {error}"
        ) from error
