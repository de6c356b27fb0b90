"""What may import what: CONTRIBUTING.md, "Rooms", and nothing heavy on ``import memonger``."""
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

import memonger

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(memonger.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("mxnet", "matplotlib", "highspy", "scipy", "sklearn", "pygraphviz", "graphviz")
#: Rooms that work where MXNet is not installed.
CORE = ("util", "graph", "variants", "memory", "costs", "plan", "solve", "report")


def test_rooms_and_circles():
    """The contracts in pyproject.toml: a room imports only from rooms below, without circles."""
    pytest.importorskip("importlinter")
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()",
         "--no-cache", "--config", str(ROOT / "pyproject.toml")],
        cwd=str(PACKAGE.parent), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        universal_newlines=True)
    assert done.returncode == 0, done.stdout


def imports_of(node: ast.AST) -> Iterator[str]:
    """Absolute names of the packages imported when a module is loaded."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level:
            yield child.module or ""
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports_of(child)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_are_imported_where_they_are_used(path):
    room = path.relative_to(PACKAGE).parts[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
            for name in imports_of(node)}
    names = {name.split(".")[0] for name in imports_of(tree)}
    if room not in ("mx", "bench", "zoo"):
        assert not names & set(HEAVY)
        assert room == "api" or "mxnet" not in {name.split(".")[0] for name in late | names}


def python(code: str, cwd: Path) -> str:
    """Run ``code`` in a fresh interpreter that sees the same memonger as this one."""
    script = "import sys; sys.path.insert(0, %r)\n%s" % (str(PACKAGE.parent), code)
    done = subprocess.run([sys.executable, "-c", script], cwd=str(cwd), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_memonger_and_its_core_imports_nothing_heavy(tmp_path):
    core = ", ".join(
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in MODULES
        if path.relative_to(PACKAGE).parts[0] in (*CORE, "cli") and path.name != "__init__.py")
    code = "import memonger, %s\nprint([n for n in %r if n in sys.modules])" % (core, HEAVY)
    assert python(code, tmp_path) == "[]"


def test_plan_is_the_function_whatever_was_imported_first(tmp_path):
    pytest.importorskip("memonger.api")
    code = ("from memonger.plan.plan import Plan\nimport memonger.plan.plan_file\nimport memonger\n"
            "print(callable(memonger.plan), memonger.Plan is Plan)")
    assert python(code, tmp_path) == "True True"


def test_unknown_names_are_refused_in_the_usual_words():
    with pytest.raises(AttributeError, match="has no attribute 'paln'"):
        memonger.paln  # noqa: B018


def test_public_names_are_listed_and_exist():
    assert set(memonger._LAZY) <= set(memonger.__all__) <= set(dir(memonger))
    assert {name for name in dir(memonger) if name[0] != "_"} == set(memonger.__all__)
    for name in set(memonger.__all__) - set(memonger._LAZY):
        assert hasattr(memonger, name), name


def test_every_public_name_leads_somewhere(tmp_path):
    pytest.importorskip("mxnet")
    code = ("import memonger\nfor name in %r:\n    assert getattr(memonger, name) is not None\n"
            "print(memonger.plan.__name__, memonger.native.__name__)" % (memonger.__all__,))
    assert python(code, tmp_path) == "plan memonger.native"
