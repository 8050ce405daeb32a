"""Options of the paper's commands that have no meaning are refused."""

from __future__ import annotations

import pytest

from benchmarks.paper.__main__ import main


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("table1 --methods STL", "table1 has no use for --methods: expected --full, --fractions, --seeds"),
        ("table1 --folds 3", "table1 has no use for --folds: expected --full, --fractions, --seeds"),
        ("ratios --methods STL", "ratios has no use for --methods"),
        ("new-tasks --fractions 0.3", "new-tasks has no use for --fractions: expected --full, --seeds"),
        ("new-tasks --methods STL", "new-tasks has no use for --methods"),
        (
            "mnist-jax --folds 3",
            "mnist-jax has no use for --folds: expected --full, --fractions, --seeds, --methods",
        ),
        ("thousand --folds 3 --rates 1e-3", "thousand has no use for --folds"),
        ("report --full", "report has no use for --full: expected none of these options"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(given, told, tmp_path):
    with pytest.raises(SystemExit, match=f"error: {told}"):
        main([*given.split(), "--results", str(tmp_path / "r"), "--work", str(tmp_path / "w")])
    assert not list(tmp_path.iterdir())
