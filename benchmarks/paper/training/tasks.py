"""What the tasks of an experiment are: their images, their loss, and how errors are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tnshare_torch.shared import Shared
from torch import Tensor
from torch.nn import functional

import tnshare as tn

_AT_ONCE = 100  # images; more of them do not fit into a processor's cache


class Tasks(Protocol):
    """Tasks that a shared network is trained and tested on.

    ``hard`` is the number of first layers that all tasks have in common: they run once, on all images.
    """

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Any]:
        """One epoch."""

    def loss(self, shared: Shared, hard: int, batch: Any) -> Tensor:
        """The sum over tasks of the mean loss of each."""

    def errors(self, shared: Shared, hard: int) -> dict[str, Any]:
        """Errors in per cent."""

    def fold(self, number: int, of: int) -> tuple[Tasks, Tasks]:
        """For cross-validation: all images but one part of so many, and that part; every class in each."""


@dataclass(frozen=True, eq=False)
class OneAgainstRest:
    """Every class is a task, on the same images: is it this one, +1, or another, -1? Hinge loss."""

    images: Tensor  # (n, channels, height, width)
    labels: Tensor  # (n,)
    classes: int

    def __post_init__(self) -> None:
        _check_images([self.labels])

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        return iter(torch.split(torch.randperm(len(self.labels), generator=generator), size))

    def loss(self, shared: Shared, hard: int, batch: Tensor) -> Tensor:
        """Images beyond the margin have neither loss nor gradient, so they are left out of the backward pass.

        To find them takes a forward pass without gradients. Soon they are nearly all, and a step then takes
        less than half of its time, with the same gradients.
        """
        images, signs = self.images[batch], self.signs(self.labels[batch])
        with torch.no_grad():
            short = self.scores(shared, hard, images) * signs < 1
        if hard:
            rows = short.any(0)
            scores = self.scores(shared, hard, images[rows])
            return functional.relu(1 - scores * signs[:, rows]).sum() / len(batch)
        each = zip(shared([images[rows] for rows in short]), signs, short, strict=True)
        losses = [functional.relu(1 - s[:, 0] * sign[rows]).sum() for s, sign, rows in each]
        return torch.stack(losses).sum() / len(batch)

    def signs(self, labels: Tensor) -> Tensor:
        """Classes x n: +1 where an image is of the class, else -1."""
        return torch.where(torch.arange(self.classes)[:, None] == labels, 1.0, -1.0)

    def scores(self, shared: Shared, hard: int, images: Tensor) -> Tensor:
        """Classes x n: what every task says of every image."""
        common = shared(images, 0, last=hard) if hard else images
        found: Tensor = shared.fan_out(common, first=hard)[..., 0]
        return found

    @torch.no_grad()
    def errors(self, shared: Shared, hard: int) -> dict[str, Any]:
        scores = torch.cat(
            [self.scores(shared, hard, part) for part in torch.split(self.images, _AT_ONCE)], 1
        )
        wrong = (scores > 0) != (self.signs(self.labels) > 0)
        return {
            "binary_error": per_cent(wrong),
            "multiclass_error": per_cent(scores.argmax(0) != self.labels),
            "task_errors": [per_cent(row) for row in wrong],
        }

    def fold(self, number: int, of: int) -> tuple[OneAgainstRest, OneAgainstRest]:
        part = places_by_class(self.labels) % of == number
        rest, held = (
            OneAgainstRest(self.images[rows], self.labels[rows], self.classes) for rows in (~part, part)
        )
        return rest, held


@dataclass(frozen=True, eq=False)
class OwnClasses:
    """Every task has images and classes of its own; cross entropy. Images may be bytes, to save memory.

    No image is seen by two tasks, so layers in common have nothing to run once: ``hard`` changes nothing.
    """

    images: Sequence[Tensor]  # of each task (n, channels, height, width)
    labels: Sequence[Tensor]
    scale: float = 1.0  # of the bytes

    def __post_init__(self) -> None:
        _check_images(self.labels)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[list[Tensor]]:
        """Rows of each task: as many batches as make them ``size`` on average, all tasks in each of them."""
        count = max(1, round(sum(map(len, self.labels)) / len(self.labels) / size))
        orders = [torch.randperm(len(labels), generator=generator) for labels in self.labels]
        parts = [order.tensor_split(count) for order in orders]
        return (list(rows) for rows in zip(*parts, strict=True))

    def loss(self, shared: Shared, hard: int, batch: list[Tensor]) -> Tensor:
        images = [given[rows] for given, rows in zip(self.images, batch, strict=True)]
        scores = self.scores(shared, images)
        each = zip(scores, self.labels, batch, strict=True)
        losses = [functional.cross_entropy(s, labels[rows]) for s, labels, rows in each if len(rows)]
        return torch.stack(losses).sum()

    def scores(self, shared: Shared, images: Sequence[Tensor]) -> list[Tensor]:
        """What each task says of its own images: (n, classes)."""
        found: list[Tensor] = shared([self._given(each) for each in images])
        return found

    @torch.no_grad()
    def errors(self, shared: Shared, hard: int) -> dict[str, Any]:
        found = []
        for task, (images, labels) in enumerate(zip(self.images, self.labels, strict=True)):
            parts = [shared(self._given(part), task) for part in torch.split(images, _AT_ONCE)]
            found.append(per_cent(torch.cat(parts).argmax(1) != labels))
        return {"multiclass_error": sum(found) / len(found), "task_errors": found}

    def fold(self, number: int, of: int) -> tuple[OwnClasses, OwnClasses]:
        part = [places_by_class(labels) % of == number for labels in self.labels]
        parts = []
        for masks in ([~mask for mask in part], part):
            images = [given[mask] for given, mask in zip(self.images, masks, strict=True)]
            labels = [given[mask] for given, mask in zip(self.labels, masks, strict=True)]
            parts.append(OwnClasses(images, labels, self.scale))
        return parts[0], parts[1]

    def _given(self, images: Tensor) -> Tensor:
        return prepared(images) if self.scale == 1 else prepared(images).mul_(self.scale)


def prepared(images: Tensor) -> Tensor:
    """Numbers that a network takes, with the strides of channels last, also of one channel.

    Then the convolutions' results have them too, and pooling takes a tenth of its time on a CPU.
    """
    return torch.empty(images.shape, memory_format=torch.channels_last).copy_(images)


def places_by_class(labels: Tensor) -> Tensor:
    """Where each would be if they were sorted by label: those of a class have numbers in a row."""
    places = torch.empty_like(labels)
    places[torch.argsort(labels, stable=True)] = torch.arange(len(labels))
    return places


def per_cent(wrong: Tensor) -> float:
    """How many, in per cent."""
    return 100 * float(wrong.float().mean())


def _check_images(labels: Sequence[Tensor]) -> None:
    """A fraction may be too small for one image in training, or leave none for the test; folds, too many."""
    without = sum(len(own) == 0 for own in labels)
    if without:
        raise tn.TnshareError(
            f"every task needs an image to train on, and one to test: {without} of {len(labels)} have none; "
            "give a larger fraction or fewer folds, or less than all images, so that some are left"
        )
