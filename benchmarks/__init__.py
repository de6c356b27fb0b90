"""Measurements that the documentation shows; none is part of the package."""
import sys
from pathlib import Path

# The installed memonger goes before the checkout's, for that is what users have.
_ROOT = str(Path(__file__).resolve().parents[1])
sys.path[:] = [entry for entry in sys.path if str(Path(entry).resolve()) != _ROOT] + [_ROOT]
