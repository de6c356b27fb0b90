"""What a caller asks for: how the network is bound, and what plan is wanted."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import numpy as np

from ..plan.plan import Budget, Progress
from ..solve import methods
from ..util import argument_checks as check
from ..util.errors import InputError, UnitError

Shapes = Mapping[str, Sequence[int]]
ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class Binding:
    """How a network is bound and trained: all that decides its bytes besides the plan."""

    shapes: Shapes
    type_dict: Optional[Mapping[str, Any]] = None
    grad_req: Any = "write"
    ctx: Any = None
    group2ctx: Any = None
    optimizer: Optional[str] = None
    optimizer_params: Optional[Mapping[str, Any]] = None

    def __post_init__(self) -> None:
        if self.ctx is not None:
            check.context("ctx", self.ctx)
        if self.group2ctx is not None:
            for name, place in check.mapping("group2ctx", self.group2ctx,
                                             '{"group": mx.gpu(1)}').items():
                check.context("group2ctx[%r]" % name, place)
        if self.type_dict is not None:
            for name, dtype in check.mapping("type_dict", self.type_dict,
                                             '{"data": "float16"}').items():
                try:
                    np.dtype("nothing" if dtype is None else dtype)
                except TypeError:
                    raise InputError("type_dict[%r] must be a type such as 'float16', not %s"
                                     % (name, check.shown(dtype))) from None
        if self.optimizer is not None:
            check.text("optimizer", self.optimizer, "adam")
        if self.optimizer_params is not None:
            if self.optimizer is None:
                raise InputError("optimizer_params without an optimizer; name it, for example "
                                 "optimizer='sgd'")
            # Module takes pairs, too.
            object.__setattr__(self, "optimizer_params", check.mapping(
                "optimizer_params", self.optimizer_params, '{"momentum": 0.9}'))

    @property
    def on_gpu(self) -> bool:
        return self.ctx is not None and self.ctx.device_type == "gpu"

    def read(self, symbol: Any, as_run: bool = False) -> Any:
        """The training step of ``symbol`` bound so: a :class:`memonger.mx.capture.Captured`."""
        from ..mx.capture import read
        return read(symbol, self.shapes, self.type_dict, self.grad_req, self.ctx, self.group2ctx,
                    as_run)


@dataclass(frozen=True)
class PlanRequest:
    """What plan is wanted; fields as the parameters of :func:`memonger.plan`."""

    budget: Budget = None
    overhead: Union[None, str, float] = None
    method: str = "auto"
    variants: str = "exact"
    keep: Sequence[str] = ()
    recompute: Sequence[str] = ()
    time_limit: float = 10.0
    max_clones: int = 0
    name: str = ""
    progress: Optional[ProgressCallback] = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.budget is not None and self.overhead is not None:
            raise InputError("give a budget or an overhead, not both")
        if not isinstance(self.budget, (str, type(None))) and not hasattr(self.budget, "__float__"):
            raise UnitError("a budget cannot be %s; write it as 4GB or 60%%, and shapes as "
                            "data=(32, 3, 224, 224)" % check.shown(self.budget))
        if self.method not in methods():
            raise InputError("unknown method %s; one of %s, or a registered name"
                             % (check.shown(self.method), ", ".join(methods())))
        check.text("name", self.name, "resnet50")
        check.whole_number("max_clones", self.max_clones, 0)
        if self.progress is not None:
            check.function("progress", self.progress)
        if self.variants not in ("none", "exact", "all"):
            raise InputError("variants must be none, exact or all, not %r" % (self.variants,))
        if not isinstance(self.time_limit, (int, float)):
            raise InputError("time_limit must be a number of seconds, not %r"
                             % (self.time_limit,))
