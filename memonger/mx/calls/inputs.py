"""What users give, read and refused in words: networks, shapes, names of ops, shares."""
from __future__ import annotations

import difflib
import fnmatch
import inspect
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from ...graph.types import Graph
from ...plan.plan import Plan
from ...util import argument_checks as check
from ...util.errors import InputError, UnknownOpError
from ...util.json_files import parse_json
from ...util.messages import listed
from ..plugin.environment import mxnet
from .requests import Shapes

#: What options are called elsewhere, MXNet's Module and NumPy among them.
_SYNONYMS = {"context": "ctx", "dtype": "type_dict", "data_shapes": "shapes",
             "input_shapes": "shapes", "timeout": "time_limit", "memory": "budget"}


def is_symbol(text: str) -> bool:
    """Whether the text is what ``Symbol.save`` writes."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        return {"nodes", "arg_nodes", "heads"} <= set(parse_json(text))
    except InputError:
        return False


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


def pins(graph: Graph, patterns: Union[str, Sequence[str]], what: str) -> Tuple[int, ...]:
    """Ids of the forward ops that the patterns name; shell wildcards are allowed.

    Raises UnknownOpError if a pattern names no op; close names are suggested.
    """
    names = graph.op_index
    found: List[int] = []
    listing = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(listing, (list, tuple, set, frozenset)) or \
            not all(isinstance(pattern, str) for pattern in listing):
        raise InputError("%s must be names of ops, such as [\"fc*\"], not %s"
                         % (what, check.shown(patterns)))
    for pattern in listing:
        matching = [index for name, index in names.items()
                    if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        if not matching:
            close = difflib.get_close_matches(pattern, list(names), 3)
            variable = any(tensor.name == pattern for tensor in graph.tensors
                           if tensor.producer < 0)
            raise UnknownOpError("%s=%r names no op of the network%s" % (
                what, pattern, ", but an input or parameter, which stays in memory" if variable
                else "; did you mean %s?" % listed(close) if close else ""))
        found += matching
    return tuple(sorted(set(found)))


def share_of(value: Union[None, str, float]) -> Optional[float]:
    """An overhead as a share: "10%" and 0.1 are the same."""
    if value is None:
        return None
    try:
        percent = isinstance(value, str) and value.endswith("%")
        if isinstance(value, bool):
            raise TypeError
        share = float(str(value)[:-1]) / 100 if percent else float(value)
    except (TypeError, ValueError):
        raise InputError("cannot read the overhead %r; write it as 10%% or 0.1"
                         % (value,)) from None
    if not percent and share >= 3:
        raise InputError("an overhead of %g means steps %g times as long; write \"%g%%\", or "
                         "\"%g%%\" if you mean that"
                         % (share, 1 + share, share, 100 * share))
    if not 0 <= share < float("inf"):
        raise InputError("the overhead cannot be %r" % (value,))
    return share
