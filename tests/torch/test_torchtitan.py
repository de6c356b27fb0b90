"""Plans for torchtitan's graph_trainer, carried out by its own passes; ``make test-torchtitan``."""
from __future__ import annotations

import importlib
import logging
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from memonger.errors import InfeasibleBudget
from memonger.graph.decisions import read_as_handed_on
from memonger.graph.in_use import graph_in_use
from memonger.graph.schedule import expand
from memonger.solve.auto import ALL_BUT_GIVEN
from memonger.torch.engines import torchtitan
from memonger.torch.pytorch import private_copies
from memonger.torch.step import planning
from memonger.torch.step.planning import plan_of

pytestmark = pytest.mark.torchtitan
pytest.importorskip("torchtitan")

GRAPH_TRAINER = "torchtitan.experiments.graph_trainer."


def engine(module, *names):
    found = importlib.import_module(GRAPH_TRAINER + module)
    return [getattr(found, name) for name in names]


class Traced:
    """A debug model's training step, as the engine traces it."""

    def __init__(self, family="llama3", batch=(4, 256)):
        tracer, self.run_traced = engine("make_fx_tracer", "minimal_fx_tracer", "run_traced")
        annotate, = engine("common_utils", "annotate_module_fqns")
        make_step, = engine("trainer", "make_fwd_bwd_step")
        registry, = engine(family, "model_registry")
        spec = registry("debugmodel", attn_backend="sdpa")
        with torch.device("meta"):
            self.module = spec.model.build()
        self.module.to_empty(device="cpu")
        torch.manual_seed(0)
        with torch.no_grad():
            self.module.init_states(buffer_device=None)
        self.module.train()
        annotate(self.module)

        def loss(scores, labels, global_valid_tokens):
            return torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(),
                                                     labels.flatten(0, 1))
        torch.manual_seed(1)
        self.inputs = (*torch.randint(0, 2000, (2, *batch)), torch.tensor(1.0), {})
        self.result = tracer(make_step(self.module, loss), module=self.module)(*self.inputs)
        self.gm.graph.eliminate_dead_code()
        self.gm.recompile()

    @property
    def gm(self):
        return self.result.gm

    def run(self):
        return self.run_traced(self.result, module=self.module)(*self.inputs)

    def measured(self):
        """Loss and gradients, and the most that a run allocates."""
        from memonger.torch.pytorch.allocations import peak_bytes
        values = self.run()
        return values, peak_bytes(self.run, torch.device("cpu"))

    def rematerialized(self):
        remat, = engine("selective_activation_remat", "selective_activation_remat_pass")
        self.result.gm = remat(self.gm)
        self.gm.recompile()


@pytest.fixture
def config():
    made, = engine("llama3.config_registry",
                   "graph_trainer_llama3_debugmodel_sdpa_cross_entropy_loss")
    config = made()
    config.training.global_batch_size = -1
    return config


@pytest.fixture
def registered():
    registry, = engine("registry", "MEMORY_POLICY_REGISTRY")
    yield torchtitan.register
    registry.pop("memonger", None)


@pytest.mark.parametrize("family", ["llama3", "qwen3", "deepseek_v3"])
def test_a_step_takes_what_is_predicted_and_computes_the_same(family, config):
    step = Traced(family)
    unplanned, unplanned_bytes = step.measured()
    made = torchtitan.plan_step(step.gm, config, "75%", costs="reference")
    assert made.plan.unplanned.pool_bytes == unplanned_bytes
    assert made.plan.schedule.recomputed() and made.plan.overhead > 0
    made.apply()
    step.rematerialized()
    planned, planned_bytes = step.measured()
    assert planned_bytes == made.plan.pool_bytes < unplanned_bytes
    assert all(map(torch.equal, unplanned, planned))


def test_the_engine_finds_the_policy_by_name(config, registered, caplog):
    registered(budget="80%", costs="reference")
    config.compile.memory_policy = "memonger"
    by_policy, = engine("memory_policy", "tag_with_memory_policy_pass")
    step = Traced()
    with caplog.at_level(logging.INFO, logger="memonger.torch"):
        by_policy(step.gm, config=config)
    assert any("a rank" in record.getMessage() for record in caplog.records)
    tags = [node.meta["recompute"] for node in step.gm.graph.nodes if "recompute" in node.meta]
    assert {tag.name for tag in tags} == {"MUST_SAVE", "MUST_RECOMPUTE"}


