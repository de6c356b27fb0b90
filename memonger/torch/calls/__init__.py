"""The calls of :mod:`memonger.torch`, one file for each kind."""
