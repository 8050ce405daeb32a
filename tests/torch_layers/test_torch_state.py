"""State dicts carry the specification, through files too; what does not fit is said with the fix."""

from __future__ import annotations

import copy
import io
import warnings

import numpy as np
import pytest
import tnshare_torch as tnt
import torch
from tolerances import close
from torch import nn

import tnshare as tn
from tnshare.network import described, inferred, spec_of

SPECS = {
    "laf": tn.LAF(2),
    "tucker": tn.Tucker((3, 2, 2)),
    "tt": tn.TT((3, 2)),
    "ones": tn.LAF.hard_sharing(),
    "own": tn.LAF.with_codes(np.arange(10.0).reshape(2, 5)),
}


def linear(spec, tasks=5, size=6, seed=0):
    return tnt.Linear(size, 4, tasks, spec, seed=seed)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Linear(3, 4)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).mean(-1))


def nets(count=3, seed=0):
    torch.manual_seed(seed)
    made = tnt.replicate(Net(), count)
    with torch.no_grad():
        for parameter in (p for net in made for p in net.parameters()):
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def refusal(module, state, **options):
    with pytest.raises(RuntimeError) as caught:
        module.load_state_dict(state, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", SPECS)
def test_a_state_goes_through_a_file_and_has_the_layer_s_tensors_alone(name):
    one, other = linear(SPECS[name], seed=1), linear(SPECS[name], seed=2)
    state = through_a_file(one.state_dict())
    assert set(state) == {*one.description.shapes, *one.description.frozen}
    other.load_state_dict(state)
    x = torch.randn(2, 6)
    assert torch.equal(other(x, 3), one(x, 3))
    assert state._metadata[""]["tnshare"] == described(SPECS[name], one.description.network)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("rebuilt", [False, True], ids=["as saved", "a new dict"])
def test_other_ranks_name_the_layer_both_ranks_and_the_fix(rebuilt, strict):
    saved = nn.Sequential(nn.ReLU(), linear(tn.Tucker((3, 2, 2))))
    model = nn.Sequential(nn.ReLU(), linear(tn.Tucker((4, 2, 2))))
    state = through_a_file(saved.state_dict())
    text = refusal(model, dict(state) if rebuilt else state, strict=strict)
    assert (
        "1: saved with Tucker((3, 2, 2)), here Tucker((4, 2, 2)): "
        "make the layer with spec=tnshare.Tucker((3, 2, 2)) before loading." in text
    )
    assert text.count("saved with") == 1
    assert "size mismatch for 1.core" in text, "torch's own texts stay"


DIFFERENT = [
    (linear(tn.LAF(2)), linear(tn.TT((3, 2))), r"saved with LAF(2), here TT((3, 2))"),
    (
        linear(tn.LAF(2)),
        linear(tn.LAF(2), tasks=4),
        "tasks task=5, here task=4: make the layer of these sizes",
    ),
    (linear(tn.LAF(2)), linear(tn.LAF(2), size=7), "weights i=6, o=4, here i=7, o=4"),
    (linear(tn.LAF(1)), linear(tn.LAF.hard_sharing()), "saved with LAF(1), here LAF(1, codes=ones)"),
    (
        linear(tn.LAF.with_codes(np.ones((2, 5)))),
        linear(tn.LAF.with_codes(np.eye(2, 5))),
        "of other codes than here",
    ),
]


@pytest.mark.parametrize(("saved", "here", "text"), DIFFERENT)
def test_other_methods_sizes_and_codes_are_told(saved, here, text):
    assert text in refusal(here, saved.state_dict())


def test_a_state_without_a_layer_leaves_it_alone():
    saved, here = (
        nn.ModuleDict({"a": linear(spec, seed=n), "b": nn.Linear(2, 2)})
        for n, spec in enumerate(SPECS.values())
        if n < 2
    )
    state, before = saved.state_dict(), here["a"].state_dict()
    assert "a: saved with LAF(2), here Tucker((3, 2, 2))" in refusal(here, state, strict=False)
    for name in [name for name in state if name.startswith("a.")]:
        del state[name]
    here.load_state_dict(state, strict=False)
    assert torch.equal(here["b"].weight, saved["b"].weight)
    assert all(torch.equal(value, before[name]) for name, value in here["a"].state_dict().items())
    assert "saved with" not in refusal(here, state)


def test_factors_by_name_and_states_of_older_versions_load():
    layer = linear(tn.TT((3, 2)))
    d = tn.decompose(
        np.random.default_rng(0).standard_normal((6, 4, 5)), "tt", ranks=(3, 2), axes=("i", "o", "task")
    )
    layer.load_state_dict({"bias": layer.bias} | {n: torch.from_numpy(a) for n, a in d.factors.items()})
    close(layer.weight(3).detach().T, tn.compose(d.network, d.factors, task=3), 3 + 3 + 2)
    assert 'Missing key(s) in state_dict: "bias"' in refusal(
        layer, {n: torch.from_numpy(a) for n, a in d.factors.items()}
    )


@pytest.mark.parametrize("junk", [3, {}, {"method": "laf", "ranks": None}, {"method": []}])
def test_a_damaged_specification_is_told(junk):
    layer = linear(tn.LAF(2))
    state = layer.state_dict()
    state._metadata[""]["tnshare"] = junk
    assert "Linear: its specification in the state is damaged; use another copy" in refusal(layer, state)


def test_copies_of_a_state_and_keywords_of_state_dict():
    layer = linear(tn.LAF(2))
    state = copy.deepcopy(layer.state_dict(prefix="a."))
    assert state._metadata["a"]["tnshare"]["ranks"] == [2]
    own = {}
    layer.state_dict(destination=own)
    assert set(own) == {"L", "S", "bias"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empty = tnt.Linear(6, 4, 5, tn.LAF(2), device="meta")
        empty.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(empty(torch.ones(1, 6), 1), layer(torch.ones(1, 6), 1))


@pytest.mark.parametrize("rebuilt", [False, True], ids=["as saved", "a new dict"])
@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_a_shared_network_tells_other_ranks_by_weight(method, rebuilt):
    ranks = {"laf": (2, 1), "tucker": ((2, 3, 2), (2, 2, 1)), "tt": ((2, 2), (1, 1))}[method]
    saved, here = (
        tnt.share(nets(), "single", layers={"head.weight": {"method": method, "ranks": r}}) for r in ranks
    )
    state = through_a_file(saved.state_dict())
    text = refusal(here, dict(state) if rebuilt else state, strict=not rebuilt)
    one, other = (spec_of(shared.networks["head.weight"]) for shared in (saved, here))
    assert f"Shared: saved with head.weight {one!r}, here {other!r}: share the networks with layers=" in text
    assert text.count("saved with") == 1
    setting = eval(text.split("layers=")[1].split(".\n")[0].rstrip("."))
    again = tnt.share(nets(seed=1), "single", layers=setting)
    again.load_state_dict(state)
    x = torch.randn(2, 2, 5)
    assert torch.equal(again.eval()(x, 1), saved.eval()(x, 1))


def test_other_kinds_of_sharing_are_told():
    saved = tnt.share(nets(), "laf", ranks=2, layers={"conv": "hard", "head": "single"})
    here = tnt.share(nets(), "laf", ranks=2, layers={"conv.weight": "single"})
    text = refusal(here, saved.state_dict())
    assert "conv.weight hard, here single: share the networks with layers={'conv.weight': 'hard'}" in text
    assert "head.weight single, here LAF(2): share the networks with layers={'head.weight': 'single'}" in text


def test_another_number_of_tasks_is_told_and_the_fix_works():
    saved, here = (tnt.share(nets(), "laf", ranks=2) for _ in range(2))
    saved.add_task()
    saved.add_task(nets(4)[3])
    text = refusal(here, saved.state_dict())
    assert "Shared: saved with 5 tasks, here 3: call add_task() 2 times before loading" in text
    here.add_task()
    here.add_task()
    here.load_state_dict(saved.state_dict())
    saved.remove_task(1)
    assert "saved with 4 tasks, here 5: call remove_task(t) 1 times" in refusal(here, saved.state_dict())


def test_tasks_of_other_names_are_told():
    saved, here = (tnt.share(dict(zip(names, nets(), strict=True)), "laf") for names in ("abc", "acb"))
    assert "tasks ('a', 'b', 'c'), here ('a', 'c', 'b'): share the networks in that order" in refusal(
        here, saved.state_dict()
    )
    tnt.share(nets(), "laf").load_state_dict(saved.state_dict())


def test_one_more_task_leaves_all_that_was_saved_of_the_others():
    shared = tnt.share(nets(), "tucker", eps=0)
    before = copy.deepcopy(shared.state_dict())
    shared.add_task()
    after = shared.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert before._metadata[""] == after._metadata[""]


@pytest.mark.parametrize("spec", [tn.LAF(2), tn.Tucker((2, 3, 2)), tn.TT((2, 2))])
def test_a_network_tells_its_specification_and_shapes_tell_ranks(spec):
    network = spec.network(i=4, o=3, task=5)
    assert spec_of(network) == spec
    other = type(spec)(tuple(1 for _ in spec.ranks))
    assert inferred(other, other.network(i=2, o=2, task=2), network.shapes) == described(spec, network)
    assert inferred(spec, network, {}) == described(spec, network)
