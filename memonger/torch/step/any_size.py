"""A compiled graph with symbols for sizes: every call within the budget, by as few plans as can be.

PyTorch compiles a graph for the sizes of one call and, from the second sizes on, with symbols: the
code then runs any size, and its plan is for one. A call with sizes that are new is checked before
anything runs: where no code at hand keeps the budget the graph is planned and compiled again for
these sizes, and where no plan fits the call is refused.
"""
from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.fx as fx

from ...util.errors import InfeasibleBudget
from ..pytorch import private, private_sizes
from ..pytorch.sizes import Symbols, Values, hint, in_force
from .checks import fits

if TYPE_CHECKING:
    from .compilation import Backend, PlannedGraph

logger = logging.getLogger("memonger.torch")


@dataclass
class Code:
    """What one compilation made of a graph."""

    call: Callable[..., Any]
    #: Its graph by a plan; None where that is not known.
    planned: Optional[PlannedGraph]
    #: Whether gradients are taken.
    trains: bool
    #: Sizes at which it was measured to keep the budget.
    measured: List[Values] = field(default_factory=list)
    #: What PyTorch took for granted about the sizes.
    conditions: Sequence[Any] = ()

    def is_known_to_fit(self, values: Values) -> bool:
        """Whether it was measured with sizes none of which is smaller."""
        return any(all(values[symbol] <= most for symbol, most in sizes.items())
                   for sizes in self.measured)


class AnySize:
    """The callable of a graph with symbols, whose codes each serve the sizes that they can."""

    def __init__(self, backend: Backend, module: fx.GraphModule, sources: Sequence[str],
                 inputs: Sequence[Any], symbols: Symbols):
        self.backend, self.symbols, self.sources = backend, symbols, sources
        self.module = copy.deepcopy(module)  # Dynamo empties its own when it is done
        self.fakes = private_sizes.example_values(module)
        self.code_of: Dict[Tuple[int, ...], Code] = {}
        self.refusals: Dict[Tuple[int, ...], InfeasibleBudget] = {}
        self.codes = [self._first(module, inputs)]
        self.backend.request = replace(self.backend.request, progress=None)

    def __call__(self, *arguments: Any) -> Any:
        key = self.symbols.key(arguments)
        code = self.code_of.get(key)
        if code is None:
            code = self.code_of[key] = self._code(key, arguments)
        return code.call(*arguments)

    def _first(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Code:
        """Code for the largest sizes so far; for those of this call where no plan fits them."""
        arguments = [hint(i) if isinstance(i, torch.SymInt) else i for i in inputs]
        values = self.symbols.values(self.symbols.key(arguments))
        largest = self.backend.seen.largest(self.symbols, self.sources, values)
        if largest != values:
            try:
                with in_force(largest):
                    return self.backend.code(module, self.sources, inputs)
            except Exception as error:
                if self.backend.seen.must_fit or \
                        not isinstance(private.inner_error(error), InfeasibleBudget):
                    raise
        return self._compiled(module, inputs, values, arguments)

    def _compiled(self, module: fx.GraphModule, inputs: Sequence[Any], values: Values,
                  arguments: Sequence[Any]) -> Code:
        """Code for the sizes of a call."""
        with in_force(values):
            code = self.backend.code(module, self.sources, inputs, arguments)
        code.measured.append(values)
        return code

    def _code(self, key: Tuple[int, ...], arguments: Sequence[Any]) -> Code:
        """What keeps the budget at sizes that were not met before.

        Raises InfeasibleBudget where no plan does.
        """
        if key in self.refusals:
            raise self.refusals[key]
        values = self.symbols.values(key)
        try:
            with in_force(values):
                for code in self.codes:
                    if all(condition.xreplace(values) for condition in code.conditions) and \
                            fits(self.backend, code, values, arguments):
                        return code
            logger.info("new sizes (%s), at which the plans at hand take more than the budget: "
                        "planning again", ", ".join(map(str, key)))
            with private_sizes.compiling_again(self.fakes) as conditions:
                code = self._compiled(self.module, self.fakes, values, arguments)
        except Exception as error:
            inner = private.inner_error(error)
            if not isinstance(inner, InfeasibleBudget):
                raise
            self.refusals[key] = inner
            raise inner from None
        code.conditions = conditions
        self.codes.append(code)
        return code


class Seen:
    """Sizes of the inputs of all compilations so far, by the expressions that inputs come from."""

    def __init__(self) -> None:
        #: Refuse a budget that no plan for the largest sizes meets.
        self.must_fit = False
        self._sizes: Dict[str, List[Tuple[int, ...]]] = {}

    def add(self, sources: Sequence[str], inputs: Sequence[Any]) -> None:
        """Note a compilation for these inputs, which have numbers for sizes."""
        for source, value in zip(sources, inputs):
            if isinstance(value, torch.Tensor):
                self._sizes.setdefault(source, []).append(tuple(value.shape))

    def largest(self, symbols: Symbols, sources: Sequence[str], values: Values) -> Values:
        """Each symbol's largest value so far."""
        found = dict(values)
        for symbol, places in symbols.places.items():
            for position, dimension in places:
                for shape in self._sizes.get(sources[position], ()):
                    if dimension < len(shape):
                        found[symbol] = max(found[symbol], int(shape[dimension]))
        return found
