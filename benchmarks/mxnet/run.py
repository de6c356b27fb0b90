"""``python -m benchmarks``: the command; :mod:`benchmarks.__main__` lists what it can do."""
from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from memonger.mx.plugin.environment import mxnet
from memonger.util.errors import InputError
from memonger.util.files import write_out, write_whole
from memonger.util.json_files import read_text
from memonger.util.units import parse_bytes
from memonger.zoo import nets

from .cases import BUDGETED, COMPARED, METHODS, Case, Row, comparison, published_cases
from .published import PUBLISHED
from .runner import Settings, run_cases

#: Modules of this package that make a table of their own: ``main(words, as_json)``.
OWN_TABLES = ("ablation", "operators", "peers", "scaling")
#: Those that need no MXNet.
WITHOUT_MXNET = ("peers",)
#: Options of ``--process``.
PROCESS = ("process", "set", "batch", "time_limit", "measure_memory", "budget", "variants",
           "mkldnn")
#: Options that no other table has.
PROCESS_ONLY = ("budget", "variants", "mkldnn")
#: Options whose values published rows give.
NOT_PUBLISHED = ("set", "batch", "budgets")
#: Options of graphs from files.
GRAPHS = ("methods", "budgets", "time_limit")
#: Options of ``--from``.
SHOW = ("source", "output", "update")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add = parser.add_argument
    add("networks", nargs="*", metavar="NETWORK",
        help="networks of the zoo (default: %s); or files with graphs; or a table of its own: %s"
        % (", ".join(COMPARED), ", ".join(OWN_TABLES)))
    add("--list", action="store_true", help="name the networks and stop")
    add("--published", action="store_true",
        help="plan for the memory of each published row")
    add("--methods", default="", metavar="LIST",
        help="some of %s (default: all); for graphs any of memonger plan" % ",".join(METHODS))
    add("--budgets", default="75,50,35,25", metavar="LIST",
        help="percentages of the unplanned total (default: %(default)s)")
    add("--batch", type=int, default=0, help="batch size (default: the published one)")
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help="an option of the network's builder, such as image=64")
    add("--costs", default="reference", help="where op times come from, as in memonger plan")
    add("--time-limit", type=float, default=10.0, metavar="SECONDS", help="for each plan")
    add("--jobs", type=int, default=1, help="networks side by side (default: %(default)s)")
    add("--measure", action="store_true",
        help="train at a batch that fits and report measured bytes and step times")
    add("--measure-memory", default="2GB", metavar="SIZE",
        help="largest unplanned network to train (default: %(default)s)")
    add("--measure-batch", type=int, default=0, metavar="N",
        help="largest batch to train (default: what --measure-memory holds)")
    add("--steps", type=int, default=5, help="measured steps (default: %(default)s)")
    add("--process", action="store_true",
        help="plan and train each network in processes of their own: bytes promised and taken")
    add("--budget", default="50%", help="with --process: of each plan (default: 50%%)")
    add("--variants", default="exact", choices=("none", "exact", "all"),
        help="with --process: operator variants of the plans (default: %(default)s)")
    add("--mkldnn", default="both", choices=("on", "off", "both"),
        help="with --process: MXNet's environment (default: %(default)s)")
    add("-o", "--output", metavar="FOLDER", help="write results.json there")
    add("--from", dest="source", metavar="FILE", action="append", default=[],
        help="show a results.json instead of running (again: all of them)")
    add("--update", metavar="FILE", action="append", default=[],
        help="put the tables into a document, between its marks")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if args.list:
        write_out((json.dumps(network_list(), indent=2) if args.json else network_table()) + "\n")
        return 0
    if args.networks and args.networks[0] in OWN_TABLES:
        _refuse(args, args.networks[0], lambda option: False)
        module = importlib.import_module("." + args.networks[0], __package__)
        if args.networks[0] not in WITHOUT_MXNET:
            mxnet()  # its absence is one error, not one in each row
        return int(module.main(args.networks[1:], args.json))
    if any(map(_is_file, args.networks)):
        return _graphs(args)
    if not args.source:
        mxnet()
    if args.process:
        _refuse(args, "--process", PROCESS.__contains__)
        from .process import main as process
        return process(args.networks, args.json, args.mkldnn, batch=args.batch,
                       budget=args.budget, variants=args.variants, time_limit_s=args.time_limit,
                       limit_bytes=parse_bytes(args.measure_memory),
                       options=dict(map(_option, args.set)))
    _refuse(args, "without --process", lambda option: option not in PROCESS_ONLY)
    if args.source:
        _refuse(args, "--from", SHOW.__contains__)
        if args.networks:
            raise InputError("python -m benchmarks --from shows all rows; leave out %s"
                             % args.networks[0])
    return _compare(args)


def _is_file(name: str) -> bool:
    """Whether a word names a file and no network."""
    return name not in nets.CATALOG and (os.path.exists(name) or os.sep in name or "." in name)


def _graphs(args: argparse.Namespace) -> int:
    """The table of graphs from files."""
    from ..graphs import main
    _refuse(args, "FILE", GRAPHS.__contains__)
    for name in args.networks:
        if not _is_file(name):
            raise InputError("python -m benchmarks compares graphs from files or networks of the "
                             "zoo, not both; leave out %s" % name)
    return main(args.networks, _words(args.methods), _percentages(args.budgets), args.time_limit,
                args.json)


