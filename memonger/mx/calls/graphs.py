"""What users give as a network: a symbol, a graph, or the path of a file that holds one."""
from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from ...graph.imported import looks_like_graph, parse_graph
from ...graph.types import Graph
from ...util.errors import InputError
from ...util.json_files import read_text
from ..rewrite.load import symbol_from_json
from .inputs import is_symbol


def graph_in(text: str, path: str) -> Graph:
    """The graph in a file's text, in one of the forms of docs/graphs.md, named after the file.

    Raises InputError if it holds no graph.
    """
    try:
        graph = parse_graph(text)
    except InputError as error:
        if not looks_like_graph(text):
            raise InputError(
                "%s is no symbol JSON of MXNet, which sym.save(%r) writes, and no graph in a "
                "form of docs/graphs.md" % (path, "net-symbol.json")) from error
        raise InputError("%s: %s" % (path, error)) from error
    return graph if graph.name else replace(graph, name=name_of(path))


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


#: What options are where nobody gives them, if not None or empty.
_USUAL = {"grad_req": "write", "costs": "auto"}


def refuse_options(**options: Any) -> None:
    """Raise InputError where one of the options was given that only networks of MXNet have."""
    for option, value in options.items():
        if value if option not in _USUAL else value != _USUAL[option]:
            raise InputError("a graph has its own sizes and times, so it takes no %s"
                             % option.replace("_by_", " by "))


def name_of(path: str) -> str:
    """What a network is called after the name of its file."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return stem[:-len("-symbol")] if stem.endswith("-symbol") else stem
