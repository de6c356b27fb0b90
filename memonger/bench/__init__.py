"""The benchmark tables."""
