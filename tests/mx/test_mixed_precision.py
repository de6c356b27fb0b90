"""Networks of mixed precision keep their casts: MXNet writes symbols without them by default."""
from __future__ import annotations

import json

import mxnet as mx
import pytest
from mxnet.contrib import amp

import memonger
from memonger.cli import main
from memonger.mx.calls.plan import apply_plan
from memonger.mx.symbol.common_subexpressions import to_json
from memonger.util.errors import PlanMismatch

SHAPES = {"data": (8, 6)}


def by_hand():
    """float16 between casts, and a sum of two precisions."""
    x = mx.sym.var("data")
    for index in range(4):
        half = mx.sym.tanh(mx.sym.amp_cast(x, dtype="float16", name="down%d" % index),
                           name="tanh%d" % index)
        both = mx.sym.amp_multicast(half, x, num_outputs=2, name="wide%d" % index)
        x = mx.sym.elemwise_mul(both[0], mx.sym.sigmoid(both[1], name="sigmoid%d" % index),
                                name="mul%d" % index)
    return mx.sym.MakeLoss(x, name="loss")


def converted():
    x = mx.sym.var("data")
    for index in range(3):
        x = mx.sym.FullyConnected(x, num_hidden=6, name="fc%d" % index)
        x = mx.sym.Activation(x, act_type="tanh", name="act%d" % index)
    # float16 where this CPU has it: in the activations.
    return amp.convert_symbol(mx.sym.MakeLoss(x, name="loss"), target_dtype="float16",
                              target_dtype_ops=["Activation"], fp32_ops=["FullyConnected"],
                              conditional_fp32_ops=[], data_names=["data"])


NETWORKS = {"by hand": by_hand, "converted": converted}


def casts(symbol):
    return [node["op"] for node in json.loads(to_json(symbol))["nodes"]
            if node["op"].startswith("amp_")]


@pytest.mark.parametrize("network", list(NETWORKS))
@pytest.mark.parametrize("options", [{}, {"variants": "all"}, {"method": "sublinear"}])
def test_plans_keep_all_casts(network, options, tmp_path):
    net = NETWORKS[network]()
    assert casts(net)
    plan = memonger.plan(net, shapes=SHAPES, time_limit=0.3, **options)
    assert casts(plan.symbol) == casts(net)
    assert plan.pool_bytes <= plan.baseline_pool_bytes
    assert to_json(memonger.strip(plan.symbol)) == to_json(net) == plan.record.original_json
    assert memonger.verify(plan).identical
    assert memonger.verify(plan.symbol, net, shapes=SHAPES).identical
    plan.save(str(tmp_path / "plan.json"))
    loaded = memonger.load_plan(str(tmp_path / "plan.json"))
    assert casts(loaded.symbol) == casts(apply_plan(loaded, net)) == casts(net)


@pytest.mark.parametrize("network", list(NETWORKS))
def test_lost_casts_are_seen(network):
    net = NETWORKS[network]()
    without = mx.sym.load_json(net.tojson())
    assert casts(without) != casts(net)
    assert not memonger.verify(without, net, shapes=SHAPES).ok
    plan = memonger.plan(net, shapes=SHAPES, time_limit=0.3)
    with pytest.raises(PlanMismatch):
        apply_plan(plan, without)


@pytest.mark.parametrize("network", list(NETWORKS))
def test_compatible_calls_keep_all_casts(network):
    net = NETWORKS[network]()
    assert casts(memonger.search_plan(net, **SHAPES)) == casts(net)
    assert casts(memonger.make_mirror_plan(net, 0.001, **SHAPES)) == casts(net)


def test_commands_keep_all_casts(tmp_path):
    net, source = by_hand(), str(tmp_path / "net-symbol.json")
    net.save(source, remove_amp_cast=False)
    plan, planned, plain = (str(tmp_path / name) for name in ("plan.json", "p.json", "s.json"))
    assert main(["plan", source, "--shape", "data=8,6", "--time-limit", "0.3", "-o", plan]) == 0
    assert main(["apply", plan, "-o", planned]) == 0
    assert main(["apply", "--strip", planned, "-o", plain]) == 0
    for path in (planned, plain):
        assert casts(mx.sym.load(path)) == casts(net)
