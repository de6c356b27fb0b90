"""Every error memonger raises on purpose.

::

    MemongerError
    ├─ InputError (ValueError)
    │  ├─ ShapeError         shapes are missing or contradict each other
    │  ├─ UnitError          a size such as "4GB" cannot be read
    │  └─ UnknownOpError     a name is not an op of the network
    ├─ BudgetError
    │  └─ InfeasibleBudget   no plan fits; carries the smallest possible total
    ├─ SolverError
    │  ├─ SolverUnavailable  a library that the method needs is not installed
    │  └─ NoPlanInTime       the search was interrupted before it found a plan that fits
    ├─ PlanError
    │  ├─ PlanMismatch       the plan was made for another network
    │  ├─ InvalidPlan        the plan breaks a rule of the memory model
    │  └─ PlanSchemaError    the file is damaged or not a plan
    ├─ PluginError
    │  ├─ PluginMissing      the native library was not built
    │  └─ PluginABIError     the libmxnet in this process is not the expected one
    ├─ BindError             MXNet itself cannot bind or run the network
    ├─ VerificationError     planned and original training differ
    └─ RenderError           a picture could not be drawn

A message says what was wrong, where, and what to do next; the numbers in it are attributes too.
"""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Type

__all__ = ["BindError", "BudgetError", "InfeasibleBudget", "InputError", "InvalidPlan",
           "MemongerError", "NoPlanInTime", "PlanError", "PlanMismatch", "PlanSchemaError",
           "PluginABIError", "PluginError", "PluginMissing", "RenderError", "ShapeError",
           "SolverError", "SolverUnavailable", "UnitError", "UnknownOpError", "VerificationError"]


class MemongerError(Exception):
    """Base class of all errors raised by memonger."""

    def __reduce__(self) -> Tuple[Any, ...]:
        return _with_args, (type(self), self.args), self.__dict__


def _with_args(kind: Type[MemongerError], args: Tuple[Any, ...]) -> MemongerError:
    """An unpickled error: subclasses take more arguments than ``args`` holds."""
    error = kind.__new__(kind)
    error.args = args
    return error


class InputError(MemongerError, ValueError):
    """The caller's input cannot be used."""


class ShapeError(InputError):
    """Input shapes are missing or contradict each other.

    Attributes
    ----------
    names : tuple of str
        The inputs whose shapes are not known.
    """

    def __init__(self, message: str, names: Sequence[str] = ()):
        super().__init__(message)
        self.names: Tuple[str, ...] = tuple(names)


class UnitError(InputError):
    """A size or a budget cannot be read."""


class UnknownOpError(InputError):
    """A name is not an op of the network."""


class BudgetError(MemongerError):
    """A budget cannot be met."""


class InfeasibleBudget(BudgetError):
    """No plan fits the budget.

    Attributes
    ----------
    budget_bytes : int
        The budget on the total.
    minimum_bytes : int
        The smallest total for which a plan is known, or the unplanned network's where that is less.
    pinned : tuple of (str, int)
        Tensors alive at the peak of that smallest plan, with their bytes, largest first.
    best_plan : memonger.Plan or None
        The plan with the smallest total that was found.
    bound_bytes : int
        No plan of the class takes less in total; 0 where nothing was proven. A budget below it is
        impossible, one above it only was not reached.
    """

    def __init__(self, message: str, budget_bytes: int, minimum_bytes: int,
                 pinned: Sequence[Tuple[str, int]] = (), best_plan: Optional[object] = None,
                 bound_bytes: int = 0):
        super().__init__(message)
        self.budget_bytes = budget_bytes
        self.minimum_bytes = minimum_bytes
        self.pinned = tuple(pinned)
        self.best_plan = best_plan
        self.bound_bytes = bound_bytes


class SolverError(MemongerError):
    """A solver could not do its work."""


class SolverUnavailable(SolverError):
    """A library that the method needs is not installed."""


class NoPlanInTime(SolverError):
    """The search was interrupted before it found a plan that fits."""


class PlanError(MemongerError):
    """A plan cannot be used."""


class PlanMismatch(PlanError):
    """The plan was made for another network.

    Attributes
    ----------
    expected, found : str
        Fingerprints of the plan's graph and of the graph at hand.
    """

    def __init__(self, message: str, expected: str = "", found: str = ""):
        super().__init__(message)
        self.expected = expected
        self.found = found


class InvalidPlan(PlanError):
    """The plan breaks a rule of the memory model.

    Attributes
    ----------
    problems : tuple of str
    """

    def __init__(self, message: str, problems: Sequence[str] = ()):
        super().__init__(message)
        self.problems = tuple(problems)


class PlanSchemaError(PlanError):
    """The file is damaged, or not a plan, or from a newer memonger."""


class PluginError(MemongerError):
    """The native plugin cannot be used."""


class PluginMissing(PluginError):
    """The native library was not built or not found."""


class PluginABIError(PluginError):
    """The libmxnet in this process is not the one the plugin was built for."""


class BindError(MemongerError):
    """MXNet itself cannot bind the network."""


class VerificationError(MemongerError):
    """Planned and original training differ.

    Attributes
    ----------
    tensor : str
        The first tensor that differs.
    max_abs, max_rel : float
        Largest difference, absolute and relative to the tensor's largest value.
    """

    def __init__(self, message: str, tensor: str = "", max_abs: float = 0.0, max_rel: float = 0.0):
        super().__init__(message)
        self.tensor = tensor
        self.max_abs = max_abs
        self.max_rel = max_rel


class RenderError(MemongerError):
    """A picture could not be drawn."""
