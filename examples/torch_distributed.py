"""Trains on several processes, without a plan and with one.

    python examples/torch_distributed.py [--processes 2] [--steps 4] [--budget 75%]
        [--shard | --pipeline]

Each process has the whole network (DistributedDataParallel), with ``--shard`` its shards of each
block (FSDP2), or with ``--pipeline`` a network of its own that is a stage of a larger one.

The processes talk by gloo over the loopback interface. Each prints whether its losses and its
parameters are bit for bit those of the unplanned network, and the share of the memory that its plan
takes. A process that fails, or takes longer than ``--limit`` seconds, ends them all.
"""
from __future__ import annotations

import argparse
import socket
import time
from functools import partial
from typing import Callable, List, Tuple

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import memonger.torch as mt

WIDTH, BATCH, MICROBATCHES = 64, 512, 4


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


def distributed(budget: str, rank: int, args: argparse.Namespace) -> Tuple[nn.Module, nn.Module]:
    """The network as it is trained, and what has the plan."""
    if args.pipeline:
        stage = mt.compile(network(), budget or None, mode="eager",
                           in_flight=min(args.processes - rank, MICROBATCHES))
        return stage, stage
    if not args.shard:  # compile first, wrap then
        compiled = mt.compile(network(), budget or None, mode="eager")
        return nn.parallel.DistributedDataParallel(compiled), compiled
    net = network()
    mt.compile(net, budget or None, mode="eager", blocks="*", in_place=True)
    for block in net:
        fully_shard(block)
    fully_shard(net)
    return net, net


def whole_step(net: nn.Module, batch: torch.Tensor) -> float:
    """The loss of a step, which leaves gradients."""
    loss = net(batch).square().mean()
    loss.backward()
    return loss.item()


def pipelined(stage: nn.Module, rank: int, processes: int) -> Callable[[torch.Tensor], float]:
    """The same of a pipeline that has a stage on each process; the last one knows the loss."""
    placed = PipelineStage(stage, rank, processes, torch.device("cpu"))
    schedule = Schedule1F1B(placed, MICROBATCHES, lambda y, target: (y - target).square().mean())

    def step(batch: torch.Tensor) -> float:
        losses: List[torch.Tensor] = []
        given = {"target": torch.zeros_like(batch), "losses": losses} if placed.is_last else {}
        schedule.step(*[batch] * placed.is_first, **given)
        return float(sum(losses))
    return step


def train(rank: int, budget: str, args: argparse.Namespace
          ) -> Tuple[List[float], List[torch.Tensor], float]:
    """Losses and parameters after some steps, and the plan's share of the unplanned total."""
    net, compiled = distributed(budget, rank, args)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)  # each process has batches of its own
    losses = []
    step = pipelined(net, rank, args.processes) if args.pipeline else partial(whole_step, net)
    for _ in range(args.steps):
        optimizer.zero_grad()
        losses.append(step(torch.randn(BATCH, WIDTH)))
        optimizer.step()
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
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--shard", action="store_true", help="with FSDP2")
    form.add_argument("--pipeline", action="store_true", help="a stage on each process, 1F1B")
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
