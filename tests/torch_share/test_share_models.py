"""share: every kind of network that a user may have, against the plain networks, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

import tolerances  # noqa: E402
from networks import (  # noqa: E402
    ALONE,
    NETWORKS,
    T,
    close,
    drawn,
    every_network,
    loss,
    seeded,
    shared_and_plain,
    tensors,
    variants,
)
from torch import nn  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402


@every_network
@pytest.mark.parametrize("mode", [False, True], ids=["eval", "train"])
def test_one_task_is_its_network(name, mode):
    shared, models = shared_and_plain(name, mode)
    for t in (1, 0, 2, 1):
        x = drawn(name, 4)
        close(seeded(shared, x, t), seeded(models[t], x))
    for t, model in enumerate(models):  # what they count, they count alone
        buffers = {n: b for n, b in shared.weights(t).items() if n in dict(model.named_buffers())}
        close(buffers, dict(model.named_buffers()))


@every_network
def test_every_task_at_once_is_a_loop(name):
    shared, models = shared_and_plain(name, False, "laf")
    xs = [drawn(name, rows) for rows in (2, 1, 4)]
    close(shared(xs), [model(x) for model, x in zip(models, xs, strict=True)])
    plain = [model(xs[0]) for model in models]
    found = shared.fan_out(xs[0])
    for t, expected in enumerate(plain):
        close([None if leaf is None else leaf[t] for leaf in tree_leaves(found)], tree_leaves(expected))
    stack = torch.stack([drawn(name, 2) for _ in range(T)])
    for t, expected in enumerate([model(x) for model, x in zip(models, stack, strict=True)]):
        close(
            [leaf if leaf is None else leaf[t] for leaf in tree_leaves(shared(stack))], tree_leaves(expected)
        )


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ALONE])
def test_rows_of_mixed_tasks_are_groups(name):
    shared, models = shared_and_plain(name, False)
    dim, ids = shared.batch_dim, torch.tensor([2, 0, 2, 2, 0])
    x = drawn(name, 5)
    found = shared(x, ids)
    for t in (0, 2):
        rows = torch.nonzero(ids == t)[:, 0]
        expected = tree_leaves(models[t](x.index_select(dim, rows)))
        close([y if y is None else y.index_select(dim, rows) for y in tree_leaves(found)], expected)


@every_network
@pytest.mark.parametrize("mode", [False, True], ids=["eval", "train"])
def test_gradients_of_single_weights_are_the_networks(name, mode):
    shared, models = shared_and_plain(name, mode, "single")
    x = drawn(name, 4)
    for t in (2, 1):
        seeded(lambda: loss(shared(x, t)).backward())  # noqa: B023
        seeded(lambda: loss(models[t](x)).backward())  # noqa: B023
        for key, parameter in models[t].named_parameters():
            own = shared.weights(t)[key]
            assert parameter.grad is not None
            close(own.grad, parameter.grad)
    assert all(p.grad is None for p in shared.task_parameters(0))


@every_network
@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_gradients_of_factors_follow_the_chain_rule(name, method):
    """Along any direction of factors, codes and own weights, the loss moves as the plain networks' does."""
    shared, models = shared_and_plain(name, False, method)
    x, t, h = drawn(name, 3), 1, 1e-6
    loss(shared(x, t)).backward()
    loss(models[t](x)).backward()
    parameters = [p for p in shared.parameters() if p.grad is not None]
    directions = [torch.randn_like(p) for p in parameters]
    slope = sum((p.grad * d).sum() for p, d in zip(parameters, directions, strict=True))
    ends = []
    with torch.no_grad():  # a finite difference of the weights, not of the network
        for sign in (1, -2):
            for p, d in zip(parameters, directions, strict=True):
                p.add_(sign * h * d)
            ends.append({n: w.clone() for n, w in shared.weights(t).items()})
    chain = sum((p.grad * (ends[0][n] - ends[1][n])).sum() / (2 * h) for n, p in models[t].named_parameters())
    torch.testing.assert_close(slope, chain, rtol=1e-5, atol=1e-6)
    assert abs(float(slope)) > 1e-3


@pytest.mark.parametrize("name", ["residual", "bilinear", "lenet", "tied", "spectral norm", "lstm"])
def test_training_is_that_of_plain_networks(name):
    """Weights of their own, four steps: networks, running statistics and all, are the same."""
    shared, models = shared_and_plain(name, True, "single")
    ours = torch.optim.Adam(shared.parameters(), 0.01)
    theirs = torch.optim.Adam([p for model in models for p in model.parameters()], 0.01)
    for step in range(4):
        xs = [drawn(name, 3 + step) for _ in range(T)]
        ours.zero_grad()
        theirs.zero_grad()
        loss(shared(xs)).backward()
        loss([model(x) for model, x in zip(models, xs, strict=True)]).backward()
        ours.step()
        theirs.step()
    for t, model in enumerate(models):
        close({n: w.detach() for n, w in shared.weights(t).items()}, tensors(model), 1e-7)
    x = drawn(name, 3)
    close(shared.eval()(x, 1), models[1].eval()(x), 1e-7)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float16", "bfloat16", "float32"])
def test_dtypes(dtype):
    kind = getattr(torch, dtype)
    if kind.is_complex:
        models = variants(lambda: nn.Linear(5, 4, dtype=kind))
    else:
        models = [model.to(kind) for model in variants(lambda: nn.Linear(5, 4))]
    shared = tnt.share(models, eps=0)
    x = torch.randn(3, 5).to(kind)
    terms = 6 if kind.itemsize == 2 else 6 + 5 + 4 + 3  # roundings where numbers are short, or elements
    for t, model in enumerate(models):
        tolerances.close(shared(x, t), model(x), terms)
    number = shared.add_task(models[2])
    tolerances.close(shared(x, number), models[2](x), terms)
    assert {p.dtype for p in shared.parameters()} == {kind}
    assert np.isfinite(list(shared.sharing().values())).all()
