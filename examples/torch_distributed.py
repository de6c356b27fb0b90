"""Trains on several processes, without a plan and with one.

    python examples/torch_distributed.py [--processes 2] [--steps 4] [--budget 75%] [--shard]

Each process has the whole network (DistributedDataParallel), or with ``--shard`` its shards of each
block (FSDP2).

The processes talk by gloo over the loopback interface. Each prints whether its losses and its
parameters are bit for bit those of the unplanned network, and the share of the memory that its plan
takes. A process that fails, or takes longer than ``--limit`` seconds, ends them all.
"""
from __future__ import annotations

import argparse
import socket
import time
from typing import List, Tuple

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

import memonger.torch as mt

WIDTH, BATCH = 64, 512


class Block(nn.Module):
    """A layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def network() -> nn.Module:
    """The same in each process."""
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(6)])


def distributed(budget: str, shard: bool) -> Tuple[nn.Module, nn.Module]:
    """The network as it is trained, and what has the plan."""
    if not shard:  # compile first, wrap then
        compiled = mt.compile(network(), budget or None, mode="eager")
        return nn.parallel.DistributedDataParallel(compiled), compiled
    net = network()
    mt.compile(net, budget or None, mode="eager", blocks="*", in_place=True)
    for block in net:
        fully_shard(block)
    fully_shard(net)
    return net, net


def train(rank: int, budget: str, args: argparse.Namespace
          ) -> Tuple[List[float], List[torch.Tensor], float]:
    """Losses and parameters after some steps, and the plan's share of the unplanned total."""
    net, compiled = distributed(budget, args.shard)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)  # each process has batches of its own
    losses = []
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = net(torch.randn(BATCH, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    values = [p.to_local() if args.shard else p for p in net.parameters()]
    plan = mt.plans(compiled)[-1]
    return losses, [value.detach().clone() for value in values], \
        plan.total_bytes / plan.baseline_total_bytes


def work(rank: int, port: int, args: argparse.Namespace) -> None:
    """One process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", "tcp://127.0.0.1:%d" % port, rank=rank,
                            world_size=args.processes)
    losses, values, _ = train(rank, "", args)
    planned_losses, planned_values, share = train(rank, args.budget, args)
    same = losses == planned_losses and all(map(torch.equal, values, planned_values))
    print("process %d: loss %.6f -> %.6f, %s, plan takes %.0f %% of the memory" % (
        rank, losses[0], losses[-1], "planned equals unplanned" if same else "DIFFERENT",
        100 * share), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if not same:
        raise SystemExit(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shard", action="store_true", help="with FSDP2")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--budget", default="75%")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds")
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = torch.multiprocessing.spawn(work, (port, args), nprocs=args.processes, join=False)
    deadline_s = time.monotonic() + args.limit
    try:
        while not workers.join(0.5):
            if time.monotonic() > deadline_s:
                raise SystemExit("the processes did not end within %g seconds" % args.limit)
    finally:
        for worker in workers.processes:
            worker.kill()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
