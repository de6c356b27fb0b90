"""What a caller asks for: how the network is bound, and what plan is wanted."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import numpy as np

from ..plan.plan import Budget, Progress
from ..util.errors import InputError

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
        if self.ctx is not None and not hasattr(self.ctx, "device_type"):
            raise InputError("ctx must be mx.cpu() or mx.gpu(0), not %r" % (self.ctx,))
        for name, dtype in (self.type_dict or {}).items():
            try:
                np.dtype(dtype)
            except TypeError:
                raise InputError("type_dict[%r] must be a type such as 'float16', not %r"
                                 % (name, dtype)) from None

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
        if self.variants not in ("none", "exact", "all"):
            raise InputError("variants must be none, exact or all, not %r" % (self.variants,))
        if not isinstance(self.time_limit, (int, float)):
            raise InputError("time_limit must be a number of seconds, not %r"
                             % (self.time_limit,))
