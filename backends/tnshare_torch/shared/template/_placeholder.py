"""What stands for a tensor in a network that has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import tnshare as tn

# What torch.compile does to a tensor that it only passes on: the copy has no numbers either.
_COPIES = (torch.ops.aten.clone.default, torch.ops.aten.detach.default, torch.ops.aten.alias.default)


class Placeholder(torch.Tensor):
    """A tensor without numbers: a shape, a dtype, and the name that it has in its network.

    Torch functions are given another tensor in its place. Where it comes to an operation itself, in
    TorchScript, in an extension, or in the backward pass of an ``autograd.Function``, that is an error. A
    plain tensor on the meta device would not do: torch (2.13) gives the product of it and another as memory
    that nobody has written to.
    """

    called: str
    blank: torch.Tensor  # of one number, for its dtype: torch.compile wants a tensor in every subclass
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, like: torch.Tensor, called: str) -> Placeholder:
        blank = torch.empty((), dtype=like.dtype, device="meta")
        strides = like.stride() if like.layout is torch.strided else None  # a sparse buffer has none
        return _made(called, like.shape, strides, blank, _kind(like))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = torch.utils._pytree.tree_leaves((args, kwargs))
        found = next(value for value in given if isinstance(value, cls))
        if func in _COPIES:
            return _made(found.called, found.shape, found.stride(), func(found.blank), None)
        raise tn.TnshareError(
            f"{found.called!r} is used where the tensor of a task cannot be put in, by {func}: in "
            "TorchScript, in an extension, or in the backward pass of an autograd.Function; use functions of "
            "torch instead"
        )

    def __tensor_flatten__(self) -> tuple[list[str], tuple[str, bool | None]]:
        return ["blank"], (self.called, _kind(self))

    @staticmethod
    def __tensor_unflatten__(
        inner: Mapping[str, torch.Tensor], context: tuple[str, bool | None], size: Any, stride: Any
    ) -> Placeholder:
        return _made(context[0], size, stride, inner["blank"], context[1])

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Placeholder({self.called!r}, {tuple(self.shape)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Placeholder:
        return memo.setdefault(id(self), Placeholder(self, self.called))  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _made, (self.called, tuple(self.shape), self.stride(), self.blank, _kind(self))


def _made(called: str, size: Any, stride: Any, blank: torch.Tensor, trains: bool | None) -> Placeholder:
    made: Placeholder = torch.Tensor._make_wrapper_subclass(
        Placeholder,
        size,
        strides=stride,
        dtype=blank.dtype,
        device=torch.device("meta"),
        requires_grad=bool(trains),
    )
    made.called, made.blank = called, blank
    # As sizes of parameters are: else a batch as large as one of them would be a case of its own.
    made._dynamo_static_indices = set(range(made.ndim))  # type: ignore[attr-defined]
    if trains is not None:
        made._is_param = True
    if trains:
        made.register_hook(_refusal(called))  # type: ignore[no-untyped-call]
    return made


def _refusal(called: str) -> Callable[[torch.Tensor | None], None]:
    def refuse(gradient: torch.Tensor | None) -> None:
        if gradient is not None:  # there is none of what compiled code takes in and does not use
            raise tn.TnshareError(
                f"the gradient of {called!r} would be lost: it was given as it is to an autograd.Function, "
                "which tensors of tasks cannot be put into; use functions of torch instead"
            )

    return refuse


def _kind(tensor: torch.Tensor) -> bool | None:
    """Whether a parameter is one to train; of a buffer, None."""
    return tensor.requires_grad if isinstance(tensor, nn.Parameter) else None
