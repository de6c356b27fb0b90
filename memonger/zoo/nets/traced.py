"""Networks of ``mxnet.gluon.model_zoo``, traced to symbols with a softmax loss."""
from __future__ import annotations

from typing import Any, Dict, Tuple

import mxnet as mx

Built = Tuple[Any, Dict[str, Tuple[int, ...]]]


def model_zoo(batch: int, *, model: str = "resnet50_v1", image: int = 224, classes: int = 1000,
              ) -> Built:
    """A vision network of the model zoo.

    ``model``: name for ``mxnet.gluon.model_zoo.vision.get_model``.
    ``image``: height and width; networks without global pooling take few sizes.
    """
    prefix = model.replace(".", "_") + "_"
    block = mx.gluon.model_zoo.vision.get_model(model, classes=classes, prefix=prefix)
    scores = block(mx.sym.var("data"))
    loss = mx.sym.SoftmaxOutput(scores, mx.sym.var("softmax_label"), name="softmax")
    return loss, {"data": (batch, 3, image, image), "softmax_label": (batch,)}
