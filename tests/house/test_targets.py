"""The Makefile's targets: CI and hooks call them, and the documents name no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_hooks_are_targets_and_nothing_is_fetched():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {(hook["language"], hook["pass_filenames"]) for hook in hooks} == {("system", False)}
    assert {hook["entry"] for hook in hooks} == {"make lint", "make quick"}


def test_ci_runs_what_the_readme_says():
    assert "make test\n" in (ROOT / ".ci" / "run").read_text()
    assert re.search(r"`make test`|^    make test\b", (ROOT / "README.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "Makefile"]
)
def test_targets_that_documents_name_are_there(page):
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`make ([a-z][\w-]*)", text)) | set(
        re.findall(r"^    make ([a-z-]+)", text, re.MULTILINE)
    )
    assert named - TARGETS == set(), "say which targets there are: see the Makefile"


def test_targets_are_phony():
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(phony.split()) == TARGETS
