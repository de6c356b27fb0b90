#!/usr/bin/env bash
# PyTorch 2.13.0: nn.Sequential(...).compile() compiles nothing, and says nothing.
#
# Expected: module.compile() compiles module's calls in place; torch.compile(module) is the same
# with a wrapper around it.
# Happens: on modules of torch.nn itself the first compiles no graph at all, whatever they contain,
# since code of PyTorch's own files is passed over when a frame begins there; the calls run eagerly.
# The same module inside a class of the user's own is compiled, and so it is by
# torch.compile(module). 2.14.1 compiles it in all three ways.
#
# Seen:
#     Sequential(...).compile()      0 graphs
#     torch.compile(Sequential(...)) 1 graphs
#     class of one's own, .compile() 1 graphs
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import sys

import torch
from torch import nn

graphs = []


def count(graph, inputs):
    graphs.append(graph)
    return graph.forward


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        return self.inner(x)


def network():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


def graphs_of(module):
    graphs.clear()
    module(torch.ones(2, 4))
    return len(graphs)


in_place, own = network(), Own()
in_place.compile(backend=count)
own.compile(backend=count)
wrapped = torch.compile(network(), backend=count)
found = [graphs_of(module) for module in (in_place, wrapped, own)]
print(f"Sequential(...).compile()      {found[0]} graphs")
print(f"torch.compile(Sequential(...)) {found[1]} graphs")
print(f"class of one's own, .compile() {found[2]} graphs")
if found != [0, 1, 1]:
    sys.exit("changed: modules of torch.nn are now compiled in place, or others are not")
PROGRAM
