"""Diagrams of plans."""
