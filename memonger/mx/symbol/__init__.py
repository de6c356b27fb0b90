"""Symbols as JSON: plans on them, variants in them; no MXNet is needed."""