def test_the_total_is_that_of_a_rank(config):
    step = Traced()
    plan = torchtitan.plan_step(step.gm, config, "100%", costs="reference").plan
    held = sum(p.numel() * 4 for p in step.module.parameters())
    assert plan.fixed_bytes["parameters"] == held
    assert 2 * held <= plan.fixed_bytes["optimizer"] <= 2 * held + 8 * 100  # AdamW
    assert "gradients" not in plan.fixed_bytes
    config.training.global_batch_size = 4 * config.training.local_batch_size
    assert torchtitan.plan_step(step.gm, config, "100%").plan.fixed_bytes["gradients"] == held


def test_a_budget_that_no_plan_meets_is_refused_with_the_least(config):
    step = Traced()
    with pytest.raises(InfeasibleBudget) as error:
        torchtitan.policy(step.gm, config=config, budget="10%", time_limit=1)
    assert error.value.minimum_bytes > 0
    assert not any("recompute" in node.meta for node in step.gm.graph.nodes)


@pytest.mark.parametrize("budget", ["60%", "45%"])
def test_values_go_to_the_host_where_that_is_cheaper(budget, config):
    """On a CPU, with copies in memory that PyTorch's allocator does not count.

    In the smaller budget what runs again reads values that came back.
    """
    step = Traced(batch=(4, 1024))
    unplanned, unplanned_bytes = step.measured()
    alone = torchtitan.plan_step(step.gm, config, budget, costs="reference").plan
    made = torchtitan.plan_step(step.gm, config, budget, host="1GB", link="25GB/s",
                                costs="reference")
    assert made.plan.overhead < alone.overhead / 2
    again = read_as_handed_on(graph_in_use(made.plan.graph, made.plan.schedule),
                              made.plan.schedule)
    assert again or budget == "60%"
    assert 0 < made.plan.host_bytes <= 10**9
    assert "on the host" in made.summary and "as the engine places copies" in made.summary
    made.apply()
    insert, = engine("cpu_offload", "apply_cpu_offload_pass")
    step.result.gm = insert(step.gm, **made.places)
    step.rematerialized()
    ops = torch.ops.ao
    stand_ins = {ops.offload.default: lambda value: private_copies.store(value, value.stride()),
                 ops.reload.default: lambda host, device, size, stride:
                 private_copies.fetch(host, size, stride, device), ops.wait_tensor.default: ended}
    for node in step.gm.graph.nodes:
        node.target = stand_ins.get(node.target, node.target)
    step.gm.recompile()
    planned, planned_bytes = step.measured()
    assert planned_bytes == made.plan.pool_bytes < unplanned_bytes
    assert all(map(torch.equal, unplanned, planned))


def ended(copy, source=None, *_):
    """The end of a copy, behind which nobody needs what it was made of on the device."""
    if source is not None and source.untyped_storage().resizable():
        source.untyped_storage().resize_(0)
    return copy


#: The engine's own, by name.
POLICIES = "default", "eager", "full"


def beside(policy, batch, config):
    """A step, and what the engine's policy makes of it: bytes, a rank's total, extra time."""
    by_name, = engine("registry", "MEMORY_POLICY_REGISTRY")
    theirs, ours = Traced(batch=batch), Traced(batch=batch)
    torchtitan.name_sums(theirs.gm)
    by_name[policy](theirs.gm, config=config)
    theirs.rematerialized()
    captured = torchtitan.read_step(theirs.gm, costs="reference")
    base_s = torchtitan.read_step(ours.gm, costs="reference").graph.time_s
    taken = torchtitan.EngineStep(captured, torchtitan.Request(mode="eager"))
    pool_bytes = taken.pool_bytes(expand(captured.graph, {}))
    fixed_bytes = torchtitan.plan_step(ours.gm, config, "100%", costs="reference").plan.fixed_bytes
    return ours, pool_bytes, pool_bytes + sum(fixed_bytes.values()), \
        captured.graph.time_s / base_s - 1


@pytest.mark.slow
def test_plans_cost_a_fraction_of_the_engines_own_policies(config):
    """Side by side, counted alike: at most as many bytes, and less time."""
    for name, most, most_with_host in zip(POLICIES, (1 / 3, 1 / 2, 1), (1 / 6, 1 / 6, 4 / 5)):
        ours, pool_bytes, total_bytes, overhead = beside(name, (8, 1024), config)
        plan = torchtitan.plan_step(ours.gm, config, total_bytes, costs="reference").plan
        assert plan.pool_bytes <= pool_bytes
        assert plan.overhead <= most * overhead, (name, plan.overhead, overhead)
        assert plan.overhead <= plan.bound + 0.003
        plan = torchtitan.plan_step(ours.gm, config, total_bytes, host="16GB", link="25GB/s",
                                    costs="reference").plan
        assert plan.pool_bytes <= pool_bytes
        assert plan.overhead <= most_with_host * overhead, (name, plan.overhead, overhead)


