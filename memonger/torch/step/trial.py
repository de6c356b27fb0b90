"""One training step in the middle of a compilation, to see what the compiled code takes."""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.fx as fx

from ..pytorch import private, private_joint
from ..pytorch.allocations import peak_bytes


def inference_bytes(call: Callable[..., Any], inputs: Sequence[Any]) -> int:
    """The most that one run of ``call`` allocates, which takes no gradient.

    Inputs and random states are restored.
    """
    tensors = [i for i in inputs if isinstance(i, torch.Tensor)]
    device = next((t.device for t in tensors if t.device.type != "cpu"), torch.device("cpu"))
    before = [(t, t.detach().clone()) for t in tensors if not t.requires_grad]
    with private.outside_compilation(), torch.random.fork_rng(
            [device] if device.type == "cuda" else []), torch.no_grad():
        try:
            return peak_bytes(lambda: call(*inputs), device)
        finally:
            for tensor, value in before:
                if not torch.equal(tensor, value):
                    tensor.copy_(value)


def written_positions(joint: fx.GraphModule) -> List[int]:
    """The inputs of the compiled graph that a step writes into, by position."""
    written = private_joint.written_inputs(joint, backward=True)
    return [k for k in private_joint.input_positions(written) if k is not None]


def trial_bytes(call: Callable[..., Any], inputs: Sequence[Any],
                written: Sequence[int]) -> Optional[int]:
    """The most that one step of ``call`` allocates; None where it cannot be tried.

    The memory of the whole device where it is not enough. The gradients of the outputs exist
    before the step, as plans count them. Those of the inputs are accumulated, which copies what
    comes in another layout than its input's.

    ``inputs``: of the compiled graph, in order; ``written``: those into whose memory it writes.
    Inputs, gradients and random states are restored.
    """
    tensors = [i for i in inputs if isinstance(i, torch.Tensor)]
    device = next((t.device for t in tensors if t.device.type != "cpu"), torch.device("cpu"))
    memory = [inputs[k].untyped_storage() for k in written]
    before = [storage.clone() for storage in memory]
    # Leaves of their own: without gradients, hooks, and what made them.
    leaves = {place: value.detach().requires_grad_() for place, value in enumerate(inputs)
              if isinstance(value, torch.Tensor) and value.requires_grad}
    given = [leaves.get(place, value) for place, value in enumerate(inputs)]
    outputs: List[Any] = []
    gradients: List[Any] = []

    def forward() -> None:
        outputs[:] = [o for o in call(*given)
                      if isinstance(o, torch.Tensor) and o.requires_grad]

    def step() -> None:
        forward()
        torch.autograd.backward(outputs, gradients)
        for leaf in leaves.values():
            leaf.grad = None

    devices = [device] if device.type == "cuda" else []
    with private.outside_compilation(), torch.random.fork_rng(devices), torch.enable_grad():
        try:
            forward()
            gradients[:] = map(torch.ones_like, outputs)
            outputs.clear()
            if devices:
                step()  # the first one tries out kernels, on memory of their own
            return peak_bytes(step, device)
        except torch.OutOfMemoryError:
            return torch.cuda.get_device_properties(device).total_memory if devices else None
        finally:
            outputs.clear()
            gradients.clear()
            for storage, values in zip(memory, before):
                storage.copy_(values)
