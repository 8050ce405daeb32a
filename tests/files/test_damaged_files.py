"""Files that are damaged, crafted or somebody else's: the numbers that were saved, or a TnshareError.

`tests/deep/files.py` does the same by the thousand.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import damaged_files
import kinds_of_files
import law_of_files
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import tnshare as tn
from tnshare.files._state import Keys

# Prime numbers of seeds, so that every mutation has its turn with every kind.
SEEDS = {"decomposition": 180, "dict": 90, "array": 90, "state": 180, "older dict": 90, "older state": 90}
FRAMEWORKS = {"torch layer": "torch", "torch shared": "torch", "jax layer": "jax", "jax tree": "jax"}
COUNT = 54


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.mark.parametrize("name", [*SEEDS, *FRAMEWORKS])
def test_damaged_files_give_the_numbers_that_were_saved_or_are_refused(name: str, tmp_path: Path) -> None:
    if name in FRAMEWORKS:
        pytest.importorskip(FRAMEWORKS[name])
    (kind,) = kinds_of_files.kinds(name)
    others = law_of_files.every_file(kinds_of_files.kinds(*kinds_of_files.PLAIN), tmp_path)
    judge = law_of_files.Judge(kind, tmp_path, others)
    found = {seed: judge.of_seed(seed) for seed in range(SEEDS.get(name, COUNT))}
    broken = {seed: what for seed, what in found.items() if what[1].startswith("BROKEN")}
    assert broken == {}
    assert {"original", "refused"} <= {verdict for _, verdict in found.values()}


def test_the_law_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (kind,) = kinds_of_files.kinds("array")
    judge = law_of_files.Judge(kind, tmp_path)
    whole = damaged_files.Damaged(judge.data, "nothing")
    assert judge.verdict(whole) == "original"

    def verdict_of(read: object) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(tn, "load", read)
            return judge.verdict(whole)

    kept: list[np.ndarray] = []
    code = damaged_files.CODE[2]
    assert verdict_of(lambda path: np.zeros(3)) == "BROKEN: other numbers"
    assert verdict_of(lambda path: 1 / 0).startswith("BROKEN: ZeroDivisionError")
    assert verdict_of(lambda path: exec(code)) == "BROKEN: ran code from the file"
    assert verdict_of(lambda path: compile(code, "x", "exec")).startswith(
        "BROKEN: compiled text from the file"
    )
    assert "MB beyond a file" in verdict_of(lambda path: kept.append(np.ones(2**25 + 2**24)))


# What is refused, and in which words


def seal(path: Path, change: object) -> None:
    """Change the description of a file, and make its sums good."""
    data = path.read_bytes()
    content = damaged_files.described(data)
    change(content)  # type: ignore[operator]
    path.write_bytes(damaged_files.sealed(data, content))


def _set(*keys: object, to: object) -> object:
    def change(content: object) -> None:
        for key in keys[:-1]:
            content = content[key]  # type: ignore[index]
        content[keys[-1]] = to  # type: ignore[index]

    return change


ENTRY = ("entries", 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_set(*ENTRY, "factors", 0, "axes", 0, to="x\nimport os"), "the factors are not those of tucker"),
        (_set(*ENTRY, "factors", 0, "name", to="Core"), "the factors are not those of tucker"),
        (_set(*ENTRY, "factors", 0, "shape", to=[2, 2, 4]), "factor 'core' is described with another shape"),
        (_set(*ENTRY, "factors", 0, "array", to=1), "factor 'core' is described with another shape"),
        (_set(*ENTRY, "factors", 0, "array", to=99), "factor 'core' is described with another shape"),
        (_set(*ENTRY, "ranks", to=[2, 3]), "2 ranks and 1 tasks over 3 axes"),
        (_set(*ENTRY, "ranks", to=[2, 3, -1]), r"ranks\[2\] is -1, which is no size"),
        (_set(*ENTRY, "ranks", to=[2, 3, 10**400]), r"ranks\[2\] is a number of 1329 bits, which is no size"),
        (_set(*ENTRY, "ranks", to=[2, 3, True]), "is True, which is no size"),
        (_set(*ENTRY, "method", to="cp"), "method 'cp' over 3 axes makes no network"),
        (
            _set(*ENTRY, "kind", to="base"),
            r"holds '' of the kind 'base', which this tnshare does not know: .*upgrade",
        ),
        (_set(*ENTRY, "output", to=["d1", "d2"]), "makes no network|3 ranks and 0 tasks over 2 axes"),
        (_set(*ENTRY, "more", to=1), "has 'more', which nothing here has"),
        (_set(*ENTRY, "error", to="large"), "an error is 'large'"),
        (_set(*ENTRY, "name", to="a\nb"), "names must be strings of printable characters: found 'a.nb'"),
        (_set(*ENTRY, "name", to="a" * 201), "names must have at most 200 characters: found 201, 'aaa"),
        (_set("holds", to="all"), "it holds 'all', of 1 entries"),
        (
            _set("arrays", 0, "dtype", to="float32"),
            "array 0 is described as float32 .*, and stored as another",
        ),
        (_set("arrays", 0, "dtype", to="object"), "an array has dtype 'object'"),
        (_set("arrays", 0, "rows", to=0), "array 0 has . checksums"),
        (_set("arrays", 0, "sums", to=[]), "array 0 has 0 checksums"),
        (_set("arrays", to=[]), "it describes 0 arrays, and holds 4|is described with another shape"),
        (_set("format", to="2"), "format is '2' where int was expected"),
        (_set("format", to=[[[[2]]]]), r"format is \[\[\[\[2\]\]\]\] where int was expected"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused_in_words(path: Path, change: object, text: str) -> None:
    stack = np.random.default_rng(0).standard_normal((3, 4, 5))
    tn.save(path, tn.decompose(stack, "tucker", ranks=(2, 3, 2)))
    seal(path, change)
    with pytest.raises(tn.TnshareError, match=text):
        tn.load(path)


def test_numbers_that_belong_to_nothing_are_refused(path: Path) -> None:
    """An entry that was taken out of the description, whose array is still there."""
    tn.save(path, {"one": np.ones(2), "two": np.ones(3)})
    seal(path, lambda content: content["entries"].pop())
    with pytest.raises(tn.TnshareError, match="it has arrays that belong to nothing"):
        tn.load(path)


def _as_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def _as_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps({"a": 1}))


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (_as_zip, "not a tnshare file: a zip archive, as torch.save and numpy.savez write"),
        (lambda path: path.write_bytes(pickle.dumps([1])), "not a tnshare file: a pickle"),
        (lambda path: path.write_bytes(b"GGUF" + bytes(90)), "not a tnshare file: a GGUF file"),
        (_as_array, "not a tnshare file: an array of numpy.save"),
        (lambda path: path.write_bytes(b""), "not a tnshare file: it has no header of a safetensors file"),
        (lambda path: path.write_bytes(b"\xff" * 99), "not a tnshare file: it has no header"),
        (lambda path: save_file({"w": np.ones(2)}, path), "but not one that tnshare.save wrote"),
        (lambda path: save_file({"w": np.ones(2)}, path, {"format": "pt"}), "but not one that tnshare.save"),
    ],
)
def test_files_of_other_makers_are_refused_by_name(path: Path, write: object, text: str) -> None:
    write(path)  # type: ignore[operator]
    with pytest.raises(tn.TnshareError, match=text):
        tn.load(path)


@pytest.mark.parametrize("ours", [False, True])
def test_a_large_file_of_somebody_else_is_refused_at_once_and_not_read(path: Path, ours: bool) -> None:
    size = 600_000_000
    table = {"w": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}
    metadata = {"tnshare": json.dumps({"format": 2}), "sum": "0"} if ours else {"format": "pt"}
    path.write_bytes(damaged_files.joined({"__metadata__": metadata, **table}, b""))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)  # which takes no room on the disk
    found, wrong = law_of_files.measured(lambda: tn.load(path), 0)
    assert isinstance(found, tn.TnshareError)
    assert wrong == ""


def test_bits_that_flip_in_any_block_of_rows_are_found(path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((3000, 128)).astype(np.float32)  # 1.5 MB
    tn.save(
        path, {"large": array, "scalar": np.array(3.0), "none": np.zeros((0, 3)), "flat": np.zeros((3, 0))}
    )
    data = path.read_bytes()
    content = damaged_files.described(data)
    assert [(one["rows"], len(one["sums"])) for one in content["arrays"]] == [
        (2048, 2),
        (1, 1),
        (1, 0),
        (3, 1),
    ]
    for place in (len(data) - 1, len(data) - 1_500_000, len(data) // 2):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(tn.TnshareError, match="is damaged: its checksum does not fit; use another copy"):
            tn.load(path)
    path.write_bytes(data)
    np.testing.assert_array_equal(tn.load(path)["large"], array)
    with safe_open(path, "np") as file:  # any reader of safetensors opens it
        np.testing.assert_array_equal(file.get_tensor("0"), array)


@pytest.mark.parametrize(
    "name", ["a\nb", "\0", "x" * 201, 3, None, b"a", "\ud800", "a\u202eb", "\u2028", "\x85"]
)
def test_names_that_cannot_be_read_are_not_written(path: Path, name: object) -> None:
    for obj in ({name: np.zeros(2)}, tn.State({name: np.zeros(2)}), tn.State({}, ({name: np.zeros(2)},) * 2)):
        with pytest.raises(tn.TnshareError, match="names must"):
            tn.save(path, obj)
    with pytest.raises(tn.TnshareError, match="names must"):
        tn.save(path, tn.State({}, ({},), (name,)))
    assert not path.exists()


def test_factors_that_do_not_fit_their_network_are_not_written(path: Path) -> None:
    spec = tn.LAF(1)
    factors = {"L": np.zeros((1, 3)), "S": np.zeros((2, 1))}
    d = tn.Decomposition(spec, spec.network(i=2, task=2), factors, 0.0, 0.0)
    with pytest.raises(
        tn.TnshareError, match=r"factors of the shapes .*'L': \(1, 2\).* were expected under 'w'"
    ):
        tn.save(path, {"w": d})
    assert not path.exists()


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_a_network_with_more_ranks_than_tasks_comes_back(path: Path, method: str) -> None:
    """As is left when tasks are removed."""
    d = tn.decompose(np.random.default_rng(0).standard_normal((4, 4, 4)), method, eps=0)
    network = d.network.for_tasks(1)
    node = next(node for node in network.nodes if network.is_coded(node))
    fewer = tn.Decomposition(d.spec, network, {**d.factors, node.name: d.factors[node.name][:1]}, 0.0, 0.0)
    for kept in (fewer, tn.State({"w": fewer}, ({},))):
        tn.save(path, kept)
        found = tn.load(path)
        again = found if isinstance(kept, tn.Decomposition) else found.entries["w"]
        assert (again.spec, again.network) == (d.spec, network)
        np.testing.assert_array_equal(
            tn.compose(again.network, again.factors), tn.compose(network, fewer.factors)
        )


@pytest.mark.parametrize("words", [("fry", "fry"), ("", ""), ("", "fry"), ("fry", None)])
def test_keys_come_back_as_keys_whatever_their_word(path: Path, words: tuple[str | None, ...]) -> None:
    """Seed 9,458 of the fuzzer: two keys with no word came back as arrays."""
    numbers = [np.arange(n, n + 2, dtype=np.uint32) for n in range(2)]
    given = tuple(n if w is None else Keys(w, n) for w, n in zip(words, numbers, strict=True))
    tn.save(path, tn.State({}, ({}, {}), constants={"key": given}))
    for one, n, word in zip(tn.load(path).constants["key"], numbers, words, strict=True):
        assert (one.implementation if isinstance(one, Keys) else None) == word
        np.testing.assert_array_equal(one.numbers if isinstance(one, Keys) else one, n)
