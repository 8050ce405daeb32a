"""Measurements of tnshare: `python -m benchmarks NAME ...`; `python -m benchmarks NAME --help` says more."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from benchmarks.showing.cells import aligned
from benchmarks.suites import FULL


class Command(NamedTuple):
    """A module with a ``main`` that takes the rest of the line, and what it is for."""

    module: str
    purpose: str


COMMANDS = {
    "suites": Command("suites.__main__", "contract or materialise, and peers; what is meant without a name"),
    "yours": Command("yours", "the same for one linear layer of your own"),
    "share": Command("suites.shared_networks", "ten shared networks against ten plain ones"),
    "planner": Command("planner.__main__", "the planner against layers written by hand, einsum and others"),
    "profile": Command("planner.profile_errors", "how well a profile predicts times"),
    "decisions": Command("planner.decisions", "whether two checkouts choose the same plans"),
    "compare": Command("suites.two_checkouts", "how long two checkouts take, in turns"),
    "paper": Command("paper.__main__", "the paper's experiments, and the page on them"),
    "report": Command("showing.page", "the page and figures of a file of results, again"),
    "cite": Command("showing.citing", "the numbers that documents cite, and put those of new runs in place"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Hand over to the command that is named first; a suite's name, an option or nothing means the suites."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given[0] if given else "suites"
    if name in ("-h", "--help"):
        print(overview())
        return
    if name in COMMANDS:
        given = given[1:]
    elif name in FULL or name.startswith("-"):
        name = "suites"
    else:
        raise SystemExit(f"error: no command or suite is called {name!r}: there are\n\n{overview()}")
    import_module(f"benchmarks.{COMMANDS[name].module}").main(given)


def overview() -> str:
    """The commands, each with what it is for, and the suites."""
    lines = [("", name, command.purpose) for name, command in COMMANDS.items()]
    return f"{__doc__}\n\n{aligned(lines)}\n\nsuites: {', '.join(FULL)}"


if __name__ == "__main__":
    main()
