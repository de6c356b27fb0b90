"""Training on a pretended GPU in a process of its own: what was predicted, what was taken.

A request names a network of the zoo and how it trains: "name", "batch", "options" of the network,
"gluon" for a block instead of ``Module``, "momentum", "budget" for a plan, "variants", "file" for
the plan.
"""
from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

GRANULE = 512  # of cudaMalloc


def alone(function: Callable[..., Any], request: Dict[str, Any],
          variables: Mapping[str, str]) -> Optional[Dict[str, Any]]:
    """``function(request)`` in a child of this process; None where the GPU's memory ran out.

    The child has the variables in its environment, and a GPU of its own.
    """
    import mxnet  # noqa: F401  # once for all children

    import memonger  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        answer, errors = Path(folder) / "answer", Path(folder) / "errors"
        child = os.fork()
        if not child:
            os.environ.update(variables, PRETEND_ALLOCATIONS=folder + "/allocations")
            with open(errors, "w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                try:
                    answer.write_text(json.dumps(function(request)))
                except BaseException as error:
                    print("%s: %s" % (type(error).__name__, error), flush=True)
                os._exit(0)
        os.waitpid(child, 0)
        if answer.exists():
            return json.loads(answer.read_text())
        if "out of memory" in errors.read_text():
            return None
        raise AssertionError(errors.read_text()[-3000:])


def network(request: Dict[str, Any]) -> Tuple[Any, Dict[str, Tuple[int, ...]]]:
    """A network of the zoo, and its shapes."""
    from memonger.zoo import nets
    net = nets.build(request["name"], request["batch"], **request.get("options", {}))
    return net.symbol, dict(net.shapes)


def parameters(request: Dict[str, Any]) -> Dict[str, float]:
    """Those of the optimizer; momentum's arrays are made while the first step runs."""
    return {"learning_rate": 0.1, "momentum": request.get("momentum", 0.0)}


def block(symbol: Any, shapes: Dict[str, Tuple[int, ...]], flags: Mapping[str, Any]) -> Any:
    """A hybridized block of the network, its parameters on the GPU."""
    import mxnet as mx
    result = mx.gluon.SymbolBlock(symbol, [mx.sym.Variable(name) for name in shapes])
    result.initialize(mx.init.Zero(), ctx=mx.gpu(0))
    result.hybridize(**flags)
    return result


def plan(request: Dict[str, Any], symbol: Any, shapes: Dict[str, Tuple[int, ...]]) -> Any:
    """The plan that the request asks for."""
    import mxnet as mx

    import memonger
    options = {"budget": request.get("budget"), "variants": request.get("variants", "exact"),
               "time_limit": request.get("seconds", 0.5), "optimizer": "sgd",
               "optimizer_params": parameters(request)}
    if request.get("gluon"):
        trained = block(symbol, shapes, request.get("flags", {}))
        return memonger.gluon.plan(trained, *shapes.values(), ctx=mx.gpu(0), **options)
    # As Module binds: no gradients of data and labels.
    requests = {name: "null" if name in shapes else "write" for name in symbol.list_arguments()}
    return memonger.plan(symbol, ctx=mx.gpu(0), grad_req=requests, **options, **shapes)


def predict(request: Dict[str, Any]) -> Dict[str, Any]:
    """The bytes that memonger predicts; the plan goes into the request's file."""
    import mxnet as mx

    import memonger
    if "largest" in request:
        symbol, shapes = network(request)
        requests = {name: "null" if name in shapes else "write"
                    for name in symbol.list_arguments()}
        found = memonger.max_batch(symbol, request["largest"], time_limit=0.2, ctx=mx.gpu(0),
                                   grad_req=requests, optimizer="sgd",
                                   optimizer_params=parameters(request), **shapes)
        found.plan.save(request["file"])
        return {"unplanned": found.unplanned, "planned": found.planned,
                "total": found.plan.total_bytes}
    made = plan(request, *network(request))
    made.save(request["file"])
    return {"total": made.total_bytes, "tuning": made.fixed_bytes["autotuning"],
            "budget": made.budget_bytes,
            "loaded": memonger.load_plan(request["file"]).total_bytes,
            "baseline": made.baseline_total_bytes}


def train(request: Dict[str, Any]) -> Dict[str, Any]:
    """Two steps, and the most bytes that were taken; with a file the plan in it."""
    import mxnet as mx

    import memonger
    from memonger import native
    symbol, shapes = network(request)
    if "file" in request:
        symbol = memonger.load_plan(request["file"]).symbol
    else:
        native.disable()
    options = parameters(request)
    step = gluon_step(symbol, shapes, options, request.get("flags", {})) if request.get("gluon") \
        else module_step(symbol, shapes, options)
    for _ in range(request.get("steps", 4 if request.get("gluon") else 2)):
        step()
        mx.nd.waitall()
    return {"peak": peak()}


def module_step(symbol: Any, shapes: Dict[str, Tuple[int, ...]],
                options: Dict[str, float]) -> Callable[[], None]:
    """One step of ``Module``."""
    import mxnet as mx
    data = [item for item in shapes.items() if "label" not in item[0]]
    labels = [item for item in shapes.items() if "label" in item[0]]
    module = mx.mod.Module(symbol, [n for n, _ in data], [n for n, _ in labels],
                           context=mx.gpu(0))
    module.bind(data, labels)
    module.init_params(mx.init.Zero())
    module.init_optimizer(optimizer="sgd", optimizer_params=options)
    batch = mx.io.DataBatch([mx.nd.zeros(s) for _, s in data], [mx.nd.zeros(s) for _, s in labels])

    def step() -> None:
        module.forward_backward(batch)
        module.update()
    return step


def gluon_step(symbol: Any, shapes: Dict[str, Tuple[int, ...]], options: Dict[str, float],
               flags: Mapping[str, Any]) -> Callable[[], None]:
    """One step of a hybridized block."""
    import mxnet as mx
    trained = block(symbol, shapes, flags)
    trainer = mx.gluon.Trainer(trained.collect_params(), "sgd", options)
    inputs = [mx.nd.zeros(shape, ctx=mx.gpu(0)) for shape in shapes.values()]
    trained.infer_shape(*inputs)
    for parameter in trained.collect_params().values():  # else while the first step runs
        parameter._finish_deferred_init()
    mx.nd.waitall()

    def step() -> None:
        with mx.autograd.record():
            outputs = trained(*inputs)
        mx.autograd.backward(outputs)
        trainer.step(1, ignore_stale_grad=True)
    return step


def peak() -> int:
    """The most bytes that were allocated at once."""
    now = most = 0
    for line in Path(os.environ["PRETEND_ALLOCATIONS"]).read_text().splitlines():
        now += (1 if line[0] == "+" else -1) * -(-int(line[2:]) // GRANULE) * GRANULE
        most = max(most, now)
    return most
