"""What the operator ``RNN`` keeps on a CPU from forward to backward, and for the next step.

MKLDNN's code runs groups of layers: all where the data are as wide as the state, else the first
layer and the others; each layer where they are bidirectional. A group has its weights in layouts of
its own, five times in all, and gates and states of all steps, whose rows take a multiple of 64
bytes that is none of 1024 (``get_good_ld`` of oneDNN's ``rnn_utils``). What a group allocates and
never writes is not counted. MXNet's own code (``MXNET_USE_MKLDNN_RNN=0``) has a reserved and a
working space (``rnn-inl.h``).
"""
from __future__ import annotations

import os
from typing import Iterator, Mapping, NamedTuple, Sequence, Tuple

from ...graph.types import DTYPES, Graph

_FLOAT_BYTES = DTYPES["float32"]
_GATES = {"lstm": 4, "gru": 3}
#: With batches below this, MKLDNN computes the gates of all steps at once, beside those it keeps.
_ALL_STEPS_BATCH = 128


class _Layers(NamedTuple):
    """Layers of one operator, by attributes and the shape of their data."""

    mode: str
    steps: int
    batch: int
    inputs: int
    states: int
    layers: int
    directions: int

    @property
    def gates(self) -> int:
        return _GATES.get(self.mode, 1)

    @property
    def output_bytes(self) -> int:
        return self.steps * self.batch * self.directions * self.states * _FLOAT_BYTES


def recurrent_bytes(graph: Graph, attributes: Sequence[Mapping[str, str]]) -> Tuple[int, ...]:
    """Bytes that each op keeps for as long as its executor lives; 0 for others than ``RNN``.

    ``attributes``: those of each op, as in the symbol.
    """
    return tuple(_bytes(graph, index, attributes[index]) for index in range(len(graph.ops)))


def runs_in_mkldnn(dtype: str) -> bool:
    """Whether MKLDNN's code runs the operator; it does not ask whether MKLDNN is on."""
    return dtype == "float32" and os.environ.get("MXNET_USE_MKLDNN_RNN", "1") != "0"


def _bytes(graph: Graph, index: int, attributes: Mapping[str, str]) -> int:
    op = graph.ops[index]
    if op.kind not in ("RNN", "_backward_RNN"):
        return 0
    forward = op.kind == "RNN"
    data = graph.tensors[op.inputs[0]]
    steps, batch, inputs = data.shape
    both = str(attributes.get("bidirectional", "False")) in ("True", "1")
    whole = _Layers(attributes["mode"], steps, batch, inputs, int(attributes["state_size"]),
                    int(attributes["num_layers"]), 1 + both)
    if not runs_in_mkldnn(data.dtype):
        return _native_elements(whole) * DTYPES[data.dtype] if forward else 0
    groups = list(_groups(whole))
    if forward:  # all outputs but the last are its own
        return (len(groups) - 1) * whole.output_bytes + sum(map(_forward_bytes, groups))
    # One gradient is handed from group to group.
    return (len(groups) > 1) * whole.output_bytes + sum(map(_backward_bytes, groups))


def _groups(whole: _Layers) -> Iterator[_Layers]:
    if whole.directions == 2:
        for layer in range(whole.layers):
            yield whole._replace(layers=1, inputs=2 * whole.states if layer else whole.inputs)
    elif whole.inputs == whole.states:
        yield whole
    else:
        yield whole._replace(layers=1)
        if whole.layers > 1:
            yield whole._replace(layers=whole.layers - 1, inputs=whole.states)


def _row(width: int) -> int:
    width = -(-width // 16) * 16
    return (width + 16 * (width % 256 == 0)) * _FLOAT_BYTES


def _weight_bytes(group: _Layers) -> int:
    return group.directions * group.layers * (group.inputs + group.states) * group.gates \
        * group.states * _FLOAT_BYTES


def _states(group: _Layers) -> Tuple[int, int]:
    """Of one layer, with the step before the first: states, and an LSTM's cells."""
    rows = group.directions * (group.steps + 1) * group.batch
    return rows * _row(max(group.inputs, group.states)), \
        rows * _row(group.states) * (group.mode == "lstm")


def _gates_bytes(group: _Layers) -> int:
    """Of one layer and direction."""
    return group.steps * group.batch * _row(group.gates * group.states)


def _forward_bytes(group: _Layers) -> int:
    kept = group.directions * group.layers
    states, cells = _states(group)
    # In one direction the first layer reads the data, and the last writes the output.
    layers = group.layers + 1 if group.directions == 2 else group.layers - 1
    size = 2 * _weight_bytes(group) + kept * _gates_bytes(group) + layers * states \
        + group.layers * cells
    if group.mode == "gru":
        size += kept * group.steps * group.batch * _row(group.states)
    return size + _gates_bytes(group) * (group.batch < _ALL_STEPS_BATCH)


def _backward_bytes(group: _Layers) -> int:
    states, cells = _states(group)
    return 3 * _weight_bytes(group) + _gates_bytes(group) + (group.layers + 1) * states \
        + group.layers * (states + cells)


def _native_elements(whole: _Layers) -> int:
    """Of MXNet's own code: ``GetRNNReserveSpaceSize`` and ``GetRNNWorkspaceSize`` for LSTMs.

    Others write a part of these: so many arrays of the size of the output, as was seen.
    """
    _, steps, batch, _, states, layers, directions = whole
    cells, output = batch * states, steps * batch * states * directions
    if whole.mode == "lstm":
        return output * 7 * layers + (steps + 1) * cells * 4 + cells * 2 + states * steps * 8
    return output * (5 * layers + 11 - 2 * directions if whole.mode == "gru" else 2 * layers + 3)
