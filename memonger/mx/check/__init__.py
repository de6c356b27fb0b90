"""A planned network beside the original: numbers, bytes, times."""
