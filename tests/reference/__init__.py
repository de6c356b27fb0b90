"""Slow and simple solvers to compare with."""
