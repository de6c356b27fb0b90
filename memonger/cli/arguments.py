"""Arguments that several subcommands share, and how their words are read."""
from __future__ import annotations

import argparse
import os
import re
from typing import Any, Dict, Sequence, Tuple, Union

from ..graph.imported import looks_like_graph
from ..mx.plugin.environment import mxnet
from ..mx.rewrite.load import symbol_from_json
from ..planning.graphs import is_symbol
from ..planning.requests import share_of
from ..plans.plan_file import FORMAT as PLAN_FORMAT
from ..plans.plan_file import load_plan
from ..solve import methods
from ..util.devices import DEVICES
from ..util.errors import InputError, UnitError
from ..util.json_files import read_text
from ..util.units import is_of_step, parse_bytes
from .command import UsageError

#: Options of a search that graphs have, too.
OF_SEARCHES = ("method", "variants", "time_limit", "keep", "recompute")
_DTYPES = ("float16", "float32", "float64", "uint8", "int8", "int32", "int64")


def shape(text: str) -> Tuple[str, Tuple[int, ...]]:
    """``data=32,3,224,224`` to a name and a shape; ``()`` or nothing after ``=`` is a scalar."""
    name, separator, sizes = text.partition("=")
    words = [word for word in re.split(r"[,x\s]+", sizes.strip("() ")) if word]
    if not name or not separator or not all(word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(
            "cannot read the shape %r; write it as data=32,3,224,224" % text)
    return name, tuple(int(word) for word in words)


def data_type(text: str) -> Tuple[str, str]:
    """``data=float16`` to a name and a type."""
    name, _, dtype = text.partition("=")
    if not name or dtype not in _DTYPES:
        raise argparse.ArgumentTypeError(
            "cannot read the type %r; write it as data=float16 (one of %s)"
            % (text, ", ".join(_DTYPES)))
    return name, dtype


def gradient_request(text: str) -> Union[str, Tuple[str, str]]:
    """``write`` for all arguments, or ``conv0_weight=null`` for one."""
    name, separator, request = text.rpartition("=")
    if request not in ("write", "add", "null") or (separator and not name):
        raise argparse.ArgumentTypeError(
            "cannot read %r; write it as add, or as conv0_weight=null" % text)
    return (name, request) if separator else request


def budget(text: str) -> str:
    """``4GB``, ``60%``, ``0.6`` (a share), ``auto`` or ``knee``."""
    try:
        if text != "auto" and not is_of_step(text):
            parse_bytes(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError("%s, or as a share: 60%%" % error)
    return text


def share(text: str) -> str:
    """``10%`` or ``0.1``, as calls of the API take them."""
    try:
        share_of(text.strip())
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text.strip()


def positive(text: str) -> float:
    """A number above zero."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number above 0, not %r" % text)
    return value


def count(text: str) -> int:
    """A whole number above zero."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a whole number above 0, not %r" % text)
    return int(text)


def add_network(parser: argparse.ArgumentParser, what: str = "a *-symbol.json file") -> None:
    """The network, and how its inputs are bound."""
    parser.add_argument("network", metavar="NETWORK", help=what)
    add_shapes(parser)


def add_shapes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", type=shape, action="append", default=[],
                        metavar="NAME=D,D,...", help="shape of an input; repeat for each")
    parser.add_argument("--type", type=data_type, action="append", default=[], dest="types",
                        metavar="NAME=DTYPE", help="type of an input, float32 if not given")
    parser.add_argument("--grad-req", type=gradient_request, action="append", default=[],
                        metavar="[NAME=]REQ",
                        help="write, add or null, for all arguments or for one; write if not "
                             "given")


def add_context(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ctx", type=device, default="cpu", metavar="DEVICE",
                        help="cpu, gpu, or the second GPU as gpu:1; default %(default)s")


def add_place(parser: argparse.ArgumentParser) -> None:
    """``--ctx``, or ``--device`` for a GPU that this machine need not have."""
    add_context(parser)
    parser.add_argument("--device", metavar="NAME",
                        help="instead of --ctx: a GPU that need not be there, by its data sheet: "
                             "v100, t4, a10, a100, rtx3090, ...")


