"""A network named on the command line: by a symbol file, or by a plan file that carries it."""
from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Dict, Optional

from ..api import calls as api
from ..mx.load import symbol_from_json
from ..plan.plan import Plan
from ..util.errors import InputError
from ..util.json_files import read_text
from .arguments import is_symbol, load_symbol, shape_arguments


@dataclass(frozen=True)
class Network:
    """The symbols to run, and the shapes to run them with."""

    original: Any
    planned: Optional[Any]
    plan: Optional[Plan]
    #: ``shapes``, ``type_dict``, ``grad_req`` of the calls of the API.
    arguments: Dict[str, Any]


def load_network(args: argparse.Namespace, path: str) -> Network:
    """Read ``path``; a plan file brings its own shapes, which ``--shape`` and ``--type`` change.

    Raises
    ------
    InputError
        If the file is neither a symbol nor a plan of a symbol.
    """
    if is_symbol(read_text(path)):
        symbol = load_symbol(path)
        return Network(symbol, None, None, shape_arguments(args, symbol))
    plan = api.load_plan(path)
    if plan.original_json is None:
        raise InputError("%s plans a graph that is not MXNet's; there is nothing to run" % path)
    original = symbol_from_json(plan.original_json)
    given = shape_arguments(args, original, plan.options.get("grad_req", "write"))
    saved = {"shapes": dict(plan.options.get("shapes", {})),
             "type_dict": plan.options.get("type_dict"), "grad_req": given["grad_req"]}
    saved["shapes"] = {name: tuple(sizes) for name, sizes in saved["shapes"].items()}
    saved["shapes"].update(given["shapes"])
    if given["type_dict"]:
        saved["type_dict"] = {**(saved["type_dict"] or {}), **given["type_dict"]}
    return Network(original, plan.symbol, plan, saved)
