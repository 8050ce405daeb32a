"""The networks of the paper, as a user would write them: nothing in them knows about tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional


def alike_networks(
    makes: Sequence[Callable[[], nn.Module]], layers: Sequence[str], seed: int
) -> list[nn.Module]:
    """A new network of each kind; in the ``layers`` all have the values of the first."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        nets = [make() for make in makes]
    for layer in layers:
        for net in nets[1:]:
            net.get_submodule(layer).load_state_dict(nets[0].get_submodule(layer).state_dict())
    return nets


class LeNet(nn.Module):
    """The modified LeNet for MNIST: two convolutions and two linear layers, one output.

    Without padding it has 558,977 parameters; the paper's table implies about 435,000, and its text gives no
    network of that size. ``width`` multiplies the hidden layers, for the larger network of the appendix.
    """

    layers = ("conv1", "conv2", "fc1", "fc2")

    def __init__(self, width: float = 1.0, outputs: int = 1) -> None:
        super().__init__()
        first, second, hidden = (round(n * width) for n in (32, 64, 512))
        self.conv1 = nn.Conv2d(1, first, 5)
        self.conv2 = nn.Conv2d(first, second, 4)
        self.fc1 = nn.Linear(second * 4 * 4, hidden)
        self.fc2 = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor, first: int = 0, last: int = 4) -> torch.Tensor:
        """The layers from ``first`` up to ``last``, so that what tasks have in common runs once for all."""
        for layer in range(first, last):
            x = self._layer(layer, x)
        return x

    def _layer(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        if layer == 0:
            return functional.relu(functional.max_pool2d(self.conv1(x), 2))  # (b, 32, 12, 12)
        if layer == 1:
            return functional.relu(functional.max_pool2d(self.conv2(x), 2)).flatten(1)  # (b, 1024)
        return functional.relu(self.fc1(x)) if layer == 2 else self.fc2(x)  # (b, 512), (b, 1)


class CharacterNet(nn.Module):
    """The network for Omniglot: three convolutions and two linear layers, tanh; 105 x 105 pixels."""

    layers = ("conv1", "conv2", "conv3", "fc1", "fc2")

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5)
        self.conv2 = nn.Conv2d(8, 12, 3)
        self.conv3 = nn.Conv2d(12, 16, 3)
        self.fc1 = nn.Linear(16 * 11 * 11, 64)
        self.fc2 = nn.Linear(64, outputs)

    def forward(self, x: torch.Tensor, first: int = 0, last: int = 5) -> torch.Tensor:
        """The layers from ``first`` up to ``last``; tanh after pooling is the same as before, and cheaper."""
        for layer in range(first, last):
            if layer < 3:
                convolution = (self.conv1, self.conv2, self.conv3)[layer]
                x = torch.tanh(functional.max_pool2d(convolution(x), 2))  # 50, 24, 11 pixels wide
                x = x.flatten(1) if layer == 2 else x
            else:
                x = torch.tanh(self.fc1(x)) if layer == 3 else self.fc2(x)
        return x


class FaceNet(nn.Module):
    """The network of Levi & Hassner (2015) for age and gender: three convolutions and three linear layers.

    Its pictures are 227 x 227; ``size`` may be less, for tests. Pooling rounds up, as theirs (Caffe) does.
    """

    layers = ("conv1", "conv2", "conv3", "fc1", "fc2", "fc3")

    def __init__(self, outputs: int, size: int = 227) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 7, stride=4)
        self.conv2 = nn.Conv2d(96, 256, 5, padding=2)
        self.conv3 = nn.Conv2d(256, 384, 3, padding=1)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.norm = nn.LocalResponseNorm(5)
        self.dropout = nn.Dropout(0.5)
        with torch.device("meta"):
            left = self.pool(
                self.pool(self.pool(nn.Conv2d(3, 1, 7, stride=4)(torch.empty(1, 3, size, size))))
            )
        self.fc1 = nn.Linear(384 * left.shape[-1] ** 2, 512)
        self.fc2 = nn.Linear(512, 512)
        self.fc3 = nn.Linear(512, outputs)

    def forward(self, x: torch.Tensor, first: int = 0, last: int = 6) -> torch.Tensor:
        """The layers from ``first`` up to ``last``."""
        for layer in range(first, last):
            x = self._layer(layer, x)
        return x

    def _layer(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        if layer < 3:
            convolution = (self.conv1, self.conv2, self.conv3)[layer]
            x = self.pool(functional.relu(convolution(x)))
            return x.flatten(1) if layer == 2 else self.norm(x)
        if layer < 5:
            hidden: torch.Tensor = self.dropout(functional.relu((self.fc1, self.fc2)[layer - 3](x)))
            return hidden
        scores: torch.Tensor = self.fc3(x)
        return scores
