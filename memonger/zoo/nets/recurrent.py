"""Recurrent networks, unrolled step by step: a language model and a translator."""
from __future__ import annotations

from typing import Any, Dict, List, Tuple

import mxnet as mx

Built = Tuple[Any, Dict[str, Tuple[int, ...]]]


def language_model(batch: int, *, layers: int = 2, units: int = 650, steps: int = 35,
                   vocabulary: int = 10000, dropout: float = 0.5) -> Built:
    """Word-level LSTM language model (Zaremba et al., arXiv 1409.2329, the medium one).

    Trained parameters: ``vocabulary*units`` of the embedding, for each layer
    ``4*units*(2*units + 2)``, and ``vocabulary*(units + 1)`` of the head.

    ``dropout``: before each layer and the head; 0 leaves it out.
    """
    words = mx.sym.Embedding(mx.sym.var("data"), input_dim=vocabulary, output_dim=units,
                             name="embed")
    stack = mx.rnn.SequentialRNNCell()
    for layer in range(layers):
        if dropout:
            stack.add(mx.rnn.DropoutCell(dropout, prefix="drop%d_" % layer))
        stack.add(mx.rnn.LSTMCell(units, prefix="lstm%d_" % layer))
    outputs, _ = stack.unroll(steps, words, merge_outputs=True, layout="NTC")
    if dropout:
        outputs = mx.sym.Dropout(outputs, p=dropout, name="drop_head")
    scores = mx.sym.FullyConnected(mx.sym.reshape(outputs, shape=(-1, units)),
                                   num_hidden=vocabulary, name="head")
    label = mx.sym.reshape(mx.sym.var("softmax_label"), shape=(-1,))
    loss = mx.sym.SoftmaxOutput(scores, label, name="softmax")
    return loss, {"data": (batch, steps), "softmax_label": (batch, steps)}


def encoder_decoder(batch: int, *, units: int = 1000, embedding: int = 620, readout: int = 500,
                    source_steps: int = 50, target_steps: int = 50, vocabulary: int = 30000,
                    ) -> Built:
    """Translator: bidirectional GRU encoder, GRU decoder with additive attention.

    After RNNsearch-50 (Bahdanau et al., arXiv 1409.0473) with the GRU of ``mx.rnn``, which has
    two biases. Trained parameters, for n = units, m = embedding, l = readout, V = vocabulary:
    embeddings 2Vm; encoder 2 * 3n(m + n + 2); first state n(n + 1); attention 2n*n + n*n + n + n;
    decoder 3n(m + 2n + n + 2); readout 2l(n + m + 2n + 1); head V(l + 1).
    """
    def embed(name: str, steps: int) -> List[Any]:
        words = mx.sym.Embedding(mx.sym.var(name), input_dim=vocabulary, output_dim=embedding,
                                 name=name + "_embed")
        return list(mx.sym.SliceChannel(words, num_outputs=steps, axis=1, squeeze_axis=True,
                                        name=name + "_slice"))

    source, target = embed("source", source_steps), embed("target", target_steps)
    ahead, _ = mx.rnn.GRUCell(units, prefix="ahead_").unroll(source_steps, source)
    back, _ = mx.rnn.GRUCell(units, prefix="back_").unroll(source_steps, source[::-1])
    back = back[::-1]
    notes = mx.sym.stack(*[mx.sym.concat(a, b, dim=1, name="note%d" % i)
                           for i, (a, b) in enumerate(zip(ahead, back))], axis=1, name="notes")
    keys = mx.sym.FullyConnected(notes, num_hidden=units, flatten=False, no_bias=True, name="keys")
    query = {"weight": mx.sym.var("query_weight"), "bias": mx.sym.var("query_bias")}
    energy_weight = mx.sym.var("energy_weight")
    shared = {"weight": mx.sym.var("readout_weight"), "bias": mx.sym.var("readout_bias")}
    cell = mx.rnn.GRUCell(units, prefix="decoder_")
    state = mx.sym.Activation(mx.sym.FullyConnected(back[0], num_hidden=units, name="start"),
                              act_type="tanh")
    outputs = []
    for step, word in enumerate(target):
        name = "t%d_" % step
        asked = mx.sym.FullyConnected(state, num_hidden=units, name=name + "query", **query)
        mixed = mx.sym.Activation(
            mx.sym.broadcast_add(keys, mx.sym.expand_dims(asked, axis=1)), act_type="tanh")
        energy = mx.sym.FullyConnected(mixed, energy_weight, num_hidden=1, flatten=False,
                                       no_bias=True, name=name + "energy")
        weights = mx.sym.softmax(energy, axis=1, name=name + "weights")
        context = mx.sym.reshape(mx.sym.batch_dot(weights, notes, transpose_a=True),
                                 shape=(0, -1), name=name + "context")
        state, _ = cell(mx.sym.concat(word, context, dim=1), [state])
        pairs = mx.sym.FullyConnected(mx.sym.concat(state, word, context, dim=1),
                                      num_hidden=2 * readout, name=name + "readout", **shared)
        outputs.append(mx.sym.max(mx.sym.reshape(pairs, shape=(0, -1, 2)), axis=2,
                                  name=name + "maxout"))
    scores = mx.sym.FullyConnected(mx.sym.concat(*outputs, dim=0), num_hidden=vocabulary,
                                   name="head")
    # Step by step, as the outputs are concatenated.
    label = mx.sym.reshape(mx.sym.transpose(mx.sym.var("softmax_label")), shape=(-1,))
    loss = mx.sym.SoftmaxOutput(scores, label, name="softmax")
    return loss, {"source": (batch, source_steps), "target": (batch, target_steps),
                  "softmax_label": (batch, target_steps)}
