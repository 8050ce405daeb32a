"""Whether a tensor is still what it was."""

from __future__ import annotations

from typing import Any

import torch


def mark(tensor: torch.Tensor) -> Any:
    """Something that changes with the numbers of a tensor, unless they are written through ``.data``.

    None where torch cannot say: inside its transforms, and for tensors made in inference mode.
    """
    try:
        return tensor._version, tensor.data_ptr(), tensor.stride(), tensor.dtype, tensor.device
    except RuntimeError:
        return None
