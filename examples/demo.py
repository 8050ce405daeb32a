"""Ten one-vs-rest networks on digits: trained alone, shared by LAF, Tucker and TT, fine-tuned. In PyTorch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import digits
import tnshare_torch as tnt
import torch
from digits import FIRST, HARD, SINGLE, Result, Settings, Split
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, max_pool2d, relu
from tqdm import tqdm


class Net(nn.Module):
    """Is it this digit? An ordinary network of one task, which knows nothing of others."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.hidden = nn.Linear(16 * 4 * 4, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The logit of the answer, (N,)."""
        x = max_pool2d(relu(self.conv(x)), 2).flatten(1)
        return self.head(relu(self.hidden(x))).squeeze(1)


class Alone(nn.Module):
    """Ten networks that share nothing, called like those that do."""

    def __init__(self, nets: Sequence[nn.Module]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def fan_out(self, x: Tensor) -> Tensor:
        """The same images through every task: (T, N)."""
        return torch.stack([net(x) for net in self.nets])

    def unshare(self) -> list[nn.Module]:
        """The ten networks."""
        return list(self.nets)


Model = Alone | tnt.Shared


def train(model: Model, data: Split, s: Settings, seed: int, bar: tqdm) -> float:
    """One stage; returns the median milliseconds of a step.

    Adam works on each number for itself, so ten networks with one optimiser are each trained alone.
    """
    optimiser = torch.optim.Adam(model.parameters(), s.rate, fused=True)
    images, answers = torch.from_numpy(data.images), torch.from_numpy(digits.answers(data.digits))
    times = []
    for rows in map(torch.from_numpy, digits.batches(len(images), s.batch, s.steps, seed)):
        start = time.perf_counter()
        optimiser.zero_grad()
        outputs = model.fan_out(images[rows])
        loss = binary_cross_entropy_with_logits(outputs, answers[:, rows], reduction="none")
        loss.mean(1).sum().backward()  # each task has its own loss
        optimiser.step()
        times.append(1e3 * (time.perf_counter() - start))
        bar.update()
    return statistics.median(times)


def measured(method: str, model: Model, data: Split, ms: float) -> Result:
    """Errors on the images that nobody trained on, and how alike the tasks are in every layer."""
    with torch.no_grad():
        outputs = model.fan_out(torch.from_numpy(data.test_images)).numpy()
    tasks = [dict(net.named_parameters()) for net in model.unshare()]
    cosine = {
        layer: digits.mean_cosine([own[f"{layer}.weight"].detach().numpy() for own in tasks])
        for layer in ("conv", "hidden", "head")
    }
    strength = model.sharing() if isinstance(model, tnt.Shared) else {}
    count = sum(parameter.numel() for parameter in model.parameters())
    return Result(method, *digits.errors(outputs, data.test_digits), count, ms, strength, cosine)


def run(s: Settings, seed: int, bar: tqdm) -> tuple[list[Result], dict[str, digits.NDArray]]:
    """All methods on the split of one seed; and which tasks are alike in the layers of the last."""
    data = digits.split(s.images, seed)
    torch.manual_seed(seed)
    nets = tnt.replicate(Net(), tasks=digits.TASKS)  # of one initial state: only then do weights stay alike
    alone, hard = Alone(nets), tnt.share(nets, "hard", layers={"head": "single"})

    def stage(method: str, model: Model, number: int) -> Result:
        bar.set_description(f"seed {seed}, {method}")
        return measured(method, model, data, train(model, data, s, 2 * seed + number, bar))

    results = [stage(FIRST, alone, 0)]
    softly = {name: tnt.share(nets, name, eps=s.eps, relative_to="deviation") for name in digits.METHODS}
    results.append(stage(SINGLE, alone, 1))
    stage(HARD, hard, 0)
    results.append(stage(HARD, hard, 1))
    results += [stage(digits.NAMES[name], shared, 1) for name, shared in softly.items()]
    return results, softly["tt"].similarity()


def main(s: Settings) -> list[Result]:
    """Run it, and print the table."""
    torch.set_num_threads(1)  # for networks as small as these, more would only wait for each other
    return digits.shown(run, s, "digits.png", "PyTorch, one thread")


if __name__ == "__main__":
    main(Settings.parsed(__doc__))
