"""How a network is bound and trained: all that decides its bytes besides the plan."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Sequence

from ...util import argument_checks as check
from ...util.errors import InputError
from ..capture.binding import Arguments
from ..capture.devices import on_device
from ..capture.record import Captured, read
from ..plugin import loading as native

Shapes = Mapping[str, Sequence[int]]


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
    #: Of a network spread over devices: the one whose memory counts, "gpu(1)".
    only: Optional[str] = None

    def __post_init__(self) -> None:
        if self.ctx is not None:
            check.context("ctx", self.ctx)
        if self.group2ctx is not None:
            for name, place in check.mapping("group2ctx", self.group2ctx,
                                             '{"group": mx.gpu(1)}').items():
                check.context("group2ctx[%r]" % name, place)
        if self.type_dict is not None:
            object.__setattr__(self, "type_dict", check.mapping(
                "type_dict", self.type_dict, '{"data": "float16"}'))
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

    def record(self, arguments: Arguments) -> Dict[str, Any]:
        """Shapes, types and gradient requests, as a plan file holds them."""
        types = dict(zip(arguments.names, arguments.dtypes))
        requests = dict(zip(arguments.names, arguments.grad_reqs))
        return {"shapes": {name: tuple(shape) for name, shape in sorted(self.shapes.items())},
                "type_dict": {name: types[name] for name in sorted(self.type_dict or {})
                              if name in types} or None,
                "grad_req": arguments.grad_reqs[0] if len(set(requests.values())) == 1
                else requests}

    def read(self, symbol: Any, as_run: bool = False) -> Captured:
        """The training step of ``symbol`` bound so."""
        captured = read(symbol, self.shapes, self.type_dict, self.grad_req, self.ctx,
                        self.group2ctx, as_run)
        if self.only is None:
            return captured
        return on_device(captured, self.only,
                         "stock" if native.storage_model() == "stock" else "best")

    @property
    def memory_ctx(self) -> Any:
        """Where the memory that counts is."""
        if self.only is None:
            return self.ctx
        return next((place for place in (self.group2ctx or {}).values()
                     if str(place) == self.only), self.ctx)
