"""Ids and tokens that are out of range in compiled code: refused, not counted from behind."""

from __future__ import annotations

import living
import pytest
import tnshare_torch as tnt
import torch
import torch._dynamo
from living import TERMS, T
from tolerances import close

import tnshare as tn

# Inductor's decompositions use what torch has deprecated, and warn of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
# It has Inductor's decompositions, with which -1 is the last row, also where torch itself refuses it.
BACKEND = "aot_eager_decomp_partition"
TWO = {"site": 2, "user": 3}
IDS, TOKENS = torch.tensor([0, 1, 2]), torch.tensor([[0, 1], [2, 3], [4, 6]])


@pytest.fixture(autouse=True)
def _forget_what_was_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def refuses(function, *args):
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=BACKEND)
    with torch.no_grad(), pytest.raises(IndexError, match=r"index .*out of (range|bounds)"):
        compiled(*args)


@pytest.mark.parametrize(("spec", "strategy"), [(tn.TT((3, 2)), "factored"), (tn.LAF(2), "materialised")])
def test_tokens_and_tasks_of_embeddings(spec, strategy):
    layer = tnt.Embedding(7, 4, T, spec, strategy=strategy, plan_for=(8,))
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=BACKEND)
    with torch.no_grad():
        close(compiled(TOKENS, IDS), layer(TOKENS, IDS), TERMS)
    for tokens, ids in ((TOKENS - 1, IDS), (TOKENS + 1, IDS), (TOKENS, IDS - 1), (TOKENS, IDS + 1)):
        with torch.no_grad(), pytest.raises(IndexError, match=r"index .*out of (range|bounds)"):
            compiled(tokens, ids)
    refuses(lambda x: layer(x, 1), TOKENS - 1)
    refuses(layer.fan_out, TOKENS - 1)
    refuses(layer, torch.stack([TOKENS - 1] * T))


def test_tasks_of_linear_layers():
    layer, x = living.linear(), torch.randn(3, 6)
    refuses(layer, x, IDS - 1)
    refuses(layer, x, torch.tensor(-1))
    two = tnt.Linear(6, 4, TWO, tn.TT((2, 2, 2)), plan_for=(8,))
    refuses(two, x, torch.tensor([[0, 0], [1, 2], [0, -1]]))
    refuses(two, x, torch.tensor([[0, 0], [-1, 2], [0, 1]]))


def test_tasks_of_convolutions():
    refuses(living.conv(), torch.randn(3, 2, 4, 5), IDS - 1)


def test_tasks_of_shared_networks():
    def draw(rows):
        return torch.randn(rows, 4)

    shared = tnt.share(living.nets(living.Matrices), "tucker", eps=0, example=draw(5))
    refuses(shared, draw(3), IDS - 1)
    refuses(shared, draw(3), torch.tensor(-1))
