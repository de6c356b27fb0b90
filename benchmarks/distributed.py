"""``python -m benchmarks distributed``: plans for ranks of many, on a machine without one.

Needs torchtitan, see ``make test-torchtitan``. A step of each model is traced as torchtitan's
``graph_trainer`` does it, for one rank of a pretended process group: SimpleFSDP over all ranks,
parameters in bfloat16, gradients reduced in float32, one sequence of 8,192 tokens a rank, the loss
in eight chunks. torchtitan's own policies are carried out on that graph and counted, and it is
planned at shares of what a rank takes unplanned, and in as many bytes as the policies take. Nothing
is trained, and no memory of parameters is touched. Bytes are those of a rank with the state of
AdamW; times are predicted, of a device with the figures of :data:`RATES`, as if nothing ran beside
a collective.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Dict, Iterator, NamedTuple

from memonger.util.units import format_bytes

#: An H100's: dense bfloat16 at 40 % of its peak, memory at 90 %, a port of 400 Gbit/s a rank, and
#: PCIe 5 with 16 lanes at 80 %, one way.
RATES = {"flops_per_s": 4e14, "bytes_per_s": 3e12, "network_bytes_per_s": 50e9,
         "host_bytes_per_s": 50e9}
SHARES = ("80%", "60%", "40%")
WORDS = 8192
Row = Dict[str, Any]


class Model(NamedTuple):
    """A model of torchtitan's, and how many ranks share it."""

    family: str
    flavor: str
    ranks: int


