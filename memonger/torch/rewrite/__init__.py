"""From a plan back to graphs that PyTorch runs."""
