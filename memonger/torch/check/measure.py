"""What a training step really allocates, and how long it takes."""
from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List

import torch

from ...plans import measurement
from ...util.errors import InputError
from ...util.units import format_bytes
from ..pytorch import private_ops
from ..pytorch.allocations import device_name, peak_bytes


@dataclass(frozen=True)
class Measurement(measurement.Measurement):
    """Training steps, measured; ``allocated_bytes`` are those at the worst moment of a step."""

    #: What existed before the step: parameters, buffers, inputs; no optimizer's state.
    before_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """The step at its worst moment, with what existed before."""
        return self.allocated_bytes

    @property
    def peak_bytes(self) -> int:
        """The most that the step allocated beside what existed before it."""
        return self.allocated_bytes - self.before_bytes

    def to_dict(self) -> Dict[str, Any]:
        """All numbers, fit for JSON."""
        return {**super().to_dict(), "peak_bytes": self.peak_bytes}

    def __str__(self) -> str:
        return ("measured on %s: %s in total without an optimizer's state, %s of it in the step, "
                "%.2f ms a step (of %d)") % (
            self.device, format_bytes(self.total_bytes), format_bytes(self.peak_bytes),
            1e3 * self.step_s, len(self.steps_s))


def training_step(call: Callable[[], Any], trained: List[torch.Tensor]) -> Callable[[], Any]:
    """Forward and backward with new gradients; the outputs, which its caller holds."""
    def run() -> Any:
        for tensor in trained:
            tensor.grad = None
        output = call()
        loss_of(output).backward()
        return output
    return run


def loss_of(output: Any) -> torch.Tensor:
    """What backward starts from: all outputs that have gradients, summed up."""
    leaves = [torch.view_as_real(leaf) if leaf.is_complex() else leaf
              for leaf in with_gradients(output)]
    if len(leaves) == leaves[0].numel() == 1:
        return leaves[0]
    return torch.stack([leaf.float().sum() for leaf in leaves]).sum() if len(leaves) > 1 else \
        leaves[0].float().sum()


def with_gradients(output: Any) -> List[torch.Tensor]:
    """The outputs that have gradients.

    Raises InputError where there is none.
    """
    found = [leaf for leaf in private_ops.pytree.tree_leaves(output)
             if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not found:
        raise InputError("no output of the module has a gradient: there is nothing to train")
    return found


@contextlib.contextmanager
def gradients_restored(trained: Iterable[torch.Tensor]) -> Iterator[None]:
    """A block after which gradients are those that there were: any that exist count in plans."""
    held = [(tensor, tensor.grad) for tensor in trained]
    try:
        yield
    finally:
        for tensor, gradient in held:
            tensor.grad = gradient


def measure_step(step: Callable[[], Any], trained: List[torch.Tensor], device: torch.device,
                 before_bytes: int, steps: int) -> Measurement:
    """Peak of one step after a warm one, and the median time of ``steps`` more."""
    step()
    step()
    for tensor in trained:  # the gradients of a step are its own
        tensor.grad = None
    most = peak_bytes(step, device)
    times: List[float] = []
    for _ in range(steps):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        started_s = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started_s)
    return Measurement(most + before_bytes, statistics.median(times), tuple(times),
                       device_name(device), before_bytes=before_bytes)
