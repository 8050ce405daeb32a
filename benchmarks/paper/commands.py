"""What can be asked for on the command line, and which runs that means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from . import mnist, omniglot
from .methods import Method, chosen

Job = tuple[Method, float, int]


@dataclass(frozen=True)
class Options:
    """Of the command line; None is what the experiment says."""

    full: bool
    data: Path
    results: Path
    work: Path
    fractions: Sequence[float] | None = None
    seeds: Sequence[int] | None = None
    methods: Sequence[str] = ()

    def jobs(self, methods: Sequence[Method], fractions: Sequence[float], seeds: Sequence[int]) -> list[Job]:
        """Every method on every draw: seeds first, so that what is finished is complete for some of them."""
        quick_fractions, quick_seeds = fractions[:1], seeds[:1]
        few = fractions if self.full else quick_fractions
        some = seeds if self.full else quick_seeds
        draws = product(self.fractions or few, self.seeds or some)
        return [(method, fraction, seed) for fraction, seed in draws for method in methods]


def run_mnist(options: Options) -> None:
    """Ten digits."""
    methods = chosen(mnist.methods(), options.methods)
    jobs = options.jobs(methods, mnist.FRACTIONS, list(mnist.SEEDS))
    mnist.experiment(options.work, options.results).go(jobs, mnist.load(options.data))


def run_omniglot(options: Options) -> None:
    """Fifty alphabets."""
    methods = chosen(omniglot.methods(), options.methods)
    jobs = options.jobs(methods, (0.1, *omniglot.FRACTIONS), list(omniglot.SEEDS))
    omniglot.experiment(options.work, options.results).go(jobs, omniglot.load(options.data))


COMMANDS: dict[str, Callable[[Options], None]] = {"mnist": run_mnist, "omniglot": run_omniglot}
