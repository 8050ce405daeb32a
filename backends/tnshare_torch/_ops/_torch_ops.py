"""The array operations of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, index_select, int64
from torch.compiler import is_compiling

from tnshare.checks import positive
from tnshare.errors import TnshareError
from tnshare.ops import NDArray
from tnshare.planning import Device, Profile, cpu_model
from tnshare.planning import calibrate as measured_profile

from ._chunks import in_chunks
from ._convolution import convolve


class TorchOps:
    """What `tnshare.ops.Ops` asks for."""

    mm = staticmethod(torch.mm)
    bmm = staticmethod(torch.bmm)
    reshape = staticmethod(torch.reshape)
    transpose: Callable[[torch.Tensor, Sequence[int]], torch.Tensor] = staticmethod(torch.permute)  # type: ignore[assignment]
    multiply = staticmethod(torch.mul)
    in_chunks = staticmethod(in_chunks)
    convolve = staticmethod(convolve)
    told = ("shape", "dtype", "device")

    @staticmethod
    def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        # torch.matmul does the same and costs a few microseconds more.
        left, right = a.ndim, b.ndim
        if left == right:
            return torch.mm(a, b) if left == 2 else torch.bmm(a, b)
        if left == 2:
            return torch.bmm(a.expand(b.shape[0], -1, -1), b)
        return torch.bmm(a, b.expand(a.shape[0], -1, -1))

    @staticmethod
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        # Under autocast products are short and parameters are not.
        return a + b if a.dtype == b.dtype else a + b.to(a.dtype)

    @staticmethod
    def take(a: torch.Tensor, ids: Sequence[Any]) -> torch.Tensor:
        first = ids[0]
        if len(ids) == 1 and isinstance(first, Tensor) and first.dtype is int64 and first.ndim == 1:
            # Backwards, index_select adds rows up without sorting them.
            return index_select(a, 0, out_of_range_refused(first, a.shape[0]) if is_compiling() else first)
        if len(ids) > 1 or isinstance(first, int):
            return a[tuple(_index(i, n, a.device) for i, n in zip(ids, a.shape, strict=False))]
        index = _index(first, a.shape[0], a.device)
        if index.ndim == 1:  # backwards, index_select adds rows up without sorting them
            return index_select(a, 0, index)
        # a[index] would read the value of a single index, and compile a compiled call again for every task.
        return index_select(a, 0, index.reshape(-1)).reshape(index.shape + a.shape[1:])

    @staticmethod
    def row(a: torch.Tensor, i: Any) -> torch.Tensor:
        return (
            a[i : i + 1] if type(i) is int else index_select(a, 0, _index(i, a.shape[0], a.device).reshape(1))
        )

    @staticmethod
    def asarray(value: NDArray, like: torch.Tensor | None = None) -> torch.Tensor:
        tensor = torch.tensor(value)
        return tensor if like is None else tensor.to(like)

    @staticmethod
    def values(a: Any) -> NDArray | None:
        if not isinstance(a, torch.Tensor):
            return np.asarray(a)
        if is_compiling() or a.is_meta:
            return None
        if a.layout != torch.strided:
            raise TnshareError(f"ids and tokens must be dense: found {a.layout}; convert with to_dense()")
        plain = a.detach().cpu()
        try:
            return np.asarray(plain.float() if a.dtype == torch.bfloat16 else plain)
        except RuntimeError:  # inside torch.func's transforms, and of fake tensors
            return None

    @staticmethod
    def concrete(a: torch.Tensor) -> bool:
        if is_compiling() or a.is_meta or type(a) not in (torch.Tensor, torch.nn.Parameter):
            return False
        return not torch._C._functorch.is_functorch_wrapped_tensor(a)

    @staticmethod
    def guards(ids: Any) -> bool:
        # On other devices an id that is out of range would stop the device, not raise.
        return isinstance(ids, torch.Tensor) and ids.ndim == 1 and ids.is_cpu and ids.dtype == torch.int64

    @staticmethod
    def device(like: torch.Tensor) -> Device:
        return _device(like.device, torch.get_num_threads())

    @staticmethod
    def wait(a: torch.Tensor) -> None:
        if a.is_cuda:
            torch.cuda.synchronize(a.device)

    @staticmethod
    def gradients(
        function: Callable[..., torch.Tensor], arrays: Sequence[torch.Tensor], weights: torch.Tensor
    ) -> list[torch.Tensor]:
        leaves = [array.detach().requires_grad_() for array in arrays]
        with torch.enable_grad():
            result = function(*leaves)
        return list(torch.autograd.grad(result, leaves, weights, materialize_grads=True))


@lru_cache(maxsize=64)
def _device(device: torch.device, threads: int) -> Device:
    kind = device.type
    if kind == "cuda":
        return Device("torch", torch.__version__, kind, torch.cuda.get_device_name(device), 0)
    return Device("torch", torch.__version__, kind, cpu_model() if kind == "cpu" else kind, threads)


def out_of_range_refused(ids: torch.Tensor, size: int) -> torch.Tensor:
    """Ids of which compiled code refuses those that are out of range; else it would count from behind.

    The host does not look at their values, so it need not wait for a device. Eager calls check them before.
    """
    return torch.where(ids < 0, size, ids) if is_compiling() else ids


def autocasts(kind: str) -> bool:
    """Whether autocast is on; some kinds of devices, as "meta", do not know it."""
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _index(ids: Any, size: int, device: torch.device) -> Any:
    """Ids as torch takes them: it reads bytes as a mask and does not know the other short integers."""
    if isinstance(ids, torch.Tensor):
        return out_of_range_refused(ids if ids.dtype == torch.int64 else ids.long(), size)
    return torch.as_tensor(ids.astype(np.int64), device=device) if isinstance(ids, np.ndarray) else ids


ops = TorchOps()


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A tensor in NumPy, which has no bfloat16."""
    plain = tensor.detach().cpu()
    found: np.ndarray[Any, Any] = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return found


def calibrate(
    device: torch.device | str = "cpu",
    *,
    seconds: float = 10,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Measure a device, with as many threads as torch uses now, and keep the profile in the cache folder.

    Layers that are made or first called from now on are planned by it. ``progress(done, total)`` is called
    after every part. The folder is that of the environment variable TNSHARE_CACHE, or the user's own.
    """
    positive("seconds", seconds)
    check_device("cpu" if device is None else device)
    if torch.device(device).type == "meta":
        raise TnshareError(f"device must be one that computes: found {device!r}")
    if not (progress is None or callable(progress)):
        raise TnshareError(f"progress must be a function (done, total): found {progress!r}")
    ops = _OpsOn(torch.device(device))
    like = torch.empty(1, device=device)
    with torch.no_grad():
        return measured_profile(ops, ops.device(like), wait=ops.wait, seconds=seconds, progress=progress)


def check_device(device: Any) -> None:
    """Refuse what torch knows as no device; None is its default."""
    try:
        torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError):
        raise TnshareError(f"device must be one of torch's, as 'cpu' or 'cuda:0': found {device!r}") from None


class _OpsOn(TorchOps):
    """The same operations, with arrays made on a device."""

    def __init__(self, place: torch.device) -> None:
        self.place = place

    def asarray(  # type: ignore[override]
        self, value: NDArray, like: torch.Tensor | None = None
    ) -> torch.Tensor:
        return torch.tensor(value, device=self.place) if like is None else torch.tensor(value).to(like)
