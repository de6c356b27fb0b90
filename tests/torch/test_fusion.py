"""A step is read as Inductor makes kernels of it, so that its peaks are those of the compiled code.
"""
from __future__ import annotations

import pytest
import torch
from torch_nets import Attention, Convolutions, images, sentences

import memonger.torch as mt
from memonger.torch.calls.tracing import traced
from memonger.torch.capture import fusion
from memonger.torch.capture.layouts import arranged, is_arranged
from memonger.torch.pytorch import private_ops
from memonger.torch.step.request import Request


def read(module, inputs):
    return traced(module, inputs, Request(unplanned=True)).captured


def named(captured, word):
    return [op for op in captured.graph.ops if word in op.kind]


@pytest.mark.parametrize("module,x,budget", [
    (Attention(width=64, words=400), sentences(8, 32, 400), "75%"),
    (Convolutions(width=16), images(8, 32), "90%")], ids=["attention", "convolutions"])
def test_the_first_code_takes_what_is_predicted(module, x, budget):
    step = mt.compile(module, budget, costs=mt.profile(module, x))
    step(*x).backward()
    [plan] = mt.plans(step)
    assert plan.schedule.recomputed()
    assert abs(plan.predicted_pool_bytes / plan.pool_bytes - 1) < 0.1


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
