"""A step is read as Inductor makes kernels of it, so that its peaks are those of the compiled code.
"""
from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch.torch_version import TorchVersion
from torch_nets import Attention, Convolutions, images, sentences

import memonger.torch as mt
from memonger.torch.calls.tracing import traced
from memonger.torch.capture import fusion
from memonger.torch.capture.layouts import (
    arranged,
    gradients_are_arranged,
    is_arranged,
    reads_copies,
)
from memonger.torch.pytorch import private_ops
from memonger.torch.rewrite.in_depth import forms_in_depth
from memonger.torch.step.request import Request

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.torch.held_out import HELD_OUT, Siamese


def read(module, inputs):
    return traced(module, inputs, Request(unplanned=True)).captured


def named(captured, word):
    return [op for op in captured.graph.ops if word in op.kind]


def normalized(width=128, blocks=8):
    """A GELU reads each LayerNorm: in backward its gradient is for two kernels, and no cheap one.
    """
    return torch.nn.Sequential(*[torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.LayerNorm(width), torch.nn.GELU())
        for _ in range(blocks)])


@pytest.mark.parametrize("module,x,budget,most", [
    (normalized(), (torch.randn(512, 128),), "60%", 0.02),
    (normalized(), (torch.randn(512, 128),), "80%", 0.02),
    (Attention(width=64, words=400), sentences(8, 32, 400), "75%", 0.02),
    # Its last gradient is copied to channels last, behind the pooling of the whole picture: how
    # much that is of the peak depends on the plan, and so on measured times.
    (Convolutions(width=16), images(8, 32), "90%", 0.2)],
    ids=["normalized, 60%", "normalized, 80%", "attention", "convolutions"])
def test_the_first_code_takes_what_is_predicted(module, x, budget, most):
    # Measured times would make another plan each time; convolutions' memory must be measured.
    costs = mt.profile(module, x) if isinstance(module, Convolutions) else "reference"
    step = mt.compile(module, budget, costs=costs)
    step(*x).sum().backward()
    [plan] = mt.plans(step)
    assert plan.schedule.recomputed()
    assert abs(plan.predicted_pool_bytes / plan.pool_bytes - 1) < most


def convolutions_with_dropout(layers=5, dropout=True):
    return torch.nn.Sequential(*[part for number in range(layers) for part in (
        torch.nn.Conv2d(16 if number else 3, 16, 3, padding=1), torch.nn.ReLU(),
        *([torch.nn.Dropout(0.1)] if dropout else []))])


def test_masks_of_what_backward_reads_for_nothing_else_are_kept_in_its_place():
    x = torch.randn(8, 3, 32, 32)
    captured = read(convolutions_with_dropout(), (x,))
    masks = named(captured, "le.Scalar")
    assert len(masks) == 5 and not any(mask.is_backward for mask in masks)
    kept = {t for op in captured.graph.ops if op.is_backward for t in op.inputs}
    assert all(mask.outputs[0] in kept for mask in masks)
    assert not [op for op in captured.graph.ops if "relu" in op.kind and op.outputs[0] in kept]
    # The gradient of the next convolution reads what ReLU makes, so that its mask is not kept.
    captured = read(convolutions_with_dropout(dropout=False), (x,))
    masks = [op for op in named(captured, "le.Scalar") if not op.is_backward]
    assert len(masks) == 1


def test_random_numbers_beside_channels_last_are_written():
    captured = read(convolutions_with_dropout(), (torch.randn(8, 3, 32, 32),))
    drawn = named(captured, "inductor_random")
    assert len(drawn) == 5 and not any(op.is_backward for op in drawn)
    assert not named(read(Attention(), sentences()), "inductor_random")


def test_an_unplanned_step_with_dropout_takes_what_is_predicted():
    module, x = convolutions_with_dropout(), torch.randn(8, 3, 64, 64)
    step = mt.compile(module)
    step(x).sum().backward()
    taken = mt.measure(step, (x,), 1)
    assert abs(mt.estimate(module, (x,), "inductor").total_bytes / taken.allocated_bytes - 1) < 0.1


def test_what_is_made_of_one_buffer_that_backward_has_is_never_kept():
    captured = read(Attention(), sentences())
    assert not named(captured, "erf")
    inlined = {str(node.target) for parts in captured.parts for node in parts}
    assert "aten.erf.default" in inlined
    wide = next(op for op in captured.graph.ops if op.name.endswith("addmm_2"))
    late = [op for op in captured.graph.ops if op.is_backward and wide.outputs[0] in op.inputs]
    assert late  # the gradient of GELU reads the layer's output itself


