"""Planned and unplanned training side by side, number by number."""
from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Callable, List, Tuple

import torch

from ..util.errors import InputError, VerificationError
from .measure import loss_of
from .module_step import arguments

_GRADIENT = "gradient of "


@dataclass(frozen=True)
class Difference:
    """One tensor after one step."""

    step: int
    tensor: str
    max_abs: float
    #: Of the tensor's largest value, or of a hundredth of the step's largest gradient where that is
    #: more: gradients far below others, as of a bias before a BatchNorm, are rounding alone.
    max_rel: float

    @property
    def identical(self) -> bool:
        """Bit for bit."""
        return self.max_abs == 0.0


@dataclass(frozen=True)
class Verification:
    """What :func:`memonger.torch.verify` found."""

    differences: Tuple[Difference, ...]
    steps: int
    #: Bits must be equal (on a CPU, with the same operators in eager mode); else rounding of this
    #: share may differ, as kernels of a GPU may add in another order each time, and Inductor's add
    #: in another order where they are made of other operators.
    tolerance: float

    @property
    def identical(self) -> bool:
        """Whether all tensors are the same, bit for bit."""
        return all(d.identical for d in self.differences)

    @property
    def ok(self) -> bool:
        """Whether all differences are within the tolerance."""
        return all(d.max_rel <= self.tolerance for d in self.differences)

    def check(self) -> None:
        """Raise VerificationError unless :attr:`ok`."""
        worst = max(self.differences, key=lambda d: d.max_rel)
        if not self.ok:
            raise VerificationError(
                "planned and unplanned training differ: %s after step %d by %.3g (%.3g of its "
                "largest value, or of a hundredth of the largest gradient); do not train with this "
                "plan" % (worst.tensor, worst.step, worst.max_abs, worst.max_rel),
                worst.tensor, worst.max_abs, worst.max_rel)

    def __str__(self) -> str:
        same = sum(d.identical for d in self.differences)
        worst = max((d.max_rel for d in self.differences), default=0.0)
        return "%s (%d of %d tensors of %d steps identical, bit for bit%s)" % (
            "Same network" if self.ok else "NOT the same network, do not train with this plan: "
            "the differences are more than rounding", same, len(self.differences), self.steps,
            "" if self.identical else "; the worst is off by %.2g" % worst)


def compared(planned: Any, original: Any, compile_unplanned: Callable[[Any], Any], inputs: Any,
             steps: int, is_exact: Callable[[], bool], seed: int = 0) -> Verification:
    """Train copies of both and compare losses, gradients and buffers after each step.

    ``planned``, ``original``: modules with the same parameters, which are left as they are.
    ``compile_unplanned``: compiles the original for the planned one's mode.
    ``is_exact``: after the steps, whether the planned one has the same operators and kernels.
    """
    state = copy.deepcopy(original.state_dict())
    numbers = [_trained(original, planned, inputs, steps, seed)]
    original.load_state_dict(state)
    numbers.append(_trained(original, compile_unplanned(original), inputs, steps, seed))
    original.load_state_dict(state)
    original.zero_grad(set_to_none=True)
    exact = is_exact() and all(value.device.type == "cpu" for _, _, value in numbers[0])
    half = any(value.dtype in (torch.float16, torch.bfloat16) for _, _, value in numbers[0])
    if [(name, value.shape) for _, name, value in numbers[0]] != \
            [(name, value.shape) for _, name, value in numbers[1]]:
        raise InputError("the module is not the one that was compiled: their parameters differ")
    least = {step: 0.01 * max((_largest(value) for k, name, value in numbers[1]
                               if k == step and name.startswith(_GRADIENT)), default=0.0)
             for step in range(steps)}
    found: List[Difference] = []
    for (step, name, a), (_, _, b) in zip(*numbers):
        off = 0.0 if torch.equal(a, b) else _largest(a.double() - b.double())
        found.append(Difference(step, name, off,
                                off and off / (max(_largest(b), least[step]) or 1.0)))
    return Verification(tuple(found), steps, 0.0 if exact else 3e-2 if half else 1e-3)


def _largest(value: torch.Tensor) -> float:
    return float(value.double().abs().max()) if value.numel() else 0.0


def _trained(module: torch.nn.Module, call: Any, inputs: Any, steps: int,
             seed: int) -> List[Tuple[int, str, torch.Tensor]]:
    args, named = arguments(inputs)
    numbers: List[Tuple[int, str, torch.Tensor]] = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for step in range(steps):
            module.zero_grad(set_to_none=True)
            loss = loss_of(call(*args, **named))
            loss.backward()
            numbers.append((step, "loss", loss.detach().clone()))
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    numbers.append((step, _GRADIENT + name, parameter.grad.clone()))
                    with torch.no_grad():
                        parameter -= 0.01 * parameter.grad
            numbers += [(step, name, b.clone()) for name, b in module.named_buffers()]
    return numbers
