"""PyTorch: networks, methods and tables."""
