"""Whether several tasks are computed at once, as one batch, or one after the other."""

from __future__ import annotations

# Measured with PyTorch on a CPU, one thread, training steps of 4 to 64 tasks (multi-layer perceptrons, small
# convolutional networks, a transformer layer): at once took 0.13 to 0.94 times as long as one by one
# wherever an operation gave at most this many numbers, and up to twice as long beyond, past the caches.
NUMBERS = 8192
TASKS = 4


def at_once_pays(tasks: int, numbers: float) -> bool:
    """Whether calls are so short that one for all tasks beats one for each.

    ``numbers`` is what an operation of one task gives, on average.
    """
    return tasks >= TASKS and numbers <= NUMBERS
