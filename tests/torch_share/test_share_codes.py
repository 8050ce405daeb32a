"""share: tasks that are given by codes alone: fitted to a network, or made from what describes them."""

from __future__ import annotations

import numpy as np
import pytest
import tnshare_torch as tnt
import torch
from networks import close, variants
from torch import nn

import tnshare as tn

T = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv1d(1, 3, 3), nn.Linear(12, 5)
        self.norm, self.head = nn.LayerNorm(5), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.fc(self.conv(x[:, None]).flatten(1)))))


def draw(*rows):
    return torch.randn(*rows, 6, dtype=torch.float64)


def bare(count=T):
    """Networks in which tasks differ in shared weights only."""
    models = variants(Net, count)
    for model in models[1:]:
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.data.copy_(models[0].get_parameter(name))
    return models


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_the_codes_of_tasks_are_tasks(method):
    shared = tnt.share(bare(), method, eps=0)
    codes = torch.stack([shared.code(t) for t in range(T)])
    assert codes.shape == (T, shared.code_size)
    x, xs = draw(3), draw(T, 3)
    for t in range(T):
        close(shared(x, code=codes[t]), shared(x, t))
        close(shared(x, t, code=codes), shared(x, t))
    close(shared(xs, code=codes), shared(xs))
    close(shared.fan_out(x, code=codes), shared.fan_out(x))
    close(shared(x, [2, 0, 2], code=codes), shared(x, [2, 0, 2]))
    close(shared(x, [1, 0, 1], code=codes[1:3]), shared(x, [2, 1, 2]))
    several = [draw(n) for n in (2, 1)]
    close(shared(several, code=codes[[3, 1]]), [shared(several[0], 3), shared(several[1], 1)])


def test_gradients_of_codes_are_those_of_tasks():
    shared, x = tnt.share(bare(), eps=0), draw(3)
    shared(x, 2).square().sum().backward()
    own = shared.tasks[2]
    names = [f"{n.replace('.', '/')}:U_task" for n in shared.networks]
    expected = torch.cat([own._parameters[name].grad.reshape(-1) for name in names])
    code = shared.code(2).detach().requires_grad_()
    shared(x, code=code).square().sum().backward()
    close(code.grad, expected)


def test_what_is_not_shared_is_the_mean():
    models = variants(Net, T)
    shared, x = tnt.share(models, eps=0), draw(3)
    plain = shared.task_model(1)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.stack([m.get_parameter(name) for m in models]).mean(0))
    close(shared(x, code=shared.code(1)), plain(x))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (torch.zeros(3), r"\(3,\)"),
        (torch.zeros(1, 2, 3), r"\(1, 2, 3\)"),
        ([1.0], "list"),
        (torch.tensor(1.0), r"\(\)"),
    ],
    ids=str,
)
def test_codes_of_wrong_shapes_are_refused(code, found):
    shared = tnt.share(bare(), ranks=2, method="laf")
    with pytest.raises(tn.TnshareError, match=rf"code must be a tensor .*code_size=6: found {found}"):
        shared(draw(2), code=code)
    with pytest.raises(tn.TnshareError, match="a network or a code, not both"):
        shared.add_task(bare(1)[0], code=shared.code(0))
    with pytest.raises(tn.TnshareError, match="takes the code of one task: found 2 codes"):
        shared.add_task(code=torch.zeros(2, 6))


def test_fit_code_is_least_squares():
    given = variants(Net, T + 1)
    shared = tnt.share(given[:T], "laf", ranks=2, layers={"head": "hard"})
    fit = shared.fit_code(given[T])
    assert set(fit.errors) == {"conv.weight", "fc.weight", "head.weight", "head.bias"}
    start = 0
    for name in ("conv.weight", "fc.weight"):
        span = np.stack([shared.weights(t)[name].detach().numpy().ravel() for t in range(T)], 1)
        target = given[T].get_parameter(name).detach().numpy().ravel()
        best = span @ np.linalg.lstsq(span, target, rcond=1e-8)[0]
        assert fit.errors[name] == pytest.approx(np.linalg.norm(best - target) / np.linalg.norm(target))
        start += 2
    assert fit.code.shape == (start,) == (shared.code_size,)
    mean = shared.weights(0)["head.weight"]
    off = float(((given[T].head.weight - mean).norm() / given[T].head.weight.norm()).detach())
    assert fit.errors["head.weight"] == pytest.approx(off)
    number = shared.add_task(given[T])
    close(shared.code(number), fit.code)
    assert (
        f"task {number} was added, with errors: conv.weight {fit.errors['conv.weight']:.3g}"
        in shared.report()
    )
    known = shared.fit_code(shared.task_model(1))
    assert max(known.errors.values()) < 1e-9
    close(known.code, shared.code(1).detach(), 1e-7)


def test_a_described_task_can_stay():
    shared, x = tnt.share(bare(), eps=0), draw(3)
    code = shared.code(1).detach() + 0.1
    expected = shared(x, code=code)
    before = {name: value.clone() for name, value in shared.state_dict().items()}
    assert shared.add_task(code=code) == T
    close(shared(x, T), expected)
    assert all(torch.equal(shared.state_dict()[name], value) for name, value in before.items())
    trained = [name for name, p in shared.tasks[T].named_parameters() if p.requires_grad]
    assert trained == [name for name, _ in shared.tasks[0].named_parameters()]


def test_unseen_tasks_are_predicted_from_their_descriptions():
    """Regressions whose weights are a function of two numbers; a user's network learns codes from these."""
    torch.manual_seed(0)
    tasks, basis = 12, torch.randn(3, 8)
    angles = torch.linspace(0, 5.5, tasks + 1)
    described = torch.stack([angles.cos(), angles.sin(), torch.ones_like(angles)], 1)
    weights = described @ basis  # (tasks + 1, 8)
    x = torch.randn(tasks + 1, 64, 8)
    y = torch.tanh(torch.einsum("tbi,ti->tb", x, weights))
    unseen = 5
    seen = [t for t in range(tasks + 1) if t != unseen]

    def make():
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    nets = tnt.replicate(make(), tasks)
    nets = [_moved(net) for net in nets]
    shared = tnt.share(nets, layers={"*.weight": {"method": "laf", "ranks": 4}, "*.bias": "hard"})
    network = nn.Linear(3, shared.code_size)
    optimiser = torch.optim.Adam([*network.parameters(), *shared.shared_parameters()], 0.01)
    for _ in range(300):
        optimiser.zero_grad()
        error = (shared(x[seen], code=network(described[seen]))[..., 0] - y[seen]).square().mean()
        error.backward()
        optimiser.step()
    with torch.no_grad():
        codes = network(described)
        zero_shot = (shared(x[unseen], code=codes[unseen])[:, 0] - y[unseen]).square().mean()
        mean = (shared(x[unseen], code=codes[seen].mean(0))[:, 0] - y[unseen]).square().mean()
    assert float(zero_shot) < 0.3 * float(mean)
    assert float(zero_shot) < 0.3 * float(y[unseen].var())


def _moved(net):
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return net
