"""Peak and time of a forward and a backward graph, whoever made them, by one count."""
from __future__ import annotations

import weakref
from typing import Any, Dict, List, Tuple

import torch
import torch.fx as fx
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from memonger.torch.capture.costs import ROOFLINES, estimated_s
from memonger.torch.pytorch import private_joint
from memonger.torch.pytorch.sizes import hint, tensors
from memonger.torch.rewrite.eager import Program


class Counter(TorchDispatchMode):
    """Bytes of the storages alive that operators made, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {t.untyped_storage()._cdata for t in pytree.tree_leaves((args, kwargs))
                 if isinstance(t, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for t in pytree.tree_leaves(out):
            if isinstance(t, torch.Tensor):
                storage = t.untyped_storage()
                key = storage._cdata
                if key not in self.sizes and key not in given:
                    self.sizes[key] = storage.nbytes()
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self._gone, key)
        self.peak = max(self.peak, self.now)
        return out

    def _gone(self, key: int) -> None:
        self.now -= self.sizes.pop(key, 0)


def _fresh(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided([hint(n) for n in value.shape], [hint(n) for n in value.stride()],
                               dtype=value.dtype, device=value.device)


def peak_bytes(forward: fx.GraphModule, backward: fx.GraphModule, num_outputs: int) -> int:
    """The most that both allocate, node by node on fake tensors; tangents exist before."""
    inputs = forward.graph.find_nodes(op="placeholder")
    mode = next(n.meta["val"].fake_mode for n in inputs if hasattr(n.meta["val"], "fake_mode"))
    with mode:
        args = [_fresh(n.meta["val"]) for n in inputs]
        tangents = [_fresh(n.meta["val"]) for n in backward.graph.find_nodes(op="placeholder")
                    if private_joint.is_tangent(n)]
        held = list(args)  # parameters and inputs stay
        counter = Counter()
        with counter:
            results = list(Program(forward).run(args))
            kept = [value for value, written in zip(
                results[:num_outputs], private_joint.written_back(forward)) if not written]
            saved = results[num_outputs:]
            del results
            numbers = [v for v in saved if not isinstance(v, torch.Tensor)]
            given: List[Any] = [*numbers, *(v for v in saved if isinstance(v, torch.Tensor)),
                                *tangents]
            del saved
            gradients = Program(backward).run(given)
        del held, kept, gradients
    return counter.peak


def time_s(*modules: fx.GraphModule) -> float:
    """Estimated seconds of all nodes, of a device with 10 TFLOP/s and 600 GB/s."""
    return sum(estimated_s(node, ROOFLINES["reference"]) for module in modules
               for node in module.graph.nodes if _works(node))


def _works(node: fx.Node) -> bool:
    """Whether a node makes memory of its own."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    given = {t.untyped_storage()._cdata for i in node.all_input_nodes
             for t in tensors(i.meta.get("val"))}
    made = {t.untyped_storage()._cdata for t in tensors(node.meta.get("val"))}
    return not node.target.is_view and not made <= given


def both(forward: fx.GraphModule, backward: fx.GraphModule,
         num_outputs: int) -> Tuple[int, float]:
    """Peak in bytes, and seconds."""
    return peak_bytes(forward, backward, num_outputs), time_s(forward, backward)
