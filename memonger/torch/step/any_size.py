"""A compiled graph with symbols for sizes: every call in the budget, by as few plans as possible.

PyTorch compiles a graph for the sizes of one call and, from the second sizes on, with symbols: the
code then runs any size, and its plan is for one. A call with sizes that are new is checked before
anything runs: where no code at hand keeps the budget the graph is planned and compiled again for
these sizes, and where no plan fits the call is refused.
"""
from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Callable, Dict, Sequence, Tuple

import torch
import torch.fx as fx

from ...util.errors import InfeasibleBudget
from ..pytorch import private, private_sizes
from ..pytorch.sizes import Symbols, Values, hint, in_force
from .checks import fits
from .compilation import Code, Compilation

logger = logging.getLogger("memonger.torch")


class AnySize:
    """The callable of a graph with symbols, whose codes each serve the sizes that they can."""

    def __init__(self, compilation: Compilation, compile_graph: Callable[..., Code],
                 module: fx.GraphModule, sources: Sequence[str], inputs: Sequence[Any],
                 symbols: Symbols):
        self.compilation, self.compile_graph = compilation, compile_graph
        self.symbols, self.sources = symbols, sources
        self.module = private.copied_graph(module)  # Dynamo empties its own when it is done
        self.fakes = private_sizes.example_values(module)
        self.code_of: Dict[Tuple[int, ...], Code] = {}
        self.refusals: Dict[Tuple[int, ...], InfeasibleBudget] = {}
        self.codes = [self._first(module, inputs)]
        self.compilation.request = replace(self.compilation.request, progress=None)

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
        largest = self.compilation.seen.largest(self.symbols, self.sources, values)
        if largest != values:
            try:
                with in_force(largest):
                    return self.compile_graph(module, self.sources, inputs)
            except Exception as error:
                if self.compilation.seen.must_fit or \
                        not isinstance(private.inner_error(error), InfeasibleBudget):
                    raise
        return self._compiled(module, inputs, values, arguments)

    def _compiled(self, module: fx.GraphModule, inputs: Sequence[Any], values: Values,
                  arguments: Sequence[Any]) -> Code:
        """Code for the sizes of a call."""
        with in_force(values):
            code = self.compile_graph(module, self.sources, inputs, arguments)
        code.measured.append(values)
        return code

    def _code(self, key: Tuple[int, ...], arguments: Sequence[Any]) -> Code:
        """Code that keeps the budget at new sizes.

        Raises InfeasibleBudget where no plan does.
        """
        if key in self.refusals:
            raise self.refusals[key]
        values = self.symbols.values(key)
        try:
            with in_force(values):
                for code in self.codes:
                    if all(condition.xreplace(values) for condition in code.conditions) and \
                            fits(self.compilation, code, values, arguments):
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
