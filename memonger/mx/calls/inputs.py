"""What users give, read and refused in words: networks and shapes."""
from __future__ import annotations

import difflib
import functools
import inspect
import os
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, TypeVar

from ...planning.graphs import graph_in, is_symbol
from ...plans.plan import Plan
from ...util import argument_checks as check
from ...util.errors import InputError
from ...util.json_files import read_text
from ...util.messages import listed
from ..capture.binding import checked_shape
from ..plugin.environment import mxnet
from ..rewrite.load import symbol_from_json
from .binding import Shapes

Call = TypeVar("Call", bound=Callable[..., Any])

#: What options are called elsewhere, MXNet's Module and NumPy among them.
_SYNONYMS = {"context": "ctx", "dtype": "type_dict", "data_shapes": "shapes",
             "input_shapes": "shapes", "timeout": "time_limit", "memory": "budget"}


def loaded(given: Any) -> Any:
    """The symbol or the graph in a file; what is no path as it is.

    Raises InputError if the file holds neither, and for a module of PyTorch.
    """
    refuse_module(given)
    if not isinstance(given, (str, os.PathLike)):
        return given
    path = os.fspath(given)
    text = read_text(path)
    return symbol_from_json(text) if is_symbol(text) else graph_in(text, path)


def refuse_module(given: Any) -> None:
    """Raise InputError for a module of PyTorch, which has calls of its own."""
    if any(cls.__module__ == "torch.nn.modules.module" for cls in type(given).__mro__):
        raise InputError("this is a PyTorch module, and the call is for networks of MXNet: "
                         "import memonger.torch as mt; mt.plan(module, inputs, budget=...), "
                         "mt.estimate, mt.compile and others are for modules")


def budget_once(call: Call) -> Call:
    """A call that is refused in words where inputs stand in the place of its budget.

    PyTorch's calls take a module and then its inputs; of these the second argument is the budget.
    """
    name = list(inspect.signature(call).parameters)[1]

    @functools.wraps(call)
    def checked(*args: Any, **options: Any) -> Any:
        if len(args) > 1 and name in options:
            refuse_module(args[0])
            raise InputError("the second argument of %s() is %s, which is given by name, too; "
                             "shapes of inputs are keyword arguments, for example "
                             "data=(32, 3, 224, 224)" % (call.__name__, name))
        return call(*args, **options)
    return checked  # type: ignore[return-value]


def check_symbol(given: Any) -> None:
    """Raise InputError, with what to give instead, unless ``given`` is an ``mx.sym.Symbol``."""
    mx = mxnet()
    if isinstance(given, mx.sym.Symbol):
        return
    advice = "for example mx.sym.SoftmaxOutput(...)"
    for kinds, words in (
            ((str, os.PathLike), 'load the file first: mx.sym.load("net-symbol.json"), or '
                                 'memonger.load_plan("plan.json")'),
            (Plan, "give its symbol: plan.symbol"),
            (mx.executor.Executor, "give the symbol that was bound"),
            (mx.mod.BaseModule, "give the symbol that the module was made from"),
            (mx.gluon.Block, "a hybridized block is planned by memonger.gluon.plan(block, ...)"),
            ((list, tuple), "join its outputs: mx.sym.Group(outputs)")):
        if isinstance(given, kinds):
            advice = words
    raise InputError("the network must be an mx.sym.Symbol, not %s; %s"
                     % (check.kind_of(given), advice))


def gather_shapes(call: Callable[..., Any], symbol: Any, shapes: Optional[Shapes], named: Shapes,
                  data_iter: Any = None) -> Dict[str, Sequence[int]]:
    """One dictionary of input shapes from all the ways to give them to ``call``.

    Raises InputError if ``symbol`` is none, shapes come both as keyword arguments and as a
    dictionary, or one of ``named`` is a misspelt option.
    """
    check_symbol(symbol)
    if shapes is not None:
        shapes = check.mapping("shapes", shapes, '{"data": (32, 3, 224, 224)}')
    if shapes is not None and named:
        raise InputError("give shapes either as keyword arguments or as shapes={...}, not both: %s"
                         % ", ".join(sorted(named)))
    check_options(call.__name__, inspect.signature(call).parameters,
                  set(named) - set(symbol.list_inputs()))
    result: Dict[str, Sequence[int]] = {}
    if data_iter is not None:
        if not hasattr(data_iter, "provide_data"):
            raise InputError("data_iter must be an mx.io.DataIter, not %s; shapes are keyword "
                             "arguments, for example data=(32, 3, 224, 224)"
                             % check.kind_of(data_iter))
        described = list(data_iter.provide_data) + list(data_iter.provide_label or ())
        names = set(symbol.list_arguments())
        result = {d[0]: tuple(d[1]) for d in described if d[0] in names}
        if described and not result:
            raise InputError("the network has no input named %s, as data_iter has them; its "
                             "arguments are: %s" % (listed([d[0] for d in described]),
                                                    listed(symbol.list_arguments(), 8)))
    result.update(shapes if shapes is not None else named)
    return result


def check_options(call: str, known: Iterable[str], names: Iterable[str]) -> None:
    """Raise InputError where one of ``names`` is nearly one of the known options of ``call``."""
    options = list(known)
    for name in sorted(names):
        synonym = _SYNONYMS.get(name, "")
        close = [synonym] if synonym in options else \
            difflib.get_close_matches(name, options, 1, 0.75)
        if close:
            raise InputError("%s() has no option %r; did you mean %r?"
                             % (call, name, close[0]))


def batches(shapes: Shapes) -> Callable[[int], Dict[str, Sequence[int]]]:
    """From a batch size to shapes: each first dimension that equals the first shape's is the batch.

    Raises InputError if no shape has a batch.
    """
    sizes = {name: checked_shape(name, shape) for name, shape in shapes.items()}
    first = next(iter(sizes.values()), ())
    if not first:
        raise InputError("max_batch needs the shape of an input whose first dimension is the "
                         "batch, for example data=(1, 3, 224, 224)")
    return lambda batch: {name: (batch, *shape[1:]) if shape[:1] == first[:1] else shape
                          for name, shape in sizes.items()}
