"""Values that come from another process are found where equal ones of this process were put."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

NETWORK = "tn.LAF(2).network(i=3, o=4, task=5)"
VALUES = {
    "network": f"import tnshare as tn\nvalue = {NETWORK}",
    "plan": f"import tnshare as tn\nvalue = tn.Plan.flop_optimal({NETWORK})",
    "structure": "import tnshare_jax as tnj, jax.numpy as jnp\n"
    "trees = [{'w': jnp.full((3, 4), t + 1.0)} for t in range(3)]\n"
    "value = tnj.share(trees, method='laf', ranks=1).structure",
}
PUT = "\nimport pickle, sys\nhash(value)\nsys.stdout.buffer.write(pickle.dumps(value))"


@pytest.mark.parametrize("name", VALUES)
def test_values_of_another_process_hash_as_they_do_here(name):
    if name == "structure":
        pytest.importorskip("tnshare_jax", exc_type=ImportError)
    here: dict[str, object] = {}
    exec(VALUES[name], here)
    seeds = {"PYTHONHASHSEED": "7" if os.environ.get("PYTHONHASHSEED") != "7" else "8"}
    there = subprocess.run(
        [sys.executable, "-c", VALUES[name] + PUT],
        capture_output=True,
        check=True,
        env={**os.environ, **seeds},
    )
    value = pickle.loads(there.stdout)
    assert value == here["value"]
    assert hash(value) == hash(here["value"])
