"""Trains random networks beside stock MXNet; one JSON line a finding.

    PYTHONPATH=tests python -m fuzz.trial symbols 0 100
    PYTHONPATH=tests python -m fuzz.trial blocks 0 100
    PYTHONPATH=tests python -m fuzz.trial modes 0 100    # blocks that ask for the mode

A process that ends in a signal says so by its exit status. What stock MXNet cannot train, or trains
differently from run to run, is no finding: it races in loops of hybridized blocks, for one.
"""
from __future__ import annotations

import json
import random
import sys
import warnings
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import mxnet as mx
import numpy as np

import memonger
from memonger import native
from memonger.errors import InfeasibleBudget, MemongerError

from .networks import Network, build

#: Of each step, and of inference behind them: arrays by name.
Results = List[Dict[str, np.ndarray]]
_STEPS = 3


def train_symbol(network: Network, symbol: Any) -> Results:
    """Steps of clipped gradient descent in an executor, then inference."""
    arguments = {k: mx.nd.array(v, dtype=v.dtype) for k, v in network.arguments.items()}
    states = {k: mx.nd.array(v, dtype=v.dtype) for k, v in network.states.items()}
    gradients = {k: mx.nd.ones(v.shape, dtype=v.dtype) for k, v in network.arguments.items()
                 if network.grad_req[k] != "null"}
    executor = symbol.bind(mx.cpu(), args=arguments, args_grad=gradients,
                           grad_req=network.grad_req, aux_states=states)
    results: Results = []
    for step in range(_STEPS):
        mx.random.seed(1000 + step)
        outputs = executor.forward(is_train=True)
        executor.backward(head_gradients(outputs, step))
        mx.nd.waitall()
        results.append({
            **{"output %d" % i: o.asnumpy() for i, o in enumerate(executor.outputs)},
            **{"gradient of " + k: g.asnumpy() for k, g in gradients.items()},
            **{k: s.asnumpy() for k, s in states.items()}})
        for name, gradient in gradients.items():
            if not name.startswith("data"):
                arguments[name][:] = arguments[name] - 0.01 * mx.nd.clip(gradient, -1, 1)
        mx.nd.waitall()
    mx.random.seed(1)
    executor.forward(is_train=False)
    return results + [{"inference %d" % i: o.asnumpy() for i, o in enumerate(executor.outputs)}]


def make_block(network: Network, flags: Dict[str, Any]) -> Tuple[Any, List[str]]:
    """A hybridized block of the network, and the names of its inputs."""
    inputs = [name for name in network.symbol.list_arguments() if name in network.shapes]
    block = mx.gluon.SymbolBlock(network.symbol, [mx.sym.var(name) for name in inputs])
    for name, parameter in block.collect_params().items():
        value = network.arguments.get(name, network.states.get(name))
        parameter.shape, parameter.dtype = value.shape, value.dtype
        if name in network.arguments:
            parameter.grad_req = network.grad_req[name]
        parameter.initialize(ctx=mx.cpu())
        parameter.set_data(mx.nd.array(value, dtype=value.dtype))
    block.hybridize(**flags)
    return block, inputs


def train_block(network: Network, block: Any, inputs: List[str]) -> Results:
    """The same in a block."""
    arrays = [mx.nd.array(network.arguments[name], dtype=network.arguments[name].dtype)
              for name in inputs]
    for name, array in zip(inputs, arrays):
        if network.grad_req[name] != "null":
            array.attach_grad(network.grad_req[name])
    results: Results = []
    for step in range(_STEPS + 1):
        mx.random.seed(1000 + step)
        training = step < _STEPS
        with mx.autograd.record() if training else mx.autograd.pause():
            outputs = block(*arrays)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        if training:
            mx.autograd.backward(list(outputs), head_gradients(outputs, step))
        mx.nd.waitall()
        found = {"output %d" % i: o.asnumpy() for i, o in enumerate(outputs)}
        for name, array in zip(inputs, arrays):
            if training and array.grad is not None:
                found["gradient of " + name] = array.grad.asnumpy()
        for name, parameter in block.collect_params().items():
            if parameter.grad_req == "null":
                found[name] = parameter.data().asnumpy()
            elif training:
                found["gradient of " + name] = parameter.grad().asnumpy()
                parameter.set_data(parameter.data()
                                   - 0.01 * mx.nd.clip(parameter.grad(), -1, 1))
        results.append(found)
    return results


def head_gradients(outputs: Any, step: int) -> List[Any]:
    numbers = np.random.RandomState(step)
    return [mx.nd.array(numbers.standard_normal(o.shape), dtype=o.dtype) for o in outputs]


def different(a: Results, b: Results) -> Set[Tuple[int, str]]:
    """Steps and names of arrays that differ in a bit, or where just one is NaN."""
    return {(step, name) for step, (left, right) in enumerate(zip(a, b)) for name in left
            if name not in right or left[name].tobytes() != right[name].tobytes()
            and not np.array_equal(left[name], right[name], equal_nan=True)}


