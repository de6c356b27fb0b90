"""Rules that others published: Chen, OGC, sublinear."""
