"""One training step: ops, tensors, schedules, decisions; no framework."""
