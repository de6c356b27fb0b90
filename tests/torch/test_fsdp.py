"""FSDP2 (``fully_shard``) by blocks under one budget, two processes on loopback."""
from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch_processes import run_two

import memonger.torch as mt
from memonger.torch.pytorch.allocations import peak_bytes

#: Each takes half a minute.
LIMIT_S = 240.0
WIDTH, ROWS = 64, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.LayerNorm(2 * WIDTH), nn.GELU(),
                                  nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.body(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x).square().mean()


def sharded(net):
    for layer in net.layers:
        fully_shard(layer)
    return fully_shard(net)


def planned(net):
    made = mt.compile(net, "75%", "eager", blocks="layers.*", in_place=True)
    assert made is net
    return net


def batches(rank):
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(ROWS, WIDTH, generator=generator) for _ in range(4)]


def stepped(net, optimizer, x):
    optimizer.zero_grad()
    loss = net(x)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def adam(net):
    return torch.optim.AdamW(net.parameters(), lr=1e-2)


def begin(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", "tcp://127.0.0.1:%d" % port, rank=rank, world_size=2)


def end():
    dist.barrier()
    dist.destroy_process_group()


def train(rank, port, shard_first):
    begin(rank, port)
    order = (sharded, planned) if shard_first else (planned, sharded)
    plain = sharded(Net())
    net = order[1](order[0](Net()))
    losses = []
    for module in (plain, net):
        optimizer = adam(module)
        losses.append([stepped(module, optimizer, x) for x in batches(rank)])
    assert losses[0] == losses[1]
    assert all(torch.equal(a.to_local(), b.to_local())
               for a, b in zip(plain.parameters(), net.parameters()))
    [plan] = mt.plans(net)
    assert plan.schedule.recomputed() and plan.total_bytes <= plan.budget_bytes
    net.zero_grad()
    x = batches(rank)[0]
    took_bytes = peak_bytes(lambda: net(x).backward(), torch.device("cpu"))
    held_bytes = sum(p.to_local().nbytes for p in net.parameters()) + x.nbytes
    assert took_bytes + held_bytes <= plan.budget_bytes
    plain.zero_grad()
    assert took_bytes < peak_bytes(lambda: plain(x).backward(), torch.device("cpu"))
    end()


def resume(rank, port, folder):
    begin(rank, port)
    net = sharded(planned(Net()))
    optimizer = adam(net)
    data = batches(rank)
    for x in data[:2]:
        stepped(net, optimizer, x)
    state = dict(zip(("net", "optimizer"), get_state_dict(net, optimizer)))
    dcp.save(state, checkpoint_id=folder)
    expected = [stepped(net, optimizer, x) for x in data[2:]]
    twin = sharded(planned(Net()))
    again = adam(twin)
    state = dict(zip(("net", "optimizer"), get_state_dict(twin, again)))
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(twin, again, model_state_dict=state["net"],
                   optim_state_dict=state["optimizer"])
    assert [stepped(twin, again, x) for x in data[2:]] == expected
    end()


def be_left_alone(rank, port):
    """The other process is killed behind the second step."""
    begin(rank, port)
    net = sharded(planned(Net()))
    optimizer = adam(net)
    for number, x in enumerate(batches(rank)):
        if rank == 1 and number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        stepped(net, optimizer, x)


@pytest.mark.parametrize("shard_first", [False, True], ids=["compile first", "shard first"])
def test_ranks_train_bit_for_bit_within_the_budget_of_a_rank(shard_first):
    run_two(train, shard_first, limit_s=LIMIT_S)


def test_a_checkpoint_resumes_to_the_same_numbers(tmp_path):
    run_two(resume, str(tmp_path), limit_s=LIMIT_S)


def test_a_killed_process_ends_the_job():
    with pytest.raises((processes.ProcessExitedException, processes.ProcessRaisedException),
                       match="SIGKILL|onnection"):
        run_two(be_left_alone, limit_s=LIMIT_S)
