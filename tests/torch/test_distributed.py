"""DistributedDataParallel on loopback, two processes: planned equals unplanned."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_processes import run_two

import memonger.torch as mt
from memonger.torch.pytorch.module_step import bytes_before, gradient_bytes
from memonger.torch.pytorch.optimizer import optimizer_named

#: Each takes a quarter of a minute.
LIMIT_S = 180.0


def chain():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU())
                           for _ in range(6)])


def train(rank, port, folder, split):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", "tcp://127.0.0.1:%d" % port, rank=rank, world_size=2)
    torch._dynamo.config.optimize_ddp = split
    torch.manual_seed(rank)
    batches = [torch.randn(256, 32) for _ in range(2)]
    found = []
    for planned in (True, False):
        torch._dynamo.reset()
        step = mt.compile(chain(), "75%" if planned else None, "eager")
        net = nn.parallel.DistributedDataParallel(step, bucket_cap_mb=0.01)  # many buckets
        for batch in batches:
            net.zero_grad()
            net(batch).square().mean().backward()
        found.append([p.grad.clone() for p in net.parameters()])
        assert len(mt.plans(step)) == 1
        assert all("buckets" in str(plan) for plan in mt.plans(step))
        again = [len(plan.schedule.recomputed()) for plan in mt.plans(step)]
        assert any(again) == planned, again
    same = all(torch.equal(a, b) for a, b in zip(*found))
    (Path(folder) / str(rank)).write_text("same" if same else "other")
    del net, step  # a reducer that outlives its group waits for it
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture
def rank_of_two():
    """A process group of two, in which nobody else is."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def test_of_a_sharded_parameter_a_process_counts_its_shard(rank_of_two):
    layer = nn.Linear(32, 64)
    mesh = init_device_mesh("cpu", (2,))
    layer.weight = nn.Parameter(distribute_tensor(layer.weight, mesh, [Shard(0)]))
    x = torch.randn(8, 32)
    assert bytes_before(layer, (x,)) == 4 * (32 * 32 + 64 + 8 * 32)
    layer.weight.grad = torch.zeros_like(layer.weight)
    assert gradient_bytes(layer.parameters()) == 4 * 32 * 32
    assert optimizer_named("adam").bytes_of([layer.weight]).held_bytes == 2 * 4 * 32 * 32 + 4


@pytest.mark.parametrize("split", [False, True], ids=["whole", "DDPOptimizer"])
def test_two_processes_train_as_without_a_plan(tmp_path, split):
    run_two(train, str(tmp_path), split, limit_s=LIMIT_S)
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["same", "same"]
