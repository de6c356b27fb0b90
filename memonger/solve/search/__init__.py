"""The native local search."""
