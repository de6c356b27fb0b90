#!/usr/bin/env bash
# PyTorch 2.13.0: Optimizer.load_state_dict takes the given tensors themselves, not copies of them.
#
# Expected: after second.load_state_dict(first.state_dict()) the two optimizers are independent, as
# two modules are after Module.load_state_dict, which copies into the module's own parameters.
# Happens: a tensor that has the parameter's type and device already is taken as it is. Both
# optimizers then update the same moments in place: training one of two copies of a network moves
# Adam's state of the other. It takes no memory for a second state, either.
#
# Seen:
#     first's average before and after second.step(): 0.1000 0.5900
#     first's count of steps: 2
#     Module.load_state_dict shares memory: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import sys

import torch


def optimizer_of(parameter):
    parameter.grad = torch.ones(3)
    return torch.optim.Adam([parameter])


one, other = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
first, second = optimizer_of(one), optimizer_of(other)
first.step()
second.load_state_dict(first.state_dict())

before = first.state[one]["exp_avg"][0].item()
other.grad = torch.full((3,), 5.0)
second.step()
after = first.state[one]["exp_avg"][0].item()
steps = int(first.state[one]["step"])

layer, copy = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
copy.load_state_dict(layer.state_dict())
shared = copy.weight.data_ptr() == layer.weight.data_ptr()

print(f"first's average before and after second.step(): {before:.4f} {after:.4f}")
print(f"first's count of steps: {steps}")
print(f"Module.load_state_dict shares memory: {shared}")
if before == after or steps != 2 or shared:
    sys.exit("changed: an optimizer that loaded another's state no longer shares its tensors")
PROGRAM
