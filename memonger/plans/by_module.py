"""What each module of a network takes in one step without a plan."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from .above import views
from .plan import Plan


@dataclass(frozen=True)
class ModuleBytes:
    """Bytes of one module, without those of the modules in it."""

    #: ``"layers.0.linear"``; "" for the network itself.
    path: str
    parameter_bytes: int = 0
    buffer_bytes: int = 0
    gradient_bytes: int = 0
    #: What the optimizer holds for its parameters.
    optimizer_bytes: int = 0
    #: What its operators made in forward and is there when backward begins.
    kept_bytes: int = 0
    #: All of it that is there at the step's worst moment.
    peak_bytes: int = 0


@dataclass(frozen=True, repr=False)
class StepEstimate(Plan):
    """A step that plain PyTorch runs, with what each module takes of it.

    A :class:`Plan` of method "none"; its text is a table by module.
    """

    #: In the order of the network; their ``peak_bytes`` and "inputs" and "buckets" of
    #: ``fixed_bytes`` are all of the total.
    modules: Tuple[ModuleBytes, ...] = ()
    #: The step's worst moment, in words.
    moment: str = ""

    def __str__(self) -> str:
        return views().table_by_module(self)
