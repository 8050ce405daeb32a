"""The paper's experiments: train, go on where it stopped, tabulate, plot."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import platformdirs
import torch

from benchmarks.measuring.allocator import keep_memory
from benchmarks.measuring.options import count, error, positive, seed, share, threads, told
from benchmarks.measuring.options import folder as place
from benchmarks.measuring.records import RESULTS

from . import commands
from .data import folder


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one experiment, or write the report on all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks paper", description=__doc__)
    parser.add_argument("experiment", choices=commands.COMMANDS, help="what to run")
    parser.add_argument("--full", action="store_true", help="the paper's protocol; else a quick version")
    parser.add_argument("--data", help="folder of the data (TNSHARE_DATA, or the user's cache)")
    parser.add_argument("--fractions", type=share, nargs="+", help="of the images for training, as 0.01")
    parser.add_argument("--seeds", type=seed, nargs="+", help="which draws")
    parser.add_argument("--methods", nargs="+", default=[], help="by their names in the report")
    parser.add_argument("--folds", type=count, default=0, help="cross-validate: hold out one part of so many")
    parser.add_argument("--repeats", type=count, default=0, help="on how many of the parts (all)")
    parser.add_argument("--rates", type=positive, nargs="+", default=[], help="of Adam, to cross-validate")
    parser.add_argument("--eps", type=error, nargs="+", default=[], help="of soft sharing, to cross-validate")
    parser.add_argument("--threads", type=threads, default=1, help="of torch (1)")
    parser.add_argument("--results", type=place, default=RESULTS / "paper")
    parser.add_argument("--work", type=place, default=Path(platformdirs.user_cache_dir("tnshare")) / "paper")
    options = parser.parse_args(arguments)
    if (options.rates or options.eps or options.repeats) and not options.folds:
        parser.error("--rates, --eps and --repeats are of a cross-validation: give --folds too")
    torch.set_num_threads(options.threads)
    keep_memory()
    with told():
        commands.run(
            options.experiment,
            commands.Options(
                full=options.full,
                data=folder(options.data),
                results=options.results,
                work=options.work,
                fractions=options.fractions,
                seeds=options.seeds,
                methods=options.methods,
                folds=options.folds,
                repeats=options.repeats,
                rates=options.rates,
                eps=options.eps,
            ),
        )


if __name__ == "__main__":
    main()
