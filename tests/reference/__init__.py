"""Slow and simple solvers and checks to compare with."""
