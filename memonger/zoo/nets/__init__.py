"""The zoo: training networks as MXNet symbols with their losses, and their published set-ups.

::

    from memonger.zoo import nets
    net = nets.build("resnet50", batch=32)
    memonger.plan(net.symbol, budget="35%", **net.shapes)

A symbol allocates nothing, so the published batch sizes work on any machine. Names are the same
in every process. MXNet is imported when the first network is built, not before.
"""
from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ...mx.plugin.environment import mxnet
from ...util.argument_checks import whole_number
from ...util.errors import InputError
from ...util.messages import one_line
from .catalog import CATALOG, Net, Spec

__all__ = ["CATALOG", "Net", "Spec", "build", "check", "names", "options", "spec"]


def names() -> Tuple[str, ...]:
    """Names of the networks."""
    return tuple(CATALOG)


def spec(name: str) -> Spec:
    """What is published about a network; imports nothing.

    Raises
    ------
    InputError
        If there is no such network.
    """
    try:
        return CATALOG[name]
    except (KeyError, TypeError):
        from difflib import get_close_matches
        near = get_close_matches(str(name), CATALOG, 3)
        hint = "did you mean %s?" % " or ".join(near) if near else \
            "memonger.zoo.nets.CATALOG names all"
        raise InputError("no network %r in the zoo; %s" % (name, hint)) from None


def options(name: str) -> Mapping[str, Any]:
    """Options of a network's builder with their defaults; imports MXNet."""
    return _builder(spec(name)).__kwdefaults__ or {}


def check(name: str, batch: Optional[int] = None, **options: Any) -> None:
    """Raise InputError where :func:`build` would refuse these arguments; builds nothing."""
    known = _builder(spec(name)).__kwdefaults__ or {}
    if batch is not None:
        whole_number("the batch", batch, 1)
    for key, value in sorted(options.items()):
        if key not in known:
            raise InputError("%s has no option %r; it has %s"
                             % (name, key, ", ".join(sorted(known))))
        kind = type(known[key])
        kinds = {float: (int, float), tuple: (tuple, list)}.get(kind, (kind,))
        if not isinstance(value, kinds):
            raise InputError("the option %s of %s is a value like %r, not %r"
                             % (key, name, known[key], value))


def _builder(item: Spec) -> Callable[..., Any]:
    mxnet()  # the builders' modules import it: without it the error says what to install
    module = importlib.import_module("." + item.family, __name__)
    return getattr(module, item.builder)


def build(name: str, batch: Optional[int] = None, **options: Any) -> Net:
    """A network of the zoo as a symbol with its loss.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    batch : int, optional
        Batch size; the published one by default.
    **options
        Arguments of the family's builder, such as ``image=64`` or ``classes=10`` (see the modules
        of this package); the published ones by default.

    Returns
    -------
    Net

    Raises
    ------
    InputError
        If there is no such network, or the family has no such option or cannot take its value.
    MemongerError
        If MXNet is not installed.
    """
    check(name, batch, **options)
    mx = mxnet()
    item = spec(name)
    arguments: Dict[str, Any] = {**item.options, **options}
    # A fresh name manager: names must not depend on what was built before.
    try:
        with mx.name.NameManager():
            symbol, shapes = _builder(item)(batch or item.batch, **arguments)
    except (mx.base.MXNetError, ArithmeticError, LookupError, ValueError) as error:
        raise InputError("%s cannot be built with %s: %s" % (
            name, ", ".join("%s=%s" % pair for pair in options.items()),
            one_line(error))) from error
    return Net(name, symbol, shapes, batch or item.batch, item)
