"""Timelines and frontiers."""
