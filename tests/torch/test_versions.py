"""What is said about versions agrees."""
from __future__ import annotations

import re
from pathlib import Path

from memonger.cli import doctor
from memonger.torch import private

ROOT = Path(__file__).resolve().parents[2]


def test_private_parts_of_pytorch_are_used_in_one_file():
    private_part = re.compile(r"torch(\.\w+)*\._[a-z]|_schema|_cdata|_boxed_call|_pytree")
    for path in sorted((ROOT / "memonger" / "torch").glob("*.py")):
        text = path.read_text().replace("torch.ops.aten._", "")
        assert bool(private_part.search(text)) == (path.name == "private.py"), path.name


def test_doctor_and_the_extra_name_the_versions_of_private():
    assert (private.OLDEST, private.NEWEST) == doctor._TORCH
    extra = re.search(r'^torch = \["torch>=(\d+)\.(\d+),<(\d+)\.(\d+)"\]',
                      (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    low, high = tuple(map(int, extra.groups()[:2])), tuple(map(int, extra.groups()[2:]))
    assert low == private.OLDEST and high == (private.NEWEST[0], private.NEWEST[1] + 1)