def add_output(parser: argparse.ArgumentParser, *names: str, endings: Sequence[str] = (),
               **options: Any) -> None:
    """An option for a file to write, refused before any work where it cannot be written."""
    def path(text: str) -> str:
        folder = os.path.dirname(text) or "."
        if os.path.isdir(text):
            problem = "it is a folder"
        elif not os.path.isdir(folder):
            problem = "there is no folder %s" % folder
        elif not os.access(text if os.path.exists(text) else folder, os.W_OK):
            problem = "no permission"
        elif endings and os.path.splitext(text)[1].lower().lstrip(".") not in endings:
            problem = "its ending must be one of " + ", ".join("." + word for word in endings)
        else:
            return text
        raise argparse.ArgumentTypeError("cannot write %s: %s" % (text, problem))

    parser.add_argument(*names, type=path, metavar=options.pop("metavar", "FILE"), **options)


def add_budget(parser: argparse.ArgumentParser, required: bool = False,
               shares: str = "60%% of the unplanned total, ", more: str = "") -> None:
    """``--budget``; ``shares``, ``more``: what else than a size it may be."""
    parser.add_argument("--budget", type=budget, required=required, metavar="SIZE",
                        help="largest total: 4GB (10^9), 4GiB (2^30), bytes, " + shares +
                             "auto: what the GPU of --ctx or --device has free, less 5 %%" + more)


def optimizer(text: str) -> Tuple[str, Dict[str, float]]:
    """``adam`` or ``sgd,momentum=0.9`` to a name and its parameters."""
    name, *words = text.split(",")
    try:
        parameters = {key.strip(): float(value) for key, value in
                      (word.split("=") for word in words)}
    except ValueError:
        name = ""
    if not name.strip():
        raise argparse.ArgumentTypeError(
            "cannot read the optimizer %r; write it as adam or sgd,momentum=0.9" % text)
    return name.strip(), parameters


def add_optimizer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--optimizer", type=optimizer, default=(None, None),
                        metavar="NAME[,KEY=VALUE]",
                        help="count its state in the total: adam, or sgd,momentum=0.9; any of "
                             "MXNet's or PyTorch's")


def add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--method", default="auto", metavar="NAME",
                        help="one of %s; default %%(default)s, which searches and proves a bound; "
                             "chen, ogc and sublinear are published rules" % ", ".join(methods()))
    parser.add_argument("--variants", default="exact", choices=("none", "exact", "all"),
                        help="frugal operators to use. exact: those with the same results, bit for "
                             "bit with MXNET_MKLDNN_ENABLED=0 (on a GPU with deterministic "
                             "algorithms), within rounding with MKLDNN, MXNet's default on a CPU. "
                             "all: also those that differ in the last bits everywhere; "
                             "default %(default)s")
    parser.add_argument("--costs", default="auto", metavar="SOURCE",
                        help="op times: a profile file, or a preset (%s); default: what memonger "
                             "profile measured, else estimates for this CPU, or for a GPU those of "
                             "reference, a device with 10 TFLOP/s and 600 GB/s"
                             % ", ".join(DEVICES))
    parser.add_argument("--time-limit", type=positive, default=10.0, metavar="SECONDS",
                        help="most work for the search, in seconds of an idle machine; a busy one "
                             "takes longer for the same plan; default %(default)s")


def call_arguments(args: argparse.Namespace, symbol: Any) -> Dict[str, Any]:
    """Keyword arguments of the calls of the API, for the options that the command has."""
    options = shape_arguments(args, symbol)
    options.update((name, getattr(args, name)) for name in (*OF_SEARCHES, "costs")
                 if hasattr(args, name))
    if hasattr(args, "optimizer"):
        options.update(zip(("optimizer", "optimizer_params"), args.optimizer))
    if args.device and args.ctx != "cpu(0)":
        raise UsageError("--ctx and --device exclude each other")
    return {**options, "ctx": None if args.device else context(args.ctx), "device": args.device}


