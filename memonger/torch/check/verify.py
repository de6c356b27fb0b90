"""Planned and unplanned training side by side, number by number."""
from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch

from ...plans import verification as plans
from ...plans.verification import Difference
from ...util.errors import InputError, VerificationError
from ..pytorch import private_ops
from ..pytorch.module_step import arguments
from .measure import with_gradients

logger = logging.getLogger("memonger.torch")
_GRADIENT = "gradient of "
#: In half precision a compiler that fuses rounds less often than the module by itself, and may be
#: this many times further off than another plan of the same compiler.
_ALONE = 3
#: What rounding may be in float64.
_IN_DOUBLE = 1e-6
#: Step, name and value.
_Number = Tuple[int, str, torch.Tensor]


class Others(NamedTuple):
    """What planned training is compared with: how to call a module in other ways."""

    #: The module by itself.
    module: Callable[[Any], Any]
    #: Compiled for the same mode, without a plan.
    unplanned: Callable[[Any], Any]
    #: Compiled for the same mode, with all values kept for backward.
    kept: Callable[[Any], Any]


@dataclass(frozen=True)
class Verification(plans.Verification):
    """What :func:`memonger.torch.verify` found.

    ``differences`` are from the same mode without a plan. Bits must be equal on a CPU with the same
    operators in eager mode; else rounding of the share ``tolerance`` may differ, as kernels of a
    GPU may add in another order each time, and Inductor's where they are made of other operators.
    """

    #: Where the module draws other random numbers by itself than in this mode, ``beside`` is from
    #: the same mode with all values kept, and this is False.
    beside_module: bool = True
    #: PyTorch's words where planned training stops with an error and the module by itself trains.
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """Whether planned training ends, and all differences are within rounding."""
        return super().ok and not self.stopped

    def check(self) -> plans.Verification:
        """Raise VerificationError unless :attr:`ok`."""
        if self.stopped:
            raise VerificationError(str(self))
        return super().check()

    def __str__(self) -> str:
        return super().__str__() if not self.stopped else \
            "NOT the same network, do not train with this plan: planned training stops where the " \
            "module by itself trains: %s" % self.stopped


def compared(planned: Any, original: Any, others: Others, inputs: Any, steps: int,
             is_exact: Callable[[], bool], draws: Callable[[], bool],
             seed: int = 0) -> Verification:
    """Train copies of all and compare outputs, gradients and buffers after each step.

    ``planned``, ``original``: modules with the same parameters, which are left as they are.
    ``is_exact``: after the steps, whether the planned one has the same operators and kernels.
    ``draws``: after the steps, whether the planned one draws random numbers.
    """
    state = _State(original)

    def trained(call: Any) -> List[_Number]:
        try:
            return _trained(original, call, inputs, steps, seed)
        finally:
            state.restore()

    try:
        numbers = trained(planned)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        trained(others.module(original))  # whose own errors are the user's
        return Verification((), steps, 0.0, stopped=str(error))
    unplanned = trained(others.unplanned(original))
    exact = is_exact() and all(value.device.type == "cpu" for _, _, value in numbers)
    half = any(value.dtype in (torch.float16, torch.bfloat16) for _, _, value in numbers)
    rounding = 3e-2 if half else 1e-3
    apart = _ALONE * rounding if half else rounding
    beside, is_module = _differences(numbers, trained(others.module(original)), apart), True
    if draws() and not all(d.ok for d in beside):
        beside, is_module = _differences(numbers, trained(others.kept(original)), apart), False
    tolerance = 0.0 if exact else rounding
    found = Verification(_differences(numbers, unplanned, tolerance), steps, tolerance,
                         beside=beside, beside_module=is_module)
    if not is_module or all(d.ok for d in beside) or not all(d.ok for d in found.differences):
        return found
    return _judged(found, original, others, inputs, seed)


def _judged(found: Verification, original: Any, others: Others, inputs: Any,
            seed: int) -> Verification:
    """What was found, where the compiled module is far off the module by itself.

    An element of a ReLU at zero may fall to either side, so that rounding becomes a share of a
    gradient. What is no rounding is there in float64, too: a float64 copy of the module judges, if
    it can be made and run.
    """
    try:
        wide = copy.deepcopy(original).double()
        state, double = _State(wide), private_ops.pytree.tree_map(_in_double, inputs)
        compiled = _trained(wide, others.unplanned(wide), double, found.steps, seed)
        state.restore()
        plain = _trained(wide, others.module(wide), double, found.steps, seed)
    except Exception as error:  # a module may not be for other types
        logger.info("the module cannot be run in float64: %s", error)
        return found
    judged = _differences(compiled, plain, _IN_DOUBLE)
    return replace(found, in_double=judged, beside=tuple(
        one if one.ok else replace(one, error=other.error, allowed=other.allowed)
        for one, other in zip(found.beside, judged)))


