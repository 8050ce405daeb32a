"""Soft parameter sharing between many related tasks, by tensor networks, in any deep-learning framework."""

from . import backends, ops
from .apply import apply, fan_out, weight
from .candidate import Candidate
from .checkpoint import load, save
from .compose import compose
from .convolution import Conv
from .decompose import Decomposition, decompose
from .embedding import Embedding
from .errors import TnshareError
from .frozen import FrozenCodes
from .init import decomposed_factors, random_factors
from .layer import Layer, Linear
from .network import Network, Node
from .plan import Plan
from .sharing import codes, sharing_strength, task_similarity
from .spec import LAF, TT, Spec, Tucker
from .state import State
from .step import Step

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
    "Spec",
    "State",
    "Step",
    "TnshareError",
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