@pytest.mark.parametrize("policy", POLICIES)
def test_without_a_search_a_plan_is_no_dearer_than_the_engines(policy, config, monkeypatch):
    monkeypatch.setattr(planning, "plan_of", lambda network: plan_of(replace(
        network, request=replace(network.request, without=ALL_BUT_GIVEN))))
    ours, pool_bytes, total_bytes, overhead = beside(policy, (4, 256), config)
    plan = torchtitan.plan_step(ours.gm, config, total_bytes, costs="reference").plan
    assert plan.pool_bytes <= pool_bytes and 0 < plan.overhead <= overhead


def test_a_policy_of_the_engine_is_the_plan_where_nothing_better_is_found(config, monkeypatch):
    def refuses(networks):
        raise InfeasibleBudget("nothing was found", 1, 2)
    ours, pool_bytes, total_bytes, overhead = beside("full", (4, 256), config)
    monkeypatch.setattr(torchtitan, "best_plan", refuses)
    made = torchtitan.plan_step(ours.gm, config, total_bytes, costs="reference")
    assert made.plan.pool_bytes == pool_bytes
    assert made.plan.overhead == pytest.approx(overhead)
    assert "this is the engine's own policy 'full'" in made.summary
    with pytest.raises(InfeasibleBudget):
        torchtitan.plan_step(ours.gm, config, total_bytes // 2, costs="reference")


def test_gathering_a_weight_again_is_a_choice():
    """SimpleFSDP over eight ranks of a pretended process group."""
    code = """
import torch, torch.distributed as dist
from types import SimpleNamespace
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
from torch.distributed.device_mesh import init_device_mesh
from torchtitan.experiments.graph_trainer.common_utils import annotate_module_fqns
from torchtitan.experiments.graph_trainer.fsdp_passes import (
    deduplicate_fsdp_unshard_chains_pass)
from torchtitan.experiments.graph_trainer.llama3 import model_registry
from torchtitan.experiments.graph_trainer.make_fx_tracer import minimal_fx_tracer
from torchtitan.experiments.graph_trainer.simple_fsdp import MixedPrecisionPolicy, data_parallel
from memonger.torch.engines import torchtitan
mesh = init_device_mesh("cpu", (8,), mesh_dim_names=("fsdp",))
spec = model_registry("debugmodel", attn_backend="sdpa")
with torch.device("meta"):
    model = spec.model.build()
annotate_module_fqns(model)
model = data_parallel(model, mesh, mode="fully_shard", mp_policy=MixedPrecisionPolicy(
    param_dtype=torch.bfloat16, reduce_dtype=torch.float32)).to_empty(device="cpu").train()
words = torch.randint(0, 2000, (2, 2, 128))

def step(inputs, labels):
    loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1).float(),
                                             labels.flatten(0, 1))
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

gm = minimal_fx_tracer(step, module=model)(*words).gm
gm.graph.eliminate_dead_code()
gm = deduplicate_fsdp_unshard_chains_pass(gm, None)
print(sum(p.to_local().numel() * 4 for p in model.parameters()))
for network in ("400GB/s", "1GB/s"):
    made = torchtitan.plan_step(gm, SimpleNamespace(), "80%", network=network, costs="reference",
                                time_limit=4)
    again = [made.plan.graph.ops[op].kind for op in made.plan.schedule.recomputed()]
    print(sum("all_gather" in kind for kind in again), made.plan.total_bytes,
          made.plan.budget_bytes, made.plan.fixed_bytes["parameters"])
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                          timeout=600, check=True)
    (held_bytes,), fast, slow = ([int(word) for word in line.split()]
                                 for line in done.stdout.splitlines()[-3:])
    assert fast[0] > slow[0] > -1
    for _, total_bytes, budget_bytes, parameters_bytes in (fast, slow):
        assert total_bytes <= budget_bytes and parameters_bytes == held_bytes


def test_the_benchmark_plans_ranks_of_many():
    """Mixtral's shape, one layer: its experts make results whose copies the engine cannot place."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "distributed", "--models", "mixtral", "--layers", "1"],
        stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| mixtral, 64")]
    assert [row.split("|")[2].strip() for row in rows] == [
        "no policy", "default", "eager", "full", *(
            "memonger, %s%s" % (share, host) for host in ("", ", host")
            for share in ("80%", "60%", "40%", *map("in the bytes of {}".format, (
                "default", "eager", "full"))))]
    assert sum("no plan" not in row for row in rows) > 5


def test_the_example_compares_policies(capsys):
    path = Path(__file__).resolve().parents[2] / "examples" / "torchtitan_policy.py"
    runpy.run_path(str(path))["main"](["--batch", "2", "--words", "64", "--run"])
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said if not line.startswith(" ")] == [
        "no", "default", "eager", "full"]
    assert sum("equal bit for bit" in line for line in said) == 3
