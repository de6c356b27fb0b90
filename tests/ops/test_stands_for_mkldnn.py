"""With MKLDNN on: where our code is another than without it, results are as close to the truth."""
from __future__ import annotations

import pytest
from needed import needs_plugin

from ops.runner import Case, call, error_against, run, same_bits

pytestmark = needs_plugin


@pytest.mark.parametrize("grad_req", ["write", "add", "null"])
@pytest.mark.parametrize("attributes", [{"fix_gamma": False}, {"fix_gamma": True},
                                        {"fix_gamma": False, "use_global_stats": True},
                                        {"fix_gamma": False, "axis": 3}], ids=str)
def test_batch_norm_relu(attributes, grad_req):
    relu = ("Activation", {"act_type": "relu"})
    ours = [("memonger_batch_norm_relu", dict(attributes, stands_for="Activation"))]
    case = {"shape": (8, 6, 6, 5), "steps": 2, "grad_req": grad_req}
    exact = call(run, Case([("BatchNorm", attributes), relu], dtype="float64", **case))
    theirs = call(run, Case([("BatchNorm", attributes), relu], **case), mkldnn=True)
    found = call(run, Case(ours, **case), mkldnn=True)
    assert max(error_against(found, exact).values()) <= \
        max(2e-6, 2 * max(error_against(theirs, exact).values()))


def test_max_pool_is_mxnets_where_no_gradient_follows():
    pool = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}
    first = ("Convolution", {"kernel": (3, 3), "num_filter": 16, "no_bias": True})
    for shape in ((2, 16, 20, 20), (1, 3, 9, 9)):
        stock, ours = (call(run, Case([first, last], shape=shape, steps=2), mkldnn=True)
                       for last in (("Pooling", dict(pool, pool_type="max")),
                                    ("memonger_max_pool", pool)))
        assert same_bits({"inference": stock["inference"], "output": stock["output"]},
                         {"inference": ours["inference"], "output": ours["output"]}) is None
        assert max(error_against(ours, stock).values()) < 1e-5
