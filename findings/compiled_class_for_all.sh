#!/usr/bin/env bash
# PyTorch 2.13.0: torch.compile(SomeModule), given a class, compiles every instance of the process.
#
# Expected: as for a module or a function, something new is returned and what was given stays as it
# is; the compiled class serves whoever asked for it.
# Happens: the class itself is changed and returned. Modules that were made before are compiled from
# their next call on, in other people's code too, and there is no way back but to put the class's
# __call__ and _call_impl back by hand.
#
# Seen:
#     returned the class itself: True
#     graphs of a module made before: 0 before, 1 after
#     graphs of a module made by the class's old name: 1
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


old = Block()
before = graphs_of(old)
same = torch.compile(Block, backend=count) is Block
after, new = graphs_of(old), graphs_of(Block())
print(f"returned the class itself: {same}")
print(f"graphs of a module made before: {before} before, {after} after")
print(f"graphs of a module made by the class's old name: {new}")
if [same, before, after, new] != [True, 0, 1, 1]:
    sys.exit("changed: torch.compile of a class no longer changes the class for everybody")
PROGRAM
