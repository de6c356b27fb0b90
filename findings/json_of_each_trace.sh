#!/usr/bin/env bash
# MXNet 1.9.1: each trace of one Gluon block gives another JSON, though nothing changed.
#
# Expected: block(mx.sym.var("data")).tojson() is the same text each time, so files can be compared
# and results stored under a hash of the network.
# Happens: the third number of a node's input is the version of the variable. An operator that
# writes its auxiliary states, as BatchNorm does, raises the version of the block's own variable
# whenever the block is traced, so the number counts the traces that the process made. Blocks
# without such an operator give the same text.
#
# Seen:
#     Dense alone                   same text: True
#     with BatchNorm                same text: False
#     inputs of BatchNorm, 1st time [[3, 0, 0], [4, 0, 0], [5, 0, 0], [6, 0, 1], [7, 0, 1]]
#     inputs of BatchNorm, 3rd time [[3, 0, 0], [4, 0, 0], [5, 0, 0], [6, 0, 3], [7, 0, 3]]
# (Python 3.8 to 3.11.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    mxnet==1.9.1 numpy==1.23.5
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import json
import sys

import mxnet as mx
from mxnet.gluon import nn


def traces(*layers):
    block = nn.HybridSequential()
    block.add(*layers)
    block.initialize()
    return [block(mx.sym.var("data")).tojson() for _ in range(3)]


def inputs_of_norm(text):
    (found,) = (n["inputs"] for n in json.loads(text)["nodes"] if n["op"] == "BatchNorm")
    return found


plain = traces(nn.Dense(4, in_units=4))
normed = traces(nn.Dense(4, in_units=4), nn.BatchNorm(in_channels=4))
print(f"Dense alone                   same text: {plain[0] == plain[2]}")
print(f"with BatchNorm                same text: {normed[0] == normed[2]}")
print(f"inputs of BatchNorm, 1st time {inputs_of_norm(normed[0])}")
print(f"inputs of BatchNorm, 3rd time {inputs_of_norm(normed[2])}")
if plain[0] != plain[2] or normed[0] == normed[2]:
    sys.exit("changed: a block with BatchNorm now has the same JSON at each trace")
PROGRAM
