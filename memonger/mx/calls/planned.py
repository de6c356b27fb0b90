"""The calls on planned symbols: apply_plan, strip, verify, measure."""
from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Tuple

from ...plans.plan import Plan
from ...util import argument_checks as check
from ...util.errors import InputError, PlanMismatch
from ..plugin import loading as native
from ..rewrite.load import is_numpy, of_kind
from ..symbol.common_subexpressions import to_json
from .binding import Shapes
from .inputs import check_symbol, gather_shapes, refuse_module
from .symbol_record import SymbolRecord

if TYPE_CHECKING:
    from ...plans.measurement import Measurement
    from ...plans.verification import Verification


def verify(planned: Any, original: Any = None, steps: int = 2, ctx: Any = None,
           type_dict: Optional[Mapping[str, Any]] = None, grad_req: Any = None, seed: int = 0,
           tolerance: float = 1e-5, values: Optional[Mapping[str, Any]] = None,
           shapes: Optional[Shapes] = None, control: bool = False,
           **named_shapes: Sequence[int]) -> Verification:
    """Train planned and original side by side and compare outputs, gradients and aux states.

    Parameters
    ----------
    planned : mx.sym.Symbol or Plan
        A plan brings its shapes, types and gradient requests along.
    original : mx.sym.Symbol, optional
        Default: ``strip(planned)``.
    steps : int
        Training steps, with plain gradient descent between them.
    ctx : mx.Context, optional
        Where both train; the CPU by default.
    type_dict, grad_req, shapes, **named_shapes : optional
        As for :func:`plan`; by default those of the plan.
    seed : int
        Of the random values of parameters and inputs.
    tolerance : float
        Largest difference, relative to a tensor's largest value, that still counts as the same.
    values : mapping, optional
        Values of inputs or parameters by name, instead of random ones.
    control : bool
        Train the original a second time with another number of threads, in a process of its own,
        and show how far stock MXNet is from itself. It says nothing about the plan. CPUs only.

    Returns
    -------
    memonger.plans.verification.Verification
        True in a condition when both agree; ``identical`` when bit for bit; ``check()`` raises
        VerificationError unless they agree.

    Raises
    ------
    InputError, ShapeError, BindError
        If the input cannot be used, or the symbol carries no plan and no original is given.
    """
    from ..check.verify import verify as run
    given = _shapes_of(verify, planned, shapes, named_shapes)
    type_dict, grad_req = _binding_of(planned, type_dict, grad_req)
    symbol = _symbol_of(planned)
    native.available()
    if original is None:
        original = strip(symbol)
        if symbol is planned and to_json(original) == to_json(symbol):
            raise InputError("the symbol carries no plan, so there is nothing to compare; give a "
                             "planned symbol, or the original as the second argument")
    check_symbol(original)
    _check_place(ctx)
    check.whole_number("steps", steps, 1)
    check.whole_number("seed", seed, 0)
    check.real_number("tolerance", tolerance)
    values = _known_values(symbol, values)
    return run(symbol, original, given, steps, ctx, type_dict, grad_req, seed, tolerance, values,
               control=control)


def measure(symbol: Any, ctx: Any = None, steps: int = 5, original: Any = None,
            type_dict: Optional[Mapping[str, Any]] = None, grad_req: Any = None,
            shapes: Optional[Shapes] = None, **named_shapes: Sequence[int]) -> Measurement:
    """What a process really allocates, in bytes, and the time of a step, in seconds.

    Parameters
    ----------
    symbol : mx.sym.Symbol or Plan
        Planned and original run step by step in turn.
    ctx : mx.Context, optional
        Where the steps run; the CPU by default.
    steps : int
        Steps whose median time counts.
    original : mx.sym.Symbol or False, optional
        Default: ``strip(symbol)``; False measures ``symbol`` alone.
    type_dict, grad_req, shapes, **named_shapes : optional
        As for :func:`plan`; by default those of the plan.

    Returns
    -------
    memonger.plans.measurement.Measurement
        ``allocated_bytes``, ``step_s``, ``overhead``, and the ``original``'s beside them.

    Raises
    ------
    InputError, ShapeError, BindError
        If the input cannot be used.
    """
    from ..check.measure import measure as run
    given = _shapes_of(measure, symbol, shapes, named_shapes)
    type_dict, grad_req = _binding_of(symbol, type_dict, grad_req)
    symbol = _symbol_of(symbol)
    _check_place(ctx)
    check.whole_number("steps", steps, 1)
    if original is None:
        stripped = strip(symbol)
        original = stripped if to_json(stripped) != to_json(symbol) else None
    elif original is not False:
        check_symbol(original)
    return run(symbol, given, ctx, steps, None if original is False else original, type_dict,
               grad_req)


def strip(planned: Any) -> Any:
    """The symbol before planning; its JSON is byte for byte what it was.

    Parameters
    ----------
    planned : mx.sym.Symbol or Plan

    Returns
    -------
    mx.sym.Symbol

    Raises
    ------
    InputError
        If ``planned`` is neither.
    """
    from ..rewrite.apply import strip_symbol
    symbol = _symbol_of(planned)
    check_symbol(symbol)
    return strip_symbol(symbol)


def apply_plan(plan: Plan, symbol: Any) -> Any:
    """The planned form of ``symbol``, from a plan made for the same network.

    Parameters
    ----------
    plan : Plan
    symbol : mx.sym.Symbol

    Returns
    -------
    mx.sym.Symbol

    Raises
    ------
    PlanMismatch
        If the plan belongs to another network.
    """
    text = to_json(strip(symbol))
    if not isinstance(plan.record, SymbolRecord):
        raise PlanMismatch("the plan was made for a graph that is not MXNet's; it has no symbol")
    original = plan.record.original_json
    if text != original:
        raise PlanMismatch("the plan was made for another network; plan this one", *(
            hashlib.sha256(one.encode()).hexdigest()[:16] for one in (original, text)))
    return of_kind(plan.symbol, is_numpy(symbol))


def _check_place(ctx: Any) -> None:
    """Refuse what is no context, and a GPU that this MXNet has no operators for."""
    if ctx is not None:
        from ..capture.binding import check_devices
        check_devices([check.context("ctx", ctx)])


def _known_values(symbol: Any, values: Any) -> Optional[Mapping[str, Any]]:
    """``values`` by name, all of them names of the network."""
    if values is None:
        return None
    values = check.mapping("values", values, '{"data": array}')
    for name in values:
        if name not in symbol.list_inputs():
            raise InputError("values names %r, which the network does not have" % (name,))
    return values


def _symbol_of(planned: Any) -> Any:
    refuse_module(planned)
    return planned.symbol if isinstance(planned, Plan) else planned


def _shapes_of(call: Callable[..., Any], planned: Any, shapes: Optional[Shapes],
               named: Shapes) -> Shapes:
    """Shapes given either way to ``call``; a plan brings its own."""
    if shapes is None and not named and isinstance(planned, Plan):
        shapes = planned.options.get("shapes", {})
    return gather_shapes(call, _symbol_of(planned), shapes, named)


def _binding_of(planned: Any, type_dict: Optional[Mapping[str, Any]],
                grad_req: Any) -> Tuple[Optional[Mapping[str, Any]], Any]:
    """Types and gradient requests as given; a plan brings its own, too."""
    saved = planned.options if isinstance(planned, Plan) else {}
    return (type_dict if type_dict is not None else saved.get("type_dict"),
            grad_req if grad_req is not None else saved.get("grad_req", "write"))
