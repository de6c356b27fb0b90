"""A network of the zoo on a GPU: what is predicted and what MXNet takes there."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

#: What makes a family's networks small enough for a pretended GPU.
SMALL: Dict[str, Dict[str, Any]] = {
    "model_zoo": {"image": 64, "classes": 10}, "dcgan": {"filters": 8},
    "resnet": {"image": 64, "classes": 10}, "lstm": {"steps": 4, "units": 32, "labels": 50},
    "cifar": {"cells": 5, "filters": 6}, "amoebanet_d": {"cells": 3, "filters": 12, "image": 64},
    "googlenet": {"image": 64, "classes": 10},
    "language_model": {"units": 32, "vocabulary": 500},
    "encoder_decoder": {"units": 40, "embedding": 24, "readout": 20, "source_steps": 7,
                        "target_steps": 5, "vocabulary": 300},
    "encoder": {"units": 24, "heads": 3, "length": 20, "vocabulary": 300}, "small": {},
    "unet": {"height": 64, "width": 48, "filters": 8}}
#: Networks that take no smaller image, or are longer than a test needs.
SPECIAL: Dict[str, Dict[str, Any]] = {
    "alexnet": {"image": 96}, "inception_v3": {"image": 299}, "densenet121": {"image": 224},
    "squeezenet1_0": {"image": 224}, "squeezenet1_1": {"image": 224},
    "googlenet_three_losses": {"image": 224}}
#: Networks that repeat the layers of a smaller one.
DEEPER = frozenset({
    "vgg13", "vgg16", "vgg19", "vgg13_bn", "vgg16_bn", "vgg19_bn", "resnet34", "resnet101",
    "resnet152", "resnet34_v2", "resnet101_v2", "resnet152_v2", "dmlc_resnet200", "densenet161",
    "densenet169", "densenet201", "squeezenet1_0", "lstm_lm_200", "lstm_lm_500",
    "transformer_96"})
#: One of each kind, for what differs little among the networks of a kind.
KINDS = frozenset({"resnet18", "densenet121", "gru_attention", "transformer", "nasnet_cifar10"})
#: Ways to store a planned network's tensors: the plugin's storage, and an arena.
STORAGES = ((False, False), (True, False), (True, True))


def pools(name: str, grad_req: Optional[str] = None,
          storages: Sequence[Tuple[bool, bool]] = STORAGES[2:]) -> List[Dict[str, int]]:
    """Bytes of a planned network's internal tensors in each of some ways to store them.

    "predicted" is the plan's, "bound" what MXNet's planner says, "taken" what one step allocated
    without the other arrays: arguments, gradients, aux states, the gradients given for outputs and
    the executor's copies of them.
    """
    import mxnet as mx

    import memonger
    from memonger import native
    from memonger.mx.capture.record import read
    from memonger.mx.check.training_run import TrainingRun, without_index_gradients
    from memonger.zoo import nets
    native.load()
    context = mx.gpu(0)
    family = nets.spec(name).builder
    net = nets.build(name, 2, **{**SMALL[family], **SPECIAL.get(name, {})})
    # As the run binds: no gradients for labels and indices.
    binding = {"ctx": context,
               "grad_req": grad_req or without_index_gradients(net.symbol, "write")}
    log = Path(os.environ["PRETEND_ALLOCATIONS"])
    found = []
    for storage, arena in storages:
        with native.switched(recompute=True, storage=storage, arena=arena):
            plan = memonger.plan(net.symbol, variants="all", time_limit=0.5, **binding,
                                 **net.shapes)
            captured = read(plan.symbol, net.shapes, **binding)
            TrainingRun(plan.symbol, net.shapes, context).step()  # temporary space is taken once
            mx.nd.waitall()
            log.write_text("")
            run = TrainingRun(plan.symbol, net.shapes, context)
            run.step()
            lines = log.read_text().splitlines()
        taken = sum(int(line[2:]) * (1 if line[0] == "+" else -1) for line in lines)
        arrays = [*run.arrays.values(), *run.aux.values(), *run.gradients.values(),
                  *run.head_gradients]
        outside = sum(array.size * array.dtype().itemsize for array in arrays)
        outside += captured.fixed_bytes["head_gradients"]
        found.append({"predicted": plan.pool_bytes, "bound": captured.pool_bytes,
                      "taken": taken - outside})
        del run
        mx.nd.waitall()
    return found
