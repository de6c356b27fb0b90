"""A symbol, bound without memory, becomes a graph."""
