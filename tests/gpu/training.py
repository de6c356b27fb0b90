"""Training on a pretended GPU in a process of its own: what was predicted, what was taken.

``python training.py plan|train REQUEST``: the request is JSON, and so is the answer, the last line.
"""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

GRANULE = 512  # of cudaMalloc


def network(request: Dict[str, Any]) -> Tuple[Any, Dict[str, Tuple[int, ...]]]:
    """A network of the zoo, and its shapes."""
    from memonger.zoo import nets
    net = nets.build(request["name"], request["batch"], **request.get("options", {}))
    return net.symbol, dict(net.shapes)


def parameters(request: Dict[str, Any]) -> Dict[str, float]:
    """Those of the optimizer; momentum's arrays are made while the first step runs."""
    return {"learning_rate": 0.1, "momentum": request.get("momentum", 0.0)}


def predict(request: Dict[str, Any]) -> Dict[str, Any]:
    """The bytes that memonger predicts; with a budget or the largest batch, the plan's file."""
    import mxnet as mx

    import memonger
    symbol, shapes = network(request)
    # As Module binds: no gradients of data and labels.
    common = {"ctx": mx.gpu(0), "optimizer": "sgd", "optimizer_params": parameters(request),
              "grad_req": {name: "null" if name in shapes else "write"
                           for name in symbol.list_arguments()}}
    if "largest" in request:
        found = memonger.max_batch(symbol, request["largest"], time_limit=1, **common, **shapes)
        return {"unplanned": found.unplanned, "planned": found.planned}
    if "budget" not in request:
        return {"total": memonger.estimate(symbol, **common, **shapes).total_bytes}
    plan = memonger.plan(symbol, request["budget"], time_limit=request.get("seconds", 2),
                         variants=request.get("variants", "exact"), **common, **shapes)
    plan.save(request["file"])
    loaded = memonger.load_plan(request["file"])
    return {"total": plan.total_bytes, "tuning": plan.fixed_bytes["autotuning"],
            "budget": plan.budget_bytes, "loaded": loaded.total_bytes,
            "baseline": plan.baseline_total_bytes}


def train(request: Dict[str, Any]) -> Dict[str, Any]:
    """Two steps of ``Module``, and the most bytes that were taken."""
    import mxnet as mx

    import memonger
    from memonger import native
    symbol, shapes = network(request)
    if "file" in request:
        symbol = memonger.load_plan(request["file"]).symbol
    else:
        native.disable()
    data = [item for item in shapes.items() if "label" not in item[0]]
    labels = [item for item in shapes.items() if "label" in item[0]]
    module = mx.mod.Module(symbol, [n for n, _ in data], [n for n, _ in labels],
                           context=mx.gpu(0))
    module.bind(data, labels)
    module.init_params(mx.init.Zero())
    module.init_optimizer(optimizer="sgd", optimizer_params=parameters(request))
    batch = mx.io.DataBatch([mx.nd.zeros(s) for _, s in data], [mx.nd.zeros(s) for _, s in labels])
    for _ in range(2):
        module.forward_backward(batch)
        module.update()
        mx.nd.waitall()
    return {"peak": peak()}


def peak() -> int:
    """The most bytes that were allocated at once."""
    now = most = 0
    for line in allocations():
        now += (1 if line[0] == "+" else -1) * -(-int(line[2:]) // GRANULE) * GRANULE
        most = max(most, now)
    return most


def allocations() -> List[str]:
    """The lines of the log of the pretended runtime."""
    return Path(os.environ["PRETEND_ALLOCATIONS"]).read_text().splitlines()


if __name__ == "__main__":
    print(json.dumps({"plan": predict, "train": train}[sys.argv[1]](json.loads(sys.argv[2]))))
