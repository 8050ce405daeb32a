"""Linear, convolution and embedding without a framework: what they are, and how a call of them runs."""

from ._compiled_timing import source, tune
from ._functions import apply, calls_for, fan_out, weight
from ._layer import Layer, Tasks, check_layer
from ._linear import Linear
from .convolution._conv import Conv
from .embedding._embedding import Embedding
