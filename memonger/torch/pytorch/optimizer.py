"""What an optimizer holds and what its step takes, asked of the optimizer.

A twin of it, the same class with the same options over parameters without memory, takes a few
steps, and its tensors are counted as they come and go. Where the class decides by numbers what it
does, as LBFGS does, the twin has small parameters with memory, and bytes are scaled.
"""
from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from ...util.argument_checks import shown
from ...util.errors import InputError
from . import private, private_ops
from .allocations import CUDA_GRANULE_BYTES
from .live_bytes import LiveBytes, tensors_in
from .module_step import seeded
from .optimizer_twin import Gradients, StandIns, dense, fake_parameter, small, sparse, twin_of

#: First steps that are tried to find the one that takes the most: RAdam begins with another kind.
STEPS = 8
#: Twins of real tensors have at most so many elements, and take at most so many steps: until what
#: they hold is the same after so many.
_SMALL_ELEMENTS, _MOST_STEPS, _SAME = 1 << 12, 64, 3


@dataclass(frozen=True)
class OptimizerBytes:
    """What an optimizer takes.

    ``held_bytes``: between its steps, or while it runs the closure that it is given.
    ``temporary_bytes``: besides, at the worst moment of its step.
    """

    held_bytes: int = 0
    temporary_bytes: int = 0


@dataclass
class Optimizer:
    """An optimizer as users name it.

    ``given``: the object; None for one that ``make`` makes of a list of parameters.
    ``options``: those that it was named with, for the record; None for objects.
    """

    name: str
    make: Callable[[List[torch.Tensor]], Any]
    given: Any = None
    options: Optional[Mapping[str, Any]] = None
    #: Original of a copied parameter, by the copy's id: see :meth:`of_copy`.
    originals: Mapping[int, torch.Tensor] = field(default_factory=dict)
    _found: Dict[Any, OptimizerBytes] = field(default_factory=dict)

    def of_copy(self, originals: Sequence[torch.Tensor],
                copies: Sequence[torch.Tensor]) -> Optimizer:
        """The same for a step that runs with copies of its parameters."""
        pairs = {id(copy): original for original, copy in zip(originals, copies)}
        return replace(self, originals=pairs)

    def bytes_of(self, trained: Sequence[torch.Tensor]) -> OptimizerBytes:
        """What it takes for parameters that get gradients; of an object those in its groups.

        Neither the object nor its parameters nor random states change.
        Raises InputError where a twin cannot take a step.
        """
        devices = {id(self.originals.get(id(t), t)): t.device for t in trained}
        if self.given is not None:
            parameters = [p for group in self.given.param_groups for p in group["params"]]
            key: Any = tuple(id(p) in devices for p in parameters)
        else:
            parameters = list(trained)
            key = tuple((p.shape, p.dtype, p.device) for p in parameters)
            devices = {id(p): p.device for p in parameters}
        if not any(id(p) in devices for p in parameters):
            return OptimizerBytes()
        if key not in self._found:
            with private.outside_compilation(), seeded(), torch.no_grad(), \
                    private_ops.steps_of_stand_ins():
                self._found[key] = self._counted(parameters, devices)
        return self._found[key]

    def _counted(self, parameters: Sequence[torch.Tensor],
                 devices: Mapping[int, torch.device]) -> OptimizerBytes:
        trial = _Trial(self, parameters, devices)
        errors: List[Exception] = []
        for way in (trial.without_memory, lambda: trial.with_memory(dense),
                    lambda: trial.with_memory(sparse)):
            try:
                return way()
            except Exception as error:  # whatever a class of others raises
                errors.append(error)
        raise InputError(
            "what %s takes cannot be counted, as it takes no step with other tensors in place of "
            "the parameters: %s: %s. Name one of torch.optim that holds as much, such as "
            "optimizer=\"adam\", which holds two tensors of each parameter's size"
            % (self.name, type(errors[1]).__name__, str(errors[1]).strip().partition("\n")[0])
        ) from errors[1]


