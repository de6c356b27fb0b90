"""Plans the step of a torchtitan model as its memory policy, beside torchtitan's own policies.

    python examples/torchtitan_policy.py [--batch 8] [--words 1024] [--run]

It traces the training step of torchtitan's small Llama on this machine, lets each policy mark what
backward computes again, and counts what the steps take, all in the same way, with the op times of
a device of 10 TFLOP/s and 600 GB/s. ``--run`` trains a step of each of memonger's plans and says
what was allocated, and whether losses and gradients are bit for bit those without a policy.

To train with it, import this in the module of your configuration:

    from memonger.torch.engines import torchtitan
    torchtitan.register(budget="60GB")  # then: --compile.memory_policy memonger
"""
from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any, Callable, List, Optional, Tuple

import torch
from torchtitan.experiments.graph_trainer.common_utils import annotate_module_fqns
from torchtitan.experiments.graph_trainer.llama3 import model_registry
from torchtitan.experiments.graph_trainer.make_fx_tracer import minimal_fx_tracer, run_traced
from torchtitan.experiments.graph_trainer.memory_policy import (
    _make_default_memory_policy,
    _make_eager_memory_policy,
    _make_full_memory_policy,
    tag_sac_policy,
)
from torchtitan.experiments.graph_trainer.selective_activation_remat import (
    selective_activation_remat_pass,
)
from torchtitan.experiments.graph_trainer.trainer import make_fwd_bwd_step

from memonger.torch.engines import torchtitan
from memonger.util.units import format_bytes

COSTS = "reference"


class Step:
    """One training step of the model, traced, with what it takes."""

    def __init__(self, batch: int, words: int):
        spec = model_registry("debugmodel", attn_backend="sdpa")
        with torch.device("meta"):
            self.model = spec.model.build()
        self.model.to_empty(device="cpu")
        torch.manual_seed(0)
        with torch.no_grad():
            self.model.init_states(buffer_device=None)
        self.model.train()
        annotate_module_fqns(self.model)

        def loss(scores: Any, labels: Any, global_valid_tokens: Any) -> Any:
            return torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(),
                                                     labels.flatten(0, 1))
        tokens = torch.randint(0, 2000, (2, batch, words))
        self.inputs = (*tokens, torch.tensor(1.0), {})
        self.traced = minimal_fx_tracer(
            make_fwd_bwd_step(self.model, loss), module=self.model)(*self.inputs)
        self.traced.gm.graph.eliminate_dead_code()
        torchtitan.name_sums(self.traced.gm)

    def carry_out(self) -> Tuple[int, float]:
        """Bytes and seconds of the step once the engine's pass has followed the marks."""
        self.traced.gm = selective_activation_remat_pass(self.traced.gm)
        self.traced.gm.recompile()
        plan = torchtitan.plan_step(self.traced.gm, SimpleNamespace(), "100%", costs=COSTS).plan
        return plan.baseline_total_bytes, plan.graph.time_s

    def run(self) -> List[torch.Tensor]:
        return run_traced(self.traced, module=self.model)(*self.inputs)


def row(name: str, total_bytes: int, overhead: float, more: str = "") -> None:
    print("%-28s %10s %+7.1f %%  %s" % (name, format_bytes(total_bytes), 100 * overhead, more))


def main(argv: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--words", type=int, default=1024)
    parser.add_argument("--run", action="store_true")
    args = parser.parse_args(argv)
    whole_bytes, base_s = Step(args.batch, args.words).carry_out()
    expected = Step(args.batch, args.words).run() if args.run else []
    row("no policy", whole_bytes, 0.0)
    policies: List[Tuple[str, Callable[[], Any]]] = [
        ("default", _make_default_memory_policy), ("eager", _make_eager_memory_policy),
        ("full", _make_full_memory_policy)]
    for name, make in policies:
        theirs = Step(args.batch, args.words)
        tag_sac_policy(theirs.traced.gm, policy_fn=make())
        total_bytes, time_s = theirs.carry_out()
        row(name, total_bytes, time_s / base_s - 1)
        ours = Step(args.batch, args.words)
        step = torchtitan.plan_step(ours.traced.gm, SimpleNamespace(), total_bytes, costs=COSTS)
        step.apply()
        more = "at least %+.1f %%, planned in %.1f s" % (100 * step.plan.bound,
                                                         step.plan.planning_s)
        if args.run:
            ours.carry_out()
            equal = all(map(torch.equal, expected, ours.run()))
            more += ", %s bit for bit" % ("equal" if equal else "NOT equal")
        row("  memonger, as many bytes", step.plan.total_bytes, step.plan.overhead, more)


if __name__ == "__main__":
    main()
