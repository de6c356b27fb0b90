"""Every differentiable op that MXNet registers runs again without a difference."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked import paths, python

HERE = Path(__file__).parent
ENVIRONMENT = {"MXNET_MKLDNN_ENABLED": "0", "MXNET_USE_MKLDNN_RNN": "0",
               "MXNET_SUBGRAPH_BACKEND": "NONE", "MXNET_ENGINE_TYPE": "NaiveEngine"}


def outcomes(chosen):
    """What comes of each op; an op that ends the process is said to crash."""
    found, left = {}, list(chosen)
    environment = dict(os.environ, **ENVIRONMENT, PYTHONPATH=paths(os.environ))
    while left:
        started = left[0]
        with subprocess.Popen([sys.executable, str(HERE / "every_op.py"), *left], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True) as child:
            for line in child.stdout:
                said = json.loads(line) if line.startswith("{") else {}
                started = said.get("start", started)
                if "op" in said:
                    found[said["op"]] = (said["outcome"], said["why"])
        if child.returncode == 0:
            break
        found[started] = ("crash", "status %d" % child.returncode)
        left = left[left.index(started) + 1:]
    return found


#: Ops that the script cannot run, by pattern, and why: they have no gradient or one of zeros, or
#: rules keep them that are derived from what they are registered with.
UNCOVERED = {
    r".*(update|all_finite|sum_sq|reset_arrays)(_.*)?": "changes its inputs; no gradient",
    r"_?(npi_|random_|sample_|np_)?(normal|uniform|gamma|exponential|poisson|randint|bernoulli|"
    r"choice|gumbel|logistic|rayleigh|multinomial|(generalized_)?negative_binomial|"
    r"random_randint|unique_zipfian)(_n)?": "draws random numbers",
    r"_?(npi_)?(arange|eye|full|linspace|logspace|identity|indices|ones|zeros|zeros_without_dtype|"
    r"blackman|hamming|hanning|set_value|cvimread|copyto)": "has no inputs, or is no op of graphs",
    r"_image_.*|_cvimread": "images of whole numbers; no gradient",
    r"_contrib_(quantize.*|dequantize|requantize)|_sg_mkldnn_.*": "inference in whole numbers",
    r"_(foreach|while_loop|cond)|_CachedOp.*|_CustomFunction|_NDArray|_Native|(_npi_)?Custom":
        "needs a graph or Python code; see test_state_of_arrays.py",
    r"_NoGradient|_CrossDeviceCopy": "made by MXNet only",
    r"_npi_(not_)?(equal|greater|less)(_equal)?(_scalar)?|_npi_(isfinite|isinf|isnan|isneginf|"
    r"isposinf|logical_not)|_npi_(bitwise|lcm).*|_np_(all|any)|_npi_arg(max|min)|shape_array|"
    r"size_array|_contrib_index_array|_npi_diag_indices_from|_npi_bincount|_npx_constraint_check|"
    r"_(un)?ravel_(multi_)?index|_npi_unique|_npx_nonzero": "whole numbers; no gradient",
    r"_contrib_(MultiBox.*|.*Proposal|box_.*|dgl_.*)": "looks for boxes or neighbours; no gradient",
    r"_contrib_boolean_mask|_npi_boolean_mask_assign_scalar":
        "its shape is known when it runs; see test_state_of_arrays.py",
    r"_npi_pinv": "a gradient of zeros",
}
#: The first of several kinds, for every run of the tests.
SOME = ("BatchNorm", "BilinearSampler", "Convolution", "Embedding", "GridGenerator", "GroupNorm",
        "InstanceNorm", "L2Normalization", "LayerNorm", "RNN", "SliceChannel", "SoftmaxOutput",
        "SpatialTransformer", "_linalg_gelqf", "_linalg_slogdet", "_linalg_syevd",
        "_npi_einsum", "amp_cast", "amp_multicast", "gather_nd", "moments",
        "scatter_nd", "sort", "tanh", "topk", "where")


def test_some_ops():
    found = outcomes(SOME)
    kinds = {name: kind for name, (kind, _) in found.items()}
    assert set(kinds) == set(SOME)
    assert {name for name in SOME if kinds[name] == "kept"} == {"RNN", "gather_nd", "scatter_nd"}
    assert {name for name in SOME if kinds[name] == "not read"} <= {"topk"}
    assert set(kinds.values()) == {"again", "kept", "not read"}, found


@pytest.mark.slow
def test_every_op():
    listed = python("-c", "import every_op; print(*every_op.names())", folder=str(HERE))
    found = outcomes(listed.stdout.split())
    assert not {name: said for name, said in found.items() if said[0] in ("wrong", "failed")}
    left = {name: said for name, said in found.items() if said[0] in ("uncovered", "crash")}
    assert not {name: said for name, said in left.items()
                if not any(re.fullmatch(pattern, name) for pattern in UNCOVERED)}
    assert sum(kind == "again" for kind, _ in found.values()) >= 290