def test_a_product_joins_the_sum_that_reads_it():
    """The output layer's weight is the embedding's: both gradients come together."""
    captured = read(Attention(), sentences())
    [total] = fusion.sums_with_products(list(captured.joint.graph.nodes))
    op = captured.graph.ops[captured.ops_by_node[total]]
    products = [part for part in captured.parts[captured.ops_by_node[total]]
                if part.target is torch.ops.aten.mm.default]
    assert len(products) == 1 and products[0] not in captured.ops_by_node
    held = {t for node in products[0].all_input_nodes for t in captured.tensors_of[node]
            if t is not None}
    assert held <= set(op.inputs) and not op.inplace


class Words(torch.nn.Module):
    """Words, of which a function is read."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out = torch.nn.Embedding(31, 32), torch.nn.Linear(32, 8)

    def forward(self, words):
        return self.out(self.embedding(words).sin()).square().mean()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_scatter_computes_what_it_writes(deterministic):
    torch.use_deterministic_algorithms(deterministic)
    try:
        graph = read(Words(), (torch.randint(31, (8, 12)),)).graph
    finally:
        torch.use_deterministic_algorithms(False)
    [scatter] = [op for op in graph.ops if "index_put" in op.kind]
    read_by_it = {graph.tensors[t].producer for t in scatter.inputs} - {-1}
    gradient = [graph.ops[op].kind for op in read_by_it if graph.ops[op].is_backward]
    assert ("aten.mul.Tensor" in gradient) == deterministic
    assert ("aten.mm.default" in gradient) != deterministic


def flattened(pool):
    """An image whose gradient comes as a row of a matrix."""
    size = 8 if pool else 16
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(),
        *([torch.nn.MaxPool2d(2)] if pool else []), torch.nn.Flatten(),
        torch.nn.Linear(16 * size * size, 4))


@pytest.fixture
def threads():
    now = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(now)


@pytest.mark.parametrize("number", [1, 2])
def test_the_gradient_of_a_pooling_fills_and_adds_in_one_buffer(number, threads):
    threads(number)
    module, x = flattened(True), (torch.randn(8, 3, 16, 16),)
    captured = read(module, x)
    found = named(captured, "scatter_add")
    if not found:
        pytest.skip("this PyTorch has an operator for the gradient of max-pooling")
    assert not named(captured, "aten.full")  # zeros of the size of the image
    assert not named(captured, "offsets_to_indices")
    # With several threads Inductor calls a library: positions take eight bytes, copied to rows.
    pixels = 8 * 16 * 16 * 16
    assert [captured.graph.tensors[t].size_bytes for t in found[0].outputs] == [
        4 * pixels, *([2 * 8 * pixels // 4] if number > 1 else [])]


def test_a_plan_is_followed_with_another_number_of_threads(threads):
    module, x = flattened(True), (torch.randn(8, 3, 16, 16),)
    threads(2)
    plan = mt.plan(module, x, "100%", costs="reference")
    threads(1)
    step = mt.compile(module, plan=plan)
    step(*x).sum().backward()
    [followed] = mt.plans(step)
    assert followed.decisions == plan.decisions


@pytest.mark.parametrize("pool", [False, True])
def test_no_gradient_of_a_flattened_image_is_written_over(pool):
    captured = read(flattened(pool), (torch.randn(8, 3, 16, 16),))
    if not private_ops.arranges_convolutions(captured.joint):
        pytest.skip("this PyTorch has no MKLDNN: convolutions read tensors as they are")
    tensors = captured.graph.tensors
    [masked] = [op for op in named(captured, "where") if op.is_backward]
    [row] = [place for place, t in enumerate(masked.inputs) if len(tensors[t].shape) == 2]
    assert tensors[masked.inputs[row]].size_bytes == tensors[masked.outputs[0]].size_bytes
    assert row not in {option.input for option in masked.inplace}


def test_sums_are_not_computed_again():
    captured = read(Attention(), sentences())
    sums = [op for op in named(captured, "var_mean") if not op.is_backward]
    assert sums and all("order" in op.not_recomputable_because for op in sums)
    eager = traced(Attention(), sentences(), Request(unplanned=True, mode="eager")).captured
    assert all(op.recomputable for op in named(eager, "native_layer_norm")
               if not op.is_backward)


def test_convolutions_read_copies_in_their_layout():
    captured = read(Convolutions(), images())
    if not private_ops.arranges_convolutions(captured.joint):
        pytest.skip("this PyTorch has no MKLDNN: convolutions read tensors as they are")
    copies = [op for op in captured.graph.ops if op.name.endswith(":channels_last")]
    names = {captured.graph.tensors[op.inputs[0]].name for op in copies}
    assert "x" in names and len(copies) == 4  # the images and the weights of 3 by 3
    for op in named(captured, "convolution"):
        assert not {t for copy in copies for t in copy.inputs} & set(op.inputs)
        assert {t for copy in copies for t in copy.outputs} & set(op.inputs)


def test_convolutions_of_volumes_read_no_copies():
    """The least of a video network was foreseen 8 % above what its code took."""
    module = torch.nn.Sequential(torch.nn.Conv3d(4, 8, 3), torch.nn.ReLU(),
                                 torch.nn.Conv3d(8, 8, 3))
    captured = read(module, (torch.randn(2, 4, 8, 8, 8),))
    assert named(captured, "convolution") and not named(captured, "copy")


def test_what_has_its_channels_last_already_is_not_copied():
    assert is_arranged(torch.ones(4, 3, 1, 1)) and is_arranged(torch.ones(4, 3))
    image = torch.ones(2, 3, 4, 4)
    assert not is_arranged(image) and is_arranged(arranged(image))
    assert is_arranged(image.contiguous(memory_format=torch.channels_last))
    assert arranged(3) == 3


def test_layouts_of_dynamic_sizes_make_no_conditions():
    """One code serves other batches."""
    module = Convolutions()
    step = mt.compile(module, "90%", dynamic=True)
    for batch in (9, 4, 6):
        module.zero_grad(set_to_none=True)
        step(*images(batch)).backward()
    assert len(mt.plans(step)) == 1


def test_sums_that_are_added_up_are_there_as_soon_as_what_they_sum_up():
    """Those of a normalization's gradients, whose weight is used twice."""
    captured = read(Siamese(), images(16, 16))
    total = [op for op in named(captured, "add.Tensor") if op.is_backward]
    tensors = captured.graph.tensors
    sums = {t for op in named(captured, "sum.dim_IntList") for t in op.outputs}
    gradients = [op for op in total if sum(t in sums for t in op.inputs) == 2]
    assert len(gradients) == 5
    assert all(tensors[t].size_bytes <= 64 for op in gradients for t in op.inputs if t in sums)
    # What a normalization adds up by itself stays in its kernel.
    alone = read(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)),
                 (torch.randn(64, 16),))
    assert not [op for op in named(alone, "add.Tensor") if sum(
        t in {o for s in named(alone, "sum") for o in s.outputs} for t in op.inputs) > 1]


