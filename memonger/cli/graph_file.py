"""Graph files on the command line, where other networks are symbols."""
from __future__ import annotations

import argparse
from typing import Any, Optional, Tuple

from ..graph.types import Graph
from ..planning.graphs import graph_in
from ..util.json_files import read_text
from . import arguments
from .command import UsageError

#: Options that only networks have, and their values where they were not given.
_OF_NETWORKS: Tuple[Tuple[str, str, Any], ...] = (
    ("--shape", "shape", []), ("--type", "types", []), ("--grad-req", "grad_req", []),
    ("--input", "inputs", []), ("--mode", "mode", None), ("--ctx", "ctx", "cpu(0)"),
    ("--device", "device", None), ("--optimizer", "optimizer", (None, None)),
    ("--costs", "costs", "auto"))


def graph_of(args: argparse.Namespace) -> Optional[Graph]:
    """The graph in the file of the command line; None where a symbol is in it.

    Raises UsageError for an option that only networks have, InputError for other files.
    """
    text = read_text(args.network)
    if arguments.is_symbol(text):
        return None
    arguments.refuse_plan(args.network, text)
    graph = graph_in(text, args.network)
    for flag, name, default in _OF_NETWORKS:
        if getattr(args, name, default) != default:
            raise UsageError("%s is a graph, with sizes and times of its own: it takes no %s"
                             % (args.network, flag))
    args.smaller = ""  # a graph has one batch
    return graph
