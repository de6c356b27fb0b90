"""The calls that users make."""
