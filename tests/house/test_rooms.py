"""The order of the rooms: who may import whom, through which door, and how much lies in one of them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# From the lowest to the highest: what lies higher may import what lies lower. A place is a module, or a
# folder with all that is in it but the places of its own; "" is the door of the package.
ORDER = {
    "tnshare": (
        *("errors", "checks backends _atomic_write", "network", "ops", "planning", "decomposition"),
        *("execution", "layers", "models files", "", "testing"),
    ),
    "tnshare_torch": ("_ops", "layers", "shared.template", "shared.running", "shared.paths", "shared", ""),
    "tnshare_jax": ("_ops", "layers", "shared", "nnx equinox", ""),
}
OPEN = ("tnshare.testing",)  # a room whose modules are public
LINES, FILES = 420, 20


def modules(root: Path, *packages: str) -> dict[str, Path]:
    """The Python files of packages, by the names that they are imported by."""
    found = {}
    for base in (root, root / "backends"):
        for path in sorted(p for package in packages for p in (base / package).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """The modules that a file imports, wherever in it and for whatever, with the name taken of each."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join([*start, *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{target}.{alias.name}"
                yield (inner, "") if inner in known else (target, alias.name)


def place(module: str) -> tuple[int, str]:
    """The level of a module, and the place that it is in; the longest name of a place counts."""
    package, _, inside = module.partition(".")
    every = [(level, name) for level, names in enumerate(ORDER[package]) for name in names.split() or [""]]
    fitting = [(level, name) for level, name in every if f"{inside}.".startswith(f"{name}.")]
    if not fitting:
        raise LookupError(f"{module} is in no place of the order")
    return max(fitting, key=lambda found: len(found[1]))


def upward(root: Path) -> list[str]:
    """Imports of what does not lie lower, but for those inside of a place, and of the core by adapters."""
    known, found = modules(root, *ORDER), set()
    for name, path in known.items():
        for target, _ in imports(name, path, known):
            package = target.partition(".")[0]
            if package == name.partition(".")[0]:
                (own, here), (level, there) = place(name), place(target)
                allowed = level < own or here == there
            else:
                allowed = package not in ORDER or package == "tnshare"
            if not allowed:
                found.add(f"{name} imports {target}")
    return sorted(found)


def past_doors(root: Path) -> list[str]:
    """Imports of another room's private modules and private names."""
    known = modules(root, *ORDER, "benchmarks", "examples")
    found = set()
    for name, path in known.items():
        for target, taken in imports(name, path, known):
            package, room, *rest = (*target.split("."), "")
            if package in ORDER and [package, room] != [*name.split("."), ""][:2]:
                foreign = [room] if package != name.partition(".")[0] else []
                hidden = [part for part in (*foreign, *rest, taken) if part.startswith("_")]
                found |= {f"{name} takes {part} of {target}" for part in hidden}
    return sorted(found)


def public_modules(root: Path) -> list[str]:
    """Modules in a room that do not say that they are private."""
    rooms = {name: path for name, path in modules(root, *ORDER).items() if not name.startswith(OPEN)}
    inside = {name: path.name for name, path in rooms.items() if path.name != "__init__.py"}
    return sorted(name for name, file in inside.items() if name.count(".") > 1 and not file.startswith("_"))


def twice(root: Path) -> list[str]:
    """Base names that a package has several times."""
    found = []
    for package in ORDER:
        names = (path.stem.strip("_") for path in modules(root, package).values() if path.stem != "__init__")
        found += [f"{package}: {name}" for name, count in Counter(names).items() if count > 1]
    return sorted(found)


def namesakes(root: Path) -> list[str]:
    """Public functions and classes that are called as a public module of their package is."""
    found = []
    for package in ORDER:
        known = modules(root, package)
        public = {name.rpartition(".")[2] for name in known if "." in name and "._" not in name}
        for name, path in known.items():
            top = ast.parse(path.read_text()).body
            defined = [node.name for node in top if isinstance(node, ast.FunctionDef | ast.ClassDef)]
            found += [f"{name}.{own}" for own in defined if own in public & exported(root, package)]
    return sorted(found)


