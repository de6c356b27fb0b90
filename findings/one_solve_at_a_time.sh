#!/usr/bin/env bash
# highspy 1.16.0: while one model is solved with startSolve, no other model can be.
#
# Expected: startSolve runs a model in the background; models are independent objects, and two of
# them can be solved side by side, each with one thread.
# Happens: the lock that says "a solver runs" belongs to the class, not to the model. Asked by the
# second model, is_solver_running() is true, and its startSolve raises. Two models solve side by
# side with run() in two threads of one's own.
#
# Seen:
#     second model is said to run: True
#     second.startSolve(): HighsError: Solver is already running.
#     in two threads: kOptimal kOptimal
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    highspy==1.16.0 numpy==2.4.6
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import random
import sys
from threading import Thread

import highspy


def knapsack(seed, size=45):
    choose = random.Random(seed)
    model = highspy.Highs()
    model.silent()
    model.setOptionValue("threads", 1)
    items = [model.addBinary(obj=-choose.randint(1000, 100000)) for _ in range(size)]
    for _ in range(10):
        weights = [choose.randint(1000, 100000) for _ in items]
        load = model.qsum(weight * item for weight, item in zip(weights, items))
        model.addConstr(load <= sum(weights) // 2)
    return model


first, second = knapsack(0), knapsack(1)
thread = first.startSolve()
running = second.is_solver_running()
try:
    second.startSolve()
    answer = "started"
except highspy.highs.HighsError as error:
    answer = f"HighsError: {error}"
first.joinSolve(thread)

models = [knapsack(0), knapsack(1)]
threads = [Thread(target=model.run) for model in models]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"second model is said to run: {running}")
print(f"second.startSolve(): {answer}")
print("in two threads:", *(model.getModelStatus().name for model in models))
if not running or answer == "started":
    sys.exit("changed: two models can be solved by startSolve at the same time")
PROGRAM
