"""Planned and unplanned training side by side, number by number."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from ...util.errors import InputError, VerificationError
from ..pytorch import private_ops
from ..pytorch.module_step import arguments
from .measure import with_gradients

_GRADIENT = "gradient of "
#: In half precision a compiler that fuses rounds less often than the module by itself, and may be
#: this many times further off than another plan of the same compiler.
_ALONE = 3
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

    #: From the same mode without a plan.
    differences: Tuple[Difference, ...]
    steps: int
    #: Bits must be equal (on a CPU, with the same operators in eager mode); else rounding of this
    #: share may differ, as kernels of a GPU may add in another order each time, and Inductor's add
    #: in another order where they are made of other operators.
    tolerance: float
    #: From the module by itself, within rounding of the share ``rounding``.
    beside: Tuple[Difference, ...] = ()
    rounding: float = 1e-3
    #: Where the module draws other random numbers by itself than in this mode, ``beside`` is from
    #: the same mode with all values kept, and this is False.
    beside_module: bool = True
    #: PyTorch's words where planned training stops with an error and the module by itself trains.
    stopped: str = ""

    @property
    def identical(self) -> bool:
        """Whether all tensors are those of the mode without a plan, bit for bit."""
        return all(d.identical for d in self.differences)

    @property
    def ok(self) -> bool:
        """Whether planned training ends, and all differences are within rounding."""
        return self._worst is None and not self.stopped

    @property
    def _worst(self) -> Optional[Difference]:
        """The largest difference that is more than rounding."""
        wrong = [d for differences, allowed in (
            (self.differences, self.tolerance), (self.beside, self.rounding))
            for d in differences if not d.max_rel <= allowed]  # NaN is wrong
        return max(wrong, key=lambda d: d.max_rel) if wrong else None

    def check(self) -> None:
        """Raise VerificationError unless :attr:`ok`."""
        if self.stopped:
            raise VerificationError(str(self))
        worst = self._worst
        if worst is not None:
            raise VerificationError(
                "planned and unplanned training differ: %s after step %d by %.3g (%.3g of its "
                "largest value, or of a hundredth of the largest gradient); do not train with this "
                "plan" % (worst.tensor, worst.step, worst.max_abs, worst.max_rel),
                worst.tensor, worst.max_abs, worst.max_rel)

    def __str__(self) -> str:
        if self.stopped:
            return "NOT the same network, do not train with this plan: planned training stops " \
                "where the module by itself trains: %s" % self.stopped
        same = sum(d.identical for d in self.differences)
        worst = max((d.max_rel for d in (
            self.differences if self.ok else self.differences + self.beside)), default=0.0)
        return "%s (%d of %d tensors of %d steps identical, bit for bit%s)" % (
            "Same network" if self.ok else "NOT the same network, do not train with this plan: "
            "the differences are more than rounding", same, len(self.differences), self.steps,
            "" if self.identical and self.ok else "; the worst is off by %.2g" % worst)


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
    beside, is_module = _differences(numbers, trained(others.module(original))), True
    if draws() and any(d.max_rel > apart for d in beside):
        beside, is_module = _differences(numbers, trained(others.kept(original))), False
    return Verification(tuple(_differences(numbers, unplanned)), steps,
                        0.0 if exact else rounding, tuple(beside), apart, is_module)


def _differences(found: List[_Number], wanted: List[_Number]) -> List[Difference]:
    """How far each number is off."""
    if [(name, value.shape) for _, name, value in found] != \
            [(name, value.shape) for _, name, value in wanted]:
        raise InputError("the module is not the one that was compiled: their parameters differ")
    least: Dict[int, float] = {}
    for step, name, value in wanted:
        if name.startswith(_GRADIENT):
            least[step] = max(least.get(step, 0.0), 0.01 * _largest(value))
    differences = []
    for (step, name, a), (_, _, b) in zip(found, wanted):
        off = 0.0 if _is_same(a, b) else _largest(_wide(a) - _wide(b))
        differences.append(Difference(step, name, off, off and off / (
            max(_largest(b), least.get(step, 0.0)) or 1.0)))
    return differences


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
