"""What is run has names of its own: nothing that a user or a file calls a thing is ever compiled."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator

import numpy as np
import pytest

import tnshare as tn
from tnshare.ops import numpy_ops
from tnshare.planning import WAYS
from tnshare.planning._generated_code import CALLS, program

OWN = re.compile(r"[fntk][1-9][0-9]*|_|x|ids|b|m|g|rows|back")
WORDS = {"def", "return", "del", "contract", "prepare", "shape", "mm", "bmm", "einsum", *CALLS}
SPELLED = {"(", ")", "[", "]", ",", "=", ":", ".", "*", "-"}
EQUATION = re.compile(r'"[a-zA-Z]*,[a-zA-Z]*->[a-zA-Z]*"')
NAMES = ("evil", "__import__", "ключ", "class", "contract", "t1", "os")
SPECS = {"laf": tn.LAF(2), "tucker": tn.Tucker((2, 2, 2)), "tt": tn.TT((2, 2))}

_compiled: list[object] = []
_watching: list[bool] = []


def _watch(event: str, args: tuple[object, ...]) -> None:
    if event == "compile" and _watching and args[1] == "<tnshare plan>":
        _compiled.append(args[0])


sys.addaudithook(_watch)  # which cannot be taken away, so it looks only while it is asked to


@pytest.fixture
def compiled() -> Iterator[list[object]]:
    """The texts of programs that are compiled meanwhile."""
    _compiled.clear()
    _watching.append(True)
    yield _compiled
    _watching.clear()


def foreign(text: str) -> list[str]:
    """The tokens of a text that are not in the grammar of programs."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        fits = {
            tokenize.NAME: token.string in WORDS or OWN.fullmatch(token.string),
            tokenize.NUMBER: token.string.isdigit(),
            tokenize.OP: token.string in SPELLED,
            tokenize.STRING: EQUATION.fullmatch(token.string),
            tokenize.INDENT: not token.string.strip(),
        }.get(token.type, token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.DEDENT, tokenize.ENDMARKER))
        found += [] if fits else [token.string]
    return found


def code_of(text: str) -> list[str]:
    """The lines of a text without its comments."""
    lines = (re.sub(r"\s*#.*", "", line) for line in text.splitlines())
    return [line for line in lines if line.strip()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def contract(f1, x):\n    t1 = matmul(f1, x)\n    return t1\n", []),
        ("def contract(U_i):\n    return U_i\n", ["U_i", "U_i"]),
        ("t1 = matmul(f1, x)  # (k_i)\n", ["# (k_i)"]),
        ('t1 = einsum("ab,bc->ac", f1, x)\n', []),
        ("t1 = 'a'\n", ["'a'"]),
        ("import os\n", ["import", "os"]),
    ],
)
def test_the_grammar_of_programs_can_fail(text: str, found: list[str]) -> None:
    assert foreign(text) == found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", SPECS)
def test_every_text_that_is_compiled_has_names_of_its_own(
    method: str, way: str, compiled: list[object]
) -> None:
    rng = np.random.default_rng(0)
    for n in range(len(NAMES) - 2):
        one, two, task = NAMES[n : n + 3]
        network = SPECS[method].network(**{one: 3, two: 4, task: 5 + n})
        tn.compose(network, {k: rng.normal(size=s) for k, s in network.shapes.items()})
        tn.compose(network, {k: rng.normal(size=s) for k, s in network.shapes.items()}, task=[0, 2])
    layer = tn.Linear(13, 4, tasks={"evil": 5}, spec=SPECS[method])
    params, x = layer.init(0), rng.normal(size=(5, 13))
    for training in (True, False):
        if way == "fan_out":
            tn.fan_out(layer, params, x, training=training)
        else:
            given = {"one": x, "mixed": x, "each": x[:, None]}[way]
            task = {"one": 3, "mixed": np.array([0, 1, 4, 4, 2])}.get(way)
            tn.apply(layer, params, given, task, training=training)
    assert compiled
    for text in compiled:
        assert isinstance(text, str | bytes)
        assert foreign(text if isinstance(text, str) else text.decode()) == []


@pytest.mark.parametrize("method", SPECS)
def test_what_is_shown_is_what_runs_with_comments_that_say_the_names(
    method: str, compiled: list[object]
) -> None:
    plan = tn.Linear(6, 4, tasks={"evil": 5}, spec=SPECS[method]).plan("mixed", batch=3)
    network = plan.network
    program.cache_clear()
    program(plan, numpy_ops)
    shown = plan.source()
    assert code_of(shown) in [
        code_of(text.decode() if isinstance(text, bytes) else str(text)) for text in compiled
    ]
    for n, node in enumerate(network.nodes, 1):
        own = node.name if node.name in ("x", "ids") else f"f{n}"
        assert f"    # {own} is {node.name}({', '.join(node.axes)})\n" in shown


@pytest.mark.parametrize(
    "name", ["x\n    import os\n#", "x)\nimport os\n#", "a b", "i'", "", "1", "a.b", "a-b", 3]
)
def test_names_that_are_code_are_refused_where_networks_are_made(name: str) -> None:
    with pytest.raises(tn.TnshareError, match="the name of an axis must be a Python identifier"):
        tn.Node("A", (name,), (2,))
    with pytest.raises(tn.TnshareError, match="the name of a node must be a Python identifier"):
        tn.Node(name, ("i",), (2,))
    network = tn.LAF(1).network(i=2, task=3)
    with pytest.raises(tn.TnshareError, match="must be a Python identifier"):
        network.rename("i", name)
    with pytest.raises(tn.TnshareError, match=r"must be a Python identifier|is not known"):
        network.feed("x", (name,), ("task",), **({name: 2} if isinstance(name, str) else {}))
    if isinstance(name, str):
        with pytest.raises(tn.TnshareError, match="must be a Python identifier"):
            tn.LAF(1).network(**{name: 2, "task": 3})
        with pytest.raises(tn.TnshareError, match="must be a Python identifier"):
            tn.decompose(np.ones((2, 3)), "laf", axes=(name, "task"))
