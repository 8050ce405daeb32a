"""Run jobs, keep what they find at once, and go on where a run was stopped."""

from __future__ import annotations

import gc
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from benchmarks.suites import Job

from .allocator import give_back
from .records import Records


def run(
    suite: str, jobs: Iterable[Job], kept: Records, seconds: float, bar: tqdm[None] | None = None
) -> None:
    """Do the jobs that are not done yet; one that fails is written down, and tried again by the next run."""
    done = kept.done(seconds)
    with imports_set_aside():
        for name, measure in jobs:
            if bar is not None:
                bar.set_postfix_str(f"{suite}: {name}"[:70], refresh=False)
            if (suite, name) not in done:
                start = time.perf_counter()
                try:
                    row = measure(seconds)
                except Exception as error:  # hours of others are not lost for one
                    tqdm.write(traceback.format_exc(), file=sys.stderr)
                    row = {"error": type(error).__name__}
                give_back()
                kept.add(
                    {
                        "suite": suite,
                        "name": name,
                        "budget": seconds,
                        "took": time.perf_counter() - start,
                        **row,
                    }
                )
            if bar is not None:
                bar.update()


@contextmanager
def imports_set_aside() -> Iterator[None]:
    """What is there stays, and is not looked through after each job, which would take a fifth of a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def progress(total: int) -> tqdm[None]:
    """A bar with the time left; every half minute a line, where nobody looks at it."""
    seen = sys.stderr.isatty()
    return tqdm(total=total, unit="job", mininterval=0.2 if seen else 30.0, dynamic_ncols=True)
