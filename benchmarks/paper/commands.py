"""What can be asked for on the command line, and which runs that means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import tnshare as tn
from benchmarks.paper.pages.published import THOUSAND
from benchmarks.paper.training.experiment import Draw, Experiment, drawn_from
from benchmarks.paper.training.methods import Method, chosen, variants

from .experiments import adience, mnist, new_tasks, omniglot, ratios, table1
from .pages import claims, console, whole_page

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
    folds: int = 0
    repeats: int = 0
    rates: Sequence[float] = ()
    eps: Sequence[float] = ()

    def draws(
        self, quick: float, fractions: Sequence[float], seeds: Sequence[int]
    ) -> list[tuple[float, int]]:
        """Fractions and seeds: all of the paper's, or for a quick version the first seed of one fraction."""
        some = fractions if self.full else [quick]
        return list(product(self.fractions or some, self.seeds or (seeds if self.full else seeds[:1])))


def run_mnist(options: Options) -> None:
    """Ten digits, each against the rest."""
    experiment = mnist.experiment(options.work, options.results)
    draws = options.draws(0.01, mnist.FRACTIONS, mnist.SEEDS)
    _run(options, experiment, draws, mnist.load, mnist.QUICK)


def run_mnist_validated(options: Options) -> None:
    """The same digits, with rates chosen by cross-validation on the images of the fraction alone."""
    experiment = mnist.validated(options.work, options.results)
    draws = options.draws(0.01, (0.01,), mnist.SEEDS)
    _run(options, experiment, draws, mnist.load, mnist.QUICK)


def run_mnist_jax(options: Options) -> None:
    """The same digits and methods in JAX."""
    from .training import jax_digits  # the others need no JAX

    methods = chosen(mnist.methods(), options.methods or (() if options.full else mnist.QUICK))
    draws = options.draws(0.01, mnist.FRACTIONS, mnist.SEEDS)
    jax_digits.run(options.data, options.work, options.results, methods, draws)
    print(console.table(options.results / "mnist-jax.json"))


def run_omniglot(options: Options) -> None:
    """Fifty alphabets."""
    experiment = omniglot.experiment(options.work, options.results)
    draws = options.draws(0.1, omniglot.FRACTIONS, omniglot.SEEDS)
    picture, before = options.results / "alphabets.png", len(experiment.runs.rows())
    _run(options, experiment, draws, omniglot.load, omniglot.QUICK)
    if len(experiment.runs.rows()) > before or not picture.exists():
        omniglot.draw_alphabets(experiment, options.data, picture)


def run_adience(options: Options) -> None:
    """Age and gender, where somebody has the faces."""
    experiment = adience.experiment(options.work, options.results)
    draws = options.draws(adience.QUICK_FRACTION, adience.FRACTIONS, adience.SEEDS)
    _run(options, experiment, draws, adience.load, adience.QUICK)


def run_new_tasks(options: Options) -> None:
    """Alphabets that a shared network has not seen."""
    seeds = [seed for _, seed in options.draws(0.1, [0.1], new_tasks.SEEDS)]
    new_tasks.run(options.data, options.work, options.results, seeds)
    print(console.table(options.results / "new-tasks.json"))


def run_table1(options: Options) -> None:
    """Classic methods on the features of digits."""
    table1.run(options.data, options.work, options.results, options.draws(0.01, [0.01], mnist.SEEDS))
    print(console.table(options.results / "table1.json"))


def run_thousand(options: Options) -> None:
    """Soft sharing and the classic methods with 1,000 digits."""
    few = replace(options, fractions=[THOUSAND], methods=options.methods or claims.SOFT)
    run_mnist(few)
    run_table1(few)


def run_ratios(options: Options) -> None:
    """Parameters that factors keep."""
    ratios.run(options.data, options.work, options.results, options.draws(0.01, [0.01], mnist.SEEDS))
    print(console.table(options.results / "ratios.json"))


def run_report(options: Options) -> None:
    """One page of all results."""
    print(f"wrote {whole_page.write(options.results).name}")


def _run(
    options: Options,
    experiment: Experiment,
    draws: Sequence[tuple[float, int]],
    load: Callable[[Path], Callable[[float, int], Draw]],
    quick: Sequence[str],
) -> None:
    """Every method on every draw, draw by draw, so that what is finished can be compared."""
    names = options.methods or (() if options.full else quick)
    methods = chosen(experiment.methods, names)
    if options.folds:
        methods = variants(methods, options.rates, options.eps)
        named = {method.name: method for method in methods}
        experiment = experiment.validating(options.folds, options.repeats or options.folds, named)
    jobs = [(method, fraction, seed) for fraction, seed in draws for method in methods]
    experiment.go(jobs, drawn_from(load, options.data))
    print(console.table(experiment.results))


@dataclass(frozen=True)
class Command:
    """What is run, and which options it takes beside those of the machine and of folders."""

    run: Callable[[Options], None]
    takes: Sequence[str]


_DRAWS = ("full", "fractions", "seeds")
_TRAINED = (*_DRAWS, "methods", "folds", "repeats", "rates", "eps")
COMMANDS = {
    "mnist": Command(run_mnist, _TRAINED),
    "mnist-validated": Command(run_mnist_validated, _TRAINED),
    "mnist-jax": Command(run_mnist_jax, (*_DRAWS, "methods")),
    "omniglot": Command(run_omniglot, _TRAINED),
    "adience": Command(run_adience, _TRAINED),
    "new-tasks": Command(run_new_tasks, ("full", "seeds")),
    "table1": Command(run_table1, _DRAWS),
    "thousand": Command(run_thousand, ("full", "seeds", "methods")),
    "ratios": Command(run_ratios, _DRAWS),
    "report": Command(run_report, ()),
}


def run(name: str, options: Options) -> None:
    """A command, with no option that it would leave unread."""
    command = COMMANDS[name]
    given = [option for option in _TRAINED if getattr(options, option)]
    for option in given:
        if option not in command.takes:
            takes = ", ".join(f"--{each}" for each in command.takes) or "none of these options"
            raise tn.TnshareError(f"{name} has no use for --{option}: expected {takes}")
    command.run(options)
