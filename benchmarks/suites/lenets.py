"""Ten LeNets of the paper, one for each digit, and the plain ways of training them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tnshare_torch as tnt
import torch
from torch import nn
from torch.nn import functional

TASKS, BATCH = 10, 60
Step = Callable[[], object]


class LeNet(nn.Module):
    """The paper's: 32 filters of 5 x 5, 64 of 4 x 4, pooling after each, 512 units, one output."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 5), nn.Conv2d(32, 64, 4)
        self.fc1, self.fc2 = nn.Linear(1024, 512), nn.Linear(512, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (B, 1, 28, 28) to scores (B, 1)."""
        y = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        y = functional.max_pool2d(functional.relu(self.conv2(y)), 2)
        return self.fc2(functional.relu(self.fc1(y.flatten(1))))  # type: ignore[no-any-return]


class Grouped(nn.Module):
    """Ten LeNets as one network: convolutions in groups, linear layers as batched products."""

    def __init__(self, nets: Sequence[nn.Module]) -> None:
        super().__init__()
        state = [net.state_dict() for net in nets]
        for layer in ("conv1", "conv2"):
            for part in ("weight", "bias"):
                whole = torch.cat([one[f"{layer}.{part}"] for one in state])
                self.register_parameter(f"{layer}_{part}", nn.Parameter(whole))
        for layer in ("fc1", "fc2"):
            weight = torch.stack([one[f"{layer}.weight"].T for one in state]).contiguous()
            self.register_parameter(f"{layer}_weight", nn.Parameter(weight))
            bias = torch.stack([one[f"{layer}.bias"] for one in state])[:, None]
            self.register_parameter(f"{layer}_bias", nn.Parameter(bias))

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        """Images (T, B, 1, 28, 28) to scores (T, B, 1)."""
        tasks, rows = xs.shape[:2]
        y = xs.transpose(0, 1).reshape(rows, tasks, 28, 28)
        for layer in ("conv1", "conv2"):
            weight, bias = self.get_parameter(f"{layer}_weight"), self.get_parameter(f"{layer}_bias")
            y = functional.max_pool2d(functional.relu(functional.conv2d(y, weight, bias, groups=tasks)), 2)
        y = y.reshape(rows, tasks, -1).transpose(0, 1)
        p = self.get_parameter
        y = functional.relu(torch.baddbmm(p("fc1_bias"), y, p("fc1_weight")))
        return torch.baddbmm(p("fc2_bias"), y, p("fc2_weight"))


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """The digits that ship with scikit-learn, made 28 x 28, and their labels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    return functional.interpolate(x, (28, 28), mode="bilinear"), torch.tensor(labels)


def batches(steps: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Images (T, B, 1, 28, 28) and targets of +1 and -1 (T, B): each task's own digit against the others."""
    x, y = digits()
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(steps):
        rows = torch.randint(0, len(x), (TASKS, BATCH), generator=generator)
        made.append((x[rows], 2.0 * (y[rows] == torch.arange(TASKS)[:, None]) - 1))
    return made


def hinge(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The paper's loss, of each task on average, summed over tasks."""
    return functional.relu(1 - scores[..., 0] * targets).mean(-1).sum()


def trained(steps: int = 30) -> list[nn.Module]:
    """Ten LeNets trained one by one from the same initial values."""
    torch.manual_seed(0)
    nets = tnt.replicate(LeNet(), TASKS)
    optimisers = [torch.optim.Adam(net.parameters(), 1e-3) for net in nets]
    for xs, targets in batches(steps):
        for net, optimiser, x, target in zip(nets, optimisers, xs, targets, strict=True):
            step(optimiser, lambda: hinge(net(x), target))  # noqa: B023
    return nets


def step(optimiser: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> None:
    """One step of training."""
    optimiser.zero_grad()
    loss().backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def plain_ways(nets: Sequence[nn.Module], xs: torch.Tensor, targets: torch.Tensor) -> dict[str, Step]:
    """Training steps of ten separate networks, the loop with a backward pass for each first."""
    own, summed, stacked = ([_copy(net) for net in nets] for _ in range(3))
    optimisers = [sgd(net.parameters()) for net in own]
    together = sgd(p for net in summed for p in net.parameters())
    parameters, _ = torch.func.stack_module_state(stacked)
    mapped = torch.func.vmap(lambda p, x: torch.func.functional_call(stacked[0], p, (x,)))
    of_stack, grouped = sgd(parameters.values()), Grouped(nets)
    of_groups = sgd(grouped.parameters())

    def loop() -> None:
        for net, optimiser, x, target in zip(own, optimisers, xs, targets, strict=True):
            step(optimiser, lambda: hinge(net(x), target))  # noqa: B023

    def total() -> torch.Tensor:
        pairs = zip(summed, xs, targets, strict=True)
        return torch.stack([hinge(net(x), target) for net, x, target in pairs]).sum()

    return {
        "loop": loop,
        "sum of ten losses": lambda: step(together, total),
        "vmap": lambda: step(of_stack, lambda: hinge(mapped(parameters, xs), targets)),
        "grouped convolutions": lambda: step(of_groups, lambda: hinge(grouped(xs), targets)),
    }


def sgd(parameters: object) -> torch.optim.Optimizer:
    """An optimiser that keeps nothing, so that all pay the same for it, by the parameter."""
    return torch.optim.SGD(list(parameters), 1e-4)  # type: ignore[call-overload]


def _copy(net: nn.Module) -> nn.Module:
    made = LeNet()
    made.load_state_dict(net.state_dict())
    return made
