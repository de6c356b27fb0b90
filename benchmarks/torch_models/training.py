"""One model in a process of its own: plain, and by a plan."""
from __future__ import annotations

import copy
import random
import time
import warnings
from typing import Any, Callable, Dict, List

import numpy
import torch

import memonger.torch as mt
from memonger.errors import InfeasibleBudget
from memonger.torch.pytorch.allocations import peak_bytes
from memonger.torch.pytorch.module_step import arguments, bytes_before
from memonger.util.messages import one_line
from memonger.util.processes import answer

from .models import build

#: Of the smallest plan's total, where it is no more than predicted.
_ROOM = {"eager": 1.0, "inductor": 1.02}


class _Steps:
    """Training steps of one model, each from the same seed wherever it runs."""

    def __init__(self, name: str):
        torch.manual_seed(0)
        self.module, self.inputs, self.context = build(name)

    def step(self, call: Any, module: Any, seed: int) -> torch.Tensor:
        """One step with new gradients; the loss."""
        args, named = arguments(self.inputs)
        for draw in (torch.manual_seed, numpy.random.seed, random.seed):
            draw(seed)
        module.zero_grad(set_to_none=True)
        with self.context():
            loss = call(*args, **named)
        loss.backward()
        return loss.detach()

    def numbers(self, call: Any, module: Any) -> List[torch.Tensor]:
        """Losses, gradients and buffers of two steps."""
        found: List[torch.Tensor] = []
        for seed in range(2):
            found.append(self.step(call, module, seed))
            found += [p.grad.to_dense().clone() for p in module.parameters()
                      if p.grad is not None]
        return found + [b.clone() for b in module.buffers()]

    def total_bytes(self, call: Any, module: Any) -> int:
        """What the allocator hands out in a step, with what exists before."""
        self.step(call, module, 2)  # what it meets first is compiled
        module.zero_grad(set_to_none=True)
        return bytes_before(module, self.inputs) + peak_bytes(
            lambda: self.step(call, module, 2), torch.device("cpu"))


def _apart(found: List[torch.Tensor], wanted: List[torch.Tensor]) -> float:
    """By how much numbers differ, of each tensor's largest, or of a hundredth of the largest of all
    where that is more; 0 bit for bit, infinite if some lack.
    """
    if [a.shape for a in found] != [b.shape for b in wanted]:
        return float("inf")
    largest = [float(b.double().abs().max()) if b.numel() else 0.0 for b in wanted]
    return max(0.0 if torch.equal(a, b) else float((a.double() - b.double()).abs().max())
               / (max(most, 0.01 * max(largest)) or 1.0)
               for a, b, most in zip(found, wanted, largest))


def train(request: Dict[str, Any]) -> Dict[str, Any]:
    """What came of a model in a mode: see :mod:`.table`."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    torch._dynamo.config.use_numpy_random_stream = True  # as the module by itself draws
    mode, share = request["mode"], request["share"]
    steps = _Steps(request["model"])
    found: Dict[str, Any] = {}
    module = copy.deepcopy(steps.module)
    plain = steps.numbers(module, module)

    def timed(make: Callable[[Any], Any]) -> Any:
        torch._dynamo.reset()
        module = copy.deepcopy(steps.module)
        started_s = time.perf_counter()
        call = make(module)
        steps.step(call, module, 0)
        elapsed_s = time.perf_counter() - started_s
        module.load_state_dict(steps.module.state_dict())  # with its buffers
        return call, module, elapsed_s
    backend = "aot_eager" if mode == "eager" else "inductor"
    try:
        call, module, found["plain_compile_s"] = timed(lambda m: torch.compile(m, backend=backend))
        found["beside_plain_compile"] = _apart(steps.numbers(call, module), plain)
    except Exception as error:
        found["plain_compile"] = one_line(error)[:200]
    budget: Any = "%g%%" % (100 * share)

    def planned(budget: Any) -> Any:
        return timed(lambda m: mt.compile(m, budget, mode, time_limit=request["time_limit"]))
    while "compile_s" not in found:
        try:
            call, module, found["compile_s"] = planned(budget)
        except InfeasibleBudget as error:  # Inductor's code may take more than the least plan says
            found["infeasible"] = found.get("infeasible", 0) + 1
            if found["infeasible"] > 2:
                raise
            budget = int(error.minimum_bytes * _ROOM[mode])
    found["apart"] = _apart(steps.numbers(call, module), plain)
    plans, taken = mt.plans(call), steps.total_bytes(call, module)
    found.update(
        graphs=len(plans),
        planning_s=sum(p.planning_s for p in plans), extra=max(p.overhead for p in plans),
        of_unplanned=plans[0].total_bytes / plans[0].baseline_total_bytes,
        kept=taken / (plans[0].budget_bytes or taken))
    return found


if __name__ == "__main__":
    answer(train, lambda error: "%s: %s" % (type(error).__name__, one_line(error)))
