"""PyTorch modules on the command line: ``model.py:build``.

``build`` is a function of the file that gives the module, or the module with a tuple of its inputs.
A plan file remembers both, so ``memonger measure`` and ``memonger verify`` build the module again.
"""
from __future__ import annotations

import argparse
import importlib.util
import inspect
import os
import re
import sys
from dataclasses import replace
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ..plans.max_batch import MaxBatch
from ..plans.plan import Plan
from ..plans.plan_file import load_plan
from ..report.formatting import counted, was_tried
from ..report.measured import measurement_table
from ..report.progress import ProgressBar
from ..report.text import estimate_table
from ..util.errors import InputError
from ..util.json_files import parse_json, read_text
from ..util.units import format_bytes, format_distinct
from . import arguments
from .command import EXIT_BUDGET, EXIT_OK, EXIT_VERIFICATION, Command, UsageError, answer

_MODEL = re.compile(r"^(?P<path>.+\.py):(?P<name>\w+)$")
#: The same without its function or its ending, or with more behind the function.
_NEARLY = re.compile(r"^(?P<path>[^:]+\.py)(:.*)?$|^[\w./-]+:\w+$")
#: Options of the command line that are MXNet's alone.
_OF_MXNET = (("shape", "--shape"), ("types", "--type"), ("grad_req", "--grad-req"),
             ("device", "--device"), ("control", "--control"))
#: What a search for a batch and a profile of a module decide by themselves.
_FIXED = {"max-batch": ("method", "optimizer"), "profile": ("output", "time_limit", "repeats")}
#: What to do with a network of MXNet, for who has no PyTorch.
_MXNET = ". A network of MXNet is saved first: symbol.save(\"net-symbol.json\"); then memonger " \
    "plan net-symbol.json --shape data=32,3,224,224"


class Model(NamedTuple):
    """A module with its inputs, and how a plan file names them."""

    module: Any
    inputs: Any
    record: Dict[str, Any]


def is_model(text: str) -> bool:
    """Whether an argument has the form ``file.py:function``.

    Raises UsageError for what is nearly of that form.
    """
    nearly = _NEARLY.match(text)
    if nearly and not _MODEL.match(text) and (nearly.group("path") or not os.path.exists(text)):
        raise UsageError(
            "%s names no function of a file: a PyTorch module is a file and the function in it "
            "that gives the module, as in %s:build; a network of MXNet is saved first, by "
            "symbol.save(%r)" % (text, nearly.group("path") or "model.py", "net-symbol.json"))
    return bool(_MODEL.match(text))


def is_model_or_its_plan(text: str) -> bool:
    """The same, or a plan file of such a module."""
    if is_model(text) or not os.path.isfile(text) or not arguments.is_plan(read_text(text)):
        return is_model(text)
    options = parse_json(read_text(text)).get("options")
    return isinstance(options, dict) and "model" in options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--input`` and ``--mode``."""
    parser.add_argument("--input", action="append", default=[], dest="inputs", type=_input,
                        metavar="D,D,...[:TYPE]",
                        help="of a PyTorch module model.py:build: shape of an input, float32 if no "
                             "type is given; repeat for each, in order")
    parser.add_argument("--mode", choices=("inductor", "eager"), default=None,
                        help="what runs a PyTorch module; default inductor")


def _input(text: str) -> str:
    if not re.match(r"^\d+(,\d+)*(:\w+)?$", text):
        raise argparse.ArgumentTypeError(
            "cannot read the input %r; write it as 32,3,224,224 or 8,512:int64" % text)
    return text


def _in_words(text: str) -> Tuple[str, str]:
    """File and function of ``file.py:function``."""
    match = _MODEL.match(text)
    assert match is not None
    return match.group("path"), match.group("name")


def build(text: str, path: str, inputs: Sequence[str]) -> Model:
    """Call the function ``text``, in the file ``path``, and make the inputs that it does not give.
    """
    _, name = _in_words(text)
    spec = importlib.util.spec_from_file_location("memonger_model", path)
    assert spec is not None and spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    sys.modules["memonger_model"] = source
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        spec.loader.exec_module(source)
    finally:
        del sys.path[0]
    if not callable(getattr(source, name, None)):
        raise InputError("%s has no function %s" % (path, name))
    try:
        inspect.signature(getattr(source, name)).bind()
    except TypeError as error:
        raise InputError("%s is called without arguments, and is %s; name a function that takes "
                         "none and gives the module" % (text, error)) from None
    from ..torch.pytorch.module_step import example_input, seeded
    with seeded():
        made = getattr(source, name)()
        module, given = made if isinstance(made, tuple) else (made, None)
        if inputs:
            given = tuple(map(example_input, inputs))
    if given is None:
        raise UsageError("%s gives no inputs; name their shapes, for example --input 32,3,224,224"
                         % text)
    _check_call(text, module, given)
    return Model(module, given, {"model": text, "inputs": tuple(inputs)})


def _check_call(text: str, module: Any, inputs: Sequence[Any]) -> None:
    """Raise UsageError where the module's forward takes other arguments."""
    try:
        inspect.signature(getattr(module, "forward", module)).bind(*inputs)
    except TypeError as error:
        raise UsageError(
            "forward of %s cannot be called with %s: %s; give an --input for each argument, such "
            "as --input 32:int64, or let the function give the module with a tuple of its inputs"
            % (text, counted(len(inputs), "input"), error)) from None
    except ValueError:  # it has no signature
        pass