def shape_arguments(args: argparse.Namespace, symbol: Any, saved: Any = "write") -> Dict[str, Any]:
    """Keyword arguments ``shapes``, ``type_dict`` and ``grad_req`` of the calls of the API.

    ``saved`` is the gradient request, for all arguments of ``symbol`` or by name, of those that
    the command line says nothing about.
    """
    for request in args.grad_req:
        if isinstance(request, str):
            saved = request
    named = dict(request for request in args.grad_req if not isinstance(request, str))
    if named:
        saved = {name: saved if isinstance(saved, str) else saved.get(name, "null")
                 for name in symbol.list_arguments()}
        saved.update(named)
    return {"shapes": dict(args.shape), "type_dict": dict(args.types) or None, "grad_req": saved}


def device(text: str) -> str:
    """``gpu``, ``gpu1``, ``gpu:1`` or ``gpu(1)`` to ``gpu(1)`` and the like."""
    match = re.match(r"^(cpu|gpu)(?:\((\d+)\)|:?(\d+))?$", text.strip().lower())
    if not match:
        raise argparse.ArgumentTypeError(
            "cannot read the device %r; write it as cpu, gpu or gpu:1" % text)
    return "%s(%d)" % (match.group(1), int(match.group(2) or match.group(3) or 0))


def context(text: str) -> Any:
    """``gpu(1)``, as :func:`device` writes it, to ``mx.gpu(1)``."""
    kind, number = text.rstrip(")").split("(")
    return getattr(mxnet(), kind)(int(number))


def is_plan(text: str) -> bool:
    """Whether the text is a plan file."""
    return '"format": "%s"' % PLAN_FORMAT in text


def refuse_plan(path: str, text: str) -> None:
    """Raise InputError where a plan file stands in the place of a network."""
    if is_plan(text):
        raise InputError(
            "%s is a plan already; memonger apply, verify, measure, explain and report take plan "
            "files; for another budget plan the network's *-symbol.json again" % path)


def load_symbol(path: str) -> Any:
    """The ``mx.sym.Symbol`` in a ``*-symbol.json`` file."""
    text = read_text(path)
    if not is_symbol(text):
        refuse_plan(path, text)
        if looks_like_graph(text):
            raise InputError("%s is a graph, with the sizes and times of one batch on one device; "
                             "this needs the network: a *-symbol.json file of MXNet" % path)
        raise InputError("%s is no MXNet symbol; save one with sym.save(%r)"
                         % (path, "net-symbol.json"))
    try:
        return symbol_from_json(text)
    except InputError as error:
        raise InputError("%s: %s" % (path, error)) from error


def load_network(args: argparse.Namespace, path: str) -> Tuple[Any, Dict[str, Any]]:
    """The symbol or the plan in a file, and its ``shapes``, ``type_dict`` and ``grad_req``.

    A plan brings its own, which ``--shape``, ``--type`` and ``--grad-req`` change.
    """
    if is_symbol(read_text(path)):
        symbol = load_symbol(path)
        return symbol, shape_arguments(args, symbol)
    plan = load_plan(path)
    if "torch" in plan.options:
        raise InputError("%s was made in Python by memonger.torch and names no model.py:build that "
                         "gives its module: memonger.torch.verify(compiled, module, inputs) and "
                         "memonger.torch.measure(compiled, inputs) run it there; or plan with "
                         "memonger plan model.py:build" % path)
    if plan.symbol_json is None:
        raise InputError("%s plans the graph of a file; there is nothing to run" % path)
    saved = plan.options
    given = shape_arguments(args, plan.symbol, saved.get("grad_req", "write"))
    return plan, {
        "shapes": {**saved.get("shapes", {}), **given["shapes"]},
        "type_dict": {**(saved.get("type_dict") or {}), **(given["type_dict"] or {})} or None,
        "grad_req": given["grad_req"]}
