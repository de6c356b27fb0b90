"""Training as a hybridized Gluon block trains: through a CachedOp, under ``autograd.record()``."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Mapping, Tuple, cast

import numpy as np

from ..mx.capture.binding import first_line, sparse_gradients
from ..mx.check.training_run import Results, Training, Types, Values
from ..mx.plugin.environment import mxnet
from ..util.errors import BindError


@dataclass(frozen=True)
class BlockTraining(Training):
    """Runs the graph of a block with arrays of its own; the block's stay as they are."""

    #: Those that ``hybridize`` was called with.
    flags: Tuple[Tuple[str, Any], ...] = ()
    #: The variables that are no parameters.
    inputs: FrozenSet[str] = frozenset()

    def run(self, symbol: Any, start: Values, types: Types) -> Results:
        """Tensors after each step. Raises BindError where MXNet cannot run the graph."""
        try:
            return self._run(symbol, start)
        except mxnet().MXNetError as error:
            raise BindError("MXNet cannot run this block: %s" % first_line(error)) from error

    def _run(self, symbol: Any, start: Values) -> Results:
        mx, names = mxnet(), symbol.list_inputs()
        sparse = sparse_gradients(symbol)
        arrays = {name: mx.nd.array(start[name], ctx=self.ctx, dtype=start[name].dtype)
                  for name in names}
        asked = cast(Mapping[str, str], self.grad_req)
        trained = [name for name in names if asked.get(name, "null") != "null"]
        for name in trained:
            arrays[name].attach_grad(asked[name], "row_sparse" if name in sparse else None)
        where = {kind: [i for i, name in enumerate(names) if (name in self.inputs) == is_input]
                 for kind, is_input in (("data_indices", True), ("param_indices", False))}
        cached = mx.nd.CachedOp(symbol, [*where.items(), *self.flags])
        results: List[Dict[str, np.ndarray]] = []
        for number in range(self.steps):
            for name in trained if number else ():
                if name not in self.inputs:
                    arrays[name][:] = arrays[name] - self.learning_rate * arrays[name].grad
            mx.random.seed(self.seed + number)
            with mx.autograd.record():
                outputs = cached(*[arrays[name] for name in names])
            outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            differentiable = [o for o in outputs if np.dtype(o.dtype).kind == "f"]
            mx.autograd.backward(differentiable, self._head_gradients(differentiable))
            mx.nd.waitall()
            results.append({
                **{"output %d" % i: o.asnumpy() for i, o in enumerate(outputs)},
                **{"gradient " + name: arrays[name].grad.asnumpy() for name in trained},
                **{"aux " + name: arrays[name].asnumpy()
                   for name in symbol.list_auxiliary_states()}})
        return results

    def _head_gradients(self, outputs: List[Any]) -> List[Any]:
        """Numbers that differ: gradients of a softmax, say, are zero for equal ones."""
        random = np.random.RandomState(self.seed)
        return [mxnet().nd.array(random.uniform(0.5, 1.5, o.shape), ctx=self.ctx, dtype=o.dtype)
                for o in outputs]
