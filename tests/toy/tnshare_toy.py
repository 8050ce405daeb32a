"""A third party's backend in about 30 lines: a framework whose arrays are boxes around NumPy's."""

import numpy as np


class Box:
    def __init__(self, content):
        self.content = np.asarray(content)
        self.shape = self.content.shape


class ToyOps:
    def matmul(self, a, b):
        return Box(np.einsum("...ij,...jk->...ik", a.content, b.content))

    def reshape(self, a, shape):
        return Box(a.content.reshape(shape))

    def transpose(self, a, order):
        return Box(a.content.transpose(order))

    def multiply(self, a, b):
        return Box(a.content * b.content)

    def add(self, a, b):
        return Box(a.content + b.content)

    def take(self, a, ids):
        return Box(a.content[tuple(ids)])

    def asarray(self, value, like=None):
        return Box(value if like is None else value.astype(like.content.dtype))

    def values(self, a):
        return a.content if isinstance(a, Box) else np.asarray(a)


ops = ToyOps()
