"""Every kind of file that there is: what is in it, and how it is read back to numbers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tnshare as tn
from tnshare.files import Keys

OLDER = Path(__file__).resolve().parents[1] / "files" / "written_by_0_1_0"


@dataclass(frozen=True)
class Kind:
    """One kind of file: what is in it, and how it is read back to numbers by name.

    What is in it is saved, or bytes: of a file that an earlier version wrote.
    """

    name: str
    make: Callable[[], Any]
    numbers: Callable[[Any], dict[str, np.ndarray]]
    used: Callable[[Any], object] = lambda loaded: None


def _stack(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def flat(saved: Any, under: str = "") -> dict[str, np.ndarray]:
    """All numbers of whatever `tnshare.load` gives, by name."""
    if isinstance(saved, tn.Decomposition):
        found = {f"{under}/{name}": array for name, array in saved.factors.items()}
        spec = f"{saved.spec!r} {saved.network!r} {saved.error!r} {saved.deviation_error!r}"
        return found | {f"{under}/spec": np.frombuffer(spec.encode(), np.uint8)}
    if isinstance(saved, tn.State):
        parts = {"entries": saved.entries, "names": dict(enumerate(saved.names))}
        parts |= {f"task {t}": own for t, own in enumerate(saved.tasks)}
        parts |= {f"constant {n}": dict(enumerate(values)) for n, values in saved.constants.items()}
        return {k: v for name, part in parts.items() for k, v in flat(part, f"{under}/{name}").items()}
    if isinstance(saved, dict):
        return {k: v for name, value in saved.items() for k, v in flat(value, f"{under}/{name}").items()}
    if hasattr(saved, "numbers"):
        return {f"{under}/{saved.implementation}": saved.numbers}
    if not isinstance(saved, np.ndarray):
        return {f"{under} {type(saved).__name__}": np.frombuffer(repr(saved).encode(), np.uint8)}
    return {under: saved}


def _compose(saved: Any) -> None:
    """Use what was loaded: that is where names become source."""
    values = saved.entries if isinstance(saved, tn.State) else saved
    values = values.values() if isinstance(values, dict) else [values]
    for value in values:
        if isinstance(value, tn.Decomposition) and np.prod(value.network.shape, dtype=float) < 1e6:
            tn.compose(value.network, value.factors)
            repr(value), value.network.describe(), value.network.equation


def _state() -> tn.State:
    """A state that has everything: frozen codes, heads of several sizes, all kinds of constants."""
    spec = tn.LAF.with_codes(_stack(2, 3))
    network = spec.network(i=4, o=2, task=3)
    frozen = {"L": _stack(2, 4, 2), "S": spec.frozen(network)["S"].astype(np.float32)}
    own = tuple({"bias": _stack(2), "head": _stack(2, 2 + t)} for t in range(3))
    keys = tuple(Keys("threefry2x32", np.arange(2, dtype=np.uint32) + t) for t in range(3))
    counts = (np.array(1), np.array(2), np.array(3))
    constants = {
        "key": keys,
        "count": counts,
        "word": ("a", "b", "c"),
        "rate": (0.5,),
        "flags": (np.array([True]),),
    }
    d = tn.Decomposition(spec, network, frozen, 0.5, 1.0)
    return tn.State({"w": d, "b": _stack(3)}, own, ("x", "y", "z"), constants)


def _plain() -> Iterator[Kind]:
    d = tn.decompose(_stack(3, 4, 5), "tucker", ranks=(2, 3, 2))
    several = {
        "d": d,
        "laf": tn.decompose(_stack(3, 4), "laf", ranks=2),
        "a": _stack(2, 3),
        "c": _stack(3) + 1j,
    }
    yield Kind("decomposition", lambda: d, flat, _compose)
    yield Kind("dict", lambda: several, flat, _compose)
    yield Kind("array", lambda: _stack(7, 3), flat)
    yield Kind("state", _state, flat, _compose)
    for name, file in (("older dict", "dict"), ("older state", "jax_shared")):
        yield Kind(name, (OLDER / f"{file}.safetensors").read_bytes, flat, _compose)


def _torch() -> Iterator[Kind]:
    import tnshare_torch as tnt
    import torch
    from torch import nn

    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    made = []
    for _ in range(3):
        made.append(tnt.replicate(first, 1)[0])
        with torch.no_grad():
            for parameter in made[-1].parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))

    def layer(seed: int) -> nn.Module:
        return tnt.Linear(4, 3, 3, tn.Tucker((2, 2, 2)), seed=seed)

    def numbers_of(module: nn.Module) -> dict[str, np.ndarray]:
        return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}

    def of_layer(state: Any) -> dict[str, np.ndarray]:
        module = layer(1)
        module.load_state(state)
        return numbers_of(module)

    yield Kind("torch layer", lambda: layer(0), of_layer)
    shared = tnt.share(dict(zip("abc", made, strict=True)), "tt", eps=0.1)
    yield Kind("torch shared", lambda: shared, lambda state: numbers_of(tnt.restore(first, state)))


def _jax() -> Iterator[Kind]:
    import jax
    import tnshare_jax as tnj

    layer = tn.Linear(4, 3, tasks=3, spec=tn.TT((2, 2)))

    def tree(number: int) -> Any:
        draw = np.random.default_rng(number)
        kernel = _stack(4, 3) + 0.1 * draw.standard_normal((4, 3)).astype(np.float32)
        bias = draw.standard_normal(3).astype(np.float32)
        return {"dense": {"kernel": kernel, "bias": bias}, "count": number, "key": jax.random.key(number)}

    shared = tnj.share([tree(number) for number in range(3)], "laf", eps=0.1)

    def of_tree(state: Any) -> dict[str, np.ndarray]:
        leaves = jax.tree.leaves(tnj.restore(tree(9), state))
        return {str(n): np.asarray(leaf) for n, leaf in enumerate(leaves)}

    def of_layer(state: Any) -> dict[str, np.ndarray]:
        return {name: np.asarray(value) for name, value in tnj.params(layer, state).items()}

    yield Kind("jax layer", lambda: tnj.state(layer, tnj.init(layer)), of_layer)
    yield Kind("jax tree", lambda: shared, of_tree)


PLAIN = ("decomposition", "dict", "array", "state", "older dict", "older state")
TORCH, JAX = ("torch layer", "torch shared"), ("jax layer", "jax tree")


def kinds(*names: str) -> list[Kind]:
    """The kinds of these names; frameworks are imported only for theirs."""
    wanted = names or (*PLAIN, *TORCH, *JAX)
    groups = ((PLAIN, _plain), (TORCH, _torch), (JAX, _jax))
    made = [kind for own, make in groups if set(own) & set(wanted) for kind in make()]
    return [kind for kind in made if kind.name in wanted]
