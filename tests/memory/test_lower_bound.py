"""The storage plan of whole buffers reaches the bound that no assignment of them can beat."""
from __future__ import annotations

import pytest

import memonger
from memonger import native
from memonger.graph.schedule import expand
from memonger.memory.storage import plan_storage
from memonger.mx.capture.record import read
from memonger.mx.rewrite.apply import from_json
from memonger.mx.symbol.planned_symbol import apply_recompute
from memonger.zoo import nets

pytestmark = pytest.mark.slow

#: Kept by "all but the heavy ones": what only convolutions and dense layers make.
HEAVY = frozenset({"Convolution", "FullyConnected"})
CHEAP = frozenset({"BatchNorm", "Activation", "relu", "clip", "elemwise_add", "Flatten", "Concat"})
UNPLANNED = ("dmlc_resnet50", "resnet50", "resnet50_v2", "vgg16_bn", "densenet121", "inception_v3",
             "mobilenet")
SCHEDULED = ("dmlc_resnet50", "resnet50", "resnet50_v2")


def decisions(graph, rule: str):
    return {index: {} for index, op in enumerate(graph.ops) if op.recomputable
            and (op.kind in CHEAP if rule == "cheap" else op.kind not in HEAVY)}


@pytest.mark.parametrize("name, rule", [(name, "unplanned") for name in UNPLANNED] + [
    (name, rule) for name in SCHEDULED for rule in ("cheap", "all but heavy", "square root")])
def test_whole_buffers_reach_their_lower_bound(name: str, rule: str) -> None:
    net = nets.build(name, 32)
    with native.switched(True, True):
        graph = read(net.symbol, net.shapes).graph
        if rule == "square root":
            plan = memonger.plan(net.symbol, method="sublinear", shapes=net.shapes)
            schedule, planned = plan.schedule, plan.symbol
        else:
            recompute = {} if rule == "unplanned" else decisions(graph, rule)
            schedule = expand(graph, recompute)
            planned = from_json(apply_recompute(net.symbol.tojson(), graph, recompute))
        best = plan_storage(graph, schedule, "best")
        assert best.peak_live_bytes <= best.lower_bound_bytes
        assert best.pool_bytes == best.lower_bound_bytes
        assert best.pool_bytes <= plan_storage(graph, schedule, "stock").pool_bytes
        assert read(planned, net.shapes).pool_bytes == best.pool_bytes