def _percentages(text: str) -> List[float]:
    try:
        return [float(word.rstrip("%")) for word in _words(text)]
    except ValueError:
        raise InputError("cannot read the budgets %r; write percentages, 75,50" % text) from None


def _refuse(args: argparse.Namespace, what: str, takes: Callable[[str], bool]) -> None:
    """Raise InputError for an option that was given and would mean nothing."""
    parser = argparse.ArgumentParser()
    configure(parser)
    for name, default in vars(parser.parse_args([])).items():
        if name != "networks" and getattr(args, name) != default and not takes(name):
            raise InputError("python -m benchmarks %s has no --%s" % (
                what, {"source": "from"}.get(name, name).replace("_", "-")))
    if getattr(args, "context", None) and not takes("context"):
        raise InputError("python -m benchmarks %s has no --ctx" % what)


def _compare(args: argparse.Namespace) -> int:
    """The tables of networks and methods."""
    from . import tables
    started_s = time.perf_counter()
    # What cannot be written is refused before the work.
    documents = {path: _document(path) for path in args.update}
    if args.output:
        os.makedirs(args.output, exist_ok=True)
    if args.source:
        rows = [row for path in args.source for row in read_results(path)]
    else:
        if args.measure and args.jobs > 1:
            raise InputError("--measure needs the machine for itself: leave out --jobs")
        cases = make_cases(args)
        settings = Settings(
            costs=args.costs, time_limit_s=args.time_limit, measure_steps=args.steps,
            measure_bytes=parse_bytes(args.measure_memory) if args.measure else 0,
            measure_batch=args.measure_batch, ctx=getattr(args, "context", None))
        rows = []
        show = _progress(len(cases))

        def keep(row: Row) -> None:
            rows.append(row)
            if show:
                show(row)

        try:
            rows = run_cases(cases, settings, args.jobs, keep)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted: %d of %d rows\n" % (len(rows), len(cases)))
            if not rows:
                raise
    if args.output:
        write_whole(os.path.join(args.output, "results.json"), tables.as_json(rows))
    for path, text in documents.items():
        write_whole(path, tables.documented(rows, text))
    if args.json:
        write_out(tables.as_json(rows))
    else:
        write_out(tables.as_text(rows) + "\n")
        if not args.source:
            write_out("\n%d rows in %.0f s\n" % (len(rows), time.perf_counter() - started_s))
    return 1 if rows and all(row.error for row in rows) else 0


def make_cases(args: argparse.Namespace) -> List[Case]:
    """The cases that the arguments ask for."""
    methods = _words(args.methods) or METHODS
    if args.published:
        _refuse(args, "--published", lambda option: option not in NOT_PUBLISHED)
        if args.methods and not set(methods) <= set(BUDGETED):
            raise InputError("--published compares %s, not %s" % (", ".join(BUDGETED),
                                                                  args.methods))
        for network in args.networks:
            if network not in {row.network for row in PUBLISHED}:
                nets.spec(network)
                raise InputError("no published row is about %s" % network)
        rows = [row for row in PUBLISHED if not args.networks or row.network in args.networks]
        return published_cases(rows, [m for m in methods if m in BUDGETED])
    networks = args.networks or COMPARED
    budgets = _percentages(args.budgets)
    options = dict(map(_option, args.set))
    for network in networks:
        nets.check(network, args.batch or None, **options)
    return comparison(networks, methods, budgets, args.batch, options)


def network_list() -> List[Dict[str, Any]]:
    """The networks of the zoo with their published set-ups."""
    return [{"network": name, "batch": item.batch, "example": item.input,
             "parameters": item.parameters, "source": item.source}
            for name, item in nets.CATALOG.items()]


def network_table() -> str:
    """The same as text."""
    from memonger.report.formatting import shape_words, table
    rows = [("network", "batch", "example", "parameters", "source of the count")]
    rows += [(item["network"], str(item["batch"]), shape_words(item["example"]),
              "{:,}".format(item["parameters"]), item["source"]) for item in network_list()]
    return table(rows, "<>>><")


def read_results(path: str) -> List[Row]:
    """The rows of a results.json.

    Raises InputError if the file is none.
    """
    from . import tables
    try:
        with open(path, encoding="utf-8") as file:
            return tables.from_json(file.read())
    except OSError as error:
        raise InputError("cannot read the results %s: %s" % (path, error.strerror)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("%s is no results.json of python -m benchmarks" % path) from error


def _document(path: str) -> str:
    """A document whose tables can be updated."""
    from . import tables
    text = read_text(path)
    tables.documented((), text)  # refuses unknown tables
    return text


def _progress(total: int) -> Optional[Callable[[Row], None]]:
    """A line for each finished row, on a terminal only."""
    if not sys.stderr.isatty():
        return None
    done = [0]

    def show(row: Row) -> None:
        done[0] += 1
        sys.stderr.write("[%d/%d] %s %s %s %s\n" % (done[0], total, row.network, row.method,
                                                   row.target, row.error or row.status))
    return show


def _words(text: str) -> List[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _option(text: str) -> Any:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError("cannot read the option %r; write NAME=VALUE" % text)
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            pass
    return name, {"true": True, "false": False}.get(value.lower(), value)
