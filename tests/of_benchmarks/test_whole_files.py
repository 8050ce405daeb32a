"""Files of results are there as a whole or not at all; columns of tables are aligned."""

from __future__ import annotations

import pytest

from benchmarks.measuring.whole_files import beside, write_whole
from benchmarks.showing.cells import aligned


def test_a_file_that_is_not_finished_leaves_the_old_one_and_nothing_else(tmp_path):
    path = tmp_path / "folder" / "results.json"
    write_whole(path, "old")

    def stopped():
        with beside(path) as part:
            part.write_text("half")
            assert path.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert [found.name for found in path.parent.iterdir()] == ["results.json"]
    assert path.read_text() == "old"
    write_whole(path, "new")
    assert path.read_text() == "new"


def test_columns_are_as_wide_as_their_widest_cell():
    assert aligned([("a", "bb", ""), ("ccc", "d", "e")]) == "a    bb\nccc  d   e"
    assert aligned([("", "a", "b")]) == "  a  b"