class _Trial:
    """Steps of twins of one optimizer."""

    def __init__(self, optimizer: Optimizer, parameters: Sequence[torch.Tensor],
                 devices: Mapping[int, torch.device]):
        self.optimizer, self.parameters, self.devices = optimizer, parameters, devices
        self.trained = [p for p in parameters if id(p) in devices]
        self.device = next((d for d in devices.values() if d.type != "cpu"), torch.device("cpu"))
        self.granule_bytes = CUDA_GRANULE_BYTES if self.device.type == "cuda" else 1

    def without_memory(self) -> OptimizerBytes:
        """What fake tensors of the parameters' sizes tell: exact."""
        group_of = {id(p): number for number, group in enumerate(
            self.optimizer.given.param_groups if self.optimizer.given is not None else ())
            for p in group["params"]}
        kinds = {(group_of.get(id(p)), p.shape, p.stride(), p.dtype): p for p in self.trained}
        # Equal parameters take equal bytes: one of each kind tells which step is the worst.
        held_bytes, peaks = self._fake_steps(list(kinds.values()), STEPS)
        if len(kinds) < len(self.trained):
            worst = 1 + peaks.index(max(peaks))
            held_bytes, peaks = self._fake_steps(self.trained, max(2, worst))
        return OptimizerBytes(held_bytes, max(peaks) - held_bytes)

    def _fake_steps(self, trained: Sequence[torch.Tensor], steps: int) -> Tuple[int, List[int]]:
        fakes = private_ops.fake_tensors()
        stand_ins = {id(p): fake_parameter(fakes, p, self.devices.get(id(p), p.device))
                     for p in self.parameters}
        live = LiveBytes(self.device, self.granule_bytes, fakes)
        return self._steps(live, stand_ins, [stand_ins[id(p)] for p in trained], dense,
                           lambda held: len(held) == steps)

    def with_memory(self, gradients: Gradients) -> OptimizerBytes:
        """What small real tensors tell, scaled to larger parameters."""
        elements = sum(p.numel() for p in self.trained)
        stand_ins = {id(p): small(p, self.devices.get(id(p), self.device),
                                  Fraction(min(_SMALL_ELEMENTS, elements), elements))
                     for p in self.parameters}
        live = LiveBytes(self.device, self.granule_bytes)
        trained = [stand_ins[id(p)] for p in self.trained]
        held_bytes, peaks = self._steps(
            live, stand_ins, trained, gradients,
            lambda held: len(held) == _MOST_STEPS or len(held) >= _SAME and
            len(set(held[-_SAME:])) == 1)
        scale = Fraction(elements, sum(p.numel() for p in trained))
        return OptimizerBytes(int(scale * held_bytes), int(scale * (max(peaks) - held_bytes)))

    def _steps(self, live: LiveBytes, stand_ins: StandIns, trained: Sequence[torch.Tensor],
               gradients: Gradients,
               enough: Callable[[List[int]], bool]) -> Tuple[int, List[int]]:
        """Bytes held between steps, and the most in each, beside parameters and gradients."""
        gradients(trained)
        live.note([*stand_ins.values(), *(p.grad for p in trained if p.grad is not None)])
        before_bytes, in_closure = live.now_bytes, [0]
        made = self.optimizer
        twin = made.make([stand_ins[id(p)] for p in self.parameters]) if made.given is None else \
            twin_of(made.given, stand_ins, set(map(id, trained)), live.fakes)
        live.note(tensors_in(list(vars(twin).values())))

        def closure() -> torch.Tensor:
            in_closure[0] = max(in_closure[0], live.now_bytes - before_bytes)
            most_bytes = live.most_bytes
            with torch.no_grad():
                gradients(trained)
                loss = sum((p.detach().double().square().sum() for p in trained),
                           torch.zeros((), dtype=torch.float64))
            live.most_bytes = max(most_bytes, live.now_bytes)
            return loss

        step = inspect.signature(type(twin).step).parameters.get("closure")
        arguments = (closure,) if step is not None and step.default is step.empty else ()
        held: List[int] = []
        peaks: List[int] = []
        with live:
            while not enough(held):
                live.most_bytes = live.now_bytes
                type(twin).step(twin, *arguments)
                peaks.append(live.most_bytes - before_bytes)
                held.append(live.now_bytes - before_bytes)
                if live.fakes is None:
                    for parameter in trained:
                        parameter.normal_()
                    gradients(trained)
        return max(held[-1], in_closure[0]), peaks


def optimizer_named(optimizer: Any, options: Optional[Mapping[str, Any]] = None) -> Optimizer:
    """The optimizer that a user names.

    ``optimizer``: a name such as "adam", any class of ``torch.optim``; a class; or an object,
    whose parameter groups count.
    ``options``: of a name or class, as its constructor takes them.
    Raises InputError for a name that ``torch.optim`` does not have, and for other objects.
    """
    classes = {name.lower(): item for name, item in vars(torch.optim).items()
               if isinstance(item, type) and issubclass(item, torch.optim.Optimizer)
               and item is not torch.optim.Optimizer}
    made = optimizer
    if isinstance(optimizer, str):
        made = classes.get(optimizer.lower())
        if made is None:
            raise InputError("unknown optimizer %r; there are %s"
                             % (optimizer, ", ".join(sorted(classes))))
    if isinstance(made, type):
        return _of_class(made, dict(options or {}))
    if not isinstance(getattr(made, "param_groups", None), list) or not callable(
            getattr(made, "step", None)):
        raise InputError("optimizer must be a name such as \"adam\", a class or an object of "
                         "torch.optim, not %s" % shown(optimizer))
    return Optimizer(type(made).__name__, lambda parameters: made, made)


def _of_class(made: type, options: Dict[str, Any]) -> Optimizer:
    known = inspect.signature(made).parameters
    unknown = sorted(set(options) - set(known))
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        raise InputError("%s has no option %r; it has %s" % (
            made.__name__, unknown[0], ", ".join(list(known)[1:])))
    return Optimizer(made.__name__, lambda parameters: made(parameters, **options),
                     options=options)
