"""BatchNorm as the module runs it by itself.

AOTAutograd traces ATen's own kernel, also where cuDNN serves the module (PyTorch's issue 187444).
There an operator takes its place which chooses as the module does.
"""
from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from ..pytorch.private_ops import cudnn_serves

_ATEN = torch.ops.aten
_TRACED = _ATEN._native_batch_norm_legit_functional.default
_TRACED_BACKWARD = _ATEN.native_batch_norm_backward.default
#: Where the results of the operator that is traced are among those of the one that chooses.
_PLACES = (0, 1, 2, 4, 5)


def choose_batch_norms(joint: fx.GraphModule) -> None:
    """Let PyTorch choose what runs each BatchNorm that cuDNN serves. Linear in the graph."""
    for node in joint.graph.find_nodes(op="call_function", target=_TRACED):
        *given, training, momentum, epsilon = node.args
        taken = {user.args[1]: user for user in node.users}
        if not training or not cudnn_serves([x and x.meta["val"] for x in given], epsilon):
            continue
        gradients = [user for user in taken[1].users if user.target is _TRACED_BACKWARD]
        made = _placed(node, _ATEN._batch_norm_with_update_functional.default,
                       *given, momentum, epsilon)
        reserve = _placed(node, operator.getitem, made, 3)
        for position, user in taken.items():
            user.args = made, _PLACES[position]
        joint.graph.erase_node(node)
        for gradient in gradients:
            *read, update, epsilon, mask = gradient.args
            read[3:5] = None, None  # only those of the batch are read
            gradient.replace_all_uses_with(_placed(
                gradient, _ATEN.batch_norm_backward.default, *read, update, epsilon, mask,
                reserve))
            joint.graph.erase_node(gradient)
    joint.recompile()


def _placed(before: fx.Node, target: Any, *args: Any) -> fx.Node:
    """A node in place of another one, with the value that PyTorch says it has."""
    with before.graph.inserting_before(before):
        made = before.graph.call_function(target, args)
    operands = fx.node.map_arg(args, lambda n: n.meta["val"])
    with before.all_input_nodes[0].meta["val"].fake_mode:
        made.meta = {**before.meta, "val": target(*operands)}
    return made
