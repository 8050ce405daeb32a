"""Misuse of torch's layers and of shared networks."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
from misused import catalogue, refused

import tnshare as tn

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

from torch import nn  # noqa: E402

NAN = math.nan


@pytest.fixture(scope="module")
def world() -> SimpleNamespace:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return made()


def made() -> SimpleNamespace:
    layer = tnt.Linear(5, 4, tasks=3, spec=tn.Tucker((3, 2, 2)))
    nets = networks(3)
    image = torch.randn(6, 2, 5, 5)
    w = SimpleNamespace(
        layer=layer, conv=tnt.Conv2d(2, 4, 3, tasks=3, spec=tn.LAF(2)), conv1=tnt.Conv1d(2, 4, 3, tasks=3, spec=tn.LAF(2)),
        conv3=tnt.Conv3d(2, 4, 3, tasks=3, spec=tn.LAF(2)), table=tnt.Embedding(7, 4, tasks=3, spec=tn.LAF(2)),
        x=torch.randn(6, 5), ids=torch.tensor([0, 1, 2, 2, 1, 0]), image=image, tokens=torch.tensor([0, 6, 3]),
        nets=nets, net=nets[0], shared=tnt.share(nets, eps=0.0),
        named=tnt.share(dict(zip("abc", nets, strict=True)), ranks=(2, 2, 2), only=["0"]),
        alone=tnt.share(nets[:1], eps=0.0), stack=np.random.default_rng(0).standard_normal((5, 4, 3)),
    )  # fmt: skip
    w.other = nn.Linear(5, 4)
    w.state, w.shared_state = layer.state(), w.shared.state()
    w.code = w.shared.code(0).detach()
    return w


def networks(count: int, out: int = 4) -> list[nn.Module]:
    first = nn.Sequential(OrderedDict([("0", nn.Linear(5, 6)), ("act", nn.Tanh()), ("1", nn.Linear(6, out))]))
    found = tnt.replicate(first, count)
    for net in found:
        for parameter in net.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return found


def linear(*args, **keywords):
    given = {"tasks": 3, "spec": tn.LAF(2), **keywords}
    return lambda w: tnt.Linear(*(args or (5, 4)), **given)


def conv(kind=tnt.Conv2d, kernel=3, **keywords):
    return lambda w: kind(2, 4, kernel, **{"tasks": 3, "spec": tn.LAF(2), **keywords})


def table(**keywords):
    return lambda w: tnt.Embedding(
        **{"num_embeddings": 7, "embedding_dim": 4, "tasks": 3, "spec": tn.LAF(2), **keywords}
    )


def call(change=lambda w: w.x, task=1, name="layer"):
    return lambda w: getattr(w, name)(change(w), task(w) if callable(task) else task)


def share(change=lambda w: w.nets, *args, **keywords):
    return lambda w: tnt.share(change(w), *args, **keywords)


def other(w, change):
    """A network like the others but for what the change does to it."""
    net = copy.deepcopy(w.net)
    return change(net) or net


def with_other(change):
    return share(lambda w: [*w.nets, other(w, change)])


def state_dict(name, change):
    """A state dict of a module, changed, loaded again."""

    def load(w):
        state = getattr(w, name).state_dict()
        state.update({key: tensor + 1 for key, tensor in state.items()})  # none of which may be taken over
        change(state)
        getattr(w, name).load_state_dict(state)

    return load


def not_a_number(net):
    net[0].weight.data.fill_(NAN)


def replaced(**new):
    return lambda state: state.update({key: value(state[key]) for key, value in new.items()})


CONSTRUCTORS = catalogue(
    ("Linear of no inputs", r"in_features must be .*: found 0", linear(0, 4)),
    ("Linear of a tensor of outputs", r"out_features must be .*: found", linear(5, torch.tensor(2.5))),
    ("Linear of tasks=True", r"tasks must be a whole number.*: found True", linear(tasks=True)),
    ("Linear of no tasks", r"tasks must be a whole number.*: found 0", linear(tasks=0)),
    ("Linear of a method's name", r"spec must be a factorisation .*: found 'tt'", linear(spec="tt")),
    ("Linear of bias=None", r"bias must be True or False: found None", linear(bias=None)),
    ("Linear of an unknown strategy", r"strategy must be one of \('auto', 'factored', 'materialised', 'autotune'\): found 'materialized'", linear(strategy="materialized")),
    ("Linear of a strategy in capitals", r"strategy must be one of .*: found 'Factored'", linear(strategy="Factored")),
    ("Linear of a strategy of share", r"strategy must be one of .*: found 'vmap'", linear(strategy="vmap")),
    ("Linear of no strategy", r"strategy must be one of .*: found None", linear(strategy=None)),
    ("Linear of a list of strategies", r"strategy must be one of .*: found \['auto'\]", linear(strategy=["auto"])),
    ("Linear of a memory limit of 0", r"memory_limit=0 is too little for 6 rows .*: the smallest that works is \d+ bytes", lambda w: linear(memory_limit=0)(w)(w.x, 1)),
    ("Linear of a negative memory limit", r"memory_limit must be .*: found -1", linear(memory_limit=-1)),
    ("Linear of a memory limit in words", r"memory_limit must be .*: found '1GB'", linear(memory_limit="1GB")),
    ("Linear of a memory limit of 1e9", r"memory_limit must be .*: found 1000000000\.0", linear(memory_limit=1e9)),
    ("Linear of a memory limit of True", r"memory_limit must be .*: found True", linear(memory_limit=True)),
    ("Linear planned for nothing", r"plan_for must be one or more numbers of rows: found \(\)", linear(plan_for=())),
    ("Linear planned for 0 rows", r"plan_for must be .*: found 0", linear(plan_for=(0,))),
    ("Linear planned for one number", r"plan_for must be one or more numbers of rows: found 16", linear(plan_for=16)),
    ("Linear planned for words", r"plan_for must be one or more numbers of rows: found '16'", linear(plan_for="16")),
    ("Linear of a negative seed", r"a seed must be .*: found -1", linear(seed=-1)),
    ("Linear of no seed", r"a seed must be .*: found None", linear(seed=None)),
    ("Linear of an unknown scheme", r"scheme must be 'direct' or 'decomposed': found 'xavier'", linear(scheme="xavier")),
    ("Linear of whole numbers", r"dtype must be a floating or complex one: found torch\.int64", linear(dtype=torch.int64)),
    ("Linear of NumPy's dtype", r"dtype must be a torch\.dtype.*: found .*float32", linear(dtype=np.float32)),
    ("Linear of a dtype in words", r"dtype must be a torch\.dtype.*: found 'float32'", linear(dtype="float32")),
    ("Linear on an unknown device", r"device must be .*: found 'gpu'", linear(device="gpu")),
    ("Linear on a device that is a number of none", r"device must be .*: found 0\.5", linear(device=0.5)),
    ("Linear with an unknown keyword", r"rank", linear(rank=3), TypeError),
    ("Conv2d with a kernel of one dimension", r"kernel_size must be a number, or 2, one for each dimension: found \(3,\)", conv(kernel=(3,))),
    ("Conv1d with a kernel of two dimensions", r"kernel_size must be a number, or 1, .*: found \(3, 3\)", conv(tnt.Conv1d, (3, 3))),
    ("Conv3d with a kernel of None", r"kernel_size must be a number, or 3, .*: found None", conv(tnt.Conv3d, None)),
    ("Conv2d with a kernel of 2.5", r"kernel_size must be a number, or 2, .*: found 2\.5", conv(kernel=2.5)),
    ("Conv2d with a kernel of True", r"kernel_size must be a number, or 2, .*: found True", conv(kernel=True)),
    ("Conv2d with a kernel in words", r"kernel_size must be a number, or 2, .*: found '33'|kernel must be .*: found '3'", conv(kernel="33")),
    ("Conv2d with a stride of None", r"stride must be .*: found None", conv(stride=None)),
    ("Conv2d with a padding of words", r"padding must be 'same', 'valid' or whole numbers: found 'full'", conv(padding="full")),
    ("Conv2d with a padding mode misspelt", r"padding_mode must be one of .*: found 'zero'", conv(padding_mode="zero")),
    ("Conv2d with groups that do not divide", r"groups=3 must divide", conv(groups=3)),
    ("Conv1d with ranks of Conv2d", r"takes 4 ranks .*: found 5", conv(tnt.Conv1d, spec=tn.Tucker((1,) * 5))),
    ("Embedding with max_norm", r"max_norm=1\.0 is for a table, .*: leave max_norm out", table(max_norm=1.0)),
    ("Embedding that is sparse", r"sparse=True is for a table", table(sparse=True)),
    ("Embedding with padding out of range", r"padding_idx is out of range", table(padding_idx=9)),
    ("Embedding of no rows", r"num_embeddings must be .*: found 0", table(num_embeddings=0)),
)  # fmt: skip

LAYERS = catalogue(
    ("x of other features", r"expected x of shape \(\.\.\., 5\).*: found \(6, 4\)", call(lambda w: w.x[:, :4])),
    ("x of no axes", r"expected x of shape \(\.\.\., 5\)", call(lambda w: w.x[0, 0])),
    ("x of NumPy", r"x must be a torch\.Tensor: found ndarray", call(lambda w: w.x.numpy())),
    ("x that is None", r"x must be a torch\.Tensor: found NoneType", call(lambda w: None)),
    ("x in a list", r"x must be a torch\.Tensor: found list", call(lambda w: [w.x])),
    ("x of double precision", r"x must have the dtype of the layer, torch\.float32: found torch\.float64; convert", call(lambda w: w.x.double())),
    ("x of half precision", r"x must have the dtype of the layer", call(lambda w: w.x.half())),
    ("x of whole numbers", r"x must have the dtype of the layer", call(lambda w: w.x.long())),
    ("x that is complex", r"x must have the dtype of the layer", call(lambda w: w.x.to(torch.complex64))),
    ("x on another device", r"x must be on the device of the layer, cpu: found meta; move it", call(lambda w: w.x.to("meta"))),
    ("rows for other tasks", r"row t of x belongs to task t: .*found \(6, 5\); give a task", call(task=None)),
    ("a task out of range", r"task 3 is out of range: expected 0 <= task <= 2", call(task=3)),
    ("a negative task", r"task -1 is out of range", call(task=-1)),
    ("a huge task", r"out of range|whole numbers", call(task=10**30)),
    ("a task that is True", r"task ids must be whole numbers: found dtype bool", call(task=True)),
    ("a task of 1.0", r"task ids must be whole numbers: found dtype float64", call(task=1.0)),
    ("a task by name", r"task ids must be whole numbers: found dtype .*str|<?U", call(task="b")),
    ("a task that is a slice", r"task.*: found", call(task=slice(0, 2))),
    ("ids that are floats", r"task ids must be whole numbers: found dtype float32", call(task=lambda w: w.ids.float())),
    ("ids that are truth values", r"task ids must be whole numbers: found dtype bool", call(task=lambda w: w.ids.bool())),
    ("ids in columns", r"an array of shape \(rows,\): found shape \(6, 1\)", call(task=lambda w: w.ids[:, None])),
    ("ids too few", r"one task id for each row", call(task=lambda w: w.ids[:5])),
    ("ids out of range", r"task 3 in row 2 is out of range: expected 0 <= task <= 2", call(task=lambda w: w.ids + 1)),
    ("ids that are negative", r"task -1 in row 0 is out of range", call(task=lambda w: w.ids - 1)),
    ("ids on another device", r"task ids must be on the device of the layer, cpu: found meta", call(task=lambda w: w.ids.to("meta"))),
    ("ids that are sparse", r"must be dense: found torch.sparse_coo; convert", call(task=lambda w: w.ids.to_sparse())),
    ("ids of NumPy's objects", r"task ids must be whole numbers: found dtype object", call(task=np.array([0, 1, 2, 0, 1, 2], object))),
    ("ids in a set", r"task.*: found", call(task={0, 1})),
    ("ids in a ragged list", r"ids in rows alike", call(task=[[0], [0, 1]])),
    ("ids in a list of tensors", r"task.*: found|one task id", call(task=lambda w: [w.ids, w.ids])),
    ("fan_out of other features", r"expected x of shape", lambda w: w.layer.fan_out(w.x[:, :3])),
    ("fan_out of NumPy", r"x must be a torch\.Tensor: found ndarray", lambda w: w.layer.fan_out(w.x.numpy())),
    ("fan_out with a task", r"task|positional", lambda w: w.layer.fan_out(w.x, 1), TypeError),
    ("weight of a task out of range", r"task 5 is out of range", lambda w: w.layer.weight(5)),
    ("weight of a task by name", r"task ids must be whole numbers", lambda w: w.layer.weight("a")),
    ("weight of tasks on another device", r"meta", lambda w: w.layer.weight(w.ids.to("meta"))),
    ("images of other channels", r"expected x of shape \(\.\.\., 2, .*\).*: found|channels", call(lambda w: w.image[:, :1], name="conv")),
    ("images without channels", r"expected x of shape|one task id", call(lambda w: w.image[0, 0], name="conv")),
    ("images smaller than the kernel", r"kernel", call(lambda w: w.image[..., :2], name="conv")),
    ("images in two dimensions for one", r"one task id for each row|expected x of shape", call(lambda w: w.image, lambda w: w.ids, "conv1")),
    ("images in two dimensions for three", r"expected x of shape", call(lambda w: w.image[0], name="conv3")),
    ("images of double precision", r"x must have the dtype of the layer", call(lambda w: w.image.double(), name="conv")),
    ("tokens out of range", r"x has 7, which is out of range: expected 0 <= x <= 6", call(lambda w: w.tokens + 1, name="table")),
    ("tokens that are negative", r"x has -1, which is out of range", call(lambda w: w.tokens - 1, name="table")),
    ("tokens that are floats", r"x must be whole numbers, the rows of the table: found torch\.float32; convert", call(lambda w: w.tokens.float(), name="table")),
    ("tokens that are truth values", r"x must be whole numbers.*found torch\.bool", call(lambda w: w.tokens > 1, name="table")),
    ("tokens on another device", r"x must be on the device of the layer", call(lambda w: w.tokens.to("meta"), name="table")),
    ("explain of a negative batch", r"batch must be .*: found -1", lambda w: w.layer.explain(-1)),
    ("explain of half a batch", r"batch must be .*: found 2\.5", lambda w: w.layer.explain(2.5)),
    ("explain of a tensor", r"batch must be .*: found tensor", lambda w: w.layer.explain(w.x)),
    ("explain of an unknown way", r"way must be one of .*: found 'mix'", lambda w: w.layer.explain(4, "mix")),
    ("explain with sizes of words", r"sizes must be .*: found '3'|sizes", lambda w: w.layer.explain(4, sizes="3")),
    ("explain with sizes of 0", r"sizes must be .*: found 0", lambda w: w.layer.explain(4, sizes=(0,))),
    ("explain with one size", r"sizes must be .*: found 3", lambda w: w.layer.explain(4, sizes=3)),
    ("explain of a convolution with places too few", r"sizes", lambda w: w.conv.explain(4, sizes=(5,))),
    ("explain with training in words", r"training must be True or False: found 'no'", lambda w: w.layer.explain(4, training="no")),
    ("source of a batch of 0.5", r"batch must be .*: found 0\.5", lambda w: w.layer.source(0.5)),
    ("source of a way that is None", r"way must be one of .*: found None", lambda w: w.layer.source(4, None)),
    ("source of a way in a list", r"way must be one of .*: found \['one'\]", lambda w: w.layer.source(4, ["one"])),
    ("a decomposition of another method", r"a decomposition by Tucker\(\(3, 2, 2\)\) of weights \(5, 4, 3\) was expected: found", lambda w: w.layer.load_decomposition(tn.decompose(w.stack, "tt"))),
    ("a decomposition of other ranks", r"a decomposition by Tucker\(\(3, 2, 2\)\) .*: found", lambda w: w.layer.load_decomposition(tn.decompose(w.stack, "tucker", ranks=(2, 2, 2)))),
    ("a decomposition of other sizes", r"a decomposition by .*: found", lambda w: w.layer.load_decomposition(tn.decompose(w.stack[:4], "tucker", ranks=(3, 2, 2)))),
    ("a decomposition that is an array", r"a decomposition by .*: found", lambda w: w.layer.load_decomposition(w.stack)),
    ("a decomposition that is None", r"a decomposition by .*: found None", lambda w: w.layer.load_decomposition(None)),
    ("a state of another layer", r"expected the state of a layer|a decomposition by", lambda w: w.layer.load_state(w.table.state())),
    ("a state of a shared network", r"expected the state of a layer, with \('weight', 'bias'\): found", lambda w: w.layer.load_state(w.shared_state)),
    ("a state that is a dict", r"expected the state of a layer, .*: found dict", lambda w: w.layer.load_state({})),
    ("a state whose bias is one number", r"the bias must have shape \(3, 4\): found \(\)", lambda w: w.layer.load_state(tn.State({**w.state.entries, "bias": np.float32(1)}))),
    ("a state whose bias is words", r"the bias must .*numbers.*: found .*<U", lambda w: w.layer.load_state(tn.State({**w.state.entries, "bias": np.full((3, 4), "a")}))),
    ("a state dict with a factor of another shape", r"core", state_dict("layer", replaced(core=lambda t: t[:1]))),
    ("a state dict with a factor too wide", r"U_i", state_dict("layer", replaced(U_i=lambda t: torch.cat([t, t], 1)))),
    ("a state dict lacking a factor", r"core", state_dict("layer", lambda s: s.pop("core"))),
    ("a state dict with one more", r"extra", state_dict("layer", lambda s: s.update(extra=torch.ones(1)))),
    ("a state dict with a list for a factor", r"core", state_dict("layer", replaced(core=lambda t: t.tolist()))),
    ("a state dict of NaN ranks", r"core|spec", state_dict("layer", replaced(core=lambda t: None))),
    ("a state dict that is None", r"state_dict must be a dict.*: found NoneType", lambda w: w.layer.load_state_dict(None)),
    ("a state dict that is a list", r"state_dict must be a dict.*: found list", lambda w: w.layer.load_state_dict([w.x])),
    ("a state dict that is a path", r"state_dict must be a dict.*: found str", lambda w: w.layer.load_state_dict("layer.pt")),
    ("a state dict that is complex", r"bias must hold numbers such as float32: found complex64", state_dict("layer", replaced(bias=lambda t: t.to(torch.complex64)))),
    ("calibrate an unknown device", r"device must be .*: found 'gpu'", lambda w: tnt.calibrate("gpu")),
    ("calibrate for 0 seconds", r"seconds must be .*: found 0", lambda w: tnt.calibrate(seconds=0)),
    ("calibrate for NaN seconds", r"seconds must be .*: found nan", lambda w: tnt.calibrate(seconds=NAN)),
    ("calibrate for seconds in words", r"seconds must be .*: found 'long'", lambda w: tnt.calibrate(seconds="long")),
    ("calibrate on meta", r"device must be .*: found .*meta", lambda w: tnt.calibrate("meta")),
    ("calibrate with a progress that is no function", r"progress must be a function.*: found True", lambda w: tnt.calibrate(progress=True)),
)  # fmt: skip

SHARE = catalogue(
    ("share nothing", r"no models were given: expected a list of them", share(lambda w: [])),
    ("share an empty dict", r"no models were given", share(lambda w: {})),
    ("share one module", r"models must be a list .*: found Sequential", share(lambda w: w.net)),
    ("share a ModuleList of nothing", r"no models were given", share(lambda w: nn.ModuleList())),
    ("share None", r"models must be a list .*: found NoneType", share(lambda w: None)),
    ("share a number", r"models must be a list .*: found int", share(lambda w: 3)),
    ("share a path", r"models must be a list .*: found str", share(lambda w: "nets.pt")),
    ("share a set", r"models must be a list .*: found set", share(lambda w: set(w.nets))),
    ("share a generator", r"models must be a list .*: found generator", share(lambda w: (net for net in w.nets))),
    ("share classes", r"models must be torch modules: found the class Linear as model 0", share(lambda w: [nn.Linear, nn.Linear])),
    ("share state dicts", r"models must be torch modules: found", share(lambda w: [net.state_dict() for net in w.nets])),
    ("share modules and None", r"models must be torch modules: found", share(lambda w: [*w.nets, None])),
    ("share one module twice", r"a network of its own: found the same one as model 0 and model 1; copy it", share(lambda w: [w.net, w.net])),
    ("share with numbers for names", r"names of tasks must be strings: found \(0, 1, 2\)", share(lambda w: dict(enumerate(w.nets)))),
    ("share networks of other depth", r"1|act", with_other(lambda n: nn.Sequential(*list(n)[:1]))),
    ("share networks of other classes", r"Tanh.*ReLU|ReLU.*Tanh|act", with_other(lambda n: setattr(n, "act", nn.ReLU()))),
    ("share networks of another dtype", r"dtype|float64", with_other(lambda n: n.double())),
    ("share networks on another device", r"meta", with_other(lambda n: n.to("meta"))),
    ("share networks that are all on meta", r"meta", share(lambda w: [copy.deepcopy(n).to("meta") for n in w.nets])),
    ("share a network with NaN", r"0\.weight: .*finite: found nan", with_other(not_a_number)),
    ("share networks without parameters", r"models must have parameters to share: found none in model 0", share(lambda w: [nn.Tanh(), nn.Tanh()])),
    ("share a softly shared network", r"found a shared one as model 0; its unshare\(\) gives plain ones", share(lambda w: [w.shared, copy.deepcopy(w.shared)])),
    ("share by an unknown method", r"method must be one of .*found 'cp'", share(lambda w: w.nets, "cp")),
    ("share by no method", r"method must be one of .*found None", share(lambda w: w.nets, None)),
    ("share by a class", r"method must be one of .*found <class", share(lambda w: w.nets, tn.Tucker)),
    ("share with eps=1", r"eps must be .*found 1", share(eps=1)),
    ("share with eps=NaN", r"eps must be .*found nan", share(eps=NAN)),
    ("share with eps in words", r"eps must be .*found '0\.1'", share(eps="0.1")),
    ("share with eps and ranks", r"exclude each other: found eps=0\.1 and ranks=", share(eps=0.1, ranks=(2, 2, 2))),
    ("share with eps and max_parameters", r"exclude each other", share(eps=0.1, max_parameters=100)),
    ("share with ranks too few", r"0\.weight: .*takes 3 ranks .*: found 1", share(ranks=(2,))),
    ("share with ranks too large", r"0\.weight: .*out of range", share(ranks=(99, 2, 2))),
    ("share with ranks in words", r"ranks must be .*found 'full'", share(ranks="full")),
    ("share with max_parameters=0", r"max_parameters.*found 0", share(max_parameters=0)),
    ("share with max_parameters=True", r"max_parameters.*found True", share(max_parameters=True)),
    ("share with max_parameters=0.5", r"max_parameters.*found 0\.5", share(max_parameters=0.5)),
    ("share relative to the mean", r"relative_to must be 'stack' or 'deviation': found 'mean'", share(relative_to="mean")),
    ("share only what is not there", r"no weight matches 'conv': expected names such as", share(only=["conv"])),
    ("share only one string", r"only must be a list .*: found '0'", share(only="0")),
    ("share only a number", r"only must be a list .*: found 0", share(only=0)),
    ("share only numbers", r"only must be a list .*: found \[0\]", share(only=[0])),
    ("share all except a string", r"except_ must be a list .*: found '1'", share(except_="1")),
    ("share all except None", r"except_ must be a list .*: found None", share(except_=None)),
    ("share layers that are not there", r"no weight matches 'conv\*'", share(layers={"conv*": "tt"})),
    ("share layers in a list", r"layers must be a dict.*: found list", share(layers=["0"])),
    ("share layers in an unknown way", r"0\.weight: a method must be one of .*'hard', 'single'.*found 'soft'", share(layers={"0": "soft"})),
    ("share layers in a way that is a number", r"0.*method must be one of|layers\['0'\] must be", share(layers={"0": 3})),
    ("share layers with no method", r"0\.weight: a method must be one of .*found None", share(layers={"0": {"eps": 0.1}})),
    ("share layers with an unknown keyword", r"layers\['0'\].*'epsilon'", share(layers={"0": {"method": "tt", "epsilon": 0.1}})),
    ("share layers by numbers", r"layers.*0", share(layers={0: "tt"})),
    ("share with a negative batch_dim", r"batch_dim must be .*: found -1", share(batch_dim=-1)),
    ("share with batch_dim=None", r"batch_dim must be .*: found None", share(batch_dim=None)),
    ("share with batch_dim=True", r"batch_dim must be .*: found True", share(batch_dim=True)),
    ("share with batch_dims in a list", r"batch_dims must be a dict.*: found \[?", share(batch_dims=["mask"])),
    ("share with batch_dims in words", r"batch_dims.*mask.*rows", share(batch_dims={"mask": "rows"})),
    ("share with batch_dims negative", r"batch_dims.*mask.*-1", share(batch_dims={"mask": -1})),
    ("share ignoring one string", r"ignore must be a list of strings: found 'scale'", share(ignore="scale")),
    ("share a network in evaluation with others in training", r"model 3 differs from the first in training", with_other(lambda n: n.eval() and None)),
    ("share with scratch in a string", r"scratch must be a list .*: found 'act'", share(scratch="act")),
    ("share with an unknown strategy", r"strategy must be one of .*: found 'materialised'", share(strategy="materialised")),
    ("share with a strategy misspelt", r"strategy must be one of .*: found 'loops'", share(strategy="loops")),
    ("share with no strategy", r"strategy must be one of .*: found None", share(strategy=None)),
    ("share with an example in NumPy", r"an example must be .*: found ndarray", share(example=np.ones((2, 5), np.float32))),
    ("share with an example of no rows", r"an example must be .*: found \(\)", share(example=torch.ones(()))),
    ("share with an example of other features", r"the example must be an input that the networks take: found torch\.float32 \(2, 3\)", share(example=torch.ones(2, 3))),
    ("share with an example of another dtype", r"the example must be .*: found torch\.float64", share(example=torch.ones(2, 5, dtype=torch.float64))),
    ("share with an example on another device", r"example|meta", share(example=torch.ones(2, 5, device="meta"))),
    ("share with an unknown keyword", r"rank", share(rank=2), TypeError),
    ("replicate no module", r"models must be torch modules: found int", lambda w: tnt.replicate(3, 2)),
    ("replicate a class", r"models must be torch modules: found", lambda w: tnt.replicate(nn.Linear, 2)),
    ("replicate 0 times", r"tasks must be .*: found 0", lambda w: tnt.replicate(w.net, 0)),
    ("replicate True times", r"tasks must be .*: found True", lambda w: tnt.replicate(w.net, True)),
    ("replicate by names", r"tasks must be .*: found \['a'\]", lambda w: tnt.replicate(w.net, ["a"])),
)  # fmt: skip

SHARED = catalogue(
    ("a call without x", r"x", lambda w: w.shared(), TypeError),
    ("a call of rows for other tasks", r"entry t of x belongs to task t: expected 3 entries, found 6", call(task=None, name="shared")),
    ("a call of a list too short", r"expected 3 entries, found 1", call(lambda w: [w.x], None, "shared")),
    ("a call of a dict", r"must be a tensor \(T, \.\.\.\) or a list: found dict", call(lambda w: {"x": w.x}, None, "shared")),
    ("a call of a generator", r"must be a tensor .* or a list: found generator", call(lambda w: (w.x for _ in range(3)), None, "shared")),
    ("a call of a task out of range", r"task 3 is out of range: expected 0 <= task <= 2", call(task=3, name="shared")),
    ("a call of a task by name without names", r"no task is called 'a': expected", call(task="a", name="shared")),
    ("a call of an unknown name", r"no task is called 'z': expected one of \('a', 'b', 'c'\)", call(task="z", name="named")),
    ("a call of task True", r"task ids must be whole numbers: found dtype bool", call(task=True, name="shared")),
    ("a call of ids by names", r"whole numbers.*found", call(task=["a"] * 6, name="named")),
    ("a call with ids that are floats", r"task ids must be whole numbers", call(task=lambda w: w.ids.float(), name="shared")),
    ("a call with ids out of range", r"task 3 in row 2 is out of range", call(task=lambda w: w.ids + 1, name="shared")),
    ("a call with ids too few", r"one task id for each row", call(task=lambda w: w.ids[:4], name="shared")),
    ("a call with ids in columns", r"found shape \(6, 1\)", call(task=lambda w: w.ids[:, None], name="shared")),
    ("a call with ids on another device", r"meta", call(task=lambda w: w.ids.to("meta"), name="shared")),
    ("a call with no ids", r"found 0 ids|no rows", call(task=lambda w: w.ids[:0], name="shared")),
    ("a call with a code too short", r"code must be .*\(code_size,\).*: found \(2,\)", lambda w: w.shared(w.x, code=torch.ones(2))),
    ("a call with a code of NumPy", r"code must be a tensor .*: found ndarray", lambda w: w.shared(w.x, code=w.code.numpy())),
    ("a call with a code in a list", r"code must be a tensor .*: found list", lambda w: w.shared(w.x, code=w.code.tolist())),
    ("a call with a code of whole numbers", r"code must .*: found torch\.int64", lambda w: w.shared(w.x, code=w.code.long())),
    ("a call with a code on another device", r"code must .*: found .*meta", lambda w: w.shared(w.x, code=w.code.to("meta"))),
    ("a call with one code and task 1", r"task 1 is out of range: expected 0 <= task <= 0", lambda w: w.shared(w.x, 1, code=w.code)),
    ("add a task without a name", r"tasks have names: give the new one a name", lambda w: w.named.add_task(w.net)),
    ("add a task with a name among numbers", r"tasks have no names", lambda w: w.shared.add_task(w.net, "d")),
    ("add a task with a name that is taken", r"a task is called 'a' already: found \('a', 'b', 'c'\)", lambda w: w.named.add_task(w.net, "a")),
    ("add a task whose name is a number", r"name.*string.*: found", lambda w: w.named.add_task(w.net, 7)),
    ("add a network and a code", r"give add_task a network or a code, not both", lambda w: w.shared.add_task(w.net, code=w.code)),
    ("add a class", r"models must be torch modules: found", lambda w: w.shared.add_task(nn.Linear)),
    ("add a state dict", r"models must be torch modules: found", lambda w: w.shared.add_task(w.net.state_dict())),
    ("add a network of another structure", r"the new one", lambda w: w.shared.add_task(w.other)),
    ("add a network with another head", r"\(4, 6\).*\(9, 6\)|1\.weight", lambda w: w.shared.add_task(bigger_head(w))),
    ("add a network of NaN", r"finite: found NaN", lambda w: w.shared.add_task(other(w, not_a_number))),
    ("add two codes", r"the code of one task: found 2 codes", lambda w: w.shared.add_task(code=torch.stack([w.code, w.code]))),
    ("add a code too long", r"code must be .*: found", lambda w: w.shared.add_task(code=torch.cat([w.code, w.code]))),
    ("add a code of NaN", r"code must be finite", lambda w: w.shared.add_task(code=w.code * NAN)),
    ("add a code of whole numbers", r"code must .*: found torch\.int64", lambda w: w.shared.add_task(code=w.code.long())),
    ("remove a task out of range", r"task 3 is out of range", lambda w: w.shared.remove_task(3)),
    ("remove the last one from behind", r"task -1 is out of range", lambda w: w.shared.remove_task(-1)),
    ("remove several tasks", r"one task is expected, by its number or its name: found", lambda w: w.shared.remove_task([0, 1])),
    ("remove None", r"one task is expected|task.*found", lambda w: w.shared.remove_task(None)),
    ("remove an unknown name", r"no task is called 'z'", lambda w: w.named.remove_task("z")),
    ("remove the only task", r"the last task cannot be removed", lambda w: w.alone.remove_task(0)),
    ("fit the code of a class", r"models must be torch modules: found", lambda w: w.shared.fit_code(nn.Linear)),
    ("fit the code of another structure", r"the new one", lambda w: w.shared.fit_code(w.other)),
    ("the code of a task out of range", r"task 3 is out of range", lambda w: w.shared.code(3)),
    ("the code of several tasks", r"one task is expected", lambda w: w.shared.code([0, 1])),
    ("the weights of a task out of range", r"task 3 is out of range", lambda w: w.shared.weights(3)),
    ("the weights of task True", r"whole numbers: found dtype bool", lambda w: w.shared.weights(True)),
    ("the weights of an unknown name", r"no task is called 'z'", lambda w: w.named.weights("z")),
    ("the model of a task that is negative", r"task -1 is out of range", lambda w: w.shared.task_model(-1)),
    ("the model of a task that is 1.0", r"whole numbers: found dtype float64", lambda w: w.shared.task_model(1.0)),
    ("the parameters of a task out of range", r"task 7 is out of range", lambda w: list(w.shared.task_parameters(7))),
    ("sharing, normalised in words", r"normalise must be True or False: found 'no'", lambda w: w.shared.sharing(normalise="no")),
    ("sharing of one task", r"at least 2, found 1", lambda w: w.alone.sharing()),
    ("a state dict lacking a factor", r"common", state_dict("shared", lambda s: s.pop(next(k for k in s if k.startswith("common"))))),
    ("a state dict with factors too wide", r"common|saved with", state_dict("shared", lambda s: s.update({k: torch.cat([s[k], s[k]]) for k in list(s)[:1]}))),
    ("a state dict of a plain network", r"[Mm]issing|saved with|shared", lambda w: w.shared.load_state_dict(w.net.state_dict())),
    ("restore into a class", r"models must be torch modules: found", lambda w: tnt.restore(nn.Linear, w.shared_state)),
    ("restore into None", r"models must be torch modules: found", lambda w: tnt.restore(None, w.shared_state)),
    ("restore from a path", r"the state of a shared model was expected, .*: found str", lambda w: tnt.restore(w.net, "net.tn")),
    ("restore from a layer's state", r"the state of a shared model was expected, .*: found that of a layer", lambda w: tnt.restore(w.net, w.state)),
    ("restore from None", r"the state of a shared model was expected, .*: found NoneType", lambda w: tnt.restore(w.net, None)),
    ("restore into another structure", r"structure|only in", lambda w: tnt.restore(w.other, w.shared_state)),
    ("restore into another head", r"shape|1\.weight", lambda w: tnt.restore(bigger_head(w), w.shared_state)),
    ("restore with an unknown strategy", r"strategy must be one of", lambda w: tnt.restore(w.net, w.shared_state, strategy="fast")),
    ("restore with an unknown keyword", r"eps", lambda w: tnt.restore(w.net, w.shared_state, eps=0.1), TypeError),
)  # fmt: skip


def bigger_head(w: SimpleNamespace) -> nn.Module:
    with torch.random.fork_rng():
        return other(w, lambda n: setattr(n, "1", nn.Linear(6, 9)))


@CONSTRUCTORS
def test_constructors(misuse, world):
    refused(misuse, world)


@LAYERS
def test_layers(misuse, world):
    refused(misuse, world)


@SHARE
def test_share(misuse, world):
    refused(misuse, world)


@SHARED
def test_shared_networks(misuse, world):
    refused(misuse, world)
