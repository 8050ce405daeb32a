"""The tolerances of all tests: small faults are seen, and another order of summing is none."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import close, eps, is_close, rounding

ROWS, IN, OUT = 7, 48, 5
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
SEEDS = pytest.mark.parametrize("seed", range(20))


def operands(dtype, seed, positive=False):
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((ROWS, IN)), rng.standard_normal((IN, OUT))
    return [(np.abs(v) if positive else v).astype(dtype) for v in (x, w)]


def exact(x, w):
    """In extended precision, rounded once."""
    return (x.astype(np.longdouble) @ w.astype(np.longdouble)).astype(x.dtype)


def one_after_another(x, w, order):
    total = np.zeros((ROWS, OUT), x.dtype)
    for n in order:
        total = total + x[:, n, None] * w[n]
    return total


def in_pairs(x, w):
    terms = x[:, :, None] * w
    while terms.shape[1] > 1:
        odd = terms[:, -1:] if terms.shape[1] % 2 else terms[:, :0]
        even = terms[:, : terms.shape[1] // 2 * 2]
        terms = np.concatenate([even[:, ::2] + even[:, 1::2], odd], axis=1)
    return terms[:, 0]


def in_blocks(x, w):
    return sum(x[:, n : n + 8] @ w[n : n + 8] for n in range(0, IN, 8))


def orders(x, w, seed):
    """The same sum as other processors may take it."""
    shuffled = np.random.default_rng(seed).permutation(IN)
    upwards = np.argsort(np.abs(x).sum(0))
    sequences = [range(IN), range(IN)[::-1], shuffled, upwards, upwards[::-1]]
    return [x @ w, in_pairs(x, w), in_blocks(x, w), *(one_after_another(x, w, s) for s in sequences)]


@DTYPES
@SEEDS
@pytest.mark.parametrize("positive", [False, True])
def test_another_order_of_summing_is_no_fault(dtype, seed, positive):
    x, w = operands(dtype, seed, positive)
    sums = orders(x, w, seed)
    for found in sums:
        for wanted in (exact(x, w), *sums):
            close(found, wanted, IN)
            close(found, wanted, IN, scale=np.abs(x) @ np.abs(w))


@SEEDS
def test_sums_that_cancel_are_measured_by_what_was_added(seed):
    """A single number near zero says nothing of its terms: who gives their size is right, in every order."""
    x, w = operands("float32", seed)
    x[:, IN // 2 :], w[IN // 2 :] = x[:, : IN // 2], -w[: IN // 2] * np.float32(1 + 1e-6)
    for found in orders(x, w, seed):
        close(found, exact(x, w), IN, scale=np.abs(x) @ np.abs(w))


def one_element(x, w):
    w = w.copy()
    w[3, 2] = w[3, 2] * x.dtype.type(1.01)
    return exact(x, w)


def one_row(x, w):
    y = exact(x, w)
    y[-1, 0] *= 1 + 64 * eps(x.dtype) * np.sqrt(IN)
    y[np.unravel_index(np.abs(y).argmax(), y.shape)] *= 1 + 5 * eps(x.dtype) * np.sqrt(IN)
    return y


def last_term_dropped(x, w):
    return exact(x[:, :-1], w[:-1])


def twice_the_first(x, w):
    return exact(x, w) + x[:, :1] * w[:1]


def rows_swapped(x, w):
    return exact(x, w)[[1, 0, *range(2, ROWS)]]


def axis_swapped(x, w):
    """Of two axes of the same length, which no shape tells apart."""
    y = exact(x, w)
    y[:OUT] = y[:OUT].T.copy()
    return y


def half_accumulated(x, w):
    half = np.float16 if x.dtype == np.float32 else np.float32
    return exact(x.astype(half), w.astype(half)).astype(x.dtype)


def half_total(x, w):
    """Operands and terms as they are, partial sums rounded to half the digits."""
    half = np.float16 if x.dtype == np.float32 else np.float32
    total = np.zeros((ROWS, OUT), x.dtype)
    for n in range(0, IN, 16):
        total = (total + x[:, n : n + 16] @ w[n : n + 16]).astype(half).astype(x.dtype)
    return total


def conjugate(x, w):
    return exact(x, -w)


FAULTS = (
    one_element,
    one_row,
    last_term_dropped,
    twice_the_first,
    rows_swapped,
    axis_swapped,
    half_accumulated,
    half_total,
    conjugate,
)


@DTYPES
@SEEDS
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_small_faults_are_seen(fault, dtype, seed):
    x, w = operands(dtype, seed)
    assert not is_close(fault(x, w), exact(x, w), IN)


@SEEDS
@pytest.mark.parametrize("fault", [last_term_dropped, rows_swapped, axis_swapped, twice_the_first])
def test_faults_are_seen_in_half_precision_too(fault, seed):
    """Of numbers rounded to bfloat16, which has three digits: a product, rounded once."""
    torch = pytest.importorskip("torch")
    x, w = (torch.tensor(v).bfloat16() for v in operands("float32", seed))
    single = [v.float().numpy() for v in (x, w)]
    close((x @ w).float(), exact(*single), 1, dtype="bfloat16")
    assert not is_close((x @ w).float(), fault(*single), 1, dtype="bfloat16")


def test_gradients_that_another_processor_rounds_otherwise():
    """Found on one and not on another: 1.2e-5 in a gradient of 0.14, beside gradients of 180."""
    wanted = np.array([-180.69, 0.14, 45.81], np.float32)
    close(wanted + np.float32([0, 1.2e-5, 0]), wanted, 100)
    assert not is_close(wanted + np.float32([0, 2e-3, 0]), wanted, 100)


def test_what_is_no_number_is_never_close():
    ones = np.ones(3, np.float32)
    for bad in (np.nan, np.inf):
        assert not is_close(np.array([1, bad, 1], np.float32), ones, 10)
        assert not is_close(ones, np.array([1, bad, 1], np.float32), 10)
    assert not is_close(np.array([1, 2, np.inf], np.float32), np.array([1, 3, np.inf], np.float32), 10)
    close(np.array([1, 2, np.inf], np.float32), np.array([1, 2, np.inf], np.float32), 10)
    assert not is_close(ones, np.ones(4, np.float32), 10)
    assert not is_close([ones], [ones, ones], 10)
    assert not is_close([None, ones], [ones, None], 10)
    assert not is_close(np.array([1, 2]), np.array([1, 3]), 100), "whole numbers do not round"


def test_the_bound_follows_dtype_length_and_size():
    assert rounding("float32", 4, 3.0) == pytest.approx(4 * 2**-23 * 2 * 3)
    assert [eps(d) for d in ("bfloat16", "float16", "float64", "complex64")] == [
        2**-7,
        2**-10,
        2**-52,
        2**-23,
    ]