class Trial:
    """One seed: stock MXNet's results, and what planned ones are compared with."""

    def __init__(self, seed: int, stock: Callable[[], Results]) -> None:
        self.random = random.Random(seed)
        with native.switched(False, False):
            runs = [stock() for _ in range(3)]
        self.expected = runs[0]
        self.unstable = different(runs[0], runs[1]) | different(runs[0], runs[2])

    def options(self) -> Dict[str, Any]:
        return {"variants": self.random.choice(["none", "exact"]), "time_limit": 0.05,
                **self.random.choice([{"recompute": ["*"]}, {"budget": "60%"}, {"budget": "90%"},
                                      {"budget": None}])}

    def finding(self, plan: Callable[..., Any], train: Callable[[], Results]) -> Optional[str]:
        """What is wrong with a plan; None if nothing is."""
        try:
            made = plan(**self.options())
        except InfeasibleBudget:
            return None
        if made.predicted_pool_bytes is not None:
            return "pool: %d bytes, %d predicted" % (made.pool_bytes, made.predicted_pool_bytes)
        wrong = different(self.expected, train()) - self.unstable
        return "differ: %s" % sorted(wrong)[:5] if wrong else None


def try_symbol(seed: int) -> Optional[str]:
    """A network by ``memonger.plan``, trained in an executor."""
    network, planned = build(seed), []
    trial = Trial(seed, lambda: train_symbol(network, network.symbol))

    def plan(**options: Any) -> Any:
        planned.append(memonger.plan(network.symbol, type_dict=network.dtypes,
                                     grad_req=network.grad_req, shapes=network.shapes, **options))
        return planned[0]
    return trial.finding(plan, lambda: train_symbol(network, planned[0].symbol))


def _flags(seed: int) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Random flags of ``hybridize``, the limit of inlining apart."""
    numbers = random.Random(-seed)
    static = numbers.random() < 0.6
    flags = {"static_alloc": static, "static_shape": static and numbers.random() < 0.5}
    if numbers.random() < 0.4:
        flags["forward_bulk_size"] = numbers.choice([0, 1, 50])
    limit = {"inline_limit": numbers.choice([0, 2, 100])}
    return flags, limit


def try_block(seed: int) -> Optional[str]:
    """A network by ``memonger.gluon.plan``, with random flags of ``hybridize``."""
    flags, limit = _flags(seed)
    network = build(seed)
    # MXNet runs inlined blocks in another way; planned ones are never inlined.
    trial = Trial(seed, lambda: train_block(
        network, *make_block(network, {**flags, "inline_limit": 0})))
    if network.has_loop:
        return None
    block, inputs = make_block(network, {**flags, **limit})
    arrays = [mx.nd.array(network.arguments[name], dtype=network.arguments[name].dtype)
              for name in inputs]
    return trial.finding(lambda **options: memonger.gluon.plan(block, *arrays, **options),
                         lambda: train_block(network, block, inputs))


def try_modes(seed: int) -> Optional[str]:
    """A block that asks for the mode; its first call is in training."""
    from . import modes
    warnings.simplefilter("ignore")  # parameters and inputs that only the other mode reads
    flags, limit = _flags(seed)
    inputs = modes.make_inputs(seed)
    trial = Trial(seed, lambda: modes.train(
        modes.make_block(seed, {**flags, "inline_limit": 0}), inputs))
    block = modes.make_block(seed, {**flags, **limit})
    if trial.random.random() < 0.5:
        block(*inputs)

    def plan(**options: Any) -> Any:
        made = memonger.gluon.plan(block, *inputs, **options)
        if made.schedule.recomputed():
            memonger.gluon.verify(block, *inputs).check()
        return made
    return trial.finding(plan, lambda: modes.train(block, inputs))


def _stock_symbol(seed: int) -> Optional[str]:
    network = build(seed)
    with native.switched(False, False):
        train_symbol(network, network.symbol)
    return None


def _stock_block(seed: int) -> Optional[str]:
    network = build(seed)
    with native.switched(False, False):
        train_block(network, *make_block(network, {"inline_limit": 0}))
    return None


def _stock_modes(seed: int) -> Optional[str]:
    from . import modes
    with native.switched(False, False):
        modes.train(modes.make_block(seed, {"inline_limit": 0}), modes.make_inputs(seed))
    return None


#: "stock ...": without a plan, to see whether MXNet alone ends the process.
TRIALS: Dict[str, Callable[[int], Optional[str]]] = {
    "symbols": try_symbol, "blocks": try_block, "modes": try_modes,
    "stock symbols": _stock_symbol, "stock blocks": _stock_block, "stock modes": _stock_modes}


def main(kind: str, first: str, last: str) -> None:
    for seed in range(int(first), int(last)):
        print(json.dumps({"seed": seed}), flush=True)
        try:
            finding = TRIALS[kind](seed)
        except MemongerError as error:
            finding = "%s: %s" % (type(error).__name__, error)
        except (mx.MXNetError, MemoryError, ValueError) as error:
            if "memonger" not in str(error):  # stock MXNet cannot train it
                continue
            finding = str(error)
        if finding:
            print(json.dumps({"seed": seed, "finding": finding}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
