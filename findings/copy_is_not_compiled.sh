#!/usr/bin/env bash
# PyTorch 2.13.0: a copy of a module that was compiled in place is not compiled.
#
# Expected: copy.deepcopy(module), as an average of weights, a data-parallel replica or a target
# network makes it, behaves as the module: compiled, with the memory and the speed that were tuned.
# Happens: module.compile() keeps its compiled call in an attribute that is left out when the module
# is copied or pickled. The copy runs eagerly, without a word. A copy of torch.compile(module), the
# other way to ask for the same, is compiled.
#
# Seen:
#     module.compile()       module 1, its copy 0 graphs
#     torch.compile(module)  module 1, its copy 1 graphs
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import copy
import sys

import torch
from torch import nn

graphs = []


def count(graph, inputs):
    graphs.append(graph)
    return graph.forward


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x).relu()


def graphs_of(module):
    torch._dynamo.reset()
    graphs.clear()
    module(torch.ones(2, 4))
    return len(graphs)


in_place = Block()
in_place.compile(backend=count)
wrapped = torch.compile(Block(), backend=count)
found = [[graphs_of(m), graphs_of(copy.deepcopy(m))] for m in (in_place, wrapped)]
print(f"module.compile()       module {found[0][0]}, its copy {found[0][1]} graphs")
print(f"torch.compile(module)  module {found[1][0]}, its copy {found[1][1]} graphs")
if found != [[1, 0], [1, 1]]:
    sys.exit("changed: a copy of a module compiled in place is now compiled, or others are not")
PROGRAM
