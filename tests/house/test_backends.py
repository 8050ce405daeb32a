"""Adapters are found by name, and say what they need when their framework is not there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tnshare as tn
from tnshare.ops import Ops

FRAMEWORKS = {"torch": "PyTorch", "jax": "JAX"}


def printed(code: str, **env: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **env}
    )
    return run.stdout.strip()


def caught(statement: str, without: str = "") -> str:
    """A program that prints the error of a statement, with a framework made absent."""
    absent = f"sys.modules[{without!r}] = None" if without else ""
    report = "except Exception as e: print(f'{type(e).__name__}: {e}')"
    return f"import sys\n{absent}\ntry: {statement}\n{report}"


def test_our_own_adapters_are_found():
    assert {"jax", "torch"} <= set(tn.backends.names())


def test_names_are_sorted_and_need_no_framework():
    code = "import sys; sys.modules['torch'] = sys.modules['jax'] = None\n"
    code += "import tnshare; print(*tnshare.backends.names())"
    assert printed(code).split() == sorted(tn.backends.names())


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_adapter_is_loaded_with_all_operations_that_the_core_asks_for(name):
    pytest.importorskip(name)
    adapter = tn.backends.load(name)
    assert adapter.__name__ == f"tnshare_{name}"
    asked = [operation for operation in vars(Ops) if not operation.startswith("_")]
    assert "matmul" in asked
    assert [operation for operation in asked if not callable(getattr(adapter.ops, operation, None))] == []


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_everything_that_an_adapter_promises_is_there(name):
    pytest.importorskip(name)
    adapter = tn.backends.load(name)
    assert [promise for promise in adapter.__all__ if not hasattr(adapter, promise)] == []


@pytest.mark.parametrize("name", ["tensorflow", "", "Torch", None])
def test_an_unknown_name_says_which_there_are(name):
    with pytest.raises(tn.TnshareError) as caught:
        tn.backends.load(name)
    assert str(caught.value) == f"no backend is called {name!r}: expected one of {tn.backends.names()}"


@pytest.mark.parametrize("how", ["import tnshare_{0}", "import tnshare; tnshare.backends.load('{0}')"])
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_adapter_without_its_framework_says_what_to_install(name, how):
    expected = f'ImportError: tnshare_{name} needs {FRAMEWORKS[name]}: pip install "tnshare[{name}]"'
    assert printed(caught(how.format(name), without=name)) == expected


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_broken_framework_is_not_taken_for_an_absent_one(name, tmp_path):
    (tmp_path / f"{name}.py").write_text("import something_it_needs")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    error = printed(caught(f"import tnshare_{name}"), PYTHONPATH=path)
    assert error == "ModuleNotFoundError: No module named 'something_it_needs'"


def test_the_adapter_of_somebody_else_is_found(tmp_path, monkeypatch):
    (tmp_path / "toy_adapter.py").write_text("ops = 'toy'")
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tnshare.backends]\ntoy = toy_adapter\n")
    assert "toy" not in tn.backends.names()
    monkeypatch.syspath_prepend(tmp_path)
    assert "toy" in tn.backends.names()
    assert tn.backends.load("toy").ops == "toy"