def exported(root: Path, package: str) -> set[str]:
    """The names that the doors of a package offer."""
    doors = [path for path in modules(root, package).values() if path.name == "__init__.py"]
    top = [node for path in doors for node in ast.parse(path.read_text()).body]
    lists = [
        node.value
        for node in top
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return {name for names in lists for name in ast.literal_eval(names)}


def crowded(root: Path) -> list[str]:
    """Folders with too many files, and files with too many lines."""
    rooms = ("tnshare", "backends", "benchmarks", "tests")
    every = [path for room in rooms for path in (root / room).rglob("*.py")]
    files = Counter(path.parent for path in every)
    lines = {path: len(path.read_text().splitlines()) for path in every}
    long = [f"{path.relative_to(root)}: {n} lines" for path, n in lines.items() if n > LINES]
    full = [f"{folder.relative_to(root)}: {n} files" for folder, n in files.items() if n > FILES]
    return sorted(long + full)


CHECKS = (upward, past_doors, public_modules, twice, namesakes, crowded)


@pytest.mark.parametrize("check", CHECKS)
def test_the_house_is_in_order(check):
    assert len(modules(ROOT, *ORDER)) > 100
    assert check(ROOT) == []


TREE = {
    "tnshare/__init__.py": "from .planning import plan",
    "tnshare/errors.py": "",
    "tnshare/network/__init__.py": "from ._nodes import Node",
    "tnshare/network/_nodes.py": "from tnshare.errors import Error\nclass Node: pass",
    "tnshare/planning/__init__.py": "from ._plans import plan\n__all__ = ['plan', 'network']",
    "tnshare/planning/_plans.py": "from tnshare.network import Node\nfrom .devices._known import known",
    "tnshare/planning/devices/__init__.py": "",
    "tnshare/planning/devices/_known.py": "import numpy, tnshare.network",
    "tnshare/testing/__init__.py": "from .laws import law",
    "tnshare/testing/laws.py": "import tnshare as tn",
    "backends/tnshare_torch/__init__.py": "from tnshare_torch.layers import Linear",
    "backends/tnshare_torch/_ops/__init__.py": "",
    "backends/tnshare_torch/layers/__init__.py": "import torch, tnshare\nfrom tnshare_torch._ops import ops",
    "backends/tnshare_torch/shared/__init__.py": "from .running._tasks import run",
    "backends/tnshare_torch/shared/running/_tasks.py": "from tnshare_torch.shared.template._made import made",
    "backends/tnshare_torch/shared/template/_made.py": "",
    "benchmarks/speed.py": "from tnshare.testing.laws import law\nimport tnshare_torch as tnt",
}


@pytest.mark.parametrize("check", CHECKS)
def test_a_small_house_is_in_order(check, tmp_path):
    build(tmp_path, {})
    assert check(tmp_path) == []


NODES, PLANS, LOW = (
    "tnshare/network/_nodes.py",
    "tnshare/planning/_plans.py",
    "tnshare.network._nodes imports ",
)
FAILING = [
    (upward, NODES, "import tnshare.planning", LOW + "tnshare.planning"),
    (upward, NODES, "from tnshare import planning", LOW + "tnshare.planning"),
    (upward, NODES, "from ..planning import plan", LOW + "tnshare.planning"),
    (upward, NODES, "import tnshare", LOW + "tnshare"),
    (upward, NODES, "from tnshare.testing import law", LOW + "tnshare.testing"),
    (upward, NODES, "import tnshare_torch", LOW + "tnshare_torch"),
    (upward, NODES, "if TYPE_CHECKING:\n  import tnshare.planning", LOW + "tnshare.planning"),
    (upward, NODES, "def f():\n  import tnshare.planning", LOW + "tnshare.planning"),
    (
        upward,
        "backends/tnshare_torch/shared/running/_tasks.py",
        "from tnshare_torch.shared import share",
        "tnshare_torch.shared.running._tasks imports tnshare_torch.shared",
    ),
    (upward, "backends/tnshare_jax/nnx.py", "import tnshare_torch", "tnshare_jax.nnx imports tnshare_torch"),
    (
        past_doors,
        PLANS,
        "from tnshare.network._nodes import Node",
        "tnshare.planning._plans takes _nodes of tnshare.network._nodes",
    ),
    (
        past_doors,
        PLANS,
        "from tnshare.network import _secret",
        "tnshare.planning._plans takes _secret of tnshare.network",
    ),
    (
        past_doors,
        "benchmarks/speed.py",
        "from tnshare_torch._ops import ops",
        "benchmarks.speed takes _ops of tnshare_torch._ops",
    ),
    (public_modules, "tnshare/planning/steps.py", "", "tnshare.planning.steps"),
    (twice, "tnshare/planning/devices/_plans.py", "", "tnshare: plans"),
    (namesakes, PLANS, "def network(): pass", "tnshare.planning._plans.network"),
    (crowded, PLANS, "\n" * (LINES + 1), f"{PLANS}: {LINES + 1} lines"),
]


@pytest.mark.parametrize(("check", "file", "text", "found"), FAILING)
def test_the_checks_can_fail(check, file, text, found, tmp_path):
    build(tmp_path, {file: text})
    assert check(tmp_path) == [found]


def test_a_full_folder_is_seen(tmp_path):
    build(tmp_path, {f"tests/laws/test_{n}.py": "" for n in range(FILES)})
    assert crowded(tmp_path) == []
    build(tmp_path, {f"tests/laws/test_{FILES}.py": ""})
    assert crowded(tmp_path) == ["tests/laws: 21 files"]


def test_a_room_without_a_place_is_seen(tmp_path):
    build(tmp_path, {"tnshare/plot/_curves.py": "import tnshare"})
    with pytest.raises(LookupError, match=r"tnshare\.plot\._curves is in no place"):
        upward(tmp_path)


def build(root: Path, more: dict[str, str]) -> None:
    """A small house, with some files in the place of its own or besides."""
    for name, text in {**TREE, **more}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
