"""Random pytrees: the shared one gives what those that were given give, or says what it cannot."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")
pytest.importorskip("tnshare_jax")
for library in ("flax", "equinox", "haiku"):
    pytest.importorskip(library)

import random_trees  # noqa: E402
from random_trees import drawn, outcome  # noqa: E402

SEEDS = (1, 3, 9, 21, 26, 27)
FAILED: tuple[int, ...] = ()  # seeds that failed once stay here


@pytest.mark.parametrize("seed", [*SEEDS, *FAILED])
def test_random_trees(seed):
    found = outcome(seed)
    assert found.kind != "failed", f"{found.text}\n{drawn(seed).text}"


def test_what_is_wrong_is_found(monkeypatch):
    """A shared tree that swaps its tasks fails."""
    right = random_trees.tnj.share
    monkeypatch.setattr(random_trees.tnj, "share", lambda trees, **options: right(trees[::-1], **options))
    assert outcome(26).kind == outcome(9).kind == "failed"
