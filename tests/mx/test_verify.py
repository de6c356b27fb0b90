"""memonger.verify: what it lets pass, and what not."""
from __future__ import annotations

import os

import mxnet as mx
import numpy as np
import pytest

from memonger.mx.check.control import operator_threads, results_with
from memonger.mx.check.training_run import Training
from memonger.mx.check.verify import TOLERANCE, verify
from memonger.util.errors import InputError, VerificationError
from mx.ordinary_nets import FAULTS, mask_one_off, ordinary_net

SHAPES = {"data": (4, 6)}


def chaotic(start):
    """The logistic map, which doubles a small difference in each of its turns."""
    value = mx.sym.sigmoid(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, name="fc"))
    value = start(value)
    for _ in range(14):
        value = 4.0 * value * (1.0 - value)
    return mx.sym.MakeLoss(value, name="loss")


def rounded_otherwise(value):
    return (value * 0.7) / 0.7


def wrong_gradient(value):
    """The right value with a hundredth of the gradient missing."""
    return 0.99 * value + 0.01 * mx.sym.BlockGrad(value)


def test_rounding_passes_that_a_network_enlarges():
    found = verify(chaotic(rounded_otherwise), chaotic(lambda value: value), SHAPES,
                   learning_rate=1e-7)
    assert max(d.max_rel for d in found.differences) > 100 * TOLERANCE
    assert found.ok and not found.identical and found.check() is found
    assert found.judge
    assert 0 < max(d.max_rel for d in found.in_double) < TOLERANCE
    assert str(found).startswith("Same network: the differences are rounding, amplified")


def test_a_small_error_does_not_pass_as_rounding():
    found = verify(chaotic(wrong_gradient), chaotic(lambda value: value), SHAPES)
    assert not found.ok
    assert str(found).startswith("NOT the same network, do not train with this plan")
    assert max(d.max_rel for d in found.in_double) > 0.005
    with pytest.raises(VerificationError, match="more than rounding explains"):
        found.check()


def test_a_large_error_is_seen_where_float64_cannot_be_had():
    def narrow(value):
        """Half of it: no network in float64, whose types contradict each other."""
        return mx.sym.Custom(value, op_type="half_of_float32") + 0.5 * value

    class Half(mx.operator.CustomOp):
        factor = 0.5

        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 0.5)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * Half.factor)

    @mx.operator.register("half_of_float32")
    class HalfProp(mx.operator.CustomOpProp):
        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]], []

        def infer_type(self, in_type):
            if in_type[0] is not np.float32:
                raise TypeError("only float32")
            return in_type, in_type, []

        def create_operator(self, ctx, shapes, types):
            return Half()

    original = chaotic(lambda value: value)
    found = verify(chaotic(narrow), original, SHAPES)
    assert found.ok and not found.in_double
    Half.factor = -500.0
    found = verify(chaotic(narrow), original, SHAPES)
    assert not found.ok and not found.in_double


def normalised(before, other=lambda value: value):
    """A bias before BatchNorm: its gradient is zero, but for what rounding leaves of the sum."""
    value = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, name="fc")
    value = mx.sym.BatchNorm(before(value), fix_gamma=False, name="bn")
    return mx.sym.MakeLoss(mx.sym.square(other(value)), name="loss")


def test_what_holds_nothing_but_rounding_is_judged_by_itself():
    original = normalised(lambda value: value)
    found = verify(normalised(rounded_otherwise), original, SHAPES)
    bias = next(d for d in found.differences if d.tensor == "gradient fc_bias")
    assert bias.max_rel > 0.1 and found.ok


def test_an_error_beside_what_holds_nothing_but_rounding_is_seen():
    planned = normalised(rounded_otherwise, wrong_gradient)
    found = verify(planned, normalised(lambda value: value), SHAPES)
    assert not found.ok
    assert found.wrong.tensor != "gradient fc_bias" and found.wrong.max_rel > 0.005


def test_what_is_within_the_tolerance_is_not_asked_twice():
    data = mx.sym.var("data")
    found = verify(mx.sym.MakeLoss(rounded_otherwise(data), name="loss"),
                   mx.sym.MakeLoss(data, name="loss"), SHAPES)
    assert found.ok and not found.judge and not found.in_double
    assert "the differences are within" in str(found)


