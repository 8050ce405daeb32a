"""What tasks may be called: anything that can be read, of at most 200 characters."""

from __future__ import annotations

import pytest

import tnshare as tn
from tnshare.models import Roster


@pytest.mark.parametrize(
    "name", ["a", "user 7", "ключ/ä/日本/🦆", "a'b", "import os", "", "x" * 200, "a\u00a0b"]
)
def test_names_that_can_be_read(name: str) -> None:
    assert Roster.of({name: 0, "other": 1}, "trees").names == (name, "other")
    assert Roster(1, ("other",)).grown(name).names == ("other", name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a\nb", r"the names of tasks must be strings of printable characters: found 'a\\nb'"),
        ("\0", "must be strings of printable characters"),
        ("a\u202eb", "must be strings of printable characters"),
        ("\ud800", "must be strings of printable characters"),
        ("x" * 201, "the names of tasks must have at most 200 characters: found 201, 'xxxx"),
    ],
)
def test_names_that_cannot_be_read_are_refused(name: str, text: str) -> None:
    with pytest.raises(tn.TnshareError, match=text):
        Roster.of({name: 0, "other": 1}, "trees")
    with pytest.raises(tn.TnshareError, match=text):
        Roster(1, ("other",)).grown(name)
