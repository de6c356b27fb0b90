"""Plan the memory of an MXNet 1.9.1 training step: same gradients, less memory.

::

    import memonger
    plan = memonger.plan(net, budget="4GB", data=(32, 3, 224, 224))
    mx.mod.Module(plan.symbol).fit(...)

Importing memonger imports neither MXNet nor matplotlib nor a solver: the names below are loaded
when they are first used.
"""
from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import errors
from .graph.types import Graph
from .plans.plan import Plan, Progress, Status
from .util.cuda_libraries import preload as _preload
from .util.version import __version__ as __version__

if TYPE_CHECKING:
    from . import gluon, native, zoo
    from .mx.calls.buckets import PlannedBuckets
    from .mx.calls.dmlc import get_cost, make_mirror_plan, search_plan
    from .mx.calls.plan import estimate, max_batch, measure, plan, strip, sweep, verify
    from .plans.plan_file import load_plan

#: Public name -> module, and the attribute there (None: the module itself).
_LAZY: Dict[str, Tuple[str, Optional[str]]] = {
    **{name: (".mx.calls.plan", name) for name in (
        "estimate", "max_batch", "measure", "plan", "strip", "sweep", "verify")},
    **{name: (".mx.calls.dmlc", name) for name in ("get_cost", "make_mirror_plan", "search_plan")},
    "load_plan": (".plans.plan_file", "load_plan"),
    "PlannedBuckets": (".mx.calls.buckets", "PlannedBuckets"),
    "gluon": (".gluon", None),
    "native": (".native", None),
    "zoo": (".zoo", None),
}

__all__ = ["Graph", "Plan", "PlannedBuckets", "Progress", "Status", "errors", "estimate",
           "get_cost", "gluon", "load_plan", "make_mirror_plan", "max_batch", "measure", "native",
           "plan", "search_plan", "strip", "sweep", "verify", "zoo"]

logging.getLogger(__name__).addHandler(logging.NullHandler())
_preload()
if "mxnet.base" in sys.modules:  # its readers of symbols were there first
    from .mx.plugin.symbol_hooks import watch_symbols as _watch_symbols
    _watch_symbols()


if not TYPE_CHECKING:  # a type checker knows the names above, and no others
    def __getattr__(name: str) -> Any:
        try:
            module_name, attribute = _LAZY[name]
        except KeyError:
            from difflib import get_close_matches
            close = get_close_matches(name, __all__, 1)
            raise AttributeError("module %r has no attribute %r%s" % (
                __name__, name, "; did you mean %r?" % close[0] if close else "")) from None
        module = importlib.import_module(module_name, __name__)
        value = module if attribute is None else getattr(module, attribute)
        globals()[name] = value
        return value


def __dir__() -> List[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
