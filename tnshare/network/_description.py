"""A factorisation as plain data, to be written beside its numbers and compared when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ._frozen_codes import FrozenCodes
from ._nodes import Network
from ._specs import LAF, METHODS, Spec

Description = Mapping[str, Any]


def described(spec: Spec, network: Network) -> dict[str, Any]:
    """Method, ranks and sizes: what JSON can hold of a specification, all but the values of given codes."""
    from hashlib import sha256  # here, as `import tnshare` is to be quick

    codes = spec.codes if isinstance(spec, LAF) else None
    frozen = None if codes is None else [codes.kind, sha256(codes.data).hexdigest()]
    return {
        "method": spec.method,
        "ranks": list(spec.ranks),
        "weights": {axis: network.sizes[axis] for axis in network.weight_axes},
        "tasks": {axis: network.sizes[axis] for axis in network.tasks},
        **({} if frozen is None else {"codes": frozen}),
    }


def inferred(spec: Spec, network: Network, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The same, with ranks and sizes as the shapes of factors by name tell them."""
    sizes = dict(network.sizes)
    for node in network.nodes:
        shape = shapes.get(node.name, ())
        if len(shape) == len(node.axes):
            sizes.update(zip(node.axes, shape, strict=True))
    own = described(spec, network)
    return own | {
        "ranks": [sizes[bond] for bond in spec.bonds(network.output)],
        "weights": {axis: sizes[axis] for axis in own["weights"]},
        "tasks": {axis: sizes[axis] for axis in own["tasks"]},
    }


def spec_of(network: Network) -> Spec:
    """The specification by which a network was made, none of its codes being frozen."""
    weights, tasks = ({a: network.sizes[a] for a in axes} for axes in (network.weight_axes, network.tasks))
    for method in METHODS.values():
        bonds = method.bonds(network.output)
        if all(bond in network.sizes for bond in bonds):
            spec: Spec = method(tuple(network.sizes[bond] for bond in bonds))  # type: ignore[arg-type]
            if spec.build(weights, tasks).nodes == network.nodes:
                return spec
    raise AssertionError(f"no factorisation makes {network}")


def spelled(saved: Description) -> str:
    """A description as one would write the specification."""
    method, ranks = METHODS.get(saved["method"]), tuple(saved["ranks"])
    if method is None:
        return f"{saved['method']}{ranks}"
    if "codes" in saved:
        return repr(LAF(ranks[0], FrozenCodes(saved["codes"][0], ranks[0])))
    return repr(method(ranks))  # type: ignore[arg-type]


def same_spec(own: Description, saved: Description) -> bool:
    """Whether two are of one specification, the sizes of weights aside."""
    return all(own.get(key) == saved.get(key) for key in ("method", "ranks", "codes"))


def differences(own: Description, saved: Description) -> Iterator[str]:
    """What keeps saved numbers from fitting: "LAF((2,)), here LAF((3,))", "tasks task=4, here task=5"."""
    if not same_spec(own, saved):
        one, other = spelled(saved), spelled(own)
        yield f"{one}, here {other}" if one != other else f"{one} of other codes than here"
    for key in ("weights", "tasks"):
        if key in own and key in saved and own[key] != saved[key]:
            yield f"{key} {_sizes(saved[key])}, here {_sizes(own[key])}"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in sizes.items())