def _calls(network: str) -> Any:
    """:mod:`memonger.torch`, whose profiler says nothing on the terminal of this process.

    Raises InputError where PyTorch is not installed, in words about the argument ``network``.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        from .. import torch as calls
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError("%s is for PyTorch, which is not installed: pip install "
                         "'memonger[torch]'%s" % (network, _MXNET if is_model(network) else "")) \
            from None
    return calls


def _check(args: argparse.Namespace) -> None:
    for name, flag in _OF_MXNET:
        if getattr(args, name, None):
            raise UsageError("a PyTorch module takes no %s" % flag)


def _check_fixed(args: argparse.Namespace, what: str, command: Command) -> None:
    parser = argparse.ArgumentParser()
    command.configure(parser)  # whose defaults tell what was given
    for name in _FIXED[what]:
        if getattr(args, name) != parser.get_default(name):
            raise UsageError("%s of a PyTorch module takes no --%s"
                             % (what, name.replace("_", "-")))


def _found(path: str, plan_file: str) -> str:
    """The path of a module's file, which a plan file names from the folder where it was planned.

    ``plan_file``: its path, or nothing where the command line names the file.
    """
    beside = os.path.join(os.path.dirname(os.path.abspath(plan_file)), path)
    for place in (path, beside) if plan_file else (path,):
        if os.path.isfile(place):
            return place
    raise InputError(
        "there is no file %s" % path if not plan_file or os.path.isabs(path) else
        "%s plans a module of %s, and there is no such file: neither here, %s, nor beside the "
        "plan, %s. Run this in the folder where it was planned"
        % (plan_file, path, os.path.abspath(path), beside))


def _model_of(args: argparse.Namespace, network: str) -> Tuple[Any, Model, Any]:
    """:mod:`memonger.torch`, the module of an argument, and its plan where that is a plan file."""
    _check(args)
    plan = None if is_model(network) else load_plan(network)
    text = network if plan is None else plan.options["model"]
    path = _found(_in_words(text)[0], "" if plan is None else network)
    calls = _calls(network)
    inputs = args.inputs or (plan.options["inputs"] if plan else ())
    return calls, build(text, path, inputs), plan


def plan(args: argparse.Namespace) -> Plan:
    """``memonger plan``."""
    calls, model, _ = _model_of(args, args.network)
    with ProgressBar() as bar:
        made = calls.plan(model.module, model.inputs, args.budget, max_clones=args.max_clones,
                          progress=bar, overhead=args.overhead, host=args.host, link=args.link,
                          **_options(args))
    return made.changed(options={**made.options, **model.record})


def _options(args: argparse.Namespace) -> Dict[str, Any]:
    """What a plan and a sweep ask for alike."""
    optimizer, parameters = args.optimizer
    return {"mode": args.mode or "inductor", "costs": args.costs, "variants": args.variants,
            "time_limit": args.time_limit, "optimizer": optimizer, "optimizer_params": parameters,
            "name": _name(args.network),
            "method": args.method, "keep": args.keep, "recompute": args.recompute}


def _name(text: str) -> str:
    """The function's name, or the file's where that says more."""
    path, function = _in_words(text)
    return function if function != "build" else os.path.splitext(os.path.basename(path))[0]


def sweep(args: argparse.Namespace) -> List[Plan]:
    """``memonger plan --sweep``."""
    calls, model, _ = _model_of(args, args.network)
    with ProgressBar() as bar:
        return calls.sweep(model.module, model.inputs, progress=bar, **_options(args))


def max_batch(args: argparse.Namespace, command: Command) -> MaxBatch:
    """``memonger max-batch``."""
    _check_fixed(args, "max-batch", command)
    calls, model, _ = _model_of(args, args.network)
    with ProgressBar() as bar:
        return calls.max_batch(
            model.module, model.inputs, args.budget, args.mode or "inductor", costs=args.costs,
            variants=args.variants, time_limit=args.time_limit, progress=bar)


def profile(args: argparse.Namespace, command: Command) -> int:
    """``memonger profile``."""
    _check_fixed(args, "profile", command)
    calls, model, _ = _model_of(args, args.network)
    found = calls.profile(model.module, model.inputs, args.mode or "inductor")
    answer(args, {"device": found.device, "times": len(found.times_s)},
           "%d op times of %s; later plans on this device use them where they cover the module"
           % (len(found.times_s), found.device))
    return EXIT_OK


def estimate(args: argparse.Namespace) -> int:
    """``memonger estimate``."""
    from ..util.units import parse_budget
    calls, model, _ = _model_of(args, args.network)
    estimated = calls.estimate(model.module, model.inputs, args.mode, *args.optimizer)
    sizes = {**estimated.fixed_bytes, "pool": estimated.pool_bytes}
    budget = None if args.budget is None else parse_budget(args.budget, estimated.total_bytes)
    record = {"bytes": sizes, "total_bytes": estimated.total_bytes, "budget_bytes": budget}
    answer(args, record, lambda: "\n".join(
        [str(estimated), *([] if budget is None else [estimate_table(sizes, budget)])]))
    return EXIT_OK if budget is None or estimated.total_bytes <= budget else EXIT_BUDGET


def measure(args: argparse.Namespace) -> int:
    """``memonger measure``: of a plan file unplanned and planned."""
    calls, model, made = _model_of(args, args.network)
    mode = made.options["mode"] if made else args.mode or "inductor"
    original = calls.measure(calls.compile(model.module, mode=mode), model.inputs, args.steps)
    if made is None:
        answer(args, {"original": original.to_dict()},
               lambda: measurement_table(original, holder="allocator"))
        return EXIT_OK
    compiled = calls.compile(model.module, plan=made)
    planned = calls.measure(compiled, model.inputs, args.steps)
    ran, told = _ran(calls, compiled, made, "" if args.output else args.network)
    if args.output:
        ran.changed(options={**ran.options, **model.record}).with_measured(
            replace(planned, original=original).to_dict()).save(args.output)
    answer(args, {"original": original.to_dict(), "planned": planned.to_dict()},
           lambda: measurement_table(planned, original, ran, "allocator") + told)
    return EXIT_OK


def _ran(calls: Any, compiled: Any, made: Plan, path: str) -> Tuple[Plan, str]:
    """The plan by which a module ran, and a line about it where that is not the one of its file.

    ``path``: of that file; nothing where the plan that ran is written.
    """
    ran = next(iter(calls.plans(compiled)), made)
    if ran.decisions == made.decisions:
        return ran, ""
    return ran, "\nthis ran by another plan for the same budget: by that of the file the step " \
        "takes more%s" % (path and "; memonger measure %s -o %s writes the one that ran"
                          % (path, path))


def _within_budget(ran: Plan) -> str:
    """A line about the bytes of a step that was tried."""
    if ran.budget_bytes is None:
        return "\nthe step takes %s" % format_bytes(ran.total_bytes)
    return "\nthe step takes %s, within the budget of %s" % format_distinct(
        ran.total_bytes, ran.budget_bytes)


def verify(args: argparse.Namespace) -> int:
    """``memonger verify``."""
    if is_model(args.planned):
        raise UsageError("verify needs a plan file; memonger plan %s -o plan.json writes one"
                         % args.planned)
    calls, model, made = _model_of(args, args.planned)
    compiled = calls.compile(model.module, plan=made)
    result = calls.verify(compiled, model.module, model.inputs, args.steps)
    ran, told = _ran(calls, compiled, made, args.planned)
    tried = was_tried(ran)
    answer(args, {"ok": result.ok, "identical": result.identical, "steps": result.steps,
                  "total_bytes": ran.total_bytes if tried else None,
                  "budget_bytes": ran.budget_bytes},
           lambda: str(result) + _within_budget(ran) * tried + told)
    return EXIT_OK if result.ok else EXIT_VERIFICATION

