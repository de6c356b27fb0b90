"""Networks with attention: an encoder of any depth, and a small one for tests."""
from __future__ import annotations

import math
from typing import Any, Dict, Tuple

import mxnet as mx

Built = Tuple[Any, Dict[str, Tuple[int, ...]]]


def _attention(data: Any, batch: int, length: int, units: int, heads: int, dropout: float,
               name: str) -> Any:
    """Multi-head self-attention of (batch, length, units)."""
    if units % heads:
        raise ValueError("units must be a multiple of heads")
    size = units // heads

    def project(part: str) -> Any:
        value = mx.sym.FullyConnected(data, num_hidden=units, flatten=False, name=name + part)
        value = mx.sym.reshape(value, shape=(batch, length, heads, size))
        return mx.sym.reshape(mx.sym.transpose(value, axes=(0, 2, 1, 3)),
                              shape=(batch * heads, length, size))

    query, key, value = project("query"), project("key"), project("value")
    scores = mx.sym.batch_dot(query, key, transpose_b=True) * (1 / math.sqrt(size))
    weights = mx.sym.softmax(scores, axis=-1, name=name + "weights")
    if dropout:
        weights = mx.sym.Dropout(weights, p=dropout, name=name + "weights_drop")
    mixed = mx.sym.reshape(mx.sym.batch_dot(weights, value), shape=(batch, heads, length, size))
    mixed = mx.sym.reshape(mx.sym.transpose(mixed, axes=(0, 2, 1, 3)),
                           shape=(batch, length, units))
    return mx.sym.FullyConnected(mixed, num_hidden=units, flatten=False, name=name + "out")


def _layer(data: Any, batch: int, length: int, units: int, heads: int, hidden: int,
           dropout: float, name: str) -> Any:
    """One encoder layer, normalised after each residual (arXiv 1706.03762)."""
    def residual(branch: Any, trunk: Any, part: str) -> Any:
        if dropout:
            branch = mx.sym.Dropout(branch, p=dropout, name=name + part + "_drop")
        return mx.sym.LayerNorm(trunk + branch, axis=-1, name=name + part + "_norm")

    data = residual(_attention(data, batch, length, units, heads, dropout, name), data, "attention")
    inner = mx.sym.FullyConnected(data, num_hidden=hidden, flatten=False, name=name + "inner")
    inner = mx.sym.LeakyReLU(inner, act_type="gelu", name=name + "gelu")
    outer = mx.sym.FullyConnected(inner, num_hidden=units, flatten=False, name=name + "outer")
    return residual(outer, data, "outer")


def encoder(batch: int, *, layers: int = 12, units: int = 768, heads: int = 12,
            hidden: int = 0, length: int = 512, vocabulary: int = 30522, classes: int = 2,
            dropout: float = 0.1) -> Built:
    """Transformer encoder with a classifier on the first token: BERT base by default.

    Trained parameters, for n = units, h = hidden: embeddings and their norm
    n(vocabulary + length + 2 + 2), each layer 4n(n + 1) + h(n + 1) + n(h + 1) + 4n, pooler
    n(n + 1), head classes*(n + 1).

    ``hidden``: width of the inner layers; 0 is four times ``units``.
    """
    words = mx.sym.Embedding(mx.sym.var("data"), input_dim=vocabulary, output_dim=units,
                             name="word_embed")
    kinds = mx.sym.Embedding(mx.sym.var("segments"), input_dim=2, output_dim=units,
                             name="segment_embed")
    places = mx.sym.var("position_weight", shape=(length, units))
    data = mx.sym.broadcast_add(words + kinds, mx.sym.expand_dims(places, axis=0))
    data = mx.sym.LayerNorm(data, axis=-1, name="embed_norm")
    if dropout:
        data = mx.sym.Dropout(data, p=dropout, name="embed_drop")
    for layer in range(layers):
        data = _layer(data, batch, length, units, heads, hidden or 4 * units, dropout,
                      "layer%d_" % layer)
    first = mx.sym.reshape(mx.sym.slice_axis(data, axis=1, begin=0, end=1), shape=(batch, units))
    pooled = mx.sym.Activation(mx.sym.FullyConnected(first, num_hidden=units, name="pooler"),
                               act_type="tanh", name="pooled")
    if dropout:
        pooled = mx.sym.Dropout(pooled, p=dropout, name="pooled_drop")
    scores = mx.sym.FullyConnected(pooled, num_hidden=classes, name="head")
    loss = mx.sym.SoftmaxOutput(scores, mx.sym.var("softmax_label"), name="softmax")
    return loss, {"data": (batch, length), "segments": (batch, length), "softmax_label": (batch,)}


def small(batch: int, *, units: int = 32, heads: int = 4, length: int = 16, inputs: int = 8,
          classes: int = 4, dropout: float = 0.2) -> Built:
    """One encoder layer with dropout on real-valued input, small enough to train in tests.

    Trained parameters, for n = units: input n(inputs + 1), layer 12nn + 13n, head
    classes*(length*n + 1).
    """
    data = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=units, flatten=False,
                                 name="embed")
    data = _layer(data, batch, length, units, heads, 4 * units, dropout, "layer0_")
    scores = mx.sym.FullyConnected(mx.sym.Flatten(data), num_hidden=classes, name="head")
    loss = mx.sym.SoftmaxOutput(scores, mx.sym.var("softmax_label"), name="softmax")
    return loss, {"data": (batch, length, inputs), "softmax_label": (batch,)}
