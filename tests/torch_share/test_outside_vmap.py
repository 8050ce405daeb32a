"""Functions that leave vmap in compiled code: of every row what torch gives for it, gradients too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

from tnshare_torch.shared.running._outside_vmap import OUTSIDE_VMAP, VmappedRows  # noqa: E402
from tolerances import close  # noqa: E402
from torch._functorch.vmap import vmap_increment_nesting  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import tnshare as tn  # noqa: E402

B = 4


def check(function, *shapes, **kwargs):
    """Compare a function on rows of its own arguments, which have these shapes, with a loop over the rows."""
    torch.manual_seed(0)
    given = [
        torch.randn(B, *shape, dtype=torch.float64) if isinstance(shape, tuple) else shape for shape in shapes
    ]
    found = []
    for run in (_aside, _loop):
        own = [g.clone().requires_grad_() if isinstance(g, torch.Tensor) else g for g in given]
        y = run(function, own, kwargs)
        (y * torch.linspace(1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)).sum().backward()
        found.append([y.detach(), *(g.grad for g in own if isinstance(g, torch.Tensor))])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def _aside(function, arguments, kwargs):
    with vmap_increment_nesting(B, "different") as level:
        rows = VmappedRows(B, level)
        own = [rows.enter(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        return rows.leave(OUTSIDE_VMAP[function](rows, *own, **kwargs))


def _loop(function, arguments, kwargs):
    every = [[a[n] if isinstance(a, torch.Tensor) else a for a in arguments] for n in range(B)]
    return torch.stack([function(*own, **kwargs) for own in every])


CASES = [
    (F.layer_norm, (1, 3, 6), [6], (6,), (6,)),
    (F.layer_norm, (1, 3, 6), [1, 3, 6]),
    (F.layer_norm, (1, 6), [6], (6,), None, 0.5),
    (F.group_norm, (1, 6, 5), 2, (6,), (6,)),
    (F.group_norm, (2, 6), 3, None, None, 0.5),
    (F.conv1d, (2, 6), (3, 2, 3), (3,)),
    (F.max_pool1d, (1, 2, 6), 2),
    (F.max_pool2d, (1, 2, 6, 6), 3, 2, 1),
    (F.max_pool2d, (2, 6, 6), 2),
    (F.max_pool3d, (1, 2, 4, 4, 4), 2),
    (F.avg_pool1d, (1, 2, 6), 2),
    (F.avg_pool2d, (1, 2, 6, 6), 2),
    (F.avg_pool3d, (1, 2, 4, 4, 4), 2),
    (F.adaptive_avg_pool1d, (1, 2, 6), 4),
    (F.adaptive_avg_pool2d, (3, 2, 6, 6), 4),
    (F.adaptive_avg_pool3d, (1, 2, 4, 4, 4), 3),
    (F.adaptive_max_pool1d, (1, 2, 6), 4),
    (F.adaptive_max_pool2d, (1, 2, 6, 6), 4),
    (F.adaptive_max_pool3d, (1, 2, 4, 4, 4), 3),
    (F.interpolate, (1, 2, 4, 4), None, 2),
    (F.pixel_shuffle, (1, 4, 3, 3), 2),
    (F.unfold, (1, 2, 5, 5), 3),
    (F.scaled_dot_product_attention, (1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4)),
    (F.scaled_dot_product_attention, (1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4), (5, 6)),
    (F.pad, (1, 2, 5, 5), [1, 2, 1, 1], "reflect"),
    (F.pad, (1, 2, 5), [1, 2], "constant", 3.0),
    (F.pad, (2, 5), [0, 0, 1, 0]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1:]}")
def test_a_row_gets_what_it_gets_alone(case):
    check(*case)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_concatenations(dim):
    torch.manual_seed(0)
    x, y = torch.randn(B, 2, 3), torch.randn(2, 3)
    with vmap_increment_nesting(B, "different") as level:
        rows = VmappedRows(B, level)
        for function in (torch.cat, torch.concat, torch.concatenate):
            found = rows.leave(OUTSIDE_VMAP[function](rows, [rows.enter(x), y], dim))
            assert torch.equal(found, torch.stack([torch.cat([own, y], dim) for own in x]))


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's own, on even kernels
@given(
    dims=st.integers(1, 3),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    padding=st.sampled_from([0, 1, 2, "valid", "same"]),
    groups=st.integers(1, 2),
    bias=st.booleans(),
)
def test_convolutions(dims, stride, dilation, padding, groups, bias):
    stride = 1 if padding == "same" else stride
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[dims]
    kernel, places = (2, 3, 1)[:dims], (5, 6, 3)[:dims]
    shapes = (2, 4, *places), (6, 4 // groups, *kernel), (6,) if bias else None
    several = (stride,) * dims if dims == 2 else stride
    check(function, *shapes, stride=several, padding=padding, dilation=dilation, groups=groups)


@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_by_known_statistics(affine):
    torch.manual_seed(0)
    x, mean, var = torch.randn(B, 1, 3, 5), torch.randn(B, 3), torch.rand(B, 3)
    more = [torch.randn(B, 3), torch.randn(B, 3)] if affine else []
    found = _aside(F.batch_norm, [x, mean, var, *more], {"eps": 0.1})
    close(found, _loop(F.batch_norm, [x, mean, var, *more], {"eps": 0.1}), 6)
    with pytest.raises(tn.TnshareError, match="rows are not independent"):
        _aside(F.batch_norm, [x, mean, var], {"training": True})


@pytest.mark.parametrize("padding", [None, 2, -1])
def test_embeddings(padding):
    torch.manual_seed(0)
    ids, grads = torch.randint(5, (B, 1, 7)), []
    for run in (_aside, _loop):
        table = torch.randn(B, 5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        y = run(F.embedding, [ids, table], {"padding_idx": padding})
        y.square().sum().backward()
        grads.append((y.detach(), table.grad))
    for a, b in zip(*grads, strict=True):
        close(a, b, 7)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_ids_of_a_table_that_are_out_of_range_are_not_those_of_another_row(wrong):
    ids = torch.zeros(B, 1, dtype=torch.int64)
    ids[1] = wrong
    with pytest.raises(IndexError, match="index out of range"):
        _aside(F.embedding, [ids, torch.randn(B, 5, 3)], {})


def test_dropout_differs_between_rows_and_keeps_the_mean():
    torch.manual_seed(0)
    x = torch.ones(B, 1, 1000)
    y = _aside(F.dropout, [x], {"p": 0.25})
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs(y.mean() - 1) < 0.05
    assert not torch.equal(y[0], y[1])
    assert torch.equal(_aside(F.dropout, [x], {"p": 0.25, "training": False}), x)
    assert torch.equal(_aside(F.dropout, [x], {"p": 1.0}), 0 * x)
