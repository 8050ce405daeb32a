"""The tree itself: nothing of one machine in it, small functions, examples that run."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_OF_A_FUNCTION = 45  # lines; a longer one is looked at
SKIPPED = {".git", ".hypothesis", "__pycache__", "build", "dist"}

# Written so that no pattern finds itself.
LOCAL = {
    "a home directory": r"(?<![\w.])/(?:home|Users)/\w|(?<![\w./])/ro[o]t\b",
    "a drive": r"\b[A-Za-z]:(?:\\{1,2}|/)(?:Users|Windows|Program|Documents|home|[a-z]+\\)",
    "a local URL": r"\bfile:/|\b(?:local[h]ost|127\.0\.0\.1|0\.0\.0\.0)\b|\[::1\]",
    "a private network": r"//(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+",
    "a private host": r"://[^\s/'\"]*\.(?:local|internal|intranet|lan|corp|home)\b",
    "a private registry": r"(?i)artifac[t]ory|jfr[o]g|nexu[s]|devp[i]|codeartifac[t]|azurec[r]|\bpkg\.dev",
    "another index": r"(?i)index[-_]url(?!\S*\s*=?\s*[\"']?https://(?:pypi\.org|download\.pytorch\.org)/)",
}


def tracked_files() -> list[Path]:
    """The files that git tracks; outside of a checkout all files that are no product of a tool."""
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode == 0 and run.stdout:
        return [ROOT / name for name in run.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and not _is_product(path)]


def _is_product(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    tools = (".venv", "_cache", ".egg-info")
    return any(part in SKIPPED or part.startswith(tools) or part.endswith(tools) for part in parts)


def local_things(text: str) -> list[str]:
    """What in a text is of use on one machine only."""
    found = [f"{kind}: {m[0]!r}" for kind, pattern in LOCAL.items() for m in re.finditer(pattern, text)]
    if len(ROOT.parts) > 2 and str(ROOT) in text:
        found.append(f"this checkout: {str(ROOT)!r}")
    return found


def python_blocks(text: str) -> list[str]:
    """The examples of a Markdown text, each preceded by empty lines so that errors name its own lines."""
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in blocks]


def run_blocks(path: Path) -> int:
    """Run all examples of a file one after the other in one namespace."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    blocks = python_blocks(path.read_text())
    for block in blocks:
        exec(compile(block, str(path), "exec"), namespace)
    return len(blocks)


def functions(source: str) -> Iterator[tuple[str, int]]:
    """The functions of a module with their lengths, docstrings not counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            docstring = isinstance(first, ast.Expr) and ast.get_docstring(node) is not None
            spared = (first.end_lineno or 0) - first.lineno + 1 if docstring else 0
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - spared


def sources() -> list[Path]:
    return sorted(
        path for room in ("tnshare", "backends", "benchmarks") for path in (ROOT / room).rglob("*.py")
    )


def documents() -> list[Path]:
    return [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]


def test_no_tracked_file_knows_the_machine_it_was_written_on():
    files = tracked_files()
    assert ROOT / "pyproject.toml" in files
    assert len(files) > 30
    found = {}
    for path in files:
        try:
            things = local_things(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:  # a picture, say
            continue
        if things:
            found[str(path.relative_to(ROOT))] = things
    assert found == {}, "say it without this machine: a path within the checkout, a host of example.org"


# Each in two parts, so that this file itself passes.
@pytest.mark.parametrize(
    ("start", "rest"),
    [
        ("/home", "/ann/data"),
        ("see /Users", "/ann"),
        ("(/ro", "ot/.cache"),
        ("C:", "\\Users\\ann"),
        ("C:", "\\\\Users\\\\ann"),
        ("d:/ho", "me/ann"),
        ("file:", "///tmp/x"),
        ("http://local", "host:8000"),
        ("http://127.0", ".0.1/"),
        ("http://192.168", ".1.7:80/"),
        ("http://10.0", ".0.7/simple"),
        ("https://pypi.company", ".internal/simple"),
        ("https://company.jf", "rog.io"),
        ("pip install --index-", "url https://pypi.company.com/simple"),
        ("extra-index-", "url = 'http://mirror/'"),
        (str(ROOT.parent), f"/{ROOT.name}"),
    ],
)
def test_the_check_for_local_things_can_fail(start, rest):
    assert local_things(f"text {start}{rest} text")


@pytest.mark.parametrize(
    "text",
    [
        "https://pypi.org/simple",
        "--index-" + "url https://download.pytorch.org/whl/cpu",
        "the square/root of https://example.org/root/home/x",
        "numpy>=2.0, torch==2.10.0.1, 10.0.2",
        "print('so:\\n', x)",
        "a/home/run, rooted, .venv/bin/python",
    ],
)
def test_the_check_for_local_things_can_pass(text):
    assert local_things(text) == []


def test_no_function_is_long():
    lengths = {(str(path), name): n for path in sources() for name, n in functions(path.read_text())}
    assert len(lengths) > 100
    long = {where: n for where, n in lengths.items() if n > MOST_OF_A_FUNCTION}
    assert long == {}, f"over {MOST_OF_A_FUNCTION} lines without docstring: give a part of it a name"


def test_a_function_is_measured_without_its_docstring():
    source = 'class A:\n  def f(self):\n    """One.\n\n    Two.\n    """\n    x = 1\n    return x'
    assert list(functions(source)) == [("f", 3)]
    assert list(functions("async def g():\n    x = 'no docstring'\n    return x")) == [("g", 3)]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_the_examples_in_the_documents_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = len(re.findall(r"```\s*python\b", path.read_text()))
    assert run_blocks(path) == found, "some are not run: begin and end each in the first column, by ```python"


def test_examples_share_a_namespace_and_can_fail(tmp_path):
    document = tmp_path / "document.md"
    document.write_text(
        "# T\n```python\nx = 1\n```\ntext\n```sh\nfalse\n```\n```python\nassert x == 1\n```\n"
    )
    assert run_blocks(document) == 2
    document.write_text("# T\n```python\nx = 1\n```\ntext\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as caught:
        run_blocks(document)
    assert caught.traceback[-1].lineno + 1 == 7
