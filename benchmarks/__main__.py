"""``python -m benchmarks``: reproduces the tables of the documentation.

  python -m benchmarks resnet50 --budgets 75,50,35,25  every method on one network
  python -m benchmarks --published                     compare with the published tables
  python -m benchmarks resnet18 --measure              train, planned and unplanned in turn
  python -m benchmarks --process                       promised memory and what processes take
  python -m benchmarks FILE ...                        every method on graphs from files
  python -m benchmarks peers [FOLDER]                  other planners' own graphs, in FOLDER
  python -m benchmarks operators                       frugal operators and MXNet's own
  python -m benchmarks scaling                         time and memory of planning, to 20,000 ops
  python -m benchmarks ablation                        what each part of the search is worth
  python -m benchmarks kernels --check --time          GPU kernels: right, and how fast
  python -m benchmarks ready_plans                     the plans that memonger.zoo ships, again
  python -m benchmarks torch                           PyTorch: peaks and times of all methods
  python -m benchmarks torch --depth --published       PyTorch: how deep plans for Inductor go
  python -m benchmarks torch --planning                PyTorch: how long planning takes
  python -m benchmarks torch-gpu                       PyTorch: step time and peak on a device
  python -m benchmarks torch-models                    PyTorch: sixty models of other packages
  python -m benchmarks distributed                     PyTorch: ranks of many, with torchtitan
  python -m benchmarks picture                         memory against extra time, as a picture
  python -m benchmarks --list                          the networks
"""
from __future__ import annotations

import argparse
import sys
from typing import List, Optional, Sequence

from memonger.cli.arguments import add_context, context
from memonger.cli.command import EXIT_ERROR, EXIT_USAGE, Parser, UsageError
from memonger.cli.failure import report_failure
from memonger.util.files import write_out


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run a measurement; returns the exit code, as ``memonger`` has them.

    ``argv``: the arguments without the program's name; by default those of the process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    args = argparse.Namespace(json=False)
    try:
        code = _run(words, args)
        write_out("")  # whatever was printed is there
        return code
    except SystemExit as end:  # argparse has said why
        return int(end.code or 0)
    except UsageError as error:
        sys.stderr.write("error: %s\n  see: python -m benchmarks --help\n" % error)
        return EXIT_USAGE
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        sys.stderr.write("error: this table needs PyTorch: pip install 'memonger[torch]'\n")
        return EXIT_ERROR
    except Exception as error:
        return report_failure(error, args)


def _run(words: List[str], args: argparse.Namespace) -> int:
    """Run a measurement; ``args`` gets the arguments of the tables."""
    if words[:1] == ["kernels"]:
        from .kernels.__main__ import main as kernels
        return kernels(words[1:])
    if words[:1] == ["ready_plans"]:
        from .ready_plans import main as ready_plans
        return ready_plans(words[1:])
    if words[:1] == ["torch"]:
        from .torch import plans
        return plans.main(_options("torch", plans, words[1:]))
    if words[:1] == ["torch-gpu"]:
        from .torch import gpu
        return gpu.main(_options("torch-gpu", gpu, words[1:]))
    if words[:1] == ["torch-models"]:
        from .torch_models import table
        return table.main(_options("torch-models", table, words[1:]))
    if words[:1] == ["distributed"]:
        from . import distributed
        return distributed.main(_options("distributed", distributed, words[1:]))
    if words[:1] == ["picture"]:
        from . import picture
        return picture.main(_options("picture", picture, words[1:]))
    from .mxnet import run
    parser = Parser(prog="python -m benchmarks", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    run.configure(parser)
    add_context(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.parse_args(words, args)
    if args.ctx != "cpu(0)":
        args.context = context(args.ctx)
    return run.run(args)


def _options(name: str, module: object, words: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks " + name)
    module.add_arguments(parser)  # type: ignore[attr-defined]
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
