"""Measurements that the documentation shows; none is part of the package."""