def _in_double(value: Any) -> Any:
    return value.detach().double().requires_grad_(value.requires_grad) \
        if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _differences(found: List[_Number], wanted: List[_Number],
                 tolerance: float) -> Tuple[Difference, ...]:
    """How far each number is off.

    That is a share of the tensor's largest value, or of a hundredth of the step's largest gradient
    where that is more: gradients far below others, as of a bias before a BatchNorm, are rounding
    alone.
    """
    if [(name, value.shape) for _, name, value in found] != \
            [(name, value.shape) for _, name, value in wanted]:
        raise InputError("the module is not the one that was compiled: its parameters are others; "
                         "give the object that memonger.torch.compile was given")
    least: Dict[int, float] = {}
    for step, name, value in wanted:
        if name.startswith(_GRADIENT):
            least[step] = max(least.get(step, 0.0), 0.01 * _largest(value))
    differences = []
    for (step, name, a), (_, _, b) in zip(found, wanted):
        off = 0.0 if _is_same(a, b) else _largest(_wide(a) - _wide(b))
        scale = max(_largest(b), least.get(step, 0.0)) or 1.0
        differences.append(Difference(step, name, off == 0.0, off, off / scale, off,
                                      tolerance * scale))
    return tuple(differences)


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether all bits agree, where a NaN is as good as another."""
    return torch.equal(a, b) or a.is_floating_point() and torch.equal(
        a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(0.0), b.nan_to_num(0.0))


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _largest(value: torch.Tensor) -> float:
    return float(_wide(value).abs().max()) if value.numel() else 0.0


class _State:
    """Parameters, buffers and gradients of a module as they are."""

    def __init__(self, module: torch.nn.Module):
        self.values = [(t, t.detach().clone()) for t in (*module.parameters(), *module.buffers())]
        self.buffers = [(part, name, value) for part in module.modules()
                        for name, value in part.named_buffers(recurse=False)]
        self.gradients = [(p, p.grad) for p in module.parameters()]

    def restore(self) -> None:
        """Restore them, those that the module has replaced, too."""
        for part, name, buffer in self.buffers:
            setattr(part, name, buffer)
        with torch.no_grad():
            for tensor, value in self.values:
                tensor.copy_(value)
        for parameter, gradient in self.gradients:
            parameter.grad = gradient


def _trained(module: torch.nn.Module, call: Any, inputs: Any, steps: int,
             seed: int) -> List[_Number]:
    numbers: List[_Number] = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for step in range(steps):
            own = private_ops.pytree.tree_map(_of_its_own, inputs)  # the module may write into them
            args, named = arguments(own)
            module.zero_grad(set_to_none=True)
            outputs = with_gradients(call(*args, **named))
            torch.autograd.backward(outputs, _incoming(outputs, seed))
            for place, output in enumerate(outputs):
                name = "loss" if len(outputs) == output.numel() == 1 else "output %d" % place
                numbers.append((step, name, output.detach().clone()))
            for name, tensor in [*module.named_parameters(), *(
                    ("input %d" % place, leaf) for place, leaf in enumerate(
                        private_ops.pytree.tree_leaves(own)) if isinstance(leaf, torch.Tensor))]:
                if tensor.grad is not None:
                    numbers.append((step, _GRADIENT + name, tensor.grad.to_dense().clone()))
            with torch.no_grad():
                for parameter in module.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.01 * parameter.grad
            numbers += [(step, name, b.clone()) for name, b in module.named_buffers()]
    return numbers


def _of_its_own(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _incoming(outputs: List[torch.Tensor], seed: int) -> List[torch.Tensor]:
    """Gradients of the outputs: another one for each element, as a sum may hide what is wrong.

    What softmax or LayerNorm gives adds up to the same whatever they are given.
    """
    numbers = torch.Generator().manual_seed(seed)
    return [torch.ones_like(output) if output.numel() == 1 else torch.randn(
        output.shape, generator=numbers, dtype=torch.float64).to(output) for output in outputs]
