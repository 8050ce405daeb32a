"""Trees that nobody has thought of, shared without loss: they come back. `tests/deep/trees.py` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jax")

import random_trees


@pytest.mark.parametrize("seed", range(8))
def test_a_random_tree_comes_back(seed: int, tmp_path: Path) -> None:
    assert not random_trees.verdict(seed, tmp_path).startswith("BROKEN")


def test_most_random_trees_are_shared(tmp_path: Path) -> None:
    found = [random_trees.verdict(seed, tmp_path) for seed in range(100, 106)]
    assert found.count("right") >= 3, found
