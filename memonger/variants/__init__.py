"""Operators that keep less for backward: which there are, and where they fit."""
