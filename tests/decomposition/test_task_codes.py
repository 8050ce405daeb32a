"""The codes of all weights in a row: where those of each are, and which arrays are codes."""

from __future__ import annotations

import numpy as np
import pytest

import tnshare as tn
from tnshare.decomposition import CodeLayout, code_of, fit_codes

NETWORKS = {
    "conv": tn.Tucker((2, 2, 3, 4, 5)).network(h=3, w=3, c=4, m=6, task=8),
    "fc": tn.LAF(3).network(i=6, o=7, task=8),
    "head": tn.TT((2, 1)).network(i=7, o=3, task=8),
}


def test_the_codes_of_weights_follow_each_other():
    layout = CodeLayout(NETWORKS)
    assert layout.size == 5 + 3 + 1
    found = [(part.weight, part.factor, part.shape, part.start, part.stop) for part in layout.parts]
    assert found == [("conv", "U_task", (5,), 0, 5), ("fc", "S", (3,), 5, 8), ("head", "U_task", (1,), 8, 9)]


def test_parts_are_slices_of_one_code_or_of_several():
    layout, random = CodeLayout(NETWORKS), np.random.default_rng(0)
    for shape in ((9,), (4, 9), (2, 4, 9)):
        code = random.normal(size=shape)
        parts = list(layout.split(code))
        assert [part.weight for part, _ in parts] == list(NETWORKS)
        joined = np.concatenate([v.reshape(*shape[:-1], -1) for _, v in parts], axis=-1)
        np.testing.assert_array_equal(joined, code)
        for part, values in parts:
            assert values.shape == (*shape[:-1], *part.shape)
            assert np.shares_memory(values, code)


def test_a_layout_of_nothing_has_codes_without_numbers():
    layout = CodeLayout({})
    assert (layout.size, layout.parts) == (0, ())
    assert list(layout.split(np.zeros((3, 0)))) == []
    layout.check(np.zeros((3, 0)))


def test_codes_have_the_shapes_of_one_or_of_several():
    layout = CodeLayout(NETWORKS)
    layout.check(np.zeros(9))
    layout.check(np.zeros((5, 9)), np.ndarray)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (np.zeros(8), r"\(8,\)"),
        (np.zeros((9, 2)), r"\(9, 2\)"),
        (np.zeros((1, 2, 9)), r"\(1, 2, 9\)"),
        (np.array(1.0), r"\(\)"),
        ([1.0] * 9, "list"),
        (None, "NoneType"),
    ],
    ids=str,
)
def test_other_shapes_are_refused(code, found):
    expected = r"code must be an array \(code_size,\) or \(tasks, code_size\), code_size=9: found "
    with pytest.raises(tn.TnshareError, match=f"^{expected}{found}$"):
        CodeLayout(NETWORKS).check(code)


def test_another_kind_of_array_is_refused_by_its_name():
    class Tensor(np.ndarray): ...

    expected = r"code must be a tensor \(code_size,\) .*code_size=9: found ndarray$"
    with pytest.raises(tn.TnshareError, match=expected):
        CodeLayout(NETWORKS).check(np.zeros(9), Tensor, "a tensor")
    CodeLayout(NETWORKS).check(np.zeros(9).view(Tensor), Tensor, "a tensor")


def test_weights_are_fitted_by_name_in_their_own_order_of_axes():
    random = np.random.default_rng(0)
    network = NETWORKS["fc"]
    factors = {name: random.standard_normal(shape) for name, shape in network.shapes.items()}
    weight = tn.compose(network, factors)[..., 5] + 0.1 * random.standard_normal((6, 7))
    common, own = random.standard_normal((2, 3, 4))
    shared = {"fc": (network, factors), "norm": common}
    codes, errors = fit_codes(shared, {"fc": (1, 0)}, {"fc": weight.T, "norm": own})
    expected, error = code_of(network, factors, weight)
    assert list(codes) == ["fc"]
    np.testing.assert_array_equal(codes["fc"]["S"], expected["S"])
    assert errors["fc"] == error
    assert errors["norm"] == pytest.approx(np.linalg.norm(common - own) / np.linalg.norm(own))
    for given, text in [
        ({"fc": weight, "norm": own}, r"fc must have shape \(7, 6\): found \(6, 7\)"),
        ({"fc": weight.T, "norm": own[:1]}, r"norm must have shape \(3, 4\): found \(1, 4\)"),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            fit_codes(shared, {"fc": (1, 0)}, given)
