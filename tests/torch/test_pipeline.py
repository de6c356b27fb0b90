"""Stages of a pipeline: one budget for all microbatches in flight."""
from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch_processes import run_two

import memonger.torch as mt
from memonger.errors import InfeasibleBudget, InputError
from memonger.torch.pytorch.allocations import peak_bytes

WIDTH, ROWS, COUNT = 64, 128, 4
CPU = torch.device("cpu")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(),
                                  nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.body(x)


def stage(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(*[Block() for _ in range(4)])


def inputs():
    return torch.randn(ROWS, WIDTH, requires_grad=True)


def one_forward_one_backward(call, in_flight):
    """Gradients of parameters, added up over the microbatches of a batch, and the peak."""
    generator = torch.Generator().manual_seed(1)
    values = [[torch.randn(ROWS, WIDTH, generator=generator) for _ in range(2 * COUNT)]
              for _ in range(2)]

    def batch():
        waiting = []
        for x, gradient in zip(*values):
            x = x.clone().requires_grad_()
            waiting.append((x, call(x), gradient))
            if len(waiting) == in_flight:
                backward(*waiting.pop(0))
        while waiting:
            backward(*waiting.pop(0))
        del x

    def backward(x, y, gradient):
        y.backward(gradient)

    batch()
    gradients = [p.grad.clone() for p in call.parameters()]
    call.zero_grad()
    return gradients, peak_bytes(batch, CPU)


@pytest.mark.parametrize("in_flight", [2, 3, 5])
def test_the_budget_holds_for_all_microbatches_in_flight(in_flight):
    module = stage()
    wanted, plain_bytes = one_forward_one_backward(module, in_flight)
    module.zero_grad()
    plan = mt.plan(module, inputs(), budget="80%", mode="eager", costs="reference",
                   in_flight=in_flight)
    planned = mt.compile(module, plan=plan)
    gradients, peak = one_forward_one_backward(planned, in_flight)
    assert all(map(torch.equal, wanted, gradients))
    # Parameters and the gradient of one output were there before.
    held_bytes = sum(p.nbytes for p in module.parameters()) + ROWS * WIDTH * 4
    assert plan.schedule.recomputed()
    assert peak + held_bytes == plan.total_bytes <= plan.budget_bytes
    assert plain_bytes + held_bytes == plan.baseline_total_bytes


def test_a_call_with_a_budget_in_bytes_plans_for_microbatches():
    module = stage()
    planned = mt.compile(module, "2500KB", "eager", in_flight=3)
    one_forward_one_backward(planned, 3)
    [plan] = mt.plans(planned)
    assert plan.options["in_flight"] == 3 and plan.fixed_bytes["microbatches"] > 0
    assert plan.total_bytes <= 2500 * 1000 < plan.baseline_total_bytes


def test_a_plan_from_a_file_counts_them_too(tmp_path):
    module = stage()
    plan = mt.plan(module, inputs(), budget="80%", mode="eager", costs="reference", in_flight=3)
    plan.save(tmp_path / "plan.json")
    planned = mt.compile(module, plan=tmp_path / "plan.json")
    one_forward_one_backward(planned, 3)
    [read] = mt.plans(planned)
    assert read.total_bytes == plan.total_bytes and read.fixed_bytes == plan.fixed_bytes


def test_what_no_plan_meets_is_refused_with_the_least_that_was_found():
    with pytest.raises(InfeasibleBudget, match="3 microbatches in flight") as caught:
        mt.plan(stage(), inputs(), budget="20%", mode="eager", costs="reference", in_flight=3)
    least = caught.value.best_plan
    assert least.total_bytes == caught.value.minimum_bytes > caught.value.budget_bytes


def test_the_optimizer_steps_when_no_microbatch_is_in_flight():
    module = stage()
    arguments = {"mode": "eager", "costs": "reference", "in_flight": 3, "budget": "80%"}
    without = mt.plan(module, inputs(), **arguments)
    adam = mt.plan(module, inputs(), optimizer="adam", **arguments)
    state_bytes = adam.fixed_bytes["optimizer"]
    assert state_bytes >= 2 * sum(p.nbytes for p in module.parameters())
    assert adam.baseline_total_bytes == without.baseline_total_bytes + state_bytes


@pytest.mark.parametrize("value", [-1, 1.5, "two", True])
def test_microbatches_are_a_whole_number(value):
    with pytest.raises(InputError, match="in_flight"):
        mt.plan(stage(), inputs(), budget="70%", in_flight=value)


def pipelined(rank, port, mode):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", "tcp://127.0.0.1:%d" % port, rank=rank, world_size=2)
    batch = torch.randn(COUNT * ROWS, WIDTH, generator=torch.Generator().manual_seed(3))
    target = torch.randn(COUNT * ROWS, WIDTH, generator=torch.Generator().manual_seed(4))
    in_flight = 2 - rank  # the first stage waits for the second
    found = []
    for planned in (False, True):
        part = stage(rank)
        module = mt.compile(part, "85%", mode, in_flight=in_flight) if planned else part
        schedule = Schedule1F1B(PipelineStage(module, rank, 2, CPU), COUNT, nn.MSELoss())
        for _ in range(2):
            module.zero_grad()
            losses = []
            given = {} if rank == 0 else {"target": target, "losses": losses}
            peak = peak_bytes(partial(schedule.step, *[batch] * (rank == 0), return_outputs=False,
                                      **given), CPU)
        found.append(([p.grad.clone() for p in part.parameters()], losses, peak))
    [plan] = mt.plans(module)
    assert plan.options["in_flight"] == in_flight and plan.schedule.recomputed()
    (gradients, losses, plain_bytes), (mine, my_losses, peak) = found
    assert all(map(torch.equal, gradients, mine)) and losses == my_losses
    # The engine holds values of its own beside: received ones, gradients that are on their way.
    assert plain_bytes - peak >= plan.baseline_total_bytes - plan.total_bytes > 0
    if rank == 0:
        # There before: parameters, inputs, and the gradient of an output.
        held_bytes = sum(p.nbytes for p in part.parameters()) + 3 * ROWS * WIDTH * 4
        assert peak + held_bytes <= plan.budget_bytes
    dist.barrier()
    dist.destroy_process_group()


def test_a_pipeline_of_two_processes_trains_bit_for_bit_within_the_budget_of_each_stage():
    run_two(pipelined, "eager", limit_s=240.0)
