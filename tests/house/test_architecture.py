"""The map of the house: what it names is there, and every room is on it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"


def paths_in(text: str) -> set[str]:
    """The files and folders that a page names by their whole path."""
    return set(re.findall(r"`((?:tnshare|backends|benchmarks|tests)/[\w/.]*)`", text))


def missing(text: str, root: Path) -> list[str]:
    """Those that are not there, and modules in backticks that are in none of the rooms."""
    names = {
        path.name
        for room in ("tnshare", "backends", "benchmarks", "tests")
        for path in (root / room).rglob("*.py")
    }
    shorter = set(re.findall(r"`(?:\w+/)*(\w+\.py)`", text))
    return sorted(path for path in paths_in(text) if not (root / path).exists()) + sorted(shorter - names)


def test_every_path_on_the_map_is_there():
    text = PAGE.read_text()
    assert len(paths_in(text)) > 30
    assert missing(text, ROOT) == [], "docs/architecture.md names what is gone: say where it lies now"


def test_every_room_is_on_the_map():
    rooms = {f"tnshare/{p.name}/" for p in (ROOT / "tnshare").iterdir() if (p / "__init__.py").exists()}
    assert len(rooms) > 8
    assert rooms <= paths_in(PAGE.read_text()), "a room is missing in docs/architecture.md"


def test_the_check_can_fail(tmp_path):
    (tmp_path / "tnshare").mkdir()
    (tmp_path / "tnshare" / "here.py").touch()
    text = "`tnshare/here.py`, `tnshare/gone.py`, `here.py`, `room/lost.py`"
    assert missing(text, tmp_path) == ["tnshare/gone.py", "gone.py", "lost.py"]


def test_moved_modules_are_found_where_the_changelog_says():
    rows = re.findall(r"^\| (`.*`) \| `([\w.]+)` \|$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    old = [name for names, _ in rows for name in re.findall(r"`([\w.]+)`", names)]
    assert len(old) == len(set(old)) > 100
    for _, new in rows:
        importlib.import_module(new)
