"""The deep methods that are compared: each is a call of `share`, and the networks it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import tnshare as tn

from .recipe import Recipe

STL, LARGE = "STL", "UD-MTL-Large"
FACTORISATIONS = {"LAF": "laf", "Tucker": "tucker", "TT": "tt"}


@dataclass(frozen=True)
class Method:
    """A way of sharing.

    ``share`` are keywords of `tnshare_torch.share`. It is given the single-task networks after the first
    stage or, if ``untrained``, new ones. ``hard`` counts the first layers that are one for all tasks; the
    others of new networks are drawn for each task anew. ``width`` multiplies the hidden layers. ``rate`` is
    that of Adam, if it is not the recipe's.
    """

    name: str
    share: Mapping[str, Any]
    untrained: bool = False
    hard: int = 0
    width: float = 1.0
    rate: float | None = None

    def recipe(self, given: Recipe) -> Recipe:
        """A recipe with this method's own rate."""
        return given if self.rate is None else replace(given, rate=self.rate)


def deep_methods(
    layers: Sequence[str],
    hard: Sequence[int],
    large: tuple[int, float] | None,
    soft: Mapping[str, Any],
    kept: int,
    rates: Mapping[str, float],
) -> dict[str, Method]:
    """All of them, by name.

    ``layers`` names the layers of the network, ``hard`` says how many of the first are tried as hard ones,
    ``large`` how many of how wide a network, ``soft`` are keywords of `share` for networks that are trained,
    ``kept`` is how many parameters factors have that start from random values, and ``rates`` are those of
    methods that were found to need another one than the recipe's.
    """
    found = [Method(STL, {"layers": {"*": "single"}})]
    found += [ud_mtl(layers, n) for n in hard]
    found += [ud_mtl(layers, large[0], large[1], LARGE)] if large else []
    found += [Method(f"DMTRL-{name}", {"method": m, **soft}) for name, m in FACTORISATIONS.items()]
    found += [
        Method(f"DMTRL-{name} random", {"method": m, "max_parameters": kept}, untrained=True)
        for name, m in FACTORISATIONS.items()
    ]
    return {method.name: replace(method, rate=rates.get(method.name)) for method in found}


def ud_mtl(layers: Sequence[str], hard: int, width: float = 1.0, name: str = "") -> Method:
    """User-defined sharing: one weight and bias for all tasks in the first layers, own ones in the others."""
    shared = dict.fromkeys(layers[:hard], "hard")
    return Method(name or f"UD-MTL-{hard}", {"layers": {**shared, "*": "single"}}, True, hard, width)


def variants(methods: Sequence[Method], rates: Sequence[float], eps: Sequence[float]) -> list[Method]:
    """Every method with each rate of Adam and each eps, if it has one; unchanged where nothing is given."""
    rated = [
        method if rate is None else replace(method, name=f"{method.name}, rate {rate:g}", rate=rate)
        for method, rate in product(methods, rates or (None,))
    ]
    return [
        method
        if each is None
        else replace(method, name=f"{method.name}, eps {each:g}", share={**method.share, "eps": each})
        for method in rated
        for each in (eps if eps and "eps" in method.share else (None,))
    ]


def chosen(methods: Mapping[str, Method], names: Sequence[str]) -> list[Method]:
    """The methods of these names; all if none is given."""
    unknown = [name for name in names if name not in methods]
    if unknown:
        raise tn.TnshareError(f"no method is called {unknown[0]!r}: expected any of {', '.join(methods)}")
    return [methods[name] for name in names] if names else list(methods.values())
