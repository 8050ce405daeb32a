"""Small random networks, and whether a shared one gives what the networks given give, or says what it cannot.

``outcome(seed)`` draws networks, shares them at eps = 0, and calls the shared one and the plain ones in one
sequence of ways, modes, numbers of rows and keyword arguments. The same seed is the same networks and calls.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import random_blocks
import tnshare_torch as tnt
import torch
from random_blocks import REGULAR, WIDTH
from random_states import STATEFUL
from random_walks import Walk
from torch import nn

import tnshare as tn

Pair = namedtuple("Pair", ["one", "two"])
METHODS = ("laf", "tucker", "tt")
BFLOAT16 = 2.0**-8  # of autocast: what a number is rounded to


@dataclass
class Record:
    y: Any
    more: Any = None
    name: str = "record"


class Net(nn.Module):
    """Blocks one behind the other; keyword arguments; outputs in some container."""

    OUTPUTS = ("tensor", "tuple", "dict", "list", "pair", "record", "nested", "none", "total")

    def __init__(self, rng: random.Random, kinds: list[type]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([kind(rng) for kind in kinds])
        self.outputs = rng.choice(self.OUTPUTS) if rng.random() < 0.5 else "tensor"
        self.width, self.gain = WIDTH, 1.0
        self.config = {"gains": [1.0, 2.0], "shift": 0}
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x, scale=None, shift=None, mask=None):
        if scale is not None:  # a number for each row
            x = x * scale[:, None]
        for block in self.blocks:
            x = block(x)
        if shift is not None:  # the same for all rows
            x = x + shift
        if isinstance(mask, dict):  # rows at some depth
            x = x * mask["rows"][0][:, None]
        return self._put(x, self.gain * self.head(x) * self.config["gains"][0] + self.config["shift"])

    def _put(self, x, y):
        match self.outputs:
            case "tuple":
                return y, x
            case "dict":
                return {"y": y, "x": x}
            case "list":
                return [y, x]
            case "pair":
                return Pair(y, x)
            case "record":
                return Record(y, {"x": x})
            case "nested":
                return {"y": [y, (x, Pair(x, y))], "nothing": None}
            case "none":
                return y, None
            case "total":
                return {"y": y, "total": y.sum()}
            case _:
                return y


@dataclass
class Case:
    """What a seed says: networks, how they are shared, and in which words it is described."""

    seed: int
    models: list[nn.Module]
    options: dict[str, Any]
    text: str
    regular: bool  # nothing in it is to be refused for one task
    tolerance: float
    differing: str = ""  # the attribute in which the networks differ
    rng: random.Random = field(default_factory=random.Random)


def drawn(seed: int) -> Case:
    """The networks of a seed."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kinds = [rng.choice(REGULAR) for _ in range(rng.choice([1, 1, 2, 3]))]
    stateful = rng.random() < 0.2
    if stateful:
        kinds.insert(rng.randrange(len(kinds) + 1), rng.choice(STATEFUL))
    first = Net(rng, kinds).double()
    for part in first.modules():
        if isinstance(part, random_blocks.Autocast):
            part.fc.float()
    models = [copy.deepcopy(first) for _ in range(rng.choice([2, 4, 5]))]
    with torch.no_grad():
        for parameter in (p for model in models for p in model.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
    differing = _differ(models, rng) if rng.random() < 0.15 else ""
    options: dict[str, Any] = {
        "method": rng.choice(METHODS),
        "strategy": rng.choice(["auto", "auto", "vmap", "loop"]),
        "batch_dims": {"scale": 0, "shift": None, "mask": 0},
    }
    if rng.random() < 0.3:
        options["layers"] = {"head": rng.choice(["single", "laf", {"method": "tt", "eps": 0.0}])}
    if rng.random() < 0.25:
        options["example"] = torch.randn(rng.choice([2, 3, 7]), WIDTH, dtype=torch.float64)
    names = [
        (getattr(b, "how", "") and f"{type(b).__name__}({b.how})") or type(b).__name__ for b in first.blocks
    ]
    autocast = any(isinstance(part, random_blocks.Autocast) for part in first.modules())
    how = {n: tuple(v.shape) if n == "example" else v for n, v in options.items() if n != "batch_dims"}
    text = f"{' -> '.join(names)} -> {first.outputs}; {how}; differs: {differing or 'no'}"
    tolerance = 64 * BFLOAT16 if autocast else 1e-8
    return Case(seed, models, options, text, not stateful and not differing, tolerance, differing, rng)


def _differ(models: list[nn.Module], rng: random.Random) -> str:
    """Make one of the networks another one in something that is no tensor."""
    model: Any = rng.choice(models[1:])
    changes: dict[str, Callable[[], Any]] = {
        "gain": lambda: setattr(model, "gain", 2.0),
        "config": lambda: model.config["gains"].__setitem__(0, 3.0),
        "shift": lambda: model.config.__setitem__("shift", 1),
        "mode": lambda: model.blocks[0].eval(),
        "hook": lambda: model.head.register_forward_hook(random_blocks.doubled),
        "forward": lambda: setattr(model.head, "forward", lambda x: x[:, :3]),
        "class": lambda: setattr(model, "__class__", type("Net", (Net,), {"forward": _other_forward})),
        "head": lambda: setattr(model, "head", nn.Linear(WIDTH, 5).double()),
    }
    name = rng.choice(list(changes))
    changes[name]()
    return name


def _other_forward(self, x, **kwargs):
    return -self.head(x)


@dataclass(frozen=True)
class Outcome:
    """``equal`` (with how many calls were refused), ``refused`` (at all), or ``failed``, and why."""

    kind: str
    text: str
    calls: int = 0
    refused: int = 0


def outcome(seed: int, calls: int = 8, compiled: bool = False) -> Outcome:
    """What became of the networks of a seed."""
    case = drawn(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _outcome(case, calls, compiled)


def _outcome(case: Case, calls: int, compiled: bool) -> Outcome:
    options = dict(case.options)
    if case.options.get("strategy") == "vmap":
        case.regular = False  # all at once, or an error
    try:
        shared = tnt.share(copy.deepcopy(case.models), eps=0, **options)
    except tn.TnshareError as error:
        if case.regular and "example" not in options:
            return Outcome("failed", f"share refuses regular networks: {error}")
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("failed", f"share: {type(error).__name__}: {error}")
    compiled = compiled and not any(
        isinstance(b, STATEFUL) for b in case.models[0].blocks
    )  # nobody can watch
    walk = Walk(case, shared, copy.deepcopy(case.models))
    for number in range(calls):
        try:
            wrong = walk.step(number, compiled and number % 4 == 3)
        except tn.TnshareError as error:
            wrong = f"outside of a call: {error}"
        if wrong:
            return Outcome("failed", f"call {number}, {walk.text}: {wrong}", number, walk.refused)
    return Outcome("equal", "; ".join(walk.refusals), calls, walk.refused)
