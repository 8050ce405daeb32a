"""Run methods on draws of an experiment, one after the other, going on where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tnshare_torch as tnt
import torch
import tqdm
from tnshare_torch.shared import Shared
from torch import nn

import tnshare as tn
from benchmarks.measuring.whole_files import beside
from benchmarks.paper.collected import collect
from benchmarks.paper.finished_runs import Runs, digest, read

from .methods import Method
from .recipe import Recipe, fit
from .tasks import Tasks

Progress = Callable[[], object]


@dataclass(frozen=True)
class Protocol:
    """How all methods are trained: in two stages.

    Those that start from trained networks share the first, in which networks learn their tasks one by one.
    """

    first: Recipe
    second: Recipe

    def digest(self, method: Method) -> str:
        """A short name of all that the result of a method depends on besides the images and the seed."""
        return digest(self.settings(method))

    def settings(self, method: Method) -> dict[str, Any]:
        """Both stages and the method, as JSON has them."""
        first = method.recipe(self.first) if method.untrained else self.first
        return {
            "first": asdict(first),
            "second": asdict(method.recipe(self.second)),
            "method": asdict(method),
        }


@dataclass(frozen=True, eq=False)
class Draw:
    """Images of one fraction and seed, and untrained networks for them.

    ``networks(alike, width)`` gives one network for each task, the first ``alike`` layers the same in all,
    the others drawn anew. Heads that start alike would keep a body that tasks have in common from learning:
    one task's gradient is undone by the others'.
    """

    fraction: float
    seed: int
    train: Tasks
    test: Tasks
    networks: Callable[[int, float], list[nn.Module]]
    shareable: int  # layers that have the same shape in all networks, all but the last


class Experiment:
    """Finished runs of one experiment, kept in ``work`` and collected in ``results``.

    `validating` gives one that reads no test images: it cross-validates on training images.
    """

    def __init__(
        self, name: str, protocol: Protocol, methods: Mapping[str, Method], work: Path, results: Path
    ) -> None:
        self.name, self.protocol, self.methods = name, protocol, methods
        self.folds = self.repeats = 0
        self.work = work / name
        self.results = results / f"{name}.json"
        self.runs = Runs(self.work / "runs.jsonl", self.results)

    def validating(self, folds: int, repeats: int, methods: Mapping[str, Method]) -> Experiment:
        """Cross-validation of some methods, under a name of its own.

        The images of a fraction are divided into ``folds`` parts; a method is trained on all but one of them
        and validated on that one, for each of the first ``repeats`` parts.
        """
        if not 1 <= repeats <= folds or folds < 2:
            given = f"got {folds} folds and {repeats} repeats"
            raise tn.TnshareError(f"{given}: expected two folds or more, and no more repeats than folds")
        name, work = f"{self.name}-validation", self.work.parent
        other = Experiment(name, self.protocol, methods, work, self.results.parent)
        other.folds, other.repeats = folds, repeats
        return other

    def go(self, jobs: Sequence[tuple[Method, float, int]], draw: Callable[[float, int], Draw]) -> None:
        """Run what is not finished yet; ``draw`` is called once for all methods on the same images."""
        self.collect()  # a command that was killed may have kept a run and not collected it
        left = [job for job in jobs if not self.finished(*job)]
        epochs = self.protocol.first.epochs + self.protocol.second.epochs
        epochs *= max(1, self.repeats)
        total = sum(_work(method, fraction) * epochs for method, fraction, _ in left)
        with tqdm.tqdm(total=total, unit="", unit_scale=True, desc=self.name, disable=not left) as bar:
            for (fraction, seed), methods in _by_draw(left):
                given = draw(fraction, seed)
                for method in methods:
                    bar.set_postfix_str(f"{method.name}, {100 * fraction:g} %, seed {seed}")
                    share = _work(method, fraction)
                    row = self.run(method, given, lambda share=share: bar.update(share))  # type: ignore[misc]
                    self.runs.add(row)
                    self.collect()

    def finished(self, method: Method, fraction: float, seed: int) -> bool:
        """Whether a run is in the store."""
        key = {"method": method.name, "fraction": fraction, "seed": seed}
        return self.runs.has(**key, protocol=digest(self.settings(method)))

    def settings(self, method: Method) -> dict[str, Any]:
        """All that the result of a method depends on besides the images and the seed, as JSON has it."""
        parts = {"folds": self.folds, "repeats": self.repeats} if self.folds else {}
        return {**self.protocol.settings(method), **parts}

    def run(self, method: Method, draw: Draw, progress: Progress = lambda: None) -> dict[str, Any]:
        """Train a method on a draw, test it once, and describe what came out."""
        began = time.process_time()
        found = (self._validated if self.folds else self._tested)(method, draw, progress)
        return {
            "method": method.name,
            "fraction": draw.fraction,
            "seed": draw.seed,
            "protocol": digest(self.settings(method)),
            **found,
            "cpu_seconds": round(time.process_time() - began, 1),
        }

    def _tested(self, method: Method, draw: Draw, progress: Progress) -> dict[str, Any]:
        shared, steps = trained(method, draw, self.protocol, self.stage_one, progress)
        return {**draw.test.errors(shared, method.hard), **described(shared), "steps": steps}

    def _validated(self, method: Method, draw: Draw, progress: Progress) -> dict[str, Any]:
        """The mean error over the parts that were held out; networks of a first stage are not kept."""
        errors, steps = [], 0
        for number in range(self.repeats):
            train, held = draw.train.fold(number, self.folds)
            part = replace(draw, train=train, test=held)
            shared, steps = trained(method, part, self.protocol, self._first_stage, progress)
            errors.append(held.errors(shared, method.hard)["multiclass_error"])
        return {"multiclass_error": sum(errors) / len(errors), "folds": errors, "steps": steps}

    def collect(self) -> None:
        """All finished runs of this protocol as one file of results."""
        settings = {name: self.settings(method) for name, method in self.methods.items()}
        if self.folds and self.results.exists():  # other rates may have been tried before
            settings = {**read(self.results).get("protocol", {}), **settings}
        collect(self.runs, settings, {digest(each) for each in settings.values()})

    def stage_one(self, draw: Draw, progress: Progress = lambda: None) -> list[nn.Module]:
        """The single-task networks after the first stage, which four methods start from: trained once."""
        path = self.work / f"trained-{digest(asdict(self.protocol.first))}-{draw.fraction:g}-{draw.seed}.pt"
        if path.exists():
            nets = draw.networks(draw.shareable, 1.0)
            for net, state in zip(nets, torch.load(path), strict=True):
                net.load_state_dict(state)
            for _ in range(self.protocol.first.epochs):
                progress()
            return nets
        nets = self._first_stage(draw, progress)
        with beside(path) as part:
            torch.save([net.state_dict() for net in nets], part)
        return nets

    def _first_stage(self, draw: Draw, progress: Progress) -> list[nn.Module]:
        shared = tnt.share(draw.networks(draw.shareable, 1.0), layers={"*": "single"})
        fit(shared, 0, draw.train, self.protocol.first, draw.seed, progress)
        return shared.unshare()


def drawn_from(
    load: Callable[[Path], Callable[[float, int], Draw]], where: Path
) -> Callable[[float, int], Draw]:
    """Draws of data that are read when one is asked for, so that finished runs need none."""
    read = cache(load)
    return lambda fraction, seed: read(where)(fraction, seed)


def trained(
    method: Method,
    draw: Draw,
    protocol: Protocol,
    stage_one: Callable[[Draw, Progress], list[nn.Module]],
    progress: Progress = lambda: None,
) -> tuple[Shared, int]:
    """A method after both stages, and the steps it took; batches are the same for all methods."""
    first, second, seed = protocol.first, method.recipe(protocol.second), draw.seed
    if method.untrained:
        shared = tnt.share(draw.networks(method.hard, method.width), **method.share)
        steps = fit(shared, method.hard, draw.train, method.recipe(first), seed, progress)
    else:
        shared = tnt.share(stage_one(draw, progress), **method.share)
        steps = first.epochs * len(list(draw.train.batches(first.batch, torch.Generator())))
    steps += fit(shared, method.hard, draw.train, second, seed + 1000, progress)
    return shared, steps


def described(shared: Shared) -> dict[str, Any]:
    """The number of parameters and, for each layer, how much is shared and by whom: rho, mean cosine."""
    cosines, related = {}, {}
    for layer, gram in shared.similarity().items():
        first, second = np.triu_indices(len(gram), 1)
        pairs = gram[first, second]
        cosines[layer] = float(pairs.mean())
        ends = {"most": pairs.argmax(), "least": pairs.argmin()}
        related[layer] = {word: [int(first[n]), int(second[n])] for word, n in ends.items()}
    found: dict[str, Any] = {"parameters": sum(p.numel() for p in shared.parameters())}
    soft = {"sharing": shared.sharing(), "similarity": cosines, "related": related}
    return {**found, **soft} if cosines else found


def _by_draw(
    jobs: Sequence[tuple[Method, float, int]],
) -> Iterator[tuple[tuple[float, int], list[Method]]]:
    found: dict[tuple[float, int], list[Method]] = {}
    for method, fraction, seed in jobs:
        found.setdefault((fraction, seed), []).append(method)
    yield from found.items()


def _work(method: Method, fraction: float) -> int:
    """How long an epoch takes, roughly: 10,000 is one of single-task networks on all images."""
    return 1 + round(10_000 * fraction * method.width**2 * (1.0, 0.9, 0.3, 0.1)[min(method.hard, 3)])
