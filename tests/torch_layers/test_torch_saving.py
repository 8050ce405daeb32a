"""tnshare.save and load of layers and shared networks, without pickles: whole or refused."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest
import tnshare_torch as tnt
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn

import tnshare as tn


class Net(nn.Module):
    def __init__(self, head=4):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Linear(3, head)
        self.tied = nn.Linear(3, 2)
        self.again = nn.Linear(3, 2)
        self.again.weight = self.tied.weight

    def forward(self, x):
        x = self.norm(self.conv(x)).mean(-1)
        return self.head(x), self.tied(x), self.again(x)


def nets(*heads, seed=0):
    torch.manual_seed(seed)
    first = Net()
    made = []
    for head in heads or (4, 4, 4):
        net = Net(head)
        same = {n: v for n, v in first.state_dict().items() if "head" not in n}
        net.load_state_dict(same, strict=False)
        made.append(net)
    with torch.no_grad():
        for parameter in (p for net in made for p in net.parameters()):
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def outputs(shared, x):
    shared.eval()
    with torch.no_grad():
        return [part for t in range(len(shared.tasks)) for part in shared(x, t)]


def same(ours, theirs):
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shared.safetensors"


CASES = {
    "laf": ({}, nets),
    "hard": ({"layers": {"conv": "hard"}}, nets),
    "heads": ({}, lambda: nets(4, 2, 5)),
    "names": ({}, lambda: dict(zip(("a", "b", "ü"), nets(), strict=True))),
    "all single": ({"only": ("tied",)}, nets),
}


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
@pytest.mark.parametrize("case", CASES)
def test_a_shared_network_comes_back_from_a_file_and_one_network(path, case, method):
    options, make = CASES[case]
    shared = tnt.share(make(), method, eps=0, **options)
    shared.train()(torch.randn(5, 2, 6), 1)  # running statistics of one task differ
    shared.add_task(*(() if case != "heads" else (nets(4)[0],)), **({"name": "d"} if shared.names else {}))
    x = torch.randn(3, 2, 6)
    expected = outputs(shared, x)
    tn.save(path, shared)
    state = tn.load(path)
    assert isinstance(state, tn.State)
    assert state.names == tuple(shared.names)
    again = tnt.restore(Net(), state)
    assert again.names == shared.names
    assert same(outputs(again, x), expected)
    assert {n: p.shape for n, p in again.named_parameters()} == {
        n: p.shape for n, p in shared.named_parameters()
    }
    assert again.specification() == shared.specification()
    again.load_state_dict(shared.state_dict())
    sum(y.sum() for y in again.train()(x, 1)).backward()
    assert all(p.grad is not None for p in again.shared_parameters())
    assert math.isnan(next(d for d in state.entries.values() if isinstance(d, tn.Decomposition)).error)


def test_precision_and_what_is_trained_are_those_of_the_network(path):
    shared = tnt.share([net.bfloat16() for net in nets()], "laf", ranks=2)
    tn.save(path, shared.state())
    net = Net().bfloat16()
    net.conv.requires_grad_(False)
    again = tnt.restore(net, tn.load(path))
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16}
    x = torch.randn(3, 2, 6, dtype=torch.bfloat16)
    assert same(outputs(again, x), outputs(shared, x))
    assert {n.split("/")[0].split(".")[-1] for n, p in again.named_parameters() if not p.requires_grad} == {
        "conv"
    }
    double = tnt.restore(Net().double(), tn.load(path))
    assert {p.dtype for p in double.parameters()} == {torch.float64}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("spec", [tn.Tucker((3, 2, 2)), tn.LAF.evgeniou_pontil(5), tn.TT((2, 2))], ids=repr)
def test_a_layer_comes_back(path, spec, bias):
    layer, other = (tnt.Linear(6, 4, 5, spec, bias=bias, seed=seed) for seed in (1, 2))
    tn.save(path, layer)
    other.load_state(tn.load(path))
    assert same(list(other.state_dict().values()), list(layer.state_dict().values()))
    fresh = tnt.Linear(6, 4, 5, spec, bias=not bias)
    with pytest.raises(tn.TnshareError, match=r"expected the state of a layer, with \('weight'"):
        fresh.load_state(tn.load(path))
    with pytest.raises(tn.TnshareError, match=r"a decomposition by LAF\(1\) .* was expected"):
        tnt.Linear(6, 4, 5, tn.LAF(1), bias=bias).load_state(tn.load(path))


WRONG = [
    (
        lambda s: tnt.restore(nn.Linear(2, 2), s),
        r"another architecture: found \['again.bias'.* only in it, \['bias', ",
    ),
    (
        lambda s: tnt.restore(Net(), {"a": 1}),
        "state of a shared model was expected, as tnshare.load gives it: found dict",
    ),
    (
        lambda s: tnt.restore(Net(5), s),
        r"head.weight has shape \(4, 3\) in the state, but \(5, 3\) in the network",
    ),
    (lambda s: tnt.restore(Net(), tn.State(s.entries, s.tasks[:2])), r"one number of tasks: found \[2, 3\]"),
    (lambda s: tnt.restore(Net(), tn.State(s.entries, s.tasks, ("a",))), r"found \[3\], and 1 names"),
    (
        lambda s: tnt.restore(Net(), tn.State(s.entries)),
        "of a shared model was expected.*found that of a layer",
    ),
]


@pytest.mark.parametrize(("attempt", "text"), WRONG)
def test_a_state_of_something_else_is_refused(attempt, text):
    with pytest.raises(tn.TnshareError, match=text):
        attempt(tnt.share(nets(), "laf", ranks=2).state())


def test_a_damaged_file_of_a_state_is_refused_whatever_the_damage(path):
    tn.save(path, tnt.share(nets(), "laf", ranks=2))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in (*rng.integers(0, len(whole), 60).tolist(), len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(tn.TnshareError, match=r"damaged|not one that tnshare\.save wrote|upgrade"):
            tn.load(path)
    for length in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(tn.TnshareError, match="damaged or not a tnshare file"):
            tn.load(path)


CONTENTS = [
    {"format": 2, "entries": []},
    {"format": 2, "entries": [], "tasks": [3], "names": []},
    {"format": 2, "entries": [], "tasks": [[{"name": "a"}]], "names": []},
    {"format": 2, "entries": [], "tasks": [], "names": 3},
]


@pytest.mark.parametrize("content", CONTENTS)
def test_strange_contents_are_refused(path, content):
    text = json.dumps(content)
    save_file({}, path, {"tnshare": text, "sha256": hashlib.sha256(text.encode()).hexdigest()})
    with pytest.raises(tn.TnshareError, match="is damaged: its description makes no sense"):
        tn.load(path)


def test_foreign_files_are_refused(path):
    torch.save({"a": torch.zeros(2)}, path)
    with pytest.raises(tn.TnshareError, match="damaged or not a tnshare file"):
        tn.load(path)
    save_file({"a": np.zeros(2)}, path)
    with pytest.raises(tn.TnshareError, match=r"a safetensors file, but not one that tnshare\.save wrote"):
        tn.load(path)


def test_what_is_no_state_is_refused(path):
    class Odd:
        def state(self):
            return [1]

    for obj, found in ((Odd(), "list"), (nn.Linear(2, 2), "Linear"), (Odd, "type")):
        with pytest.raises(tn.TnshareError, match=f"a dict of them, or a state: found {found}"):
            tn.save(path, obj)
    assert not path.exists()
    with pytest.raises(tn.TnshareError, match="names must be strings"):
        tn.save(path, tn.State({}, (), (3,)))


def test_everything_is_written_in_format_two_and_what_tasks_have_is_stacked(path):
    own = {"b": np.zeros(3), "h": np.zeros(2)}, {"b": np.ones(3), "h": np.ones(4)}
    state = tn.State({}, own, ("x", "y"))
    for obj in (np.zeros(2), {"a": np.zeros(2)}, tn.State({"a": np.zeros(2)}), state):
        tn.save(path, obj)
        with safe_open(path, "np") as file:
            content = json.loads(file.metadata()["tnshare"])
            shapes = [tuple(file.get_tensor(name).shape) for name in sorted(file.keys())]
        assert content["format"] == 2
        assert [tuple(one["shape"]) for one in content["arrays"]] == shapes
    assert shapes == [(2, 3), (2,), (4,)]
    found = tn.load(path)
    assert [list(task) for task in found.tasks] == [["b", "h"], ["b", "h"]]
    np.testing.assert_array_equal(found.tasks[1]["h"], np.ones(4))


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_a_network_whose_tasks_were_removed_and_added_comes_back(path, method):
    """Ranks may then be larger than there are tasks."""
    shared = tnt.share(nets(), method, eps=0)
    x = torch.randn(3, 2, 6)
    for change in (lambda: shared.remove_task(0), lambda: shared.remove_task(1), lambda: shared.add_task()):
        change()
        tn.save(path, shared)
        again = tnt.restore(Net(), tn.load(path))
        assert len(again.tasks) == len(shared.tasks)
        assert same(outputs(again, x), outputs(shared, x))
