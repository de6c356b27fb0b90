#!/usr/bin/env bash
# JAX 0.10.2: on a CPU jax.checkpoint on each layer of an unrolled network saves not one byte.
#
# Expected: with each of eight layers under jax.checkpoint the compiled gradient computes the
# layers' insides again in the backward pass and needs less temporary memory for it.
# Happens: it computes them again, and its temporary memory is the same to the byte. The same layers
# under lax.scan need a fifth with jax.checkpoint. A network written as a Python loop pays for the
# second run and gets nothing for it on this backend, where many try their memory settings first.
#
# Seen:
#     loop: temporary 32636928 -> 32636928 bytes, operations +14.8 %
#     scan: temporary 71336260 -> 13664452 bytes
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cd "$folder"
TMPDIR=$folder HF_HOME=$folder OMP_NUM_THREADS=1 env/bin/python -W ignore - <<'PROGRAM'
import sys

import jax
import jax.numpy as jnp

weights, x = jnp.ones((8, 64, 64)), jnp.ones((4096, 64))


def layer(x, weight):
    for _ in range(2):
        x = jnp.sin(jnp.tanh(x @ weight)) * 1.1
    return x


def compiled_gradient(run):
    compiled = jax.jit(jax.grad(run)).lower(weights, x).compile()
    return compiled.memory_analysis().temp_size_in_bytes, compiled.cost_analysis()["flops"]


def loop(layer):
    def run(weights, x):
        for weight in weights:
            x = layer(x, weight)
        return x.sum()

    return compiled_gradient(run)


def scan(layer):
    def run(weights, x):
        return jax.lax.scan(lambda x, weight: (layer(x, weight), None), x, weights)[0].sum()

    return compiled_gradient(run)


plain, plain_flops = loop(layer)
saved, saved_flops = loop(jax.checkpoint(layer))
plain_scan, _ = scan(layer)
saved_scan, _ = scan(jax.checkpoint(layer))
more = 100 * (saved_flops / plain_flops - 1)
print(f"loop: temporary {plain} -> {saved} bytes, operations {more:+.1f} %")
print(f"scan: temporary {plain_scan} -> {saved_scan} bytes")
if saved < plain or more < 5 or saved_scan > plain_scan / 2:
    sys.exit("changed: jax.checkpoint now saves memory in an unrolled network on a CPU")
PROGRAM
