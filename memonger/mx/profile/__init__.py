"""Measured times of ops."""