class Picked(torch.nn.Module):
    """A few columns go on: what picks them reads far more than it makes, as sums do."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        picked = h[:, torch.arange(2, device=x.device) * 3]
        return self.second(picked).square().mean() + \
            torch.nn.functional.avg_pool2d(h[None], 8).mean()


def test_what_picks_values_is_no_sum():
    torch.manual_seed(0)
    module, x = Picked(), torch.randn(64, 32, 32)
    twin = copy.deepcopy(module)
    planned = mt.compile(module, "100%")
    planned(x).backward()
    twin(x).backward()
    for mine, other in zip(module.parameters(), twin.parameters()):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-6)
    graph = mt.plans(planned)[0].graph
    assert any(op.kind.startswith("aten.index.") for op in graph.ops)


def test_the_first_part_of_a_concatenation_in_backward_has_all_of_its_memory():
    module, x = HELD_OUT["gated"][0](), HELD_OUT["gated"][1]()
    captured = read(module, x)
    wholes = [op for op in named(captured, "cat.default") if op.is_backward]
    assert len(wholes) == 2
    tensors, ops = captured.graph.tensors, captured.graph.ops
    for op in wholes:
        implementation, = op.implementations
        over, = implementation.inplace
        first = tensors[op.inputs[over.input]]
        assert first.size_bytes == tensors[op.outputs[over.output]].size_bytes
        others = [tensors[t] for t in op.inputs if t != op.inputs[over.input]]
        assert [t.size_bytes for t in others] == [0]
        assert first.producer < others[0].producer < ops.index(op)


def test_in_depth_gradients_of_depthwise_filters_read_no_copies():
    """They do in the plain form, where a filter is larger than the pictures and has no kernel.

    From PyTorch 2.15 on Inductor arranges them by itself.
    """
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 1), torch.nn.Conv2d(8, 8, 3, padding=1, groups=8))
    captured = read(module, (torch.randn(4, 3, 2, 2),))

    def copying(joint):
        return [node for node in joint.graph.nodes if reads_copies(node)]
    forms = list(forms_in_depth(captured.joint))
    if TorchVersion(torch.__version__) >= "2.15":
        assert not copying(captured.joint) and len(forms) == 1
        return
    assert len(copying(captured.joint)) == 1
    assert [bool(lowering) for _, lowering in forms] == [False, True]
    assert not any(copying(joint) for joint, _ in forms) and copying(captured.joint)
    assert gradients_are_arranged(forms[0][0]) and not gradients_are_arranged(captured.joint)
    # Elsewhere that would be the plain form once more.
    assert len(list(forms_in_depth(read(Convolutions(), images()).joint))) == 1
