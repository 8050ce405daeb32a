"""Soft parameter sharing between many related tasks, by tensor networks, in any deep-learning framework."""

from . import backends, ops
from .decomposition import (
    Decomposition,
    codes,
    compose,
    decompose,
    decomposed_factors,
    random_factors,
    sharing_strength,
    task_similarity,
)
from .errors import TnshareError, TnshareWarning
from .files import State, load, save
from .layers import Conv, Embedding, Layer, Linear, apply, fan_out, weight
from .network import LAF, TT, FrozenCodes, Network, Node, Spec, Tucker
from .planning import Candidate, Plan, Profile, Step

__all__ = [
    "LAF",
    "TT",
    "Candidate",
    "Conv",
    "Decomposition",
    "Embedding",
    "FrozenCodes",
    "Layer",
    "Linear",
    "Network",
    "Node",
    "Plan",
    "Profile",
    "Spec",
    "State",
    "Step",
    "TnshareError",
    "TnshareWarning",
    "Tucker",
    "apply",
    "backends",
    "codes",
    "compose",
    "decompose",
    "decomposed_factors",
    "fan_out",
    "load",
    "ops",
    "random_factors",
    "save",
    "sharing_strength",
    "task_similarity",
    "weight",
]