MODELS = {"llama-8b": Model("llama3", "8B", 8), "llama-70b": Model("llama3", "70B", 64),
          "mixtral": Model("qwen3", "mixtral", 64)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--models", default=",".join(MODELS), help="names: " + ", ".join(MODELS))
    parser.add_argument("--layers", type=int, default=0, help="only so many, for a quick look")
    parser.add_argument("--host", default="64GB", help="memory of the host for a rank's values")
    parser.add_argument("--one", help=argparse.SUPPRESS)


def main(args: argparse.Namespace) -> int:
    """Print the table; each model is traced in a process of its own."""
    if args.one:
        for row in rows_of(MODELS[args.one], args.layers, args.host):
            print(json.dumps(row), flush=True)
        return 0
    print("| model, ranks | of a rank | a rank | extra time (no plan takes less) | gathers "
          "| planning, CPU s |\n|---|---|---:|---:|---:|---:|", flush=True)
    for name in args.models.split(","):
        command = [sys.executable, "-m", "benchmarks", "distributed", "--one", name,
                   "--layers", str(args.layers), "--host", args.host]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        for line in filter(lambda text: text.startswith("{"), done.stdout.splitlines()):
            print(words(name, json.loads(line)), flush=True)
    return 0


def words(name: str, row: Row) -> str:
    """A row of the table."""
    label = "%s, %d" % (name, MODELS[name].ranks)
    if "refused" in row:
        return "| %s | %s | %s | | | %.0f |" % (label, row["what"], row["refused"], row["cpu_s"])
    return "| %s | %s | %s | %+.1f %%%s | %d | %s |" % (
        label, row["what"], format_bytes(row["bytes"]), 100 * row["overhead"],
        " (%.1f)" % (100 * row["bound"]) if "bound" in row else "", row["gathers"],
        "%.0f" % row["cpu_s"] if "cpu_s" in row else "")


def rows_of(model: Model, layers: int, host: str) -> Iterator[Row]:
    """The unplanned step, torchtitan's policies, and our plans without and with a host."""
    from memonger.errors import InfeasibleBudget
    from memonger.torch.engines import torchtitan
    from memonger.torch.pytorch import private_joint
    began_s = time.process_time()
    gm = step_of(model, layers)
    config = SimpleNamespace(
        optimizer=SimpleNamespace(
            implementation="", param_groups=[SimpleNamespace(optimizer_name="AdamW")]),
        parallelism=SimpleNamespace(
            fsdp_reshard_after_forward="default", pipeline_parallel_degree=1,
            data_parallel_replicate_degree=1, data_parallel_shard_degree=model.ranks))

    def plan(graph: Any, budget: Any, host_bytes: Any = None) -> Any:
        return torchtitan.plan_step(graph, config, budget, host_bytes, rates=RATES).plan

    usual = plan(gm, "100%")
    base_s = usual.graph.time_s
    yield {"what": "no policy", "bytes": usual.baseline_total_bytes, "overhead": 0.0,
           "gathers": gathers(usual), "cpu_s": time.process_time() - began_s}
    budgets: Dict[str, Any] = {share: share for share in SHARES}
    for name, marked in policies(private_joint.copied, gm, config):
        taken = plan(marked, "100%")
        budgets["in the bytes of %s" % name] = taken.baseline_total_bytes
        yield {"what": name, "bytes": taken.baseline_total_bytes,
               "overhead": taken.graph.time_s / base_s - 1, "gathers": gathers(taken)}
    for host_bytes in (None, host):
        for share, budget in budgets.items():
            began_s = time.process_time()
            what = "memonger, %s%s" % (share, ", host" * (host_bytes is not None))
            try:
                made = plan(gm, budget, host_bytes)
            except InfeasibleBudget as error:
                yield {"what": what, "cpu_s": time.process_time() - began_s,
                       "refused": "no plan; least %s" % format_bytes(error.minimum_bytes)}
                continue
            yield {"what": what, "bytes": made.total_bytes, "overhead": made.overhead,
                   "bound": made.bound, "gathers": gathers(made),
                   "cpu_s": time.process_time() - began_s}


def gathers(plan: Any) -> int:
    """How often a step gathers a weight."""
    return sum("all_gather" in plan.graph.ops[step.op].kind for step in plan.schedule.steps)


def policies(copied: Any, gm: Any, config: Any) -> Iterator[Any]:
    """The step as torchtitan's policies make it run, by their names."""
    from torchtitan.experiments.graph_trainer import memory_policy, selective_activation_remat

    from memonger.torch.engines.torchtitan import name_sums
    for name in ("default", "eager", "full"):
        marked = copied(gm)
        name_sums(marked)
        memory_policy.MEMORY_POLICY_REGISTRY[name](marked, config=config)
        yield name, selective_activation_remat.selective_activation_remat_pass(marked)


def step_of(model: Model, layers: int) -> Any:
    """The graph of one step of one rank, as the engine traces it."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torchtitan.experiments.graph_trainer.chunked_loss import (
        ChunkedLossWrapperWithParamGrads,
    )
    from torchtitan.experiments.graph_trainer.common_utils import annotate_module_fqns
    from torchtitan.experiments.graph_trainer.fsdp_passes import (
        deduplicate_fsdp_unshard_chains_pass,
    )
    from torchtitan.experiments.graph_trainer.make_fx_tracer import minimal_fx_tracer
    from torchtitan.experiments.graph_trainer.simple_fsdp import (
        MixedPrecisionPolicy,
        data_parallel,
    )
    from torchtitan.experiments.graph_trainer.trainer import make_fwd_bwd_step
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=model.ranks)
    mesh = init_device_mesh("cpu", (model.ranks,), mesh_dim_names=("fsdp",))
    shape = config_of(model)
    if layers:
        shape.layers = shape.layers[:layers]
    with torch.device("meta"):
        module = shape.build()
    annotate_module_fqns(module)
    shard = partial(data_parallel, device_mesh=mesh, mode="fully_shard",
                    mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                                   reduce_dtype=torch.float32))
    for block in module.layers.values():
        if getattr(block, "moe", None) is not None:  # along rows: experts are fewer than ranks
            routed = block.moe.routed_experts
            routed.inner_experts = shard(routed.inner_experts, shard_dim=1)
    sharded = shard(module).to_empty(device="cpu").train()
    loss = ChunkedLossWrapperWithParamGrads.Config().build()
    loss.set_lm_head(sharded.lm_head)
    sharded._skip_lm_head = True
    tokens = torch.zeros((2, 1, WORDS), dtype=torch.int64)
    gm = minimal_fx_tracer(make_fwd_bwd_step(sharded, loss), module=sharded)(
        *tokens, torch.tensor(float(WORDS)), {}).gm
    gm.graph.eliminate_dead_code()
    return deduplicate_fsdp_unshard_chains_pass(gm, None)


def config_of(model: Model) -> Any:
    """The model's configuration, with the attention that a CPU traces."""
    from importlib import import_module

    from torchtitan.models import qwen3
    qwen3.qwen3_configs["mixtral"] = mixtral
    registry = import_module("torchtitan.experiments.graph_trainer." + model.family)
    return registry.model_registry(model.flavor, attn_backend="sdpa").model


def mixtral(attn_backend: str, moe_comm_backend: str = "standard") -> Any:
    """The shape of Mixtral 8x7B in blocks of torchtitan's Qwen 3."""
    from torchtitan.models import qwen3
    config = qwen3.qwen3_configs["debugmodel_moe"](attn_backend, moe_comm_backend)
    config.dim, config.vocab_size = 4096, 32000
    config.tok_embeddings.num_embeddings = config.lm_head.out_features = 32000
    config.tok_embeddings.embedding_dim = config.lm_head.in_features = 4096
    config.norm.normalized_shape = 4096
    config.layers = qwen3._build_qwen3_moe_layers(
        n_layers=32, dim=4096, n_heads=32, n_kv_heads=8, head_dim=128, moe_hidden_dim=14336,
        num_experts=8, top_k=2, attn_backend=attn_backend, moe_comm_backend=moe_comm_backend,
        rope=replace(config.layers[0].attention.rope, max_seq_len=WORDS))
    return config
