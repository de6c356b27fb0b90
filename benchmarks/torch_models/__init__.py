"""``python -m benchmarks torch-models``: models of other packages under a budget."""
