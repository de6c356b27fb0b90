#!/usr/bin/env bash
# PyTorch 2.13.0: "Total Allocated" in a CPU memory profile counts memory that is long free.
#
# Expected: the total beside each memory event of a trace is what the process holds at that moment,
# so a profile of ten floats, taken when nothing else is held, shows 40 bytes.
# Happens: the CPU's allocator is counted only while a profile runs. What one profile saw allocated
# and nobody freed before it ended stays in the total of every later profile, though freed in
# between; and what was allocated before a profile and is freed in it appears in no event, of which
# one line on stderr warns. A peak read from the totals, or added up from the events, is then wrong
# in either direction.
#
# Seen:
#     freed between the profiles: bytes, total  [(40, 4000040), (-40, 4000000)]
#     freed inside, held before:  bytes, total  [(40, 4000040), (-40, 4000000)]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile


def memory_events(work):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        work()
    prof.export_chrome_trace("trace.json")
    with open("trace.json") as file:
        events = json.load(file)["traceEvents"]
    events = [event["args"] for event in events if event.get("name") == "[memory]"]
    return [(event["Bytes"], event["Total Allocated"]) for event in events]


def ten_floats():
    held.clear()
    torch.empty(10)


held = []
memory_events(lambda: held.append(torch.empty(1_000_000)))
held.clear()
between = memory_events(ten_floats)
held.append(torch.empty(2_000_000))
inside = memory_events(ten_floats)
print(f"freed between the profiles: bytes, total  {between}")
print(f"freed inside, held before:  bytes, total  {inside}")
if between[0] != (40, 4_000_040) or inside != between:
    sys.exit("changed: the profiler's totals no longer keep what was freed between profiles")
PROGRAM
