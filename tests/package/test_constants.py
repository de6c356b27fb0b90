"""Every constant of the planner is a number that a sentence explains, with its unit."""
from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("solve", "planning", "memory", "graph")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*$")
#: In C++: ``const int kName``, of a file or a function.
NATIVE = re.compile(r"^\s*(?:static |inline )?(?:constexpr|const) [\w:<>]+ (k[A-Z]\w*)")


def constants(path: Path) -> Iterator[Tuple[str, bool]]:
    """Names that a module assigns to, of one constant each, and whether a sentence says what."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.parse("\n".join(lines)).body:
        targets = node.targets if isinstance(node, ast.Assign) else \
            [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            names = [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
            if any(map(CONSTANT.match, names)):
                assert node.end_lineno is not None
                yield ", ".join(names), len(names) == 1 and (
                    lines[node.lineno - 2].startswith("#:") or "#:" in lines[node.end_lineno - 1])


def native_constants(path: Path) -> Iterator[Tuple[str, bool]]:
    """The same of a file of the native library."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        found = NATIVE.match(line)
        if found:
            yield found.group(1), not re.search(r", k[A-Z]\w* =", line) and (
                lines[number - 1].lstrip().startswith("//") or "//" in line)


def files() -> List[Path]:
    """Those with the planner's constants, none where an installed package is tested."""
    return [path for room in ROOMS for path in sorted((ROOT / "memonger" / room).rglob("*.py"))] \
        + [path for ending in ("*.cc", "*.h")
           for path in sorted((ROOT / "plugins" / "core").rglob(ending))]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_constant_has_a_sentence(path: Path) -> None:
    found = constants(path) if path.suffix == ".py" else native_constants(path)
    assert [name for name, is_explained in found if not is_explained] == []


def test_constants_are_found() -> None:
    """What is looked for is there."""
    named = {name for path in files() for name, _ in (
        constants(path) if path.suffix == ".py" else native_constants(path))}
    assert {"STEPS_PER_S", "_PEAK_CHECKS", "BUDGETS", "kMatchRange", "kPrices", "kHot"} <= named
