"""Programs of these benchmarks, run with the tnshare of another checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from tempfile import TemporaryDirectory

from tnshare.errors import TnshareError

from .records import ROOT

_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_WHERE = "import pathlib, tnshare; print(pathlib.Path(tnshare.__file__).parents[1].resolve())"


def checkout(text: str) -> Path:
    """The folder of a checkout, whose tnshare is what Python imports there."""
    path = Path(text).resolve()
    if not (path / "tnshare" / "__init__.py").is_file():
        raise ArgumentTypeError(f"must be the folder of a checkout of tnshare: found {text}")
    found = run_in(path, "-c", _WHERE).strip()
    if found != str(path):
        raise ArgumentTypeError(f"must be imported from where it lies: {text} is hidden by {found}")
    return path


def run_in(where: Path, *arguments: str, quiet: bool = True) -> str:
    """What Python prints, with the tnshare of a checkout, the benchmarks of this one, and an empty cache.

    So both sides of a comparison are measured by the same code. It may only use what both of them have: the
    public names of tnshare and its adapters.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / "benchmarks").symlink_to(ROOT / "benchmarks")
        paths = (folder, str(where), str(where / "backends"))
        own = {"PYTHONPATH": os.pathsep.join(paths), "TNSHARE_CACHE": str(Path(folder) / "cache")}
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=folder,
            env=os.environ | dict.fromkeys(_ONE_THREAD, "1") | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
            check=False,
        )
    if done.returncode:
        raise TnshareError(f"{' '.join(arguments)} failed with the tnshare of {where}\n{done.stderr or ''}")
    return done.stdout
