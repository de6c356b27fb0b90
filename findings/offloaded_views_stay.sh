#!/usr/bin/env bash
# torchtitan 0.3.0 on PyTorch 2.15.0: of an offloaded value that is read through a view, a copy comes
# back from the host for backward, and what is recomputed reads the value on the device all the same.
#
# Expected: graph_trainer's passes let a recomputed operator read what was fetched, wherever it reads
# an offloaded value: the value's memory on the device is free between forward and backward.
# Happens: they do so where the operator reads the value itself. Where a view lies between, as behind
# each nn.Linear of three-dimensional inputs, the recomputed operator reads the view of forward. That
# keeps the value on the device until backward, beside the copy, and offloading it saves nothing.
#
# Seen:
#     silu of the product reads again: ao.wait_tensor.default
#     silu of a view of the product reads again: aten.mm.default
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.15.0 numpy==2.4.6 tqdm==4.70.1 dill==0.4.1 docstring_parser==0.18.0
# Of torchtitan's needs only those that it imports.
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    torchtitan==0.3.0 spmd_types==0.2.3 tyro==1.0.17 typeguard==4.6.1
cd "$folder"
cat > views.py <<'PROGRAM'
import sys

import torch
import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy
from torchtitan.experiments.graph_trainer.cpu_offload import apply_cpu_offload_pass
from torchtitan.experiments.graph_trainer.selective_activation_remat import (
    selective_activation_remat_pass,
)

aten = torch.ops.aten


def read_again(viewed):
    """What the recomputed silu reads: silu is to run again, its operand is to be offloaded."""
    graph = fx.Graph()

    def add(target, *args, backward=False, policy=None):
        node = graph.call_function(target, args)
        node.meta = {"val": target(*fx.node.map_arg(args, lambda n: n.meta["val"])),
                     "autograd_backward": backward, "custom": {"module_fqn": "layers.0"}}
        if policy is not None:
            node.meta["recompute"] = policy
        return node

    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(64, 64)
    product = add(aten.mm.default, x, x, policy=CheckpointPolicy.MUST_CPU_OFFLOAD)
    operand = add(aten.view.default, product, [4096]) if viewed else product
    result = add(aten.silu.default, operand, policy=CheckpointPolicy.MUST_RECOMPUTE)
    loss = add(aten.sum.default, result)
    square = add(aten.mul.Tensor, result, result, backward=True)
    gradient = add(aten.silu_backward.default, result, operand, backward=True)
    graph.output((loss, square, gradient))
    made = selective_activation_remat_pass(apply_cpu_offload_pass(fx.GraphModule({}, graph)))
    again, = [node for node in made.graph.nodes if node.name == "silu_default_recomputed"]
    source = again.args[0]
    while source.target is aten.view.default:
        source = source.args[0]
    return str(source.target)


itself, viewed = read_again(False), read_again(True)
print("silu of the product reads again:", itself)
print("silu of a view of the product reads again:", viewed)
if (itself, viewed) != ("ao.wait_tensor.default", "aten.mm.default"):
    sys.exit("behaviour has changed")
PROGRAM
"$folder/env/bin/python" views.py 2>/dev/null
