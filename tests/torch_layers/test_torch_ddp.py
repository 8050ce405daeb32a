"""Two processes, each with half of the rows: the gradients of one process with all of them."""

from __future__ import annotations

import datetime
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tnshare_torch")

import living  # noqa: E402
import torch.distributed as dist  # noqa: E402
from living import SUMMED  # noqa: E402
from tolerances import close  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo")

ROWS, PARTS = 6, 2
IDS = torch.tensor([2, 0, 1, 1, 2, 0])


def modules():
    """Each with its input: all three tasks are in either half."""
    x = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(0))
    return {"linear": (living.linear(), x), "shared": (living.shared(), living.x(ROWS))}


def loss(module, x, ids):
    return module(x, ids).square().mean()


def trained(rank, path, queue):
    """One of two processes: gradients after a step of each module, and whether they stay alike after it."""
    store = dist.FileStore(path, PARTS)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=PARTS, timeout=datetime.timedelta(seconds=120)
    )
    try:
        torch.set_num_threads(1)
        found = {}
        for name, (module, x) in modules().items():
            ddp = DistributedDataParallel(module)
            optimiser = torch.optim.SGD(ddp.parameters(), 0.1)
            own = slice(rank * ROWS // PARTS, (rank + 1) * ROWS // PARTS)
            loss(ddp, x[own], IDS[own]).backward()
            found[name] = [p.grad.tolist() for p in module.parameters()]
            optimiser.step()
            flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
            both = [torch.empty_like(flat) for _ in range(PARTS)]
            dist.all_gather(both, flat)
            assert torch.equal(*both), "the processes have come apart"
        if rank == 0:
            queue.put(found)
    finally:
        dist.destroy_process_group()


def test_gradients_are_those_of_one_process(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    arguments = (str(tmp_path / "store"), queue)
    running = torch.multiprocessing.spawn(trained, arguments, nprocs=PARTS, join=False)
    ends = time.monotonic() + 180
    while not running.join(timeout=1.0) and time.monotonic() < ends:  # which raises what a process raised
        pass
    for process in running.processes:
        process.kill()  # once, one that had nothing left to do did not end
    assert not queue.empty(), "no gradients within three minutes"
    found = queue.get()
    for name, (module, x) in modules().items():
        loss(module, x, IDS).backward()
        for grad, parameter in zip(found[name], module.parameters(), strict=True):
            close(torch.tensor(grad), parameter.grad, SUMMED)
