"""Planned networks on a GPU: what runs in the processes of ``conftest.Place``."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from memonger.util.environment import variable

#: Large enough that variants spare more than dropout's random states take.
SHAPES = {"data": (64, 3, 32, 32), "softmax_label": (64,)}


def activations() -> Any:
    """The ops that :func:`network` lacks, each behind a convolution."""
    import mxnet as mx
    layers = (lambda x: mx.sym.clip(x, 0, 6, name="clip"),
              lambda x: mx.sym.LayerNorm(x, name="layer"),
              lambda x: mx.sym.LeakyReLU(x, slope=0.1, name="leaky"),
              lambda x: mx.sym.LeakyReLU(x, act_type="gelu", name="gelu"),
              lambda x: mx.sym.LeakyReLU(mx.sym.BatchNorm(x, fix_gamma=False, name="norm"),
                                         slope=0.1, name="behind"))
    x = mx.sym.Variable("data")
    for place, layer in enumerate(layers):
        x = layer(mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, no_bias=True,
                                     name="conv%d" % place))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="dense"),
                                name="softmax")


def network(blocks: int = 3, width: int = 16) -> Any:
    """Pre-activation blocks, max pooling, dropout, a dense layer: something for each variant."""
    import mxnet as mx
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=width,
                           no_bias=True, name="stem")
    for block in range(blocks):
        y = mx.sym.BatchNorm(x, fix_gamma=False, eps=2e-5, momentum=0.875, name="norm%d" % block)
        y = mx.sym.Activation(y, act_type="relu", name="relu%d" % block)
        y = mx.sym.Convolution(y, kernel=(3, 3), pad=(1, 1), num_filter=width, no_bias=True,
                               name="conv%d" % block)
        x = x + y
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    x = mx.sym.Activation(x, act_type="relu", name="last")
    x = mx.sym.Dropout(mx.sym.Flatten(x), p=0.5, name="drop")
    x = mx.sym.FullyConnected(x, num_hidden=10, name="dense")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def train(budget: Optional[str], variants: str, arena: bool = True,
          recompute: List[str] = (), make: Callable[[], Any] = network) -> Dict[str, Any]:
    """Plan, bind and train for one step on the GPU, and tell what happened."""
    import mxnet as mx

    import memonger
    from memonger import native
    from memonger.mx.capture.record import read
    from memonger.mx.check.training_run import TrainingRun
    context = mx.gpu(0)
    native.load()
    with native.switched(recompute=True, storage=True, arena=arena):
        plan = memonger.plan(make(), budget, variants=variants, ctx=context, time_limit=2,
                             recompute=recompute, **SHAPES)
        captured = read(plan.symbol, SHAPES, ctx=context)
        mx.nd.waitall()
        logs = {name: Path(os.environ[name]) for name in
                ("PRETEND_ALLOCATIONS", "PRETEND_LAUNCHES", "PRETEND_NORMS")}
        TrainingRun(plan.symbol, SHAPES, context).step()  # libraries take workspaces once
        for log in logs.values():
            log.write_text("")
        run = TrainingRun(plan.symbol, SHAPES, context)
        bound = len(logs["PRETEND_ALLOCATIONS"].read_text().splitlines())
        run.step()
        allocations = [(line[0], int(line[2:])) for line in
                       logs["PRETEND_ALLOCATIONS"].read_text().splitlines()]
        result = {
            "pool_bytes": plan.pool_bytes,
            "ops": [(op.kind, op.name) for op in captured.graph.ops],
            "bind": allocations[:bound], "step": allocations[bound:],
            "launches": [line.split() for line in
                         logs["PRETEND_LAUNCHES"].read_text().splitlines()],
            "norms": logs["PRETEND_NORMS"].read_text().split()}
        del run
    return result


def two_devices() -> Dict[str, Any]:
    """One step of a planned symbol in a ``Module`` on two GPUs."""
    import mxnet as mx

    import memonger
    contexts = [mx.gpu(0), mx.gpu(1)]
    free = [mx.context.gpu_memory_info(context.device_id)[0] for context in contexts]
    net = network()
    requests = {name: "null" if name in SHAPES else "write" for name in net.list_arguments()}
    plan = memonger.plan(net, ctx=contexts[0], grad_req=requests, time_limit=2, **SHAPES)
    batch = {name: (2 * shape[0], *shape[1:]) for name, shape in SHAPES.items()}
    module = mx.mod.Module(plan.symbol, label_names=["softmax_label"], context=contexts)
    module.bind([("data", batch["data"])], [("softmax_label", batch["softmax_label"])])
    module.init_params(mx.init.Xavier())
    module.init_optimizer()  # gradients meet on the host
    module.forward_backward(mx.io.DataBatch([mx.nd.ones(batch["data"])],
                                            [mx.nd.zeros(batch["softmax_label"])]))
    module.update()
    mx.nd.waitall()
    launches = [line.split() for line in Path(os.environ["PRETEND_LAUNCHES"]).read_text()
                .splitlines()]
    return {"pool_bytes": plan.pool_bytes,
            "allocations": [(line[0], int(line[2:])) for line in
                            Path(os.environ["PRETEND_ALLOCATIONS"]).read_text().splitlines()],
            "taken": [before - mx.context.gpu_memory_info(context.device_id)[0]
                      for before, context in zip(free, contexts)],
            "launches": [[launch[0] for launch in launches if launch[4] == device]
                         for device in "01"]}


def clones(budget: Optional[str], variants: str) -> Dict[str, Any]:
    """The ops of a planned symbol that run again, and how many ops read each."""
    import mxnet as mx

    import memonger
    from memonger.mx.capture.record import read
    plan = memonger.plan(network(), budget, variants=variants, ctx=mx.gpu(0), time_limit=2,
                         **SHAPES)
    graph = read(plan.symbol, SHAPES, ctx=mx.gpu(0)).graph
    return {"planned": len(plan.schedule.recomputed()), "readers": {
        op.name: sum(len(graph.consumers[tensor]) for tensor in op.outputs)
        for op in graph.ops if "_recompute" in op.name}}


def fused_norms() -> Dict[str, Any]:
    """A symbol planned for a CPU with norms in its variants, trained for a step on the GPU."""
    import mxnet as mx

    import memonger
    from memonger import native
    from memonger.mx.check.training_run import TrainingRun
    native.load()
    plan = memonger.plan(network(), variants="exact", time_limit=2, **SHAPES)
    run = TrainingRun(plan.symbol, SHAPES, mx.gpu(0))
    mx.nd.waitall()
    log = Path(os.environ["PRETEND_NORMS"])
    log.write_text("")
    run.step()
    mx.nd.waitall()
    return {"variants": list(plan.decisions.values()), "norms": log.read_text().split()}


def fusion() -> Dict[str, Any]:
    """How point-wise fusion meets plans: unfused while planning and in planned executors."""
    import mxnet as mx

    import memonger
    from memonger import native
    native.load()
    x = mx.sym.Variable("data")
    for layer in range(4):
        y = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, no_bias=True,
                               name="conv%d" % layer)
        y = mx.sym.elemwise_mul(y, mx.sym.sigmoid(y, name="sigmoid%d" % layer),
                                name="product%d" % layer)
        x = mx.sym.tanh(mx.sym.relu(y + 1.0, name="relu%d" % layer), name="tanh%d" % layer)
    loss, shapes = mx.sym.sum(x), {"data": (4, 8, 16, 16)}

    def bound(symbol: Any) -> Dict[str, Any]:
        with native.capture() as records:
            executor = symbol.simple_bind(mx.gpu(0), **shapes)
            executor.reshape(data=(2, 8, 16, 16), allow_up_sizing=True)
        first, reshaped = records[0], records[-1]
        return {"pool_bytes": first["pool_bytes"],
                "fused": sum(node["op"] == "_FusedOp" for node in first["nodes"]),
                "fused again": sum(node["op"] == "_FusedOp" for node in reshaped["nodes"]),
                "names": [node["name"] for node in first["nodes"] if node["op"] != "null"]}

    plan = memonger.plan(loss, "60%", variants="none", ctx=mx.gpu(0), time_limit=1,
                         recompute=["product*"], **shapes)
    result = {"predicted": plan.pool_bytes, "stock": bound(loss), "planned": bound(plan.symbol)}
    os.environ["MXNET_USE_FUSION"] = "1"  # the user insists
    try:
        result["insisted"] = bound(plan.symbol)
    finally:
        del os.environ["MXNET_USE_FUSION"]
    return result


def default_activation() -> Dict[str, str]:
    """Binding LeakyReLU without ``act_type``: by MXNet alone, with memonger, fused by force."""
    import mxnet as mx

    from memonger import native
    from memonger.mx.capture.binding import bind_delayed, infer_arguments
    native.load()
    symbol = mx.sym.sum(mx.sym.LeakyReLU(mx.sym.Variable("data"), slope=0.1) + 1.0)
    arguments = infer_arguments(symbol, {"data": (2, 3)})

    def told() -> str:
        try:
            bind_delayed(symbol, arguments, mx.gpu(0))
        except Exception as error:
            return str(error)
        return "bound"

    result = {"memonger": told()}
    with native.switched(recompute=False, storage=False, arena=False):
        result["alone"] = told()
    with variable("MXNET_USE_FUSION", "1"):
        result["insisted"] = told()
    return result
