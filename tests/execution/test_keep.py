"""What is kept between calls: never stale, never more than allowed, never shared by copies."""

from __future__ import annotations

import copy
import pickle
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnshare.execution import Kept


def mark(array):
    return array.tobytes()


def size_mark(array):
    return None if array.size == 1 else array.tobytes()


@pytest.fixture
def kept():
    return Kept(mark, np.copy)


class Making:
    """Counts how often something is prepared."""

    def __init__(self, value=0):
        self.times, self.value = 0, value

    def __call__(self):
        self.times += 1
        return (np.full(4, self.value), None)


def test_what_was_prepared_is_prepared_once(kept):
    factors, make = [np.ones(3), np.ones(2)], Making()
    (made, nothing), again = kept("key", factors, make), kept("key", factors, make)
    assert again[0].tolist() == made.tolist()
    assert again[1] is nothing is None
    assert kept("key", tuple(factors), make) is again
    assert (make.times, len(kept)) == (1, 1)


def test_other_keys_have_values_of_their_own(kept):
    factors = [np.ones(3)]
    one, two = kept(("text", 1), factors, Making(1)), kept(("text", 2), factors, Making(2))
    assert (one[0][0], two[0][0]) == (1, 2)
    assert kept(("text", 1), factors, Making(3))[0].tolist() == one[0].tolist()
    assert len(kept) == 2


@pytest.mark.parametrize("which", [0, 1])
def test_a_factor_that_changed_in_place_is_noticed(kept, which):
    factors, make = [np.ones(3), np.ones(2)], Making()
    kept("key", factors, make)
    factors[which][-1] = 7
    kept("key", factors, make)
    assert make.times == 2
    factors[which][-1] = 1  # back again: what was kept is that of the change
    kept("key", factors, make)
    assert (make.times, len(kept)) == (3, 1)


@pytest.mark.parametrize("which", [0, 1])
def test_another_array_is_another_factor_even_with_the_same_mark(which):
    kept, factors, make = Kept(lambda a: "same", np.copy), [np.ones(3), np.ones(2)], Making()
    kept("key", factors, make)
    factors[which] = factors[which].copy()
    kept("key", factors, make)
    assert make.times == 2


def test_one_factor_less_is_another_call():
    kept, factors, make = Kept(lambda a: "same", np.copy), [np.ones(3), np.ones(2)], Making()
    kept("key", factors, make)
    kept("key", factors[:1], make)
    kept("key", factors, make)
    assert make.times == 3


def test_nothing_is_kept_of_what_cannot_be_marked():
    kept, make = Kept(size_mark, np.copy), Making()
    for _ in range(2):
        kept("key", [np.ones(3), np.ones(1)], make)
    assert (make.times, len(kept)) == (2, 0)


def test_marks_are_read_before_values():
    """If a factor changes while its value is prepared, the value belongs to no mark that comes later."""
    kept, factor = Kept(mark, np.copy), np.ones(3)

    def changing():
        value = factor.copy()
        factor[0] = 9  # by another thread, say
        return value

    assert kept("key", [factor], changing).tolist() == [1, 1, 1]
    assert kept("key", [factor], factor.copy).tolist() == [9, 1, 1]


def test_memory_of_factors_is_held_by_their_aliases():
    aliases = []
    kept = Kept(mark, lambda array: aliases.append(array.view()) or aliases[-1])
    factors = [np.ones(3), np.ones(2)]
    kept("key", factors, Making())
    assert all(a.base is f for a, f in zip(aliases, factors, strict=False))
    (entry,) = kept._entries.values()
    assert all(a is b for a, b in zip(entry.aliases, aliases, strict=False))
    gone = weakref.ref(factors.pop())
    assert gone() is not None  # its memory, which is the array itself in NumPy
    kept.drop()
    aliases.clear()
    del entry
    assert gone() is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=25), st.integers(0, 20))
def test_the_oldest_go_when_it_is_too_much(calls, most):
    kept, factors, expected = Kept(mark, np.copy, most), [np.ones(2)], {}
    for key, numbers in calls:
        numbers = min(numbers, most)
        if key not in expected:
            expected[key] = numbers
            while sum(expected.values()) > most:
                del expected[next(iter(expected))]
        value = (np.zeros((numbers, 1)), (None, np.zeros(0)))
        kept(key, factors, lambda value=value: value)
        assert list(kept._entries) == list(expected)
        assert {k: e.numbers for k, e in kept._entries.items()} == expected


def test_a_key_that_is_prepared_again_does_not_count_twice():
    kept, factor = Kept(mark, np.copy, 8), np.ones(3)
    kept("other", [factor], Making())
    for n in range(3):
        kept("key", [factor, np.full(2, n)], Making())
        assert list(kept._entries) == ["other", "key"]


def test_dropping_forgets_everything(kept):
    factors, make = [np.ones(3)], Making()
    kept("key", factors, make)
    kept.drop()
    assert len(kept) == 0
    kept("key", factors, make)
    assert make.times == 2


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda k: pickle.loads(pickle.dumps(k)), copy.copy])
def test_copies_begin_empty_and_share_nothing(copied):
    kept = Kept(mark, np.copy, most=5)
    kept("key", [np.ones(3)], Making())
    other = copied(kept)
    assert (len(other), len(kept), other.most, other.mark, other.alias) == (0, 1, 5, mark, np.copy)
    other("a", [np.ones(3)], Making())
    assert list(kept._entries) == ["key"]


def test_threads_never_read_a_stale_value():
    kept, wrong = Kept(mark, np.copy, most=3), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            factor = np.array([rng.integers(0, 3), rng.integers(0, 3)])
            value = kept(int(rng.integers(0, 2)), [factor], lambda factor=factor: factor * 2)
            if value.tolist() != (factor * 2).tolist():
                wrong.append(value)
            factor += 1
            value = kept(0, [factor], lambda factor=factor: factor * 2)
            if value.tolist() != (factor * 2).tolist():
                wrong.append(value)
            if rng.integers(0, 10) == 0:
                kept.drop()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