def test_whole_numbers_are_not_moved():
    words = mx.sym.Embedding(mx.sym.var("data"), input_dim=2, output_dim=3, name="words")
    gentle = mx.sym.LeakyReLU(words * 1e3, act_type="elu")
    found = verify(mx.sym.MakeLoss(gentle * 1.1, name="loss"),
                   mx.sym.MakeLoss(gentle, name="loss"), SHAPES)
    assert not found.ok
    assert max(d.allowed for d in found.differences) < 1.0  # another row would be thousands
    assert found.in_double and max(d.max_rel for d in found.in_double) > 0.05


@pytest.mark.parametrize("fault", [*FAULTS, "a mask one off"])
def test_planted_faults_are_found(fault):
    if fault == "a mask one off":
        original, planned = (ordinary_net(3, relu=relu)[0] for relu in (mx.sym.relu, mask_one_off))
    else:
        original, planned = (ordinary_net(3, layer)[0] for layer in FAULTS[fault])
    shapes = ordinary_net(3)[1]
    found = verify(planned, original, shapes)
    assert not found.ok
    assert (fault == "a lost amp_cast") == bool(found.lost_casts)
    assert verify(original, original, shapes).identical
    with pytest.raises(VerificationError, match="Do not train with this plan"):
        found.check()


def test_a_relu_at_its_kink_is_no_fault():
    """Values that are nearly zero are below it when they are rounded otherwise."""
    def network(start):
        above = start(mx.sym.var("data")) - mx.sym.var("offset") + 1e-9
        return mx.sym.MakeLoss(mx.sym.relu(above, name="open"), name="loss")

    data = np.arange(1, 121, dtype="float32").reshape(20, 6) / 7
    offset = np.concatenate([data[:10], data[10:] - 1])
    found = verify(network(rounded_otherwise), network(lambda value: value),
                   {"data": (20, 6), "offset": (20, 6)}, values={"data": data, "offset": offset})
    gradient = next(d for d in found.differences if d.tensor == "gradient data")
    assert gradient.max_rel == 1.0 and found.ok
    assert found.judge == "float64"


@pytest.mark.parametrize("first, last, seeds", [
    (0, 2, 2), pytest.param(30, 31, 1, id="a planned ReLU flips"),
    pytest.param(0, 200, 8, marks=pytest.mark.slow)])
def test_no_false_alarm_in_the_default_environment(first, last, seeds, forked_as_users):
    """With MKLDNN; every planted fault is found there, too."""
    child = forked_as_users.run("from mx import verify_ordinary; verify_ordinary.main(%d, %d, %d)"
                                % (first, last, seeds))
    assert child.returncode == 0, child.stdout
    assert "%d networks, %d seeds each: 0 false alarms" % (last - first, seeds) in child.stdout


def test_the_control_trains_the_same_network_with_another_number_of_threads():
    value = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=8, name="conv")
    value = mx.sym.Dropout(mx.sym.BatchNorm(value, name="bn"), p=0.5)
    network = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(value, num_hidden=4, name="fc"),
                                   name="softmax")
    found = verify(network, network, {"data": (4, 3, 12, 12)}, grad_req="add", control=True)
    assert found.identical and len(set(found.control_threads)) == 2
    assert [(d.step, d.tensor) for d in found.control] == [
        (d.step, d.tensor) for d in found.differences]
    assert all(d.max_rel < 1e-3 for d in found.control), "dropout draws the same numbers"
    assert not verify(network, network, {"data": (4, 3, 12, 12)}).control


def test_the_control_is_for_cpus():
    class Gpu:
        device_type = "gpu"
    with pytest.raises(InputError, match="the number of a CPU's threads"):
        results_with(None, Training({}, 1, Gpu(), "write", 0, 0.1), {}, None)


@pytest.mark.parametrize("variables, expected", [
    ({}, 4), ({"OMP_NUM_THREADS": "3"}, 3), ({"MXNET_OMP_MAX_THREADS": "6"}, 6),
    ({"MXNET_OMP_MAX_THREADS": "60"}, 8)])
def test_threads_of_an_operator(monkeypatch, variables, expected):
    for name in ("OMP_NUM_THREADS", "MXNET_OMP_MAX_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8))
    assert operator_threads() == expected
