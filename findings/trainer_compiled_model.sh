#!/usr/bin/env bash
# transformers 5.24.0: Trainer drops every column of the data set if the model is compiled
# beforehand.
#
# Expected: Trainer(torch.compile(model), ...) trains as Trainer(model, ...) does.
# Happens: by default Trainer keeps the columns that the model's forward names. What torch.compile
# returns has forward(*args, **kwargs), so input_ids and all others are dropped, and the first batch
# raises an error about an empty batch. With remove_unused_columns=False it trains.
#
# Seen:
#     plain     trained
#     compiled  ValueError: The batch received was empty, your model won't be able to train on it.
#     compiled, remove_unused_columns=False  trained
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    transformers==5.24.0 accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
)
rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(8)]


def train(model, **options):
    arguments = TrainingArguments(
        "out", max_steps=1, use_cpu=True, report_to=[], save_strategy="no", **options
    )
    try:
        Trainer(model, arguments, train_dataset=rows).train()
    except ValueError as error:
        return f"ValueError: {str(error).split(' Double-check')[0]}"
    return "trained"


plain = train(LlamaForCausalLM(config))
compiled = train(torch.compile(LlamaForCausalLM(config), backend="eager"))
kept = train(
    torch.compile(LlamaForCausalLM(config), backend="eager"), remove_unused_columns=False
)
print(f"plain     {plain}")
print(f"compiled  {compiled}")
print(f"compiled, remove_unused_columns=False  {kept}")
if plain != "trained" or not compiled.startswith("ValueError") or kept != "trained":
    sys.exit("changed: Trainer now finds the columns of a compiled model, or fails elsewhere")
PROGRAM
