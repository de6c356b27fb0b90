"""``python -m benchmarks torch --planning``: CPU seconds of planning, tracing aside.

``--beside FOLDER`` measures another checkout's package in turn, with its native library built, and
prints ratios. Every measure has a process of its own, and nothing is trained: modules lie on
"meta". This file asks for nothing of the package but calls that the checkout beside has, too.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

#: Of Llama 3 8B: PyTorch's layers, as Hugging Face's package builds them.
LLAMA = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256, "use_cache": False}
#: Batch, and words of each of its sequences.
WORDS = (4, 4096)
Seconds = Dict[str, float]


def llama(layers: int) -> Tuple[Any, Any]:
    """A language model with a loss, in bfloat16 on "meta", and its inputs."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    with torch.device("meta"):
        module = LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, **LLAMA)).bfloat16()
        words = torch.zeros(WORDS, dtype=torch.int64)
    return module, {"input_ids": words, "labels": words}


def encoder() -> Tuple[Any, Any]:
    """Four layers that read sequences."""
    import torch
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 4), (torch.empty(8, 128, 256, device="meta"),)


def spent_s(call: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    began_s = time.process_time()
    call()
    return time.process_time() - began_s


def planned(layers: int, mode: str, *budgets: str) -> Seconds:
    """Of the first plan of a module, and of one more, beside its trace."""
    import memonger.torch as mt

    def sweep(asked: Sequence[str], layers: int = layers) -> float:
        module, inputs = llama(layers)
        return spent_s(lambda: mt.sweep(module, inputs, asked, mode, costs="reference"))
    sweep(["100%"], 1)  # what a process does once
    traced_s = sweep(["100%"])
    found = {"trace": traced_s, "plan": sweep(budgets[:1]) - traced_s}
    if len(budgets) > 1:
        found["next plan"] = sweep(budgets) - traced_s - found["plan"]
    return found


def batches() -> Seconds:
    """Of :func:`memonger.torch.max_batch`."""
    import memonger.torch as mt
    module, inputs = encoder()
    return {"all": spent_s(lambda: mt.max_batch(module, inputs, "256MB", costs="reference"))}


def methods() -> Seconds:
    """Of the methods of planning, for a step of forty ops."""
    import torch

    import memonger.torch as mt
    from memonger.solve.imported import plan_graph
    module = torch.nn.Sequential(*[part for _ in range(7) for part in (
        torch.nn.Linear(64, 64), torch.nn.Tanh())])
    graph = mt.plan(module, (torch.empty(512, 64),), "80%", "eager", costs="reference").graph

    def plan(method: str, *shares: str) -> None:
        for share in shares or ("90%", "85%", "80%", "75%"):
            plan_graph(graph, share, method, time_limit_s=10)
    plan("auto", "90%")  # the first one imports its libraries
    return {method: spent_s(partial(plan, method)) for method in ("auto", "milp")}


#: By name: of parts the most that they may take, as a share of what they take in the build beside,
#: and the measure.
MEASURES: Dict[str, Tuple[Dict[str, float], Callable[[], Seconds]]] = {
    "Llama, 32 layers, Inductor, 50 %": (
        {"plan": 0.5, "next plan": 0.25}, lambda: planned(32, "inductor", "50%", "60%")),
    "Llama, 32 layers, eager, 35 %": ({"plan": 0.5}, lambda: planned(32, "eager", "35%")),
    "Llama, 64 layers, Inductor, 50 %": ({}, lambda: planned(64, "inductor", "50%")),
    "Llama, 128 layers, Inductor, 50 %": ({}, lambda: planned(128, "inductor", "50%")),
    "the largest batch of an encoder": ({"all": 0.1}, batches),
    "a step of 40 ops": ({"auto": 1.0}, methods)}
#: A part that is beside another one of its own build.
BESIDE = {"auto": "milp"}


def run(names: Sequence[str], beside: str) -> int:
    """Print a row for each part of each measure.

    ``names``: of :data:`MEASURES`, by words in them; all without. ``beside``: another checkout.
    """
    for name in MEASURES:
        if not names or any(word in name for word in names):
            ours = _apart(name, Path.cwd())
            print("\n".join(words(name, ours, _apart(name, Path(beside)) if beside else {})),
                  flush=True)
    return 0


def words(name: str, ours: Seconds, theirs: Seconds) -> List[str]:
    """The rows of a measure, with its aims."""
    others = {**theirs, **{part: ours[other] for part, other in BESIDE.items() if other in ours}}
    found = []
    for part, seconds in ours.items():
        line = "%-34s %-10s %7.1f CPU s" % (name, part, seconds)
        if part in others:
            share = seconds / max(others[part], 1e-3)
            line += ", %7.1f beside, %.2f of it" % (others[part], share)
            aim = MEASURES[name][0].get(part)
            if aim is not None:
                line += ", at most %g: %s" % (aim, "met" if share <= aim else "NOT MET")
        found.append(line)
    return found


def _apart(name: str, folder: Path) -> Seconds:
    """A measure with the package in a folder, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(Path(__file__).resolve()), name], text=True,
                          stdout=subprocess.PIPE, env=environment, check=True)
    lines: List[str] = done.stdout.splitlines()
    found: Seconds = json.loads(lines[-1])
    return found


if __name__ == "__main__":
    sys.path.pop(0)  # of this file, whose neighbours are named as libraries are
    print(json.dumps(MEASURES[sys.argv[1]][1]()))
