"""State dicts that know what they are of and say what does not fit; and states for `tnshare.save`."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

import tnshare as tn
from tnshare.files import layer_params, layer_state
from tnshare.network import described, differences, inferred, same_spec, spelled
from tnshare_torch._ops import array_of

_KEY = "tnshare"


class Misfit(tn.TnshareError, RuntimeError):  # noqa: N818 (torch's own is a RuntimeError)
    """A state that does not fit, as `load_state_dict` says it; nothing of it was taken over."""


class SpecInState(nn.Module):
    """A module whose ``state_dict`` carries its specification.

    It is where torch keeps the versions of modules, in the metadata of a state, which files keep: keys and
    tensors of a state are the module's alone. Where somebody made a new dict of them, shapes tell the ranks.
    What does not fit is said among the errors of ``load_state_dict``, with ``strict=False`` too: half of a
    network is none. A state that has nothing of the module leaves it as it is.
    """

    @abstractmethod
    def specification(self) -> dict[str, Any]:
        """What saved numbers must fit, as JSON can hold it."""

    @abstractmethod
    def _misfits(self, saved: Mapping[str, Any] | None, tensors: Mapping[str, Any]) -> Iterator[str]:
        """What of a saved specification, if there is one, and of saved tensors does not fit; and the fix."""

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """As torch's, but all or nothing: a state that does not fit leaves every number as it was."""
        if not isinstance(state_dict, Mapping):
            found = type(state_dict).__name__
            raise tn.TnshareError(f"state_dict must be a dict, as module.state_dict() gives: found {found}")
        try:
            super().load_state_dict(self._own_numbers(state_dict), strict)  # a trial
            if wrong := list(self._of_other_kinds(state_dict)):
                raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}: {wrong[0]}")
            return super().load_state_dict(state_dict, strict, assign)
        except RuntimeError as error:
            raise Misfit(str(error)) from None

    def _own_numbers(self, state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        """A state with the module's own numbers where they have the shape: what is wrong with it stays."""
        own, trial = self.state_dict(keep_vars=True), copy.copy(state_dict)
        for name, value in state_dict.items():
            if isinstance(value, torch.Tensor) and name in own and shape_of(own[name]) == shape_of(value):
                trial[name] = own[name].detach()  # type: ignore[index]
        return trial

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        metadata = getattr(destination, "_metadata", None)  # a dict of one's own may have none
        if metadata is not None:
            metadata.setdefault(prefix[:-1], {})[_KEY] = self.specification()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        tensors = {name.removeprefix(prefix): v for name, v in state_dict.items() if name.startswith(prefix)}
        if tensors:
            where = prefix.removesuffix(".") or type(self).__name__
            try:
                found = self._misfits(local_metadata.get(_KEY), tensors)
                error_msgs += [f"{where}: saved with {text}." for text in found]
                error_msgs += [f"{where}: {text}." for text in self._of_other_kinds(tensors)]
            except (KeyError, TypeError, ValueError, AttributeError, IndexError):
                error_msgs.append(f"{where}: its specification in the state is damaged; use another copy.")
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _of_other_kinds(self, tensors: Mapping[str, Any]) -> Iterator[str]:
        """Which tensors are whole numbers or complex where others are expected: torch would convert them."""
        own = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        for name, tensor in tensors.items():
            if name in own and isinstance(tensor, torch.Tensor) and (text := _wrong_kind(own[name], tensor)):
                yield f"{name} {text}"


class LayerState(SpecInState):
    """The state of a layer of many tasks."""

    description: tn.Layer

    def specification(self) -> dict[str, Any]:
        return described(self.description.spec, self.description.network)

    def state(self) -> tn.State:
        """Its numbers without torch, for `tnshare.save`: the decomposition "weight", and the bias."""
        names = (*self.description.network.shapes, *self.description.shapes)  # frozen codes too, in its dtype
        return layer_state(self.description, {name: array_of(getattr(self, name)) for name in names})

    def load_state(self, state: tn.State) -> None:
        """Take over the numbers of a state as `state` gives it."""
        self._take_over(layer_params(self.description, state))

    def _take_over(self, values: Mapping[str, Any]) -> None:
        """Copy arrays into parameters of their shapes, all of them or none."""
        found = {name: torch.from_numpy(value) for name, value in values.items()}
        for name, tensor in found.items():
            if text := _wrong_kind(self.get_parameter(name), tensor):
                raise tn.TnshareError(f"{name} {text}")
        with torch.no_grad():
            for name, tensor in found.items():
                self.get_parameter(name).copy_(tensor)

    def _misfits(self, saved: Mapping[str, Any] | None, tensors: Mapping[str, Any]) -> Iterator[str]:
        own, shapes = self.specification(), {name: shape_of(tensor) for name, tensor in tensors.items()}
        if saved is None:
            saved = inferred(self.description.spec, self.description.network, shapes)
        fix = "of these sizes" if same_spec(own, saved) else f"with spec=tnshare.{spelled(saved)}"
        for text in differences(own, saved):
            yield f"{text}: make the layer {fix} before loading"


def _wrong_kind(own: torch.Tensor, other: torch.Tensor) -> str:
    """What is wrong about the dtype of what is to be copied into a tensor; "" if nothing is."""
    kinds = [(t.is_complex(), t.is_floating_point()) for t in (own, other)]
    if kinds[0] == kinds[1] or (own.is_complex() and other.is_floating_point()):
        return ""
    found, expected = (str(t.dtype).removeprefix("torch.") for t in (other, own))
    return f"must hold numbers such as {expected}: found {found}"


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The shape of what has one; () of anything else."""
    return tuple(getattr(tensor, "shape", ()))
