"""Tests are marked by the room they are in."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_test_is_marked_by_its_folder(request):
    for item in request.session.items:
        marks = [mark.name for mark in item.iter_markers()]
        assert item.path.relative_to(TESTS).parts[0] in marks, (
            f"{item.nodeid}: put it into a folder of tests/"
        )


def test_every_folder_with_tests_is_a_known_mark(request):
    known = {line.split(":")[0] for line in request.config.getini("markers")}
    folders = {path.parent.name for path in TESTS.rglob("test_*.py")}
    assert {"house", "network", "planning"} <= folders <= known
