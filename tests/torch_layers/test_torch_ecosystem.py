"""Living in torch: layers and shared networks under autocast, torch.func, checkpoints, threads, exporters."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

import tnshare as tn

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

import living  # noqa: E402
from living import SHORT, SUMMED, TERMS, T, conv, embedding, linear, twin  # noqa: E402
from tolerances import close, is_close  # noqa: E402
from torch import nn  # noqa: E402
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

IDS = torch.tensor([2, 0, 1, 2, 2])
METHODS = pytest.mark.parametrize("method", ["laf", "tucker", "tt"])


def image(rows=5, dtype=None, seed=0):
    return torch.randn(rows, 2, 5, 4, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def rows_of(rows=5, dtype=None, seed=0):
    return torch.randn(rows, 6, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def words(rows=5):
    return torch.randint(7, (rows, 3), generator=torch.Generator().manual_seed(0))


MADE = {
    "linear": (linear, rows_of),
    "conv": (conv, image),
    "embedding": (embedding, lambda *_: words()),
    "shared": (living.shared, lambda rows=5, dtype=None: living.x(rows, dtype)),
}
every_kind = pytest.mark.parametrize("kind", MADE)


def made(kind):
    make, draw = MADE[kind]
    return make(), draw()


def gradients(module, y):
    module.zero_grad()
    y.square().sum().backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def four_ways(module, x):
    several = torch.stack([x] * T)
    return [module(x, 1), module(x, IDS), module(several), module.fan_out(x)]


def called(module, way, x, ids):
    if way == "fan_out":
        return module.fan_out(x)
    return module(torch.stack([x] * T)) if way == "each" else module(x, 1 if way == "one" else ids)


# Autocast: the output has the dtype of torch's own layer, whatever the plan.


@pytest.mark.parametrize("inference", [False, True], ids=["training", "inference"])
@pytest.mark.parametrize("way", ["one", "mixed", "each", "fan_out"])
@pytest.mark.parametrize("spec", [tn.LAF(2), tn.Tucker((3, 3, 2)), tn.TT((3, 2))], ids=repr)
def test_every_plan_of_a_linear_layer_gives_what_autocast_makes_of_linear(spec, way, inference):
    x = rows_of(8)
    plain = linear(spec)
    ids = torch.arange(8) % T
    candidates = plain.description.candidates(way, 8, training=not inference)
    assert candidates
    wanted = torch.stack([twin(plain, t)(x) for t in range(T)])
    expected = {"one": wanted[1], "mixed": wanted[ids, range(8)], "each": wanted, "fan_out": wanted}[way]
    with torch.autocast("cpu", torch.bfloat16):
        dtype = twin(plain, 0)(x).dtype
    assert dtype == torch.bfloat16
    for candidate in (*candidates, "auto", "factored", "materialised"):
        layer = linear(spec, strategy=candidate).train(not inference)
        with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(not inference):
            for _ in range(2):
                y = called(layer, way, x, ids)
        assert y.dtype == dtype
        close(y.float(), expected, SHORT, dtype=dtype)
        if not inference:
            y.float().sum().backward()
            assert {p.grad.dtype for p in layer.parameters()} == {torch.float32}


@every_kind
def test_autocast_gives_torch_s_dtype_in_all_ways(kind):
    module, x = made(kind)
    if kind == "shared":
        plain = module.task_model(1)
    elif kind == "embedding":
        plain = nn.Embedding.from_pretrained(module.weight(1).detach())
    else:
        plain = twin(module, 1)
    precise = four_ways(module, x)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = plain(x), four_ways(module, x)
    assert {y.dtype for y in found} == {expected.dtype}
    for y, wanted in zip(found, precise, strict=True):
        close(y.float(), wanted, SHORT, dtype=expected.dtype)
    outside = four_ways(module, x)
    assert all(torch.equal(a, b) for a, b in zip(outside, precise, strict=True)), "nothing short is kept"


# Precisions.


@every_kind
def test_double_precision(kind):
    module, x = made(kind)
    singles = four_ways(module, x)
    module.double()
    x = x.double() if x.is_floating_point() else x
    doubles = four_ways(module, x)
    assert {y.dtype for y in doubles} == {torch.float64}
    for one, two in zip(singles, doubles, strict=True):
        close(one.double(), two, TERMS, dtype=one.dtype)
    assert torch.autograd.gradcheck(lambda *_: module(x, IDS), tuple(module.parameters()), fast_mode=True)


def test_complex_numbers():
    layer = linear(dtype=torch.complex64)
    x = rows_of(dtype=torch.complex64)
    weights = layer.weight().detach()
    wanted = torch.einsum("bi,toi->tbo", x, weights) + layer.bias[:, None].detach()
    for y, expected in zip(
        four_ways(layer, x), (wanted[1], wanted[IDS, range(5)], wanted, wanted), strict=True
    ):
        close(y.detach(), expected, TERMS)
    assert layer(x, 1).abs().sum().backward() is None
    assert layer.core.grad.is_complex()


@METHODS
def test_complex_networks_are_shared(method):
    models = living.nets(living.Matrices, torch.complex64)
    shared = tnt.share(models, method, eps=0)
    x = torch.randn(5, 4, dtype=torch.complex64)
    wanted = torch.stack([model(x) for model in models])
    ways = (wanted[1], wanted[IDS, range(5)], wanted, wanted)
    for y, expected in zip(four_ways(shared, x), ways, strict=True):
        close(y, expected, TERMS)
    shared(x, 1).abs().sum().backward()
    assert all(p.grad.is_complex() for p in shared.shared_parameters())


# Copies.


@every_kind
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_a_copy_in_use_computes_the_same_and_is_its_own(kind, copied):
    module, x = made(kind)
    module.eval()
    with torch.no_grad():
        wanted = four_ways(module, x)  # plans are there, and what inference keeps
        other = copied(module)
        assert all(torch.equal(a, b) for a, b in zip(four_ways(other, x), wanted, strict=True))
        for parameter in other.parameters():
            parameter.mul_(1.5)
        assert not any(torch.equal(a, b) for a, b in zip(four_ways(other, x), wanted, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(four_ways(module, x), wanted, strict=True))


# The meta device.


@pytest.mark.parametrize("kind", ["linear", "conv", "embedding"])
def test_a_layer_without_numbers_has_shapes_and_is_filled_later(kind):
    make, draw = MADE[kind]
    with torch.device("meta"):
        empty = make()
    assert all(p.is_meta for p in empty.parameters())
    x = draw()
    full = make()
    shapes = [y.shape for y in four_ways(full, x)]
    meta_ids = IDS.to("meta")
    x_meta = x.to("meta")
    found = [
        empty(x_meta, 1),
        empty(x_meta, meta_ids),
        empty(torch.stack([x_meta] * T)),
        empty.fan_out(x_meta),
    ]
    assert [y.shape for y in found] == shapes
    assert all(y.is_meta for y in found)
    with torch.no_grad():
        assert empty.eval()(x_meta, 1).shape == shapes[0]
    filled = empty.train().to_empty(device="cpu")
    filled.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(filled.parameters(), full.parameters(), strict=True))
    assert torch.equal(filled(x, 1), full(x, 1))


def test_a_shared_network_without_numbers_has_shapes():
    shared = living.shared().to("meta")
    assert shared(living.x(5).to("meta"), 1).shape == (5, 3)
    assert shared.fan_out(living.x(5).to("meta")).shape == (T, 5, 3)
    filled = shared.to_empty(device="cpu")
    filled.load_state_dict(living.shared().state_dict())
    assert torch.equal(filled(living.x(5), 2), living.shared()(living.x(5), 2))


# torch.func.


@every_kind
def test_functional_calls_and_their_gradients(kind):
    module, x = made(kind)
    other = {name: p.detach() * 1.1 for name, p in module.named_parameters()}
    before = copy.deepcopy(module.state_dict())
    buffers = dict(module.named_buffers())

    def loss(parameters, task):
        return functional_call(module, {**parameters, **buffers}, (x, task)).square().sum()

    changed = copy.deepcopy(module)
    changed.load_state_dict({**other, **buffers})
    for task in (1, IDS):
        close(loss(other, task), changed(x, task).square().sum(), SUMMED)
        found = grad(loss)(other, task)
        changed.zero_grad()
        changed(x, task).square().sum().backward()
        for name, parameter in changed.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            close(found[name], expected, SUMMED)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@every_kind
def test_an_ensemble_under_vmap(kind):
    module, x = made(kind)
    members = [module, copy.deepcopy(module)]
    with torch.no_grad():
        for parameter in members[1].parameters():
            parameter.mul_(1.1)
    parameters, buffers = stack_module_state(members)
    base = copy.deepcopy(module)

    def run(parameters, buffers, x):
        return functional_call(base, (parameters, buffers), (x, 1))

    found = vmap(run, in_dims=(0, 0, None))(parameters, buffers, x)
    close(found, torch.stack([member(x, 1) for member in members]), TERMS)


@pytest.mark.parametrize("kind", ["linear", "conv", "shared"])
def test_jacobians_and_maps_over_rows(kind):
    module, x = made(kind)
    one = jacrev(lambda x: module(x, 1))(x)
    wanted = torch.autograd.functional.jacobian(lambda x: module(x, 1), x)
    close(one, wanted, TERMS)
    close(vmap(lambda row: module(row[None], 1)[0])(x), module(x, 1), TERMS)
    many = jacrev(lambda x: module(x, IDS))(x)
    close(many, torch.autograd.functional.jacobian(lambda x: module(x, IDS), x), TERMS)


# Gradient checkpointing.


@every_kind
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_around_a_module(kind, reentrant):
    module, x = made(kind)
    x = x.requires_grad_() if x.is_floating_point() else x
    if reentrant and kind == "embedding":
        pytest.skip("re-entrant checkpoints need an input with a gradient, which words have not")
    for task in (1, IDS):
        wanted = gradients(module, module(x, task))
        found = gradients(module, checkpoint(module, x, task, use_reentrant=reentrant))
        for a, b in zip(found, wanted, strict=True):
            close(a, b, SUMMED)
    wanted = gradients(module, module.fan_out(x))
    for a, b in zip(
        gradients(module, checkpoint(module.fan_out, x, use_reentrant=reentrant)), wanted, strict=True
    ):
        close(a, b, SUMMED)


# Threads.


@every_kind
def test_threads_in_inference_do_not_mix_tasks_up(kind):
    module, x = made(kind)
    module.eval()
    with torch.no_grad():
        alone = [copy.deepcopy(module)(x, t) for t in range(T)]
        mixed = copy.deepcopy(module)(x, IDS)

    def run(n):
        with torch.no_grad():
            return torch.equal(module(x, n % T), alone[n % T]) and is_close(module(x, IDS), mixed, TERMS)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(60)))


# Exporters.


class OfTask(nn.Module):
    def __init__(self, module, task):
        super().__init__()
        self.module, self.task = module, task

    def forward(self, x):
        return self.module(x, self.task)


@pytest.mark.parametrize("kind", ["conv", "embedding", "shared"])
def test_a_task_can_be_exported(kind):
    module, x = made(kind)
    rows = torch.export.Dim("rows", min=2, max=4096)
    program = torch.export.export(OfTask(module.eval(), 1), (x,), dynamic_shapes=({0: rows},)).module()
    for some in (x, x[:2], torch.cat([x, x])):
        close(program(some), module(some, 1), TERMS)


@pytest.mark.filterwarnings("ignore")  # of torch's exporter itself
@pytest.mark.parametrize("kind", ["linear", "shared"])
def test_the_model_of_a_task_goes_to_onnx(kind):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    module, x = made(kind)
    plain = OfTask(module, 1) if kind == "linear" else module.task_model(1)
    rows = torch.export.Dim("rows", min=2, max=4096)
    program = torch.onnx.export(plain.eval(), (x,), dynamo=True, dynamic_shapes=({0: rows},), verbose=False)
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    for some in (x, torch.cat([x, x])):
        (found,) = session.run(None, {session.get_inputs()[0].name: some.numpy()})
        close(found, module(some, 1), TERMS)
