"""A factorisation is data: named tensors joined by named axes, and what makes them."""

from ._description import described, differences, inferred, same_spec, spec_of, spelled
from ._frozen_codes import FrozenCodes
from ._nodes import Network, Node
from ._specs import LAF, METHODS, TT, Sizes, Spec, Tucker

__all__ = [
    "LAF",
    "METHODS",
    "TT",
    "FrozenCodes",
    "Network",
    "Node",
    "Sizes",
    "Spec",
    "Tucker",
    "described",
    "differences",
    "inferred",
    "same_spec",
    "spec_of",
    "spelled",
]
