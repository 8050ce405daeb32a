"""A twin of the toy with one mistake in each operation; the laws must find every one of them."""

import numpy as np
from tnshare_toy import Box, ToyOps


class TransposedProduct(ToyOps):
    def matmul(self, a, b):
        return Box((a.content @ b.content).swapaxes(-1, -2).reshape((a.content @ b.content).shape))


class FortranReshape(ToyOps):
    def reshape(self, a, shape):
        return Box(a.content.reshape(shape, order="F"))


class InverseTranspose(ToyOps):
    def transpose(self, a, order):
        return Box(a.content.transpose(np.argsort(order)))


class NoBroadcast(ToyOps):
    def add(self, a, b):
        return Box(a.content + b.content.mean())


class AddsToMultiply(ToyOps):
    def multiply(self, a, b):
        return Box(a.content + b.content)


class ShiftedRows(ToyOps):
    def take(self, a, ids):
        return Box(a.content[tuple(np.subtract(i, 1) for i in ids)])


class HalfPrecision(ToyOps):
    def matmul(self, a, b):
        return Box((a.content @ b.content).astype(np.float16).astype(a.content.dtype))


class LosesDtype(ToyOps):
    def asarray(self, value, like=None):
        return Box(value)


class NoValues(ToyOps):
    def values(self, a):
        return None


MISTAKES = [
    TransposedProduct,
    FortranReshape,
    InverseTranspose,
    NoBroadcast,
    AddsToMultiply,
    ShiftedRows,
    HalfPrecision,
    LosesDtype,
    NoValues,
]
ops = TransposedProduct()
